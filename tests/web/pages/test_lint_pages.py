"""The linter's pages: they work without scripts and show pasted input only as text."""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import httpx
import pytest
import pytest_asyncio
from tests.support.http_service import BASE as SERVICE
from tests.support.http_service import WEATHER, WEATHER_ID, Running, configuration, open_service
from tests.support.lint_envelopes import PAYEE, change_example
from tests.support.page_reader import BASE, FORBIDDEN, HOSTILE, Reader, view
from tests.support.page_reader import NOW as SHOWN_AT

from tollgauge.core.lint.guide import FRAMEWORKS, REMEDIES
from tollgauge.core.lint.judge import ALL_RULES
from tollgauge.core.lint.rule import ANSWERS, RULE_ENTRIES, Example
from tollgauge.core.probe.exchange import Severity
from tollgauge.core.score.flag import Flag
from tollgauge.web.edge.problem import Problem
from tollgauge.web.pages import lint_pages as pages
from tollgauge.web.pages import views

pytestmark = pytest.mark.asyncio(loop_scope="module")

GOOD = ANSWERS["v2"]
SOURCES = {entry.source.url for entry in RULE_ENTRIES.values()}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(
    tmp_path_factory: pytest.TempPathFactory, market_database: Callable[[Path], str]
) -> AsyncIterator[Running]:
    url = market_database(tmp_path_factory.mktemp("lint") / "service.db")
    async with open_service(configuration(store_url=url)) as service:
        yield service


async def post_form(running: Running, **fields: str) -> httpx.Response:
    return await running.http.post("/lint", data=fields, headers={"Accept": "text/html"})


def structure(page: str) -> Reader:
    """No script, no style, a form that goes to ourselves, links to ourselves or to a source."""
    reader = Reader(page.encode())
    ids = [attrs["id"] for _, attrs in reader.elements if "id" in attrs]
    assert len(ids) == len(set(ids))
    assert len(reader.all("h1")) == 1
    for tag, attrs in reader.elements:
        assert tag not in FORBIDDEN - {"form"}
        assert "style" not in attrs
        assert not [name for name in attrs if name.startswith("on")]
        for name in ("href", "src", "action"):
            link = attrs.get(name)
            own = link is None or re.match(rf"(/(?!/)|#|{SERVICE}/|{BASE}/)", link)
            assert own or link in SOURCES, link
    posting = [attrs["action"] for attrs in reader.all("form") if attrs.get("method") == "post"]
    assert posting in ([], ["/lint"])
    labelled = {attrs["for"] for attrs in reader.all("label") if "for" in attrs}
    assert {attrs["id"] for attrs in reader.all("textarea")} <= labelled
    return reader


def plain(page: str) -> str:
    return html.unescape(re.sub(r"<[^>]*>", "", page))


async def test_empty_form_describes_its_input_and_links_to_an_example(running: Running) -> None:
    page = (await running.get("/lint")).text
    structure(page)
    assert "Terms as a client reads them" not in page
    example = re.search(r'href="(/lint\?example=[a-z-]+)"', page)
    assert example is not None
    filled = (await running.get(example[1])).text
    structure(filled)
    assert "payment-required" in plain(filled)


@pytest.mark.parametrize("rule", [rule.slug for rule in ALL_RULES])
async def test_every_rule_has_a_page_with_an_example_that_triggers_it(
    running: Running, rule: str
) -> None:
    page = (await running.get(f"/lint/rules/{rule}")).text
    structure(page)
    words = plain(page)
    entry = RULE_ENTRIES[rule]
    assert entry.source.url in page
    assert REMEDIES[entry.kind].title in words
    for framework in FRAMEWORKS:
        assert framework.name in words
        assert framework.package in words
    assert page.count("<mark>") > 0
    link = f"/lint?example={rule}"
    if entry.wrong.capture() is None:
        assert link not in page
        return
    assert link in page
    form = (await running.get(link)).text
    field = re.search(r"<textarea[^>]*>\n(.*?)</textarea>", form, re.DOTALL)
    assert field is not None
    checked = await post_form(running, capture=html.unescape(field[1]))
    assert checked.status_code == 200
    assert f'href="/lint/rules/{rule}"' in checked.text


