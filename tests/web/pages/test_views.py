"""The HTML of the pages: well formed, escaped, self-contained, and complete."""

from __future__ import annotations

import html
import json
import re
import shlex
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from tests.support.forecasts import calibrated, empty_calibration
from tests.support.page_reader import (
    BASE,
    BIDI,
    FORBIDDEN,
    HOSTILE,
    NOW,
    PAY_TO,
    Reader,
    board,
    snapshot,
    stats,
    unmeasured_view,
    view,
)

from tollgauge.core.base.units import DAY_MS, HOUR_MS, day_of
from tollgauge.core.probe.exchange import Severity
from tollgauge.core.score.evidence import TermChange
from tollgauge.core.score.flag import Flag
from tollgauge.core.score.policy import POLICY, Cap
from tollgauge.core.score.score import Component
from tollgauge.core.score.scoring import FLAG_RULES
from tollgauge.core.score.window import DayScore
from tollgauge.core.watch.changes import Change
from tollgauge.monitor.reports.endpoint import DayBar, EndpointView
from tollgauge.monitor.reports.snapshots import Provider
from tollgauge.store.probes.change_rows import Incident
from tollgauge.web.edge.problem import Problem
from tollgauge.web.pages import views
from tollgauge.web.pages.overview_pages import provider_html
from tollgauge.web.pages.render import ASSETS


def endpoint(shown: EndpointView) -> bytes:
    return views.endpoint_html(shown, now=NOW, base_url=BASE, report_micro_usd=5_000)


def error(problem: Problem) -> bytes:
    return views.error_html(problem, base_url=BASE)


PAGES: dict[str, Callable[[], bytes]] = {
    "home": lambda: views.board_html("home.html", board(snapshot()), stats(), {}, base_url=BASE),
    "home-empty": lambda: views.board_html(
        "home.html", board(), stats(grades=()), {}, base_url=BASE
    ),
    "leaderboard": lambda: views.board_html(
        "leaderboard.html", board(snapshot()), stats(), {}, base_url=BASE
    ),
    "leaderboard-empty": lambda: views.board_html(
        "leaderboard.html", board(), stats(), {}, base_url=BASE
    ),
    "endpoint": lambda: endpoint(view()),
    "endpoint-new": lambda: endpoint(unmeasured_view()),
    "provider": lambda: provider_html(
        Provider(host="api.example.com", rows=(snapshot(),)), {}, base_url=BASE
    ),
    "provider-empty": lambda: provider_html(
        Provider(host="api.example.com", rows=()), {}, base_url=BASE
    ),
    "methodology": lambda: views.methodology_html(base_url=BASE),
    "calibration": lambda: views.calibration_html(calibrated(), base_url=BASE),
    "calibration-empty": lambda: views.calibration_html(empty_calibration(), base_url=BASE),
    "not-found": lambda: error(Problem(404, "not-found", "There is no page here.")),
    "error": lambda: error(Problem(429, "rate-limited", "Slow down.")),
}


def facts(page: bytes) -> dict[str, str]:
    """Return the labelled figures of an endpoint page."""
    pairs = re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", page.decode(), re.DOTALL)
    plain = re.compile(r"<[^>]*>")
    return {name: html.unescape(plain.sub("", value)) for name, value in pairs}


def hostile_view(text: str) -> EndpointView:
    """Return a view with a text in every field that a provider or a directory writes."""
    shown = snapshot(
        resource=f"https://api.example.com/{text}",
        host=text,
        network=text,
        pay_to=text,
        sources=(text,),
        excluded=((text, 1),),
        service_name=text,
        description=text,
        summary=text,
        verdict=text,
        status=text,
    )
    return view(
        shown,
        components=(Component(name=text, weight=10, tenths=10),),
        flags=(Flag(code=text, severity=Severity.ERROR, message=text),),
        caps=(Cap(code=text, limit_tenths=1, reason=text),),
        events=(TermChange(at=NOW, kind=text, source=text, before=text, after=text),),
    )


