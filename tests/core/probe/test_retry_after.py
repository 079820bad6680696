"""Retry-After: seconds and dates, and everything else that a server may write."""

from __future__ import annotations

import time

import pytest

from tollgauge.core.probe.exchange import retry_after_ms

NOW = 1_766_283_370_973


@pytest.mark.parametrize(
    ("header", "wait"),
    [
        ("12", 12_000),
        ("  007 ", 7_000),
        ("0", 0),
        ("9" * 10_000, 999_999_999_000),
        ("Sun, 21 Dec 2025 02:17:10 GMT", 59_027),
        ("Sun, 21 Dec 2005 02:17:10 GMT", 0),
        ("soon", None),
        ("", None),
        (None, None),
        ("-5", None),
        ("1.5", None),
        ("²", None),
    ],
)
def test_seconds_and_dates_are_read(header: str | None, wait: int | None) -> None:
    assert retry_after_ms(header, now=NOW) == wait


def test_date_is_not_read_without_a_clock() -> None:
    assert retry_after_ms("Sun, 21 Dec 2025 02:17:10 GMT", now=None) is None
    assert retry_after_ms("3", now=None) == 3_000


@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Asia/Kolkata"])
def test_dates_are_gmt_wherever_we_are(zone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """RFC 9110 section 5.6.7: of the three forms two do not name a zone that Python reads."""
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        now = 784_111_777_000  # Sun, 06 Nov 1994 08:49:37 GMT
        for date in (
            "Sun, 06 Nov 1994 08:59:37 GMT",
            "Sunday, 06-Nov-94 08:59:37 GMT",
            "Sun Nov  6 08:59:37 1994",
            "Sun, 06 Nov 1994 08:59:37 -0000",
        ):
            assert retry_after_ms(date, now=now) == 600_000, date
    finally:
        monkeypatch.undo()
        time.tzset()
