"""Outages, caps and forecasts on the pages."""

from __future__ import annotations

import html
import re
from dataclasses import replace

import pytest
from msgspec import structs
from tests.support.evidences import AS_OF, dead, payable
from tests.support.page_reader import (
    BASE,
    NOW,
    Reader,
    board,
    board_html,
    snapshot,
    stats,
    unmeasured_view,
    view,
)

from tollgauge.core.base.units import DAY_MS
from tollgauge.core.endpoint.terms import FormReading
from tollgauge.core.probe.exchange import Severity
from tollgauge.core.probe.outcome import Outcome
from tollgauge.core.score.advice import summary
from tollgauge.core.score.evidence import Evidence, LatestState
from tollgauge.core.score.flag import Flag
from tollgauge.core.score.policy import POLICY, Cap
from tollgauge.core.score.scoring import score
from tollgauge.monitor.ranking import MoreOfSite
from tollgauge.monitor.reports.endpoint import EndpointView
from tollgauge.web.pages import views
from tollgauge.web.pages.labels import date


def words(shown: EndpointView) -> str:
    return Reader(views.endpoint_html(shown, now=NOW, base_url=BASE, report_micro_usd=5_000)).words


def scored_view(evidence: Evidence) -> EndpointView:
    """Return the view of an endpoint with the score of its evidence."""
    result = score(evidence, POLICY)
    shown = snapshot(
        recommendation=result.recommendation,
        grade=result.grade,
        score_tenths=result.score_tenths,
        reason=result.reason,
        payable_now_permille=result.payable_now_permille,
        payable_24h_permille=result.payable_24h_permille,
        is_payable=result.is_payable,
        down=result.down,
        summary=summary(result),
        policy_version=3,
    )
    return view(shown, flags=result.flags, caps=result.caps, demand=result.demand)


@pytest.mark.parametrize(
    "evidence", [dead(), dead(outcome=Outcome.THROTTLED), payable(wildcard=True)], ids=str
)
def test_page_of_an_endpoint_to_avoid_has_no_payment_instructions(evidence: Evidence) -> None:
    said = words(scored_view(evidence))
    assert "avoid Do not pay this endpoint now." in said
    for advice in ("small payment", "Set a limit", "Raise their limit", "first buyers"):
        assert advice not in said
    assert "The payment goes to tollgauge, not to the seller" in said
    assert "small payment" in words(scored_view(payable()))


def test_page_of_a_dead_endpoint_states_the_outage_first_and_the_cap() -> None:
    shown = scored_view(dead())
    said = words(shown)
    assert shown.snapshot.down is not None
    first = said.index(shown.snapshot.down.text)
    assert first < said.index("It is not payable, and is not expected to be")
    assert first < said.index("30-day uptime")
    assert "At the last check not payable" in said
    assert re.search(r"Cap not-payable-soon .*? ≤ 49 ", said)
    assert "flawless" not in said.lower()


def test_cap_is_shown_with_its_decimal() -> None:
    dead_for_good = Cap(code="dead", limit_tenths=349, reason="It is not payable.")
    assert "dead It is not payable. ≤ 34.9" in words(view(caps=(dead_for_good,)))


def test_forecasts_are_shares_and_never_certain() -> None:
    said = words(view())
    assert "Payable in half an hour 99.9% forecast" in said
    assert "Payable in 24 hours 99.5% forecast" in said
    assert "43 wallets paid $0.14 in 30 days; 12 of them also buy from established sellers." in said
    sure = words(view(snapshot(payable_now_permille=1_000, payable_24h_permille=0)))
    assert "Payable in half an hour over 99.9%" in sure
    assert "Payable in 24 hours under 0.1%" in sure
    none = words(unmeasured_view())
    assert "At the last check — Payable in half an hour — Payable in 24 hours — 30-day" in none


@pytest.mark.parametrize(("count", "text"), [(12, "and 12 more"), (1_000, "and 1,000+ more")])
def test_leaderboard_counts_hidden_endpoints_of_a_site(count: int, text: str) -> None:
    row = snapshot()
    shown = board(row, more={row.id: MoreOfSite("<i>.example.com", count)})
    for page in (
        board_html("leaderboard.html", shown, stats()),
        board_html("home.html", shown, stats()),
    ):
        assert f"{text} of <i>.example.com" in Reader(page).words
        assert html.escape("<i>.example.com") in page.decode()


def test_endpoint_that_just_failed_is_not_recommended() -> None:
    failed = LatestState(
        at=AS_OF, outcome=Outcome.SERVER_ERROR, up=False, payable=False, unconfirmed=True
    )
    shown = scored_view(payable(state=failed))
    assert shown.snapshot.recommendation == "caution"
    said = words(shown)
    assert "It could not be paid when it was last checked" in said
    for advice in ("first buyers", "small payment. ", "Set a limit"):
        assert advice not in said
    assert "Flawless" not in shown.snapshot.summary


def test_flag_of_the_last_check_shows_no_start_time() -> None:
    since = NOW - 5 * DAY_MS
    flags = [
        Flag(code=code, severity=Severity.WARN, message="It is so.", since=since)
        for code in ("not-payable", "lint:accepts-empty", "price-changed")
    ]
    said = words(view(flags=tuple(flags)))
    day = date(since)
    assert f"not-payable at the last check, {day}" in said
    assert f"lint:accepts-empty for the seller to fix at the last check, {day}" in said
    assert f"price-changed since {day}" in said


def test_placeholder_is_shown_with_its_braces() -> None:
    shown = snapshot(resource="https://api.example.com/v1/%7Bid%7D/price")
    for said in (
        words(view(shown)),
        Reader(board_html("leaderboard.html", board(shown), stats())).words,
    ):
        assert "/v1/{id}/price" in said
    assert "https://api.example.com/v1/{id}/price" in words(view(shown))


@pytest.mark.parametrize("unconfirmed", [False, True])
def test_pages_state_an_outage_first_and_in_red(unconfirmed: bool) -> None:
    failed = LatestState(
        at=AS_OF, outcome=Outcome.SERVER_ERROR, up=False, payable=False, unconfirmed=unconfirmed
    )
    shown = scored_view(payable(state=failed))
    down = shown.snapshot.down
    assert down is not None
    page = views.endpoint_html(shown, now=NOW, base_url=BASE, report_micro_usd=None)
    reader = Reader(page)
    said = reader.words.partition(" Verdict ")[2]
    assert said.startswith(down.text)
    assert said.count(down.text) == 1
    assert f'<p class="outage">{down.text}</p>' in page.decode()
    assert 'class="verdict is-down"' in page.decode()
    row = Reader(board_html("leaderboard.html", board(shown.snapshot), stats()))
    assert down.text in row.words
    up = views.endpoint_html(scored_view(payable()), now=NOW, base_url=BASE, report_micro_usd=None)
    assert b"is-down" not in up
    assert b"outage" not in up


def test_page_names_the_forms_of_payment_whose_settlements_are_measured() -> None:
    shown = view()
    coverage = {
        "eip155:8453": {"eip3009": FormReading.READ, "upto": FormReading.NOT_READ},
        "solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp": {"exact": FormReading.NOT_READ},
    }
    said = words(replace(shown, snapshot=structs.replace(shown.snapshot, coverage=coverage)))
    assert "Settlements measured EIP-3009 on Base" in said
    assert "Settlements not measured upto on Base, exact on Solana" in said