def hostile_pages(text: str) -> list[bytes]:
    shown = hostile_view(text)
    rows = (shown.snapshot,)
    return [
        endpoint(shown),
        views.board_html("home.html", board(*rows), stats(grades=((text, 3),)), {}, base_url=BASE),
        views.board_html("leaderboard.html", board(*rows), stats(), {}, base_url=BASE),
        provider_html(Provider(host=text, rows=rows), {}, base_url=BASE),
        error(Problem(422, text, text)),
    ]


def check_structure(page: bytes) -> Reader:
    """Check that a page has no script, inline style or handler and loads nothing foreign."""
    reader = Reader(page)
    ids = [attrs["id"] for _, attrs in reader.elements if "id" in attrs]
    assert len(ids) == len(set(ids))
    for tag, attrs in reader.elements:
        assert tag not in FORBIDDEN
        assert "style" not in attrs
        assert not [name for name in attrs if name.startswith("on")]
        for name in ("href", "src", "action", "xlink:href"):
            link = attrs.get(name)
            if link and attrs.get("rel") == "canonical":  # search engines want it whole
                link = link.removeprefix(BASE)
            assert link is None or re.match(r"(/(?!/)|#)", link), link
        for name in ("aria-labelledby", "aria-describedby"):
            assert set((attrs.get(name) or "").split()) <= set(ids)
    return reader


@pytest.mark.parametrize("name", PAGES)
def test_every_page_is_well_formed_and_loads_nothing_from_elsewhere(name: str) -> None:
    page = PAGES[name]()
    reader = check_structure(page)
    assert page.startswith(b'<!doctype html>\n<html lang="en">')
    assert next(attrs.get("charset") for attrs in reader.all("meta")) == "utf-8"
    assert len(reader.all("h1")) == len(reader.all("main")) == 1
    assert any(attrs.get("class") == "skip" for attrs in reader.all("a"))
    for attrs in reader.all("link"):
        target = attrs["href"] or ""
        if attrs["rel"] == "alternate":  # a feed: a browser offers it, and loads nothing
            assert re.fullmatch(r"/((endpoint|provider)/[\w.]+|incidents)/feed\.xml", target)
            continue
        if attrs["rel"] == "canonical":
            continue
        path = target.removeprefix("/static/").partition("?v=")
        assert ASSETS[path[0]].digest == path[2]


@pytest.mark.parametrize("name", PAGES)
def test_every_picture_has_a_name_or_is_hidden_and_every_column_a_header(name: str) -> None:
    reader = check_structure(PAGES[name]())
    for attrs in reader.all("svg"):
        assert attrs.get("aria-hidden") == "true" or (
            attrs.get("role") == "img" and (attrs.get("aria-labelledby") or attrs.get("aria-label"))
        )
    for attrs in reader.all("img"):
        assert attrs.get("alt")
    assert all(attrs.get("scope") for attrs in reader.all("th"))


@pytest.mark.parametrize("name", PAGES)
def test_same_view_gives_the_same_page(name: str) -> None:
    assert PAGES[name]() == PAGES[name]()


@pytest.mark.parametrize("text", HOSTILE)
def test_escapes_hostile_provider_text_on_every_page(text: str) -> None:
    for page in hostile_pages(text):
        reader = check_structure(page)
        assert "canary" not in " ".join(name for _, attrs in reader.elements for name in attrs)
        assert "1337" not in reader.words
        for char in f"{BIDI}\x00\x1b":
            assert char not in page.decode()


@pytest.mark.parametrize("text", HOSTILE)
def test_provider_text_never_becomes_a_link(text: str) -> None:
    for page in hostile_pages(text):
        for attrs in check_structure(page).all("a"):
            link = attrs["href"] or ""
            assert link.startswith(("/", "#"))
            of_host = ("/provider/", "/endpoints?host=", "/trust/endpoints?host=")
            assert "evil.example" not in link or link.startswith(of_host)


