"""When to probe again: cadence, jitter, and the pause that a target asked for."""

from __future__ import annotations

import time
from dataclasses import replace
from email.utils import formatdate
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tollgauge.core.endpoint import Endpoint, Listing, endpoint_id
from tollgauge.core.exchange import Answer, Fault, FaultKind
from tollgauge.core.schedule import RETRY_AFTER_MAX_MS, Cadence, next_due, pause_ms
from tollgauge.core.units import DAY_MS, HOUR_MS, MINUTE_MS

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
def test_the_next_probe_comes_after_the_cadence_give_or_take_a_twentieth(
    number: int, now: int
) -> None:
    for endpoint, period in (
        (other(number), 30 * MINUTE_MS),
        (replace(other(number), watched_until=now + 1), 5 * MINUTE_MS),
        (replace(other(number), status=Listing.DELISTED), DAY_MS),
    ):
        gap = next_due(endpoint, Cadence(), now=now) - now
        assert period * 95 // 100 <= gap <= period * 105 // 100


def test_a_watch_that_ended_no_longer_counts_and_one_of_a_delisted_endpoint_does() -> None:
    ended = replace(ENDPOINT, watched_until=NOW)
    assert next_due(ended, Cadence(), now=NOW) - NOW > 28 * MINUTE_MS
    delisted = replace(ENDPOINT, status=Listing.DELISTED, watched_until=NOW + 1)
    assert next_due(delisted, Cadence(), now=NOW) - NOW < 6 * MINUTE_MS


def test_endpoints_that_were_probed_together_come_apart() -> None:
    gaps = {next_due(other(number), Cadence(), now=NOW) - NOW for number in range(500)}
    assert len(gaps) > 450
    assert max(gaps) - min(gaps) > 2 * MINUTE_MS


def test_the_pace_does_not_drift_over_a_month() -> None:
    now, probes = NOW, 0
    while now < NOW + 30 * DAY_MS:
        now = next_due(ENDPOINT, Cadence(), now=now)
        probes += 1
    assert 1_425 <= probes <= 1_455


def test_a_pause_moves_the_next_probe_only_where_it_is_the_longer() -> None:
    usual = next_due(ENDPOINT, Cadence(), now=NOW)
    assert next_due(ENDPOINT, Cadence(), now=NOW, pause_ms=MINUTE_MS) == usual
    assert next_due(ENDPOINT, Cadence(), now=NOW, pause_ms=2 * HOUR_MS) == NOW + 2 * HOUR_MS


@pytest.mark.parametrize(
    "pace", [{"every_ms": 0}, {"every_ms": 999}, {"watched_every_ms": -1}, {"host_gap_ms": -1}]
)
def test_a_pace_that_would_be_a_flood_is_refused(pace: dict[str, int]) -> None:
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
def test_the_pause_is_what_retry_after_says_within_bounds(text: str, expected: int) -> None:
    for status in (429, 503):
        found = pause_ms(answer(status, text), now=NOW)
        assert found == expected


def test_only_429_and_503_may_ask_for_a_pause() -> None:
    for status in (200, 402, 404, 500, 502):
        assert pause_ms(answer(status, "60"), now=NOW) == 0
    assert pause_ms(answer(429, None), now=NOW) == 0
    assert pause_ms(Fault(kind=FaultKind.TIMEOUT), now=NOW) == 0


def test_a_date_means_the_same_in_every_time_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    text = formatdate((NOW + 90_000) / 1000, usegmt=True).removesuffix(" GMT")
    found: set[Any] = set()
    try:
        for zone in ("UTC", "Pacific/Auckland", "America/Los_Angeles"):
            monkeypatch.setenv("TZ", zone)
            time.tzset()
            found.add(pause_ms(answer(503, text), now=NOW))
    finally:
        monkeypatch.undo()
        time.tzset()
    assert found == {90_000}


@given(st.text())
def test_no_text_in_retry_after_raises(text: str) -> None:
    assert 0 <= pause_ms(answer(429, text), now=NOW) <= RETRY_AFTER_MAX_MS
