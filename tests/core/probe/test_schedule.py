"""When to probe again: cadence, jitter, and the pause that a target asked for."""

from __future__ import annotations

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
    place_ms,
)

NOW = 1_795_000_000_000
ENDPOINT = Endpoint(
    id=endpoint_id("https://api.example.com/"),
    resource="https://api.example.com/",
    host="api.example.com",
    first_seen=0,
    last_seen=0,
)


def other(number: int) -> Endpoint:
    return replace(ENDPOINT, id=endpoint_id(f"https://api.example.com/{number}"))


@given(st.integers(0, 10_000), st.integers(NOW, NOW + 400 * DAY_MS))
def test_next_probe_comes_after_the_cadence_give_or_take_a_twentieth(number: int, now: int) -> None:
    for endpoint, period in (
        (other(number), 30 * MINUTE_MS),
        (replace(other(number), watched_until=now + 1), 5 * MINUTE_MS),
        (replace(other(number), status=Listing.DELISTED), DAY_MS),
    ):
        gap = next_due(endpoint, Cadence(), now=now) - now
        assert period * 95 // 100 <= gap <= period * 105 // 100


def test_watch_that_ended_no_longer_counts_and_one_of_a_delisted_endpoint_does() -> None:
    ended = replace(ENDPOINT, watched_until=NOW)
    assert next_due(ended, Cadence(), now=NOW) - NOW > 28 * MINUTE_MS
    delisted = replace(ENDPOINT, status=Listing.DELISTED, watched_until=NOW + 1)
    assert next_due(delisted, Cadence(), now=NOW) - NOW < 6 * MINUTE_MS


def test_endpoints_that_were_probed_together_come_apart() -> None:
    gaps = {next_due(other(number), Cadence(), now=NOW) - NOW for number in range(500)}
    assert len(gaps) > 450
    assert max(gaps) - min(gaps) > 2 * MINUTE_MS


