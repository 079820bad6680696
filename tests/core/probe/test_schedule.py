"""When to probe again: cadence, random gaps, and the pause that a target asked for."""

from __future__ import annotations

import random
import time
from collections import Counter
from dataclasses import replace
from email.utils import formatdate
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tollgauge.core.base.units import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS
from tollgauge.core.endpoint.identity import Endpoint, Listing, endpoint_id
from tollgauge.core.probe.exchange import Answer, Fault, FaultKind, Timings
from tollgauge.core.probe.outcome import Attribution, Outcome
from tollgauge.core.probe.probe import HOLDS_MAX_MS, HOLDS_MIN_MS, ProbeResult, statement
from tollgauge.core.probe.schedule import (
    ASKED_MS,
    DEAD_EVERY_MS,
    DEAD_MS,
    DRAW_RANGE,
    RETRY_AFTER_MAX_MS,
    Cadence,
    Draws,
    NextProbe,
    after_probe,
    interval_ms,
    next_due,
    pause_ms,
)

NOW = 1_795_000_000_000
MIDDLE = DRAW_RANGE // 2  # gaps of one interval, confirmations after 1 and 5 minutes
DRAWS = Draws(gap=MIDDLE, confirm=MIDDLE)
ENDPOINT = Endpoint(
    id=endpoint_id("https://api.example.com/"),
    resource="https://api.example.com/",
    host="api.example.com",
    first_seen=0,
    last_seen=0,
)


def test_watch_that_ended_no_longer_counts_and_one_of_a_delisted_endpoint_does() -> None:
    ended = replace(ENDPOINT, watched_until=NOW)
    assert next_due(ended, Cadence(), now=NOW, draw=MIDDLE) - NOW == 30 * MINUTE_MS
    delisted = replace(ENDPOINT, status=Listing.DELISTED, watched_until=NOW + 1)
    assert next_due(delisted, Cadence(), now=NOW, draw=MIDDLE) - NOW == 5 * MINUTE_MS


