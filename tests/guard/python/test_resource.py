"""Resources: the guard and the service give a URL the same canonical form."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from guard.cases import variant_cases
from hypothesis import given
from hypothesis import strategies as st

from tollgauge.core.endpoint.identity import ResourceError as ServiceError
from tollgauge.core.endpoint.identity import parse_resource
from tollgauge_guard.resource import ResourceError, parse, variants

SHARED = Path("guard/cases/resources.json")
VARIANTS = json.loads(variant_cases.FILE.read_text())
PIECES = st.sampled_from(
    [
        *("a", "B", "%2f", "%2E", "%7e", "%zz", "/", "//", ".", "..", "é", "~", "{id}", ":x"),
        *("@", "+", "=", "'", "%C3%A9", "-", "_", "!", "%", "?", "#", "[", "|"),
    ]
)
HOSTS = st.sampled_from(
    [
        *("api.example.com", "API.Example.COM", "api.example.com.", "bücher.example.com"),
        *("xn--bcher-kva.example.com", "a_b.example.com", "api。example．com"),
        *("straße.example.com", "faß.example.com", "api.example.com:443", "EXAMPLE.com:0443"),
        "api.example.com:80",
    ]
)


@given(HOSTS, st.lists(PIECES, max_size=12).map("".join), st.sampled_from(["", "?q=1", "#x"]))
def test_canonical_form_equals_that_of_the_service(host: str, path: str, rest: str) -> None:
    url = f"https://{host}/{path}{rest}"
    try:
        theirs = parse_resource(url).url
    except ServiceError:
        return
    assert parse(url).url == theirs


@pytest.mark.parametrize(
    "url",
    [
        *("", "weather", "//api.example.com/x", "file:///etc/passwd", "https://", "https:///x"),
        *("https://a b.example.com/", "https://a.example.com\\@b.example.com/", "https://u@a.com/"),
        *("https://a.example.com:99999/", "https://a%2eexample.com/", "https://a..example.com../"),
        *("https://exam\u00adple.com/", "https://xn--zzzzzz-.example.com/", "https://[::1/"),
        "https://a.example.com/" + "x" * 9_000,
    ],
)
def test_invalid_url_is_refused(url: str) -> None:
    with pytest.raises(ResourceError):
        parse(url)


def test_host_of_canonical_form_is_stable() -> None:
    once = parse("HTTP://[::1]:8402/a/../b%7ec")
    assert once.url == "http://[::1]:8402/b~c" == parse(once.url).url
    assert parse("mcp://tool/weather").url == "mcp://tool/weather"


@pytest.mark.parametrize(("url", "resource"), json.loads(SHARED.read_text()))
def test_shared_url_has_the_form_in_the_table(url: str, resource: str | None) -> None:
    if resource is not None:
        assert parse(url).url == resource
        return
    with pytest.raises(
        ServiceError
    ):  # the service knows no such resource, whatever the guard reads
        parse_resource(url)


@pytest.mark.parametrize(("url", "expected"), VARIANTS)
def test_variants_of_a_path_are_those_of_the_shared_cases(url: str, expected: list[str]) -> None:
    assert [variant.url for variant in variants(parse(url))] == expected


def test_shared_variants_are_up_to_date() -> None:
    assert variant_cases.FILE.read_text() == variant_cases.document()


@pytest.mark.parametrize(
    "path",
    [
        *("/pay/", "/pay//", "//pay", "/PAY", "/pay;x=1", "/%70ay/", "/%2570ay", "/pay%2F"),
        *("/pay%3Bx", "/pay%3Fx", "/./pay/", "/x/../PAY;v=1/"),
    ],
)
def test_path_variant_leads_to_the_plain_path(path: str) -> None:
    found = [variant.url for variant in variants(parse(f"https://api.example.com{path}"))]
    assert "https://api.example.com/pay" in found
    assert len(found) <= 7