def test_provider_text_is_quoted_and_marked_unverified() -> None:
    reader = check_structure(endpoint(view()))
    quoted = " ".join(reader.pieces["blockquote"])
    assert "Forecasts for any place." in quoted
    assert "In the provider's own words unverified" in reader.words
    assert "Advertised description" in reader.words
    assert "own words" not in check_structure(endpoint(unmeasured_view())).words


def test_command_to_buy_is_quoted_for_any_resource() -> None:
    resource = "https://api.example.com/it's;$(touch%20x)`id`"
    reader = check_structure(endpoint(view(snapshot(resource=resource))))
    typed = shlex.split(reader.pieces["pre"][0].replace("\\\n", " "))
    assert typed[:3] == ["curl", "-i", f"{BASE}/v1/x402-trust"]
    assert json.loads(typed[-1]) == {"resource": resource}
    assert "$0.005" in reader.words


def test_endpoint_page_has_every_label_of_the_snapshot() -> None:
    facts_shown = facts(endpoint(view()))
    wanted = {
        "30-day uptime": "99.5%",
        "Avg latency (EU vantage)": "1,240 ms",
        "Probes (30d)": "1,440 1,433 scored",
        "Advertised price": "$0.005",
        "Price stability (30d)": "stable",
        "Network": "eip155:8453 base",
        "First seen": "2025-09-25",
        "Last probed": "2025-11-24 15:00 UTC",
        "Status": "listed",
        "Snapshot computed": "2025-11-24 11:00 UTC 5 hours old",
        "Better alternatives": "3",
    }
    assert {name: facts_shown.get(name) for name in wanted} == wanted


def test_number_of_better_alternatives_links_to_their_offer() -> None:
    page = views.endpoint_html(
        view(), now=NOW, base_url=BASE, report_micro_usd=5_000, similar_micro_usd=7_000
    )
    reader = check_structure(page)
    links = [attrs.get("href") for attrs in reader.all("a")]
    assert "#alternatives" in links
    assert [attrs for _, attrs in reader.elements if attrs.get("id") == "alternatives"]
    assert "3 listed endpoints of other providers serve a similar purpose" in reader.words
    assert "$0.007" in reader.words
    assert f"{BASE}/v1/similar" in reader.words
    assert "/docs#post-v1-similar" in links
    none = check_structure(endpoint(view(snapshot(better_alternatives=0))))
    assert "#alternatives" not in [attrs.get("href") for attrs in none.all("a")]
    assert facts(endpoint(view(snapshot(better_alternatives=0))))["Better alternatives"] == "0"


def test_unmeasured_endpoint_shows_dashes_and_no_zeros() -> None:
    page = endpoint(unmeasured_view())
    facts_shown = facts(page)
    assert "Not scored yet" in check_structure(page).words
    assert facts_shown["30-day uptime"] == "—"
    assert (facts_shown["Payable in half an hour"], facts_shown["Payable in 24 hours"]) == (
        "—",
        "—",
    )
    assert facts_shown["Avg latency (EU vantage)"] == "—"
    assert facts_shown["Advertised price"] == "not advertised"
    assert facts_shown["Network"] == "—"
    assert facts_shown["Last probed"] == "never"
    words = check_structure(page).words
    assert "No score yet" in words
    assert (facts_shown["Price stability (30d)"], facts_shown["payTo"]) == ("—", "—")
    assert "No probes in the last 30 days." in words
    assert "No flags yet: nothing has been observed." in words
    assert "No directory lists this endpoint. It is monitored because" in words