async def test_index_links_to_every_rule_grouped_by_fix(running: Running) -> None:
    page = (await running.get("/lint/rules")).text
    structure(page)
    for rule in ALL_RULES:
        assert f'href="/lint/rules/{rule.slug}"' in page
    for kind, remedy in REMEDIES.items():
        assert f'<h2 id="{kind}">{html.escape(remedy.title)}</h2>' in page


async def test_returns_404_for_an_unknown_rule(running: Running) -> None:
    for path in ("/lint/rules/no-such-rule", "/lint?example=no-such-rule"):
        response = await running.get(path, headers={"Accept": "text/html"})
        assert response.status_code == 404
        assert "No linter rule with this name." in plain(response.text)


async def test_result_shows_verdict_findings_by_severity_and_terms(
    running: Running,
) -> None:
    two = change_example(
        change_example(GOOD, "accepts.0.extra.name", "USDC"), "resource.description", ""
    )
    page = (await post_form(running, capture=two.capture() or "")).text
    structure(page)
    assert "No official client can pay this" in page
    assert page.index("/lint/rules/domain-wrong") < page.index("/lint/rules/resource-description")
    assert f"0.01 USDC on Base to {PAYEE}" in plain(page)
    good = (await post_form(running, capture=GOOD.capture() or "")).text
    assert "An official client can pay this" in good
    assert "No issues found." in good


@pytest.mark.parametrize(
    ("example", "words"),
    [
        (GOOD, f"0.01 USDC on Base to {PAYEE}, valid for 60 seconds"),
        (ANSWERS["upto"], f"at most 0.01 USDC on Base to {PAYEE}, scheme upto"),
        (change_example(GOOD, "accepts.0.amount", "1234500000"), "1,234.5 USDC on Base"),
        (change_example(GOOD, "accepts.0.network", "eip155:84532"), "of the token 0x833589"),
        (ANSWERS["stellar"], "10000 atomic units of the token CCW6"),
    ],
)
async def test_describes_terms_in_a_sentence(running: Running, example: object, words: str) -> None:
    assert isinstance(example, Example)
    page = (await post_form(running, capture=example.capture() or "")).text
    assert words in plain(page)


@pytest.mark.parametrize("text", HOSTILE)
async def test_escapes_pasted_input(running: Running, text: str) -> None:
    bad = change_example(change_example(GOOD, "accepts.0.payTo", text), "accepts.0.network", text)
    for capture in (text, bad.capture() or "", f"HTTP/1.1 402\nx: {text}\n\n{text}"):
        page = (await post_form(running, capture=capture)).text
        structure(page)
        assert "1337" not in page
        assert "\x00" not in page
        assert "\x1b" not in page


async def test_form_keeps_the_pasted_input_unchanged(running: Running) -> None:
    text = '{\n\t"status": 402,\r\n   "body": "</textarea>é' + "x" * 5_000 + '"\n}'
    page = (await post_form(running, capture=text)).text
    field = re.search(r"<textarea[^>]*>\n(.*?)</textarea>", page, re.DOTALL)
    assert field is not None
    assert html.unescape(field[1]) == text.replace("\r\n", "\n")


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        (b"", 422, "The form must have exactly one field"),
        (b"capture=+", 422, "Paste an HTTP response, or the URL of a monitored endpoint."),
        (b"capture=%7B%7D&resource=https%3A%2F%2Fa.example.com%2F", 422, "one field"),
        (b"capture=hello", 422, "curl -i"),
        (b"capture=a&capture=b", 422, "one field"),
        (b"captured=a", 422, "one field"),
        (b"capture=http%3A%2F%2Fa.example.com", 422, "must start with https://"),
        (
            b"capture=https%3A%2F%2Fa.example.com%2Ffog",
            404,
            "Only monitored endpoints can be looked up",
        ),
        (b"\xff=%ff", 422, "one field"),
    ],
)
async def test_page_explains_input_that_cannot_be_checked(
    running: Running, body: bytes, status: int, words: str
) -> None:
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    response = await running.http.post("/lint", content=body, headers=form)
    assert response.status_code == status
    structure(response.text)
    assert words in plain(response.text)
    assert "Terms as a client reads them" not in response.text