def test_probes_spread_out_within_half_a_day_after_a_stop() -> None:
    """Of 400 endpoints, each twelfth of the period gets at least half of its share."""
    draws = random.Random(1)
    due = dict.fromkeys(range(400), NOW)
    for number in due:
        while due[number] < NOW + 12 * HOUR_MS:
            draw = draws.randrange(DRAW_RANGE)
            due[number] = next_due(ENDPOINT, Cadence(), now=due[number], draw=draw)
    parts = Counter(at % (30 * MINUTE_MS) * 12 // (30 * MINUTE_MS) for at in due.values())
    assert len(parts) == 12
    assert min(parts.values()) >= 400 // 12 // 2


def test_pace_does_not_drift_over_a_month() -> None:
    draws, now, probes = random.Random(1), NOW, 0
    while now < NOW + 30 * DAY_MS:
        now = next_due(ENDPOINT, Cadence(), now=now, draw=draws.randrange(DRAW_RANGE))
        probes += 1
    assert 1_380 <= probes <= 1_500


def test_pause_moves_the_next_probe_only_if_it_is_longer() -> None:
    usual = next_due(ENDPOINT, Cadence(), now=NOW, draw=MIDDLE)
    short, long = (
        next_due(ENDPOINT, Cadence(), now=NOW, draw=MIDDLE, pause_ms=pause)
        for pause in (MINUTE_MS, 2 * HOUR_MS)
    )
    assert (short, long) == (usual, NOW + 2 * HOUR_MS)


def test_recently_requested_delisted_endpoint_is_probed_every_six_hours() -> None:
    for asked_at, period in (
        (NOW, 6 * HOUR_MS),
        (NOW - ASKED_MS, 6 * HOUR_MS),
        (NOW - ASKED_MS - 1, DAY_MS),
        (None, DAY_MS),
    ):
        delisted = replace(ENDPOINT, status=Listing.DELISTED, asked_at=asked_at)
        assert interval_ms(delisted, Cadence(), now=NOW) == period
    assert interval_ms(replace(ENDPOINT, asked_at=NOW), Cadence(), now=NOW) == 30 * MINUTE_MS


DEAD = replace(ENDPOINT, down_since=NOW - DEAD_MS - 1)


def test_endpoint_dead_for_over_a_week_is_probed_every_six_hours() -> None:
    assert interval_ms(DEAD, Cadence(), now=NOW) == DEAD_EVERY_MS
    assert interval_ms(DEAD, Cadence(), now=NOW - 1) == 30 * MINUTE_MS
    assert interval_ms(DEAD, Cadence(every_ms=DAY_MS), now=NOW) == DAY_MS
    assert interval_ms(replace(DEAD, status=Listing.DELISTED), Cadence(), now=NOW) == DAY_MS


@pytest.mark.parametrize("reason", ["asked_at", "listing_changed_at"])
def test_requested_or_relisted_dead_endpoint_is_probed_regularly_for_a_week(
    reason: str,
) -> None:
    wanted = replace(DEAD, **{reason: NOW})  # type: ignore[arg-type]
    assert interval_ms(wanted, Cadence(), now=NOW + DEAD_MS) == 30 * MINUTE_MS
    assert interval_ms(wanted, Cadence(), now=NOW + DEAD_MS + 1) == DEAD_EVERY_MS
    watched = replace(DEAD, watched_until=NOW + 1)
    assert interval_ms(watched, Cadence(), now=NOW) == 5 * MINUTE_MS


def test_dead_endpoint_that_is_up_again_returns_to_the_regular_interval() -> None:
    _, alive = after(DEAD, result(NOW, "payable"))
    _, still = after(DEAD, result(NOW, "down"))
    assert alive.due - NOW < 32 * MINUTE_MS
    assert still.due - NOW > 5 * HOUR_MS
    assert still.holds > 8 * HOUR_MS, "until then it is known to be down"


def test_on_a_crowded_host_the_interval_is_its_share_of_the_round() -> None:
    round_ms = 36 * HOUR_MS
    assert interval_ms(ENDPOINT, Cadence(), now=NOW, round_ms=round_ms) == 9 * HOUR_MS
    asked = replace(ENDPOINT, asked_at=NOW)
    assert interval_ms(asked, Cadence(), now=NOW, round_ms=round_ms) == round_ms // 16
    watched = replace(ENDPOINT, watched_until=NOW + 1)
    assert interval_ms(watched, Cadence(), now=NOW, round_ms=round_ms) == 5 * MINUTE_MS
    due = next_due(ENDPOINT, Cadence(), now=NOW, draw=MIDDLE, round_ms=round_ms)
    assert due - NOW == 9 * HOUR_MS
    down = result(NOW, "down")
    following = after_probe(ENDPOINT, down, Cadence(), now=NOW, draws=DRAWS, round_ms=round_ms)
    assert following.holds > 12 * HOUR_MS


def result(at: int, kind: str) -> ProbeResult:
    """A probe of one of the kinds `payable`, `down` and `ours`."""
    return ProbeResult(
        at=at,
        outcome=Outcome.PAYMENT_REQUIRED if kind == "payable" else Outcome.TIMEOUT,
        attribution=Attribution.LOCAL if kind == "ours" else Attribution.TARGET,
        up=kind == "payable",
        payable=kind == "payable",
        timings=Timings(total=10),
    )


def after(endpoint: Endpoint, probe: ProbeResult, **more: Any) -> tuple[Endpoint, NextProbe]:
    """Return the endpoint after a probe, and its next probe."""
    following = after_probe(endpoint, probe, Cadence(), now=probe.at + 900, draws=DRAWS, **more)
    said = statement(probe)
    payable = endpoint.payable if said is None else said.payable
    return replace(endpoint, payable=payable, unconfirmed_at=following.unconfirmed_at), following


PAYABLE = replace(ENDPOINT, payable=True)


def test_failure_of_a_payable_endpoint_is_probed_again_after_a_minute() -> None:
    failed, following = after(PAYABLE, result(NOW, "down"))
    assert (following.due, following.confirms) == (NOW + MINUTE_MS, False)
    assert failed.unconfirmed_at == NOW
    for kind in ("payable", "down"):
        confirmed, last = after(failed, result(NOW + MINUTE_MS, kind))
        assert last.confirms
        assert confirmed.unconfirmed_at is None
        assert last.due == NOW + MINUTE_MS + 900 + 30 * MINUTE_MS


def test_inconclusive_confirmation_is_repeated_after_five_minutes() -> None:
    failed, _ = after(PAYABLE, result(NOW, "down"))
    failed, second = after(failed, result(NOW + MINUTE_MS, "ours"))
    assert (second.due, second.confirms) == (NOW + 5 * MINUTE_MS, True)
    assert failed.unconfirmed_at == NOW
    failed, third = after(failed, result(NOW + 5 * MINUTE_MS, "ours"))
    assert (third.due, third.confirms) == (NOW + 35 * MINUTE_MS + 900, True)
    assert failed.unconfirmed_at is None


@pytest.mark.parametrize("payable", [False, None])
def test_second_failure_in_a_row_is_not_confirmed(payable: bool | None) -> None:
    endpoint, following = after(replace(ENDPOINT, payable=payable), result(NOW, "down"))
    assert following.due == NOW + 900 + 30 * MINUTE_MS
    assert endpoint.unconfirmed_at is None


def test_requested_pause_is_kept_and_the_failure_holds_as_long() -> None:
    endpoint, following = after(PAYABLE, result(NOW, "down"), pause_ms=6 * HOUR_MS)
    assert following.due == NOW + 900 + 6 * HOUR_MS
    assert following.holds == 6 * HOUR_MS * 3 // 2
    assert endpoint.unconfirmed_at is None


def test_probe_at_the_regular_time_does_not_confirm() -> None:
    failed, _ = after(PAYABLE, result(NOW, "down"))
    late, following = after(failed, result(NOW + HOUR_MS, "down"))
    assert not following.confirms
    assert late.unconfirmed_at is None


def test_no_confirmation_if_the_regular_probe_is_due_soon() -> None:
    quick = Cadence(every_ms=90 * SECOND_MS)
    following = after_probe(PAYABLE, result(NOW, "down"), quick, now=NOW, draws=DRAWS)
    assert following.due > NOW + 80 * SECOND_MS
    assert following.unconfirmed_at is None


def test_watched_endpoint_has_one_confirming_probe() -> None:
    watched = replace(PAYABLE, watched_until=NOW + DAY_MS)
    failed, first = after(watched, result(NOW, "down"))
    failed, second = after(failed, result(NOW + MINUTE_MS, "ours"))
    _, regular = after(failed, result(NOW + 5 * MINUTE_MS, "down"))
    assert (first.due, second.due) == (NOW + MINUTE_MS, NOW + 5 * MINUTE_MS)
    assert [second.confirms, regular.confirms] == [True, False]


@given(
    st.lists(st.tuples(st.sampled_from(["payable", "down", "ours"]), st.booleans()), max_size=30)
)
def test_at_most_two_confirming_probes_for_any_history(
    history: list[tuple[str, bool]],
) -> None:
    """At most two additional probes, each within the regular interval."""
    endpoint, now, extra = ENDPOINT, NOW, 0
    for kind, pausing in history:
        endpoint, following = after(endpoint, result(now, kind), pause_ms=HOUR_MS * pausing)
        extra = extra + 1 if following.confirms else 0
        assert extra <= 2
        assert following.due > now
        assert HOLDS_MIN_MS <= following.holds <= HOLDS_MAX_MS
        assert (endpoint.unconfirmed_at is None) == (following.due > now + 5 * MINUTE_MS)
        now = following.due


@pytest.mark.parametrize(
    "pace", [{"every_ms": 0}, {"every_ms": 999}, {"watched_every_ms": -1}, {"host_gap_ms": -1}]
)
def test_pace_that_would_be_a_flood_is_refused(pace: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="_ms"):
        Cadence(**pace)


def answer(status: int, retry_after: str | None) -> Answer:
    headers = () if retry_after is None else (("retry-after", retry_after),)
    return Answer(status=status, headers=headers)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0),
        ("120", 120_000),
        (" 7 ", 7_000),
        ("0000000000007", 7_000),
        ("99999999999999999999", RETRY_AFTER_MAX_MS),
        ("9" * 10_000, RETRY_AFTER_MAX_MS),
        ("0" * 10_000, 0),
        ("-5", 0),
        ("1.5", 0),
        ("soon", 0),
        ("", 0),
        ("١٢", 0),
        (formatdate((NOW + 90_000) / 1000, usegmt=True), 90_000),
        (formatdate((NOW - 90_000) / 1000, usegmt=True), 0),
        (formatdate((NOW + 30 * DAY_MS) / 1000, usegmt=True), RETRY_AFTER_MAX_MS),
        (formatdate((NOW + 90_000) / 1000, usegmt=True).removesuffix(" GMT"), 90_000),
        ("Fri, 99 Foo 9999 99:99:99 GMT", 0),
        ("Fri, 31 Dec 9999 23:59:59 +9999", 0),
    ],
)
def test_pause_follows_retry_after_within_limits(text: str, expected: int) -> None:
    for status in (429, 503):
        pause = pause_ms(answer(status, text), now=NOW)
        assert pause == expected


