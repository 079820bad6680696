"""Public https URLs, and URLs of the same resource."""

from __future__ import annotations

import hashlib
import json
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.recorded import FOLDER, needs_recorded_inputs

from tollgauge.core.endpoint.identity import (
    TOOL_MAX,
    URL_MAX,
    Perimeter,
    ResourceError,
    Transport,
    agent_url,
    parse_resource,
    tool_name,
    tool_url,
    transport_of,
)

CORPUS = FOLDER / "adversarial/corpus.jsonl"
ZERO_WIDTH = ("\u200b", "\u200d", "\u2060", "\ufeff", "\u00ad", "\u180e", "\ufe0f", "\U000e0041")

NOT_RESOURCES = (
    "",
    "nonsense",
    "https:",
    "https://",
    "https:///x",
    "https:/a.com/",
    "https:a.com",
    "//a.com/",
    "https://.",
    "https://..",
    "https://.a.com/",
    "https://a..com/",
    "https://a.com../",
    "https://a.com\u3002\u3002/",
    "https://a.com\u2024/",
    "https://a\u00a0b.com/",
    "https://a.com/\u3000",
    "https://user@a.com/",
    "https://user:pass@a.com/",
    "https://@a.com/",
    "https://a.com:x/",
    "https://a.com:-1/",
    "https://a.com:+443/",
    "https://a.com:4\u0664\u0663/",
    "https://a.com:65536/",
    "https://a.com:443:80/",
    "https://a.com\t/",
    "https://a.com/\n",
    "https://a.com/a b",
    "https://a.com/\x00",
    "https://a.com/\x7f",
    "https://a.com/\u0085",
    "https://a.com\\@b.com/",
    "https://a.com/\\..\\b",
    "https://a.com/\ud800",
    "https://a.com/?q=\udfff",
    "https://a.com/?q=a b",
    "https://\ud800.com/",
    f"https://{'a' * 64}.com/",
    f"https://{'a.' * 126}com/",
    "https://xn--.com/",
    "https://xn--a.com/",
    "https://xn--pple-43d\u0430.xn--zz--zz/",
    "https://a\u2044b.com/",
    "https://a\u2100b.com/",
    "https://[example.com]/",
    "https://a.com/" + "a" * URL_MAX,
)

NOT_HTTPS = (
    "http://a.com/",
    "ftp://a.com/",
    "gopher://127.0.0.1:6379/_x",
    "data:text/plain,x",
    "file:///etc/passwd",
    "javascript:alert(1)",
    "wss://a.com/",
)

NOT_PUBLIC = (
    "127.0.0.1",
    "127.0.0.1.",
    "127.0.0.1\u3002",
    "127.1",
    "2130706433",
    "0x7f000001",
    "0x7f.1",
    "0X7F.1",
    "017700000001",
    "0177.0.0.01",
    "0",
    "0.",
    "0x",
    "8.8.8.8",
    "08.8.8.8",
    "1.2.3.4.5",
    "999.1.1.1",
    "a.b.0x1f",
    "a.com.7",
    "\u2460\u2461\u2466.\u24ea.\u24ea.\u2460",
    "\uff11\uff12\uff17.0.0.1",
    "[::1]",
    "[::ffff:127.0.0.1]",
    "[fe80::1%25eth0]",
    "[2606:4700::1111]",
    "localhost",
    "localhost.",
    "localhost\u3002",
    "LOCALHOST",
    "\u24dbocalhost",
    "a.localhost",
    "a.localhost\uff0e",
    "db",
    "db.internal",
    "printer.local",
    "x.onion",
    "router.home.arpa",
    "1.0.0.127.in-addr.arpa",
    "a.test",
    "a.invalid",
    "a.example",
    "nas.lan",
    "wiki.corp",
    "ok.internal\u3002",
    "localhost\uff61",
    "a.com:0",
    "a.com:22",
    "a.com:25",
    "a.com:8443",
)


@pytest.mark.parametrize("text", NOT_RESOURCES)
def test_rejects_text_that_is_not_a_url(text: str) -> None:
    with pytest.raises(ResourceError):
        parse_resource(text)