@pytest.mark.parametrize(
    ("changes", "label", "shown"),
    [
        ({"price_micro_usd": 1_000_000}, "Advertised price", "$1.00"),
        ({"price_micro_usd": 100_000}, "Advertised price", "$0.10"),
        ({"price_micro_usd": 1}, "Advertised price", "$0.000001"),
        ({"price_micro_usd": 0}, "Advertised price", "$0.00"),
        ({"price_micro_usd": None}, "Advertised price", "not in dollars"),
        ({"price_changes": 1}, "Price stability (30d)", "1 change"),
        ({"price_changes": 4}, "Price stability (30d)", "4 changes"),
        ({"payto_changes": 0, "pay_to": "0xab"}, "payTo", "0xab no changes in 30 days"),
        ({"payto_changes": 2, "pay_to": "0xab"}, "payTo", "0xab 2 changes in 30 days"),
        ({"uptime_tenths": 1_000}, "30-day uptime", "100.0%"),
        ({"uptime_tenths": 0}, "30-day uptime", "0.0%"),
        ({"latency_ms": None}, "Avg latency (EU vantage)", "— every probe failed"),
        (
            {"computed_at": NOW - HOUR_MS + 1},
            "Snapshot computed",
            "2025-11-24 15:00 UTC under an hour old",
        ),
        ({"computed_at": NOW - HOUR_MS}, "Snapshot computed", "2025-11-24 15:00 UTC 1 hour old"),
    ],
)
def test_formats_figures(changes: dict[str, Any], label: str, shown: str) -> None:
    assert facts(endpoint(view(snapshot(**changes))))[label] == shown


def test_breakdown_adds_up_and_names_caps_and_policy() -> None:
    words = check_structure(endpoint(view())).words
    assert "Sum 100 90.00" in words
    assert "Cap down-now No probe of the last 3 hours was answered. ≤ 49" in words
    assert "Policy 1" in words


def test_worst_flags_come_first() -> None:
    words = check_structure(endpoint(view())).words
    places = [words.index(code) for code in ("Use an alternative.", "It changed.", "Few half")]
    assert places == sorted(places)


def test_changes_are_listed_with_their_source() -> None:
    words = check_structure(endpoint(view())).words
    assert "2025-11-15 price-changed $0.005 → became $0.01 seen by probe" in words


def test_excluded_probes_are_counted_by_reason() -> None:
    words = check_structure(endpoint(view())).words
    assert "4: failure of our network, or our own limits" in words
    assert "3: common mode" in words


def test_endpoint_page_links_to_json_badge_and_provider() -> None:
    page = endpoint(view())
    reader = check_structure(page)
    links = {attrs["href"] for attrs in reader.all("a")}
    assert {"/trust/snapshot/0123456789abcdef", "/provider/api.example.com"} <= links
    assert f"/wallet/{PAY_TO}" in links
    assert reader.all("img")[0]["src"] == "/endpoint/0123456789abcdef/badge.svg"
    assert f"{BASE}/endpoint/0123456789abcdef/badge.svg" in reader.pieces["pre"][1]


def test_provider_page_links_to_the_next_page_if_any() -> None:
    first = Provider(host="api.example.com", rows=(snapshot(),), next_after=snapshot().id)
    reader = check_structure(provider_html(first, {}, base_url=BASE))
    (link,) = [attrs for attrs in reader.all("a") if attrs.get("rel") == "next"]
    assert link["href"] == f"/provider/api.example.com?after={snapshot().id}"
    assert "1 monitored endpoint on this host; more on the next page." in reader.words
    last = Provider(host="api.example.com", rows=(snapshot(),), after=snapshot().id)
    reader = check_structure(provider_html(last, {}, base_url=BASE))
    assert not [attrs for attrs in reader.all("a") if attrs.get("rel") == "next"]
    assert "1 more monitored endpoint on this host." in reader.words


def test_provider_page_counts_recommendations_and_shows_paths() -> None:
    rows = (
        snapshot(recommendation="avoid", id="1"),
        snapshot(id="2"),
        snapshot(recommendation="avoid", id="3", resource="https://api.example.com:8443/other"),
    )
    shown = Provider(host="api.example.com", rows=rows)
    words = check_structure(provider_html(shown, {}, base_url=BASE)).words
    assert "3 monitored endpoints on this host, best first. avoid 2 proceed 1" in words
    assert "Price /v1/weather Grade A" in words
    assert "api.example.com:8443 /other Grade A" in words