def test_only_429_and_503_may_ask_for_a_pause() -> None:
    for status in (200, 402, 404, 500, 502):
        assert pause_ms(answer(status, "60"), now=NOW) == 0
    assert pause_ms(answer(429, None), now=NOW) == 0
    assert pause_ms(Fault(kind=FaultKind.TIMEOUT), now=NOW) == 0


def test_date_means_the_same_in_every_time_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    text = formatdate((NOW + 90_000) / 1000, usegmt=True).removesuffix(" GMT")
    pauses: set[Any] = set()
    try:
        for zone in ("UTC", "Pacific/Auckland", "America/Los_Angeles"):
            monkeypatch.setenv("TZ", zone)
            time.tzset()
            pauses.add(pause_ms(answer(503, text), now=NOW))
    finally:
        monkeypatch.undo()
        time.tzset()
    assert pauses == {90_000}


@given(st.text())
def test_no_text_in_retry_after_raises(text: str) -> None:
    assert 0 <= pause_ms(answer(429, text), now=NOW) <= RETRY_AFTER_MAX_MS


@given(st.integers(0, DRAW_RANGE - 1), st.sampled_from([30, 5, 360]))
def test_drawn_gap_is_between_a_sixth_and_eleven_sixths(draw: int, minutes: int) -> None:
    cadence = Cadence(every_ms=minutes * MINUTE_MS)
    gap = next_due(ENDPOINT, cadence, now=NOW, draw=draw) - NOW
    assert 6 * gap >= cadence.every_ms - 6
    assert 6 * gap <= 11 * cadence.every_ms
    assert gap == pytest.approx(cadence.every_ms * (1 / 6 + 10 / 6 * draw / DRAW_RANGE), abs=2)


