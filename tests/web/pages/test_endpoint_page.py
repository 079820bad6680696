"""The page of an endpoint: figures, breakdown, flags, changes, offers and links."""

from __future__ import annotations

import html
import json
import re
import shlex
from dataclasses import replace
from typing import Any

import pytest
from tests.support.page_reader import (
    BASE,
    HOSTILE,
    NOW,
    PAY_TO,
    read_page,
    snapshot,
    unmeasured_view,
    view,
)

from tollgauge.core.base.units import DAY_MS, HOUR_MS, day_of
from tollgauge.core.score.evidence import TermChange
from tollgauge.core.score.policy import POLICY
from tollgauge.core.score.window import DayScore
from tollgauge.monitor.reports.endpoint import DayBar, EndpointView
from tollgauge.web.pages import views


def endpoint(
    shown: EndpointView, report_micro_usd: int | None = 5_000, similar_micro_usd: int | None = None
) -> bytes:
    return views.endpoint_html(
        shown,
        now=NOW,
        base_url=BASE,
        report_micro_usd=report_micro_usd,
        similar_micro_usd=similar_micro_usd,
    )


def facts(page: bytes) -> dict[str, str]:
    """Return the labelled figures of an endpoint page."""
    pairs = re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", page.decode(), re.DOTALL)
    plain = re.compile(r"<[^>]*>")
    return {name: html.unescape(plain.sub("", value)) for name, value in pairs}


def test_endpoint_page_has_every_label_of_the_snapshot() -> None:
    shown = facts(endpoint(view()))
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
    assert {name: shown.get(name) for name in wanted} == wanted


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


def test_unmeasured_endpoint_shows_dashes_and_no_zeros() -> None:
    page = endpoint(unmeasured_view())
    shown = facts(page)
    for label in (
        "30-day uptime",
        "Payable in half an hour",
        "Payable in 24 hours",
        "Avg latency (EU vantage)",
        "Network",
        "Price stability (30d)",
        "payTo",
    ):
        assert shown[label] == "—"
    assert shown["Advertised price"] == "not advertised"
    assert shown["Last probed"] == "never"
    words = read_page(page).words
    assert "Not scored yet" in words
    assert "No score yet" in words
    assert "No probes in the last 30 days." in words
    assert "No flags yet: nothing has been observed." in words
    assert "No directory lists this endpoint. It is monitored because" in words


def test_provider_text_is_quoted_and_marked_unverified() -> None:
    reader = read_page(endpoint(view()))
    quoted = " ".join(reader.pieces["blockquote"])
    assert "Forecasts for any place." in quoted
    assert "In the provider's own words unverified" in reader.words
    assert "Advertised description" in reader.words
    assert "own words" not in read_page(endpoint(unmeasured_view())).words


@pytest.mark.parametrize("text", HOSTILE)
def test_grade_of_a_summary_is_not_repeated_below_the_score(text: str) -> None:
    summary = f"{text} Proceed: grade A (83.1 of 100). Flawless: 100.0% up."
    words = read_page(endpoint(view(snapshot(summary=summary)))).words
    assert "Proceed: grade A" not in words.partition("Verdict")[2]
    assert "Flawless: 100.0% up." in words


def test_breakdown_adds_up_and_names_caps_and_policy() -> None:
    words = read_page(endpoint(view())).words
    assert "Sum 100 90.00" in words
    assert "Cap down-now No probe of the last 3 hours was answered. ≤ 49" in words
    assert "Policy 1" in words


def test_worst_flags_come_first() -> None:
    words = read_page(endpoint(view())).words
    indices = [words.index(text) for text in ("Use an alternative.", "It changed.", "Few half")]
    assert indices == sorted(indices)


def test_excluded_probes_are_counted_by_reason() -> None:
    words = read_page(endpoint(view())).words
    assert "4: failure of our network, or our own limits" in words
    assert "3: common mode" in words