def test_page_draws_daily_scores_from_the_second_day() -> None:
    days = view().days
    today = replace(days[-1], score=DayScore(831, 1))
    for kept, said in (
        (days, "None has been stored yet."),
        ((*days[:-1], today), "Today's is the first."),
        ((*days[:-2], replace(days[-2], score=DayScore(800, 1)), today), "One score per day"),
    ):
        reader = check_structure(endpoint(view(days=kept)))
        assert said in reader.words
        drawn = "scores-title" in [attrs.get("id") for attrs in reader.all("title")]
        assert drawn == (said == "One score per day")


@pytest.mark.parametrize("name", ["home", "leaderboard"])
def test_leaderboard_row_has_every_figure(name: str) -> None:
    reader = check_structure(PAGES[name]())
    assert (
        "1 api.example.com /v1/weather Grade A 83.1 proceed "
        "99.5% up · 1,240 ms · confidence 0.98 $0.005 base" in reader.words
    )
    assert {"/endpoint/0123456789abcdef"} <= {attrs["href"] for attrs in reader.all("a")}


@pytest.mark.parametrize("name", ["home-empty", "leaderboard-empty"])
def test_empty_leaderboard_explains_missing_scores(name: str) -> None:
    reader = check_structure(PAGES[name]())
    assert "No scores yet" in reader.words
    assert not reader.all("table")


def test_server_without_endpoints_names_their_sources() -> None:
    nothing = stats(grades=(), listed=0, delisted=0, monitored=0)
    for page in (
        views.board_html("home.html", board(), nothing, {}, base_url=BASE),
        views.board_html("leaderboard.html", board(), nothing, {}, base_url=BASE),
    ):
        words = check_structure(page).words
        assert "No endpoints yet" in words
        assert "tollgauge discover" in words


def test_shows_no_offer_if_sales_are_not_configured() -> None:
    sold = views.endpoint_html(view(), now=NOW, base_url=BASE, report_micro_usd=5_000)
    free = views.endpoint_html(view(), now=NOW, base_url=BASE, report_micro_usd=None)
    assert "Buy a live report" in check_structure(sold).words
    assert "Buy a live report" not in check_structure(free).words


def test_simulated_data_is_announced() -> None:
    words = "Part of this history is simulated."
    marked = snapshot(simulated=True)
    for page in (
        views.board_html("home.html", board(), stats(simulated=True), {}, base_url=BASE),
        views.board_html("home.html", board(marked), stats(), {}, base_url=BASE),
        views.board_html("leaderboard.html", board(marked), stats(), {}, base_url=BASE),
        provider_html(Provider(host="x.example.com", rows=(marked,)), {}, base_url=BASE),
        endpoint(view(marked)),
    ):
        assert words in check_structure(page).words
    for real in PAGES.values():
        assert words not in check_structure(real()).words


def test_methodology_contains_every_number_of_the_policy() -> None:
    reader = check_structure(views.methodology_html(base_url=BASE))
    for row in POLICY.rows:
        assert f"{row.name} {row.weight}" in reader.words
    for letter, least in POLICY.grades:
        assert f"Grade {letter} {least}.0" in reader.words
    for cap in (*POLICY.caps, *(rule.cap for rule in POLICY.forecast_caps)):
        assert f"{cap.code} {cap.limit_tenths / 10:g} {cap.reason}" in reader.words
    for rule in FLAG_RULES:
        assert f"{rule.code} {rule.severity}" in reader.words
    assert f"policy {POLICY.version}" in reader.words