@pytest.mark.parametrize("value", [None, 5, b"https://a.com/", ["https://a.com/"], True])
def test_rejects_values_that_are_not_strings(value: object) -> None:
    with pytest.raises(ResourceError) as caught:
        parse_resource(value)
    assert caught.value.code == "resource-invalid"


@pytest.mark.parametrize("text", NOT_HTTPS)
def test_only_https_is_a_resource(text: str) -> None:
    with pytest.raises(ResourceError) as caught:
        parse_resource(text)
    assert caught.value.code == "resource-not-https"


@pytest.mark.parametrize("host", NOT_PUBLIC)
def test_literals_special_names_and_odd_ports_are_not_public(host: str) -> None:
    with pytest.raises(ResourceError) as caught:
        parse_resource(f"https://{host}/x")
    assert caught.value.code == "resource-not-public"


@pytest.mark.parametrize("sign", ZERO_WIDTH)
@pytest.mark.parametrize("place", ["https://ex{}ample.com/", "https://example.com/a{}b"])
def test_invisible_characters_are_refused(place: str, sign: str) -> None:
    with pytest.raises(ResourceError) as caught:
        parse_resource(place.format(sign))
    assert caught.value.code == "resource-invalid"


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("https://A.com", "https://a.com/"),
        ("HTTPS://a.com/", "https://a.com/"),
        ("https://a.com:443/x", "https://a.com/x"),
        ("https://a.com:80/x", "https://a.com:80/x"),
        ("https://a.com:/x", "https://a.com/x"),
        ("https://a.com./x", "https://a.com/x"),
        ("https://a.com\u3002/x", "https://a.com/x"),
        ("https://a\uff0ecom/x", "https://a.com/x"),
        ("https://a.com/x?q=1#f", "https://a.com/x"),
        ("https://a.com#@b.com/", "https://a.com/"),
        ("https://a.com?@b.com/", "https://a.com/"),
        ("https://a.com/%7euser/%2f", "https://a.com/~user/%2F"),
        ("https://a.com/a/./b/../c", "https://a.com/a/c"),
        ("https://a.com/a/%2e%2E/c", "https://a.com/c"),
        ("https://a.com/../..", "https://a.com/"),
        ("https://a.com//x", "https://a.com//x"),
        ("https://a.com/X/", "https://a.com/X/"),
        ("https://a.com/{id}", "https://a.com/%7Bid%7D"),
        ("https://a.com/caf\u00e9", "https://a.com/caf%C3%A9"),
        ("https://a.com/100%", "https://a.com/100%25"),
        ("https://\u0430pple.com/", "https://xn--pple-43d.com/"),
        ("https://B\u00dcCHER.de/", "https://xn--bcher-kva.de/"),
        ("https://XN--PPLE-43D.com/", "https://xn--pple-43d.com/"),
        ("https://_x402.a-b.com/", "https://_x402.a-b.com/"),
        ("https://127.0.0.1.nip.io/", "https://127.0.0.1.nip.io/"),
        (f"https://{'a' * 63}.com/", f"https://{'a' * 63}.com/"),
    ],
)
def test_resource_has_one_canonical_form(text: str, url: str) -> None:
    resource = parse_resource(text)
    assert resource.url == url
    assert resource.id == hashlib.sha256(url.encode()).hexdigest()[:16]
    assert parse_resource(resource.url) == parse_resource(text.split("?")[0].split("#")[0])


@given(
    st.text(
        st.characters(exclude_categories=("C", "Z"), exclude_characters="\\"),
        min_size=1,
        max_size=TOOL_MAX,
    )
)
def test_tool_survives_its_resource(tool: str) -> None:
    try:
        resource = parse_resource(tool_url("https://a.com/mcp#x", tool))
    except ResourceError:
        assert len(quote(tool, safe="")) > URL_MAX - 30
        return
    assert tool_name(resource.url) == tool
    assert parse_resource(resource.url).url == resource.url
    assert resource.probe_url == "https://a.com/mcp"
    assert transport_of(resource.url) is Transport.MCP