def test_changes_are_listed_with_their_source() -> None:
    words = read_page(endpoint(view())).words
    assert "2025-11-15 price-changed $0.005 → became $0.01 seen by probe" in words


def test_changes_of_one_kind_are_grouped() -> None:
    times = [NOW - hours * HOUR_MS for hours in (50, 40, 30, 20, 10)]
    events = [
        TermChange(at=at, kind=kind, source="probe", before="old", after=f"new{number}")
        for number, (at, kind) in enumerate(
            zip(times, ["price-changed", "delisted", *["price-changed"] * 3], strict=True)
        )
    ]
    reader = read_page(endpoint(view(events=tuple(events))))
    assert reader.pieces["summary"][1] == "4 changes in 2 days"
    shown = re.findall(r"became new(\d)", reader.words)
    assert shown == ["4", "3", "2", "0", "1"]


def test_page_draws_daily_scores_from_the_second_day() -> None:
    days = view().days
    today = replace(days[-1], score=DayScore(831, 1))
    for kept, text in (
        (days, "None has been stored yet."),
        ((*days[:-1], today), "Today's is the first."),
        ((*days[:-2], replace(days[-2], score=DayScore(800, 1)), today), "One score per day"),
    ):
        reader = read_page(endpoint(view(days=kept)))
        assert text in reader.words
        drawn = "scores-title" in [attrs.get("id") for attrs in reader.all("title")]
        assert drawn == (text == "One score per day")


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
    reader = read_page(page)
    assert len(page) < 60_000
    assert reader.words.count("seen by probe") == views.EVENT_ROWS
    assert f"The newest {views.EVENT_ROWS} of 90 changes. " in reader.words
    assert f"{views.EVENT_ROWS} changes in {views.EVENT_ROWS} days" in reader.pieces["summary"]
    assert sum("2025-" in words for words in reader.pieces["th"]) == len(days)


def test_command_to_buy_is_quoted_for_any_resource() -> None:
    resource = "https://api.example.com/it's;$(touch%20x)`id`"
    reader = read_page(endpoint(view(snapshot(resource=resource))))
    words = shlex.split(reader.pieces["pre"][0].replace("\\\n", " "))
    assert words[:3] == ["curl", "-i", f"{BASE}/v1/x402-trust"]
    assert json.loads(words[-1]) == {"resource": resource}
    assert "$0.005" in reader.words


def test_shows_no_offer_if_sales_are_not_configured() -> None:
    assert "Buy a live report" in read_page(endpoint(view())).words
    free = endpoint(view(), report_micro_usd=None)
    assert "Buy a live report" not in read_page(free).words


def test_number_of_better_alternatives_links_to_their_offer() -> None:
    reader = read_page(endpoint(view(), similar_micro_usd=7_000))
    links = [attrs.get("href") for attrs in reader.all("a")]
    assert "#alternatives" in links
    assert [attrs for _, attrs in reader.elements if attrs.get("id") == "alternatives"]
    assert "3 listed endpoints of other providers serve a similar purpose" in reader.words
    assert "$0.007" in reader.words
    assert f"{BASE}/v1/similar" in reader.words
    assert "/docs#post-v1-similar" in links
    without = endpoint(view(snapshot(better_alternatives=0)))
    assert "#alternatives" not in [attrs.get("href") for attrs in read_page(without).all("a")]
    assert facts(without)["Better alternatives"] == "0"


def test_endpoint_page_links_to_json_badge_and_provider() -> None:
    page = endpoint(view())
    reader = read_page(page)
    links = {attrs["href"] for attrs in reader.all("a")}
    assert {"/trust/snapshot/0123456789abcdef", "/provider/api.example.com"} <= links
    assert f"/wallet/{PAY_TO}" in links
    assert reader.all("img")[0]["src"] == "/endpoint/0123456789abcdef/badge.svg"
    assert f"{BASE}/endpoint/0123456789abcdef/badge.svg" in reader.pieces["pre"][1]