def test_calibration_page_compares_forecasts_with_outcomes() -> None:
    text = PAGES["calibration"]().decode()
    words = check_structure(PAGES["calibration"]()).words
    assert "Policy 2" in words
    assert "Policy 2" in words
    assert words.index("Policy 3") < words.index("Policy 2")
    assert "Forecasts from 2026-01-01 to 2026-01-02" in words
    for figure in ("95.0%", "90.00%", "not enough data", "The share of all outcomes", "proceed"):
        assert figure in words
    assert text.count("<circle") == 2
    assert text.count('class="diagonal"') == 4


def test_empty_calibration_page_announces_the_first_results() -> None:
    words = check_structure(PAGES["calibration-empty"]()).words
    assert "No forecast has been evaluated yet." in words
    assert "Policy" not in words.replace("policy", "").replace("policies", "")


@pytest.mark.parametrize("status", [400, 404, 413, 422, 429, 500, 503])
def test_every_error_page_has_a_next_step(status: int) -> None:
    page = error(Problem(status, "no", "It failed."))
    reader = check_structure(page)
    assert re.search(r"What to do [A-Z][a-z]+", reader.words)
    assert f"Status {status}" in reader.words


@pytest.mark.parametrize("status", [400, 401, 405, 409, 413, 414, 431])
def test_error_page_suggests_a_retry_only_if_it_can_succeed(status: int) -> None:
    words = check_structure(error(Problem(status, "no", "It failed."))).words
    assert "Try again" not in words
    assert "an unchanged request fails again" in words


def test_page_for_404_has_a_search_form() -> None:
    """The leaderboard has the best few only."""
    reader = check_structure(error(Problem(404, "unknown-host", "No endpoint of this host.")))
    assert "search for the endpoint, its host or keywords" in reader.words
    assert "look for the host on the leaderboard" not in reader.words


@pytest.mark.parametrize("code", ["invalid-input", "unknown-parameter"])
def test_invalid_parameter_has_its_own_next_step(code: str) -> None:
    words = check_structure(error(Problem(422, code, "grade must be one of A, B, C, D, F."))).words
    assert "Correct the query parameter" in words
    assert "address of a public endpoint" not in words


def test_pages_work_below_a_path_prefix() -> None:
    page = views.board_html("home.html", board(snapshot()), stats(), {}, base_url=f"{BASE}/gauge/")
    for tag in ("a", "link"):
        for attrs in check_structure(page).all(tag):
            assert (attrs["href"] or "").removeprefix(BASE).startswith(("/gauge/", "#"))


@pytest.mark.parametrize("name", PAGES)
def test_every_page_has_one_description_for_search_engines_and_chats(name: str) -> None:
    reader = check_structure(PAGES[name]())
    named = {attrs.get("property") or attrs.get("name"): attrs for attrs in reader.all("meta")}
    (title,) = {text for text in reader.pieces["title"] if "tollgauge" in text}
    assert named["og:title"]["content"] == title
    assert named["og:description"]["content"] == named["description"]["content"]
    canonical = [attrs["href"] for attrs in reader.all("link") if attrs["rel"] == "canonical"]
    if "robots" in named:
        assert name in {"not-found", "error"}
        assert not canonical
    else:
        assert canonical == [named["og:url"]["content"]]
        assert (canonical[0] or "").startswith(f"{BASE}/")


def headings(page: bytes) -> list[int]:
    return [int(level) for level in re.findall(r"<h([1-6])", page.decode())]


@pytest.mark.parametrize("name", PAGES)
def test_no_heading_skips_a_level(name: str) -> None:
    levels = headings(PAGES[name]())
    assert levels[0] == 1
    assert all(below <= above + 1 for above, below in pairwise(levels))


def test_page_with_many_rows_stays_small() -> None:
    rows = tuple(snapshot(id=f"{n:016x}") for n in range(25))
    assert (
        len(views.board_html("leaderboard.html", board(*rows), stats(), {}, base_url=BASE)) < 64_000
    )
    assert len(endpoint(view())) < 64_000