@pytest.mark.parametrize("mark", ["", "%20x", "x" * (TOOL_MAX + 1), "%FF", "%E2%80%8Bx", "%00"])
def test_invalid_name_of_a_tool_is_rejected(mark: str) -> None:
    with pytest.raises(ResourceError):
        parse_resource(f"https://a.com/mcp#tool={mark}")


def test_agent_and_endpoint_at_one_url_differ() -> None:
    agent = parse_resource(agent_url("https://a.com/x#top"))
    assert (agent.url, agent.probe_url) == ("https://a.com/x#a2a", "https://a.com/x")
    assert transport_of(agent.url) is Transport.A2A
    assert not tool_name(agent.url)
    assert transport_of("https://a.com/x") is Transport.HTTP


def test_query_is_not_part_of_the_identity() -> None:
    resource = parse_resource("https://a.com/x?city=Z\u00fcrich&n=%41#top")
    assert (resource.url, resource.query) == ("https://a.com/x", "city=Z%C3%BCrich&n=%41")
    assert resource.probe_url == "https://a.com/x?city=Z%C3%BCrich&n=%41"


@pytest.mark.parametrize("path", ["/{id}/x", "/%7Bid%7D", "/:id/x"])
def test_unfilled_placeholder_makes_a_template(path: str) -> None:
    assert parse_resource(f"https://a.com{path}").templated


def test_plain_paths_are_not_templates() -> None:
    assert not parse_resource("https://a.com/v1/12:30/x").templated


def test_listing_that_lost_its_scheme_is_read_as_https() -> None:
    assert parse_resource("http://a.com/x", upgrade_http=True).url == "https://a.com/x"
    assert parse_resource("http://a.com:80/x", upgrade_http=True).url == "https://a.com/x"
    with pytest.raises(ResourceError):
        parse_resource("http://a.com:8080/x", upgrade_http=True)


def test_mapped_names_may_be_special_and_use_any_port() -> None:
    world = Perimeter(mapped=frozenset({"good.sellers.example"}))
    resource = parse_resource("https://Good.Sellers.Example.:8443/x", world)
    assert resource.url == "https://good.sellers.example:8443/x"
    with pytest.raises(ResourceError):
        parse_resource("https://bad.sellers.example/x", world)
    with pytest.raises(ResourceError):
        parse_resource("https://x.good.sellers.example/x", world)


def test_perimeter_adds_ports_for_all_hosts() -> None:
    assert parse_resource("https://a.com:8443/", Perimeter(ports=frozenset({8443}))).port == 8443


@given(st.text(max_size=60))
def test_no_text_after_the_scheme_raises_anything_else(text: str) -> None:
    try:
        resource = parse_resource(f"https://{text}")
    except ResourceError:
        return
    assert resource.url.isascii()
    assert resource.probe_url.isascii()
    assert parse_resource(resource.probe_url) == resource


@given(st.text(max_size=60))
def test_canonical_paths_stay_as_they_are(text: str) -> None:
    try:
        resource = parse_resource(f"https://a.com/{text}")
    except ResourceError:
        return
    assert resource.host == "a.com"
    assert parse_resource(resource.probe_url) == resource


def _corpus() -> list[dict[str, str]]:
    if not CORPUS.exists():
        return []
    cases = (json.loads(line) for line in CORPUS.read_text().splitlines())
    return [case for case in cases if case["group"] in ("lit", "enc", "url")]


def _as_https(text: str) -> str:
    return text.replace("http://", "https://", 1)


@needs_recorded_inputs
@pytest.mark.parametrize("case", _corpus(), ids=lambda case: str(case["id"]))
def test_corpus_of_hostile_urls_is_refused_at_parse(case: dict[str, str]) -> None:
    text = _as_https(case["input"])
    if case["id"] == "url-33":  # a public name: its address is refused after resolution
        assert parse_resource(text).host == "127.0.0.1.nip.io"
    elif case["expect"].startswith("allow"):
        assert parse_resource(text).host == case["expect"].rsplit(" ", 1)[-1]
    else:
        with pytest.raises(ResourceError):
            parse_resource(text)