def test_drawn_gap_ends_no_pause_early() -> None:
    due = next_due(ENDPOINT, Cadence(), now=NOW, draw=0, pause_ms=HOUR_MS)
    assert due == NOW + HOUR_MS


@given(st.integers(0, DRAW_RANGE - 1), st.integers(DRAW_RANGE // 3, DRAW_RANGE - 1))
def test_failure_is_probed_again_at_drawn_times(confirm: int, gap: int) -> None:
    draws = Draws(gap=gap, confirm=confirm)
    first = after_probe(PAYABLE, result(NOW, "down"), Cadence(), now=NOW, draws=draws)
    assert 40_000 <= first.due - NOW <= 80_000
    assert (first.unconfirmed_at, first.confirms) == (NOW, False)
    assert first.holds == 2 * HOUR_MS
    failing = replace(PAYABLE, payable=False, unconfirmed_at=NOW)
    unknown = result(first.due, "ours")
    second = after_probe(failing, unknown, Cadence(), now=first.due, draws=draws)
    assert 3 * MINUTE_MS <= second.due - NOW <= 7 * MINUTE_MS
    assert second.confirms
    third = after_probe(failing, result(second.due, "down"), Cadence(), now=second.due, draws=draws)
    assert third.confirms
    assert third.unconfirmed_at is None
    assert third.due - second.due >= 5 * MINUTE_MS