def test_assets_load_nothing_and_two_pages_have_a_script() -> None:
    assert set(ASSETS) == {"copy.js", "favicon.svg", "tollgauge.css", "upgrade.js"}
    for asset in ASSETS.values():
        text = asset.body.decode().replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"url\(|@import|https?:|<script|<style|style=", text)


def test_page_with_ninety_days_and_many_changes_stays_small() -> None:
    days = tuple(
        DayBar(
            day=day_of(NOW) - back,
            up_ms=85_600_000 - back,
            down_ms=back * 1_000,
            scored=48,
            up=47,
            excluded=back % 3,
            p50_ms=158 + back,
            p95_ms=1_204 + back,
            score=DayScore(912 - back, POLICY.version),
        )
        for back in reversed(range(90))
    )
    changes = tuple(
        TermChange(
            at=NOW - back * DAY_MS,
            kind="price-changed",
            source="probe",
            before="$0.005",
            after="$0.0052",
        )
        for back in reversed(range(90))
    )
    page = endpoint(view(days=days, events=changes))
    reader = check_structure(page)
    assert len(page) < 60_000
    assert reader.words.count("seen by probe") == views.EVENT_ROWS
    assert f"The newest {views.EVENT_ROWS} of 90 changes. " in reader.words
    assert f"{views.EVENT_ROWS} changes in {views.EVENT_ROWS} days" in reader.pieces["summary"]
    assert sum("2025-" in words for words in reader.pieces["th"]) == len(days)


def test_changes_of_one_kind_are_grouped() -> None:
    times = [NOW - hours * HOUR_MS for hours in (50, 40, 30, 20, 10)]
    events = [
        TermChange(at=at, kind=kind, source="probe", before="old", after=f"new{number}")
        for number, (at, kind) in enumerate(
            zip(times, ["price-changed", "delisted", *["price-changed"] * 3], strict=True)
        )
    ]
    reader = check_structure(endpoint(view(events=tuple(events))))
    assert reader.pieces["summary"][1] == "4 changes in 2 days"
    shown = re.findall(r"became new(\d)", reader.words)
    assert shown == ["4", "3", "2", "0", "1"]


def test_provider_page_shows_pay_tos_reasons_and_changes() -> None:
    change = Change(
        type="price_change",
        at=NOW,
        severity=Severity.WARN,
        reason="The price is twice the usual one.",
        before={},
        after={},
        evidence={},
    )
    incidents = [
        Incident(
            id=number,
            endpoint_id="2",
            change=replace(change, at=NOW - number * HOUR_MS),
            resource="https://api.example.com/v1/weather",
            simulated=False,
        )
        for number in range(3)
    ]
    demand = view().demand
    shown = Provider(
        host="api.example.com",
        rows=(
            snapshot(id="1", demand=demand),
            snapshot(id="2", recommendation="avoid"),
            snapshot(id="3", pay_to="0x" + "cd" * 20),
        ),
        reasons={"2": "The price rose."},
        changes=tuple(incidents),
    )
    reader = check_structure(provider_html(shown, {}, base_url=BASE))
    assert f"/wallet/{PAY_TO}" in [attrs["href"] for attrs in reader.all("a")]
    assert f"{PAY_TO} base 2 endpoints. 43 wallets paid $0.14 in 30 days" in reader.words
    assert f"0x{'cd' * 20} base 1 endpoint. Demand is not measured." in reader.words
    assert "/v1/weather The price rose. Grade A" in reader.words
    assert "Price changed 2025-11-24 16:00 UTC" in reader.words
    assert reader.pieces["summary"][1] == "3 changes in 1 day"


@pytest.mark.parametrize("text", HOSTILE)
def test_grade_of_a_summary_is_not_repeated_below_the_score(text: str) -> None:
    summary = f"{text} Proceed: grade A (83.1 of 100). Flawless: 100.0 % up."
    words = check_structure(endpoint(view(snapshot(summary=summary)))).words
    assert "Proceed: grade A" not in words.partition("Verdict")[2]
    assert "Flawless: 100.0 % up." in words