async def test_pasted_url_shows_the_last_result_of_a_monitored_endpoint(running: Running) -> None:
    by_form = await post_form(running, capture=f" {WEATHER}\n")
    without_scheme = await post_form(running, capture=WEATHER.removeprefix("https://"))
    by_link = await running.get(f"/lint?endpoint={WEATHER_ID}")
    for page in (by_form, without_scheme, by_link):
        assert page.status_code == 200
        assert f"Last probe of{WEATHER}" in re.sub(r"\s*\n\s*", "", plain(page.text))
        assert "the response is not" in plain(page.text)


async def test_marks_the_wrong_line_and_shows_a_corrected_envelope(
    running: Running,
) -> None:
    wrong = change_example(GOOD, "accepts.0.amount", 0.01)
    page = (await post_form(running, capture=wrong.capture() or "")).text
    structure(page)
    assert 'Found 0.01 (JSON number), expected a string of atomic units: "10000".' in re.sub(
        r"\s+", " ", plain(page)
    )
    (marked,) = re.findall(r"<mark>(.*?)</mark>", page)
    assert html.unescape(marked).strip() == '"amount": 0.01,'
    better = plain(page)[plain(page).index("The corrected envelope") :]
    assert '"amount": "10000",' in better
    header = base64.b64decode(re.findall(r"<code>([A-Za-z0-9+/=]{100,})</code>", page)[0])
    assert json.loads(header)["accepts"][0]["amount"] == "10000"


async def test_form_results_are_not_cached(running: Running) -> None:
    one = await post_form(running, capture="hello")
    other = await post_form(running, capture=GOOD.capture() or "")
    assert (one.status_code, other.status_code) == (422, 200)
    assert "etag" not in other.headers


async def test_pages_work_below_a_path_prefix() -> None:
    base = "https://example.org/gauge"
    for page in (pages.lint_html("", base_url=base), pages.rules_html(base_url=base)):
        links = [attrs.get("href") or "/gauge" for attrs in Reader(page).all("a")]
        assert all(link.startswith(("/gauge", "#")) for link in links)
    assert b'action="/gauge/lint"' in pages.lint_html("", base_url=base)


async def test_page_shows_errors_of_the_service() -> None:
    problem = Problem(503, "store-unavailable", "Our database cannot serve now.", retry_after=5)
    page = pages.lint_html(WEATHER, problem=problem, base_url=BASE).decode()
    structure(page)
    assert "Our database cannot serve now." in page


async def test_lint_flag_links_to_its_rule() -> None:
    flags = tuple(
        Flag(code=code, severity=Severity.WARN, message="m")
        for code in ("lint:domain-wrong", "lint:retired-rule", "down-now")
    )
    page = views.endpoint_html(
        view(flags=flags), now=SHOWN_AT, base_url=BASE, report_micro_usd=None
    ).decode()
    assert '<a class="code" href="/lint/rules/domain-wrong">lint:domain-wrong</a>' in page
    assert '<span class="code">lint:retired-rule</span>' in page
    assert '<span class="code">down-now</span>' in page


async def test_endpoint_page_links_to_its_findings(running: Running) -> None:
    page = (await running.get(f"/endpoint/{WEATHER_ID}")).text
    assert f'href="/lint?endpoint={WEATHER_ID}"' in page
    for id_ in ("0123456789abcdef", "x"):
        unknown = await running.get(f"/lint?endpoint={id_}")
        assert (unknown.status_code, "is not monitored" in plain(unknown.text)) == (404, True)