def test_probes_spread_out_within_half_a_day_after_a_stop() -> None:
    """Of 400 endpoints, each twelfth of the period gets at least half of its share."""
    due = dict.fromkeys(range(400), NOW)
    for number in due:
        while due[number] < NOW + 12 * HOUR_MS:
            due[number] = next_due(other(number), Cadence(), now=due[number])
    parts = Counter(at % (30 * MINUTE_MS) * 12 // (30 * MINUTE_MS) for at in due.values())
    assert len(parts) == 12
    assert min(parts.values()) >= 400 // 12 // 2


@given(number=st.integers(0, 2_000))
def test_probes_of_a_round_keep_the_order_of_the_ids_however_late_some_were(
    number: int,
) -> None:
    period = 30 * MINUTE_MS
    begin = NOW - NOW % period + number * period
    known = sorted((other(number) for number in range(100)), key=lambda endpoint: endpoint.id)
    due = [
        next_due(
            endpoint,
            Cadence(),
            now=begin + place_ms(endpoint.id, period) + late % 7 * period // 300,
        )
        for late, endpoint in enumerate(known)
    ]
    assert due == sorted(due)


def test_endpoint_is_probed_before_and_after_its_slot() -> None:
    period, now = 30 * MINUTE_MS, NOW
    late = []
    for _ in range(1_000):
        now = next_due(ENDPOINT, Cadence(), now=now)
        late.append((now - place_ms(ENDPOINT.id, period) + period // 2) % period - period // 2)
    settled = late[48:]
    assert min(settled) < -period // 50
    assert max(settled) > period // 50
    assert all(abs(ms) <= period // 40 for ms in settled)


def test_pace_does_not_drift_over_a_month() -> None:
    now, probes = NOW, 0
    while now < NOW + 30 * DAY_MS:
        now = next_due(ENDPOINT, Cadence(), now=now)
        probes += 1
    assert 1_425 <= probes <= 1_455


def test_pause_moves_the_next_probe_only_where_it_is_the_longer() -> None:
    usual = next_due(ENDPOINT, Cadence(), now=NOW)
    assert next_due(ENDPOINT, Cadence(), now=NOW, pause_ms=MINUTE_MS) == usual
    assert next_due(ENDPOINT, Cadence(), now=NOW, pause_ms=2 * HOUR_MS) == NOW + 2 * HOUR_MS


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
    gap = next_due(ENDPOINT, Cadence(), now=NOW, round_ms=round_ms) - NOW
    assert 9 * HOUR_MS * 95 // 100 <= gap <= 9 * HOUR_MS * 105 // 100
    following = after_probe(ENDPOINT, result(NOW, "down"), Cadence(), now=NOW, round_ms=round_ms)
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
    following = after_probe(endpoint, probe, Cadence(), now=probe.at + 900, **more)
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
        assert last.due == next_due(ENDPOINT, Cadence(), now=NOW), "the regular probe stays"


def test_inconclusive_confirmation_is_repeated_after_five_minutes() -> None:
    failed, _ = after(PAYABLE, result(NOW, "down"))
    failed, second = after(failed, result(NOW + MINUTE_MS, "ours"))
    assert (second.due, second.confirms) == (NOW + 5 * MINUTE_MS, True)
    assert failed.unconfirmed_at == NOW
    failed, third = after(failed, result(NOW + 5 * MINUTE_MS, "ours"))
    assert (third.due, third.confirms) == (next_due(ENDPOINT, Cadence(), now=NOW), True)
    assert failed.unconfirmed_at is None


@pytest.mark.parametrize("payable", [False, None])
def test_second_failure_in_a_row_is_not_confirmed(payable: bool | None) -> None:
    endpoint, following = after(replace(ENDPOINT, payable=payable), result(NOW, "down"))
    assert following.due == next_due(ENDPOINT, Cadence(), now=NOW + 900)
    assert endpoint.unconfirmed_at is None


def test_requested_pause_is_kept_and_the_failure_holds_as_long() -> None:
    endpoint, following = after(PAYABLE, result(NOW, "down"), pause_ms=6 * HOUR_MS)
    assert following.due == NOW + 900 + 6 * HOUR_MS
    assert following.holds == (6 * HOUR_MS + 900) * 3 // 2
    assert endpoint.unconfirmed_at is None


def test_probe_at_the_regular_time_does_not_confirm() -> None:
    failed, _ = after(PAYABLE, result(NOW, "down"))
    late, following = after(failed, result(NOW + HOUR_MS, "down"))
    assert not following.confirms
    assert late.unconfirmed_at is None


def test_no_confirmation_if_the_regular_probe_is_due_soon() -> None:
    quick = Cadence(every_ms=90 * SECOND_MS)
    following = after_probe(PAYABLE, result(NOW, "down"), quick, now=NOW)
    assert following.due > NOW + 80 * SECOND_MS
    assert following.unconfirmed_at is None


def test_watched_endpoint_has_one_confirming_probe() -> None:
    watched = replace(PAYABLE, watched_until=NOW + DAY_MS)
    failed, following = after(watched, result(NOW, "down"))
    assert following.due == NOW + MINUTE_MS
    failed, following = after(failed, result(NOW + MINUTE_MS, "ours"))
    assert following.due > NOW + 4 * MINUTE_MS
    assert failed.unconfirmed_at is None
    late, _ = after(watched, result(NOW, "down"))
    _, regular = after(late, result(NOW + 5 * MINUTE_MS, "down"))
    assert not regular.confirms


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
    draws = Draws(gap=draw, confirm=0)
    gap = next_due(ENDPOINT, cadence, now=NOW, draws=draws) - NOW
    assert 6 * gap >= cadence.every_ms - 6
    assert 6 * gap <= 11 * cadence.every_ms
    assert gap == pytest.approx(cadence.every_ms * (1 / 6 + 10 / 6 * draw / DRAW_RANGE), abs=2)


def test_drawn_gap_ends_no_pause_early() -> None:
    draws = Draws(gap=0, confirm=0)
    due = next_due(ENDPOINT, Cadence(), now=NOW, pause_ms=HOUR_MS, draws=draws)
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
