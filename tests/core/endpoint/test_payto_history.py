"""Which endpoints are recognised as naming another payTo in each offer, and which never are."""

from __future__ import annotations

from typing import Any

from tollgauge.core.base.units import DAY_MS, HOUR_MS
from tollgauge.core.endpoint.terms import PayToHistory

START = 20_000 * DAY_MS
NEW = PayToHistory(START, START)


def change(history: PayToHistory, before: str, after: str, at: int, **values: Any) -> PayToHistory:
    """Return the history after a change at `at`; `before` was seen until an hour earlier."""
    base = {"last_seen": at - HOUR_MS, "move_announced": False, "variation_announced": False}
    return history.add_change(before, after, at=at, **base | values)


def make_varying_history() -> PayToHistory:
    once = change(NEW, "a", "b", START + HOUR_MS)
    return change(once, "b", "c", START + 2 * HOUR_MS)


def test_payto_that_changes_twice_in_the_first_24_hours_varies() -> None:
    once = change(NEW, "a", "b", START + HOUR_MS)
    assert not once.is_varying(START + HOUR_MS)
    assert change(once, "b", "c", START + DAY_MS).is_varying(START + DAY_MS)
    assert not change(once, "b", "c", START + DAY_MS + 1).is_varying(START + DAY_MS + 1)


def test_payto_that_began_to_vary_later_never_varies() -> None:
    history, at = NEW, START + DAY_MS
    for hour in range(1, 200):
        at = START + DAY_MS + hour * HOUR_MS
        history = change(history, str(hour - 1), str(hour), at)
    assert not history.is_varying(at)


def test_payto_that_stays_for_7_days_is_settled_for_good() -> None:
    history = make_varying_history()
    assert history.is_varying(history.since + 7 * DAY_MS - 1)
    assert not history.is_varying(history.since + 7 * DAY_MS)
    at = history.since + 8 * DAY_MS
    history = change(history, "c", "d", at)
    assert (history.settled, history.is_varying(at)) == ("c", False)
    for hour in range(1, 9):
        history = change(history, f"d{hour - 1}", f"d{hour}", at + hour * HOUR_MS)
    assert not history.is_varying(at + 8 * HOUR_MS)


def test_only_the_settled_payto_can_announce_that_it_varies() -> None:
    at = START + 10 * DAY_MS
    hijacked = change(NEW, "owner", "thief", at)
    assert hijacked.settled == "owner"
    cleared = change(hijacked, "thief", "x", at + 9 * DAY_MS, variation_announced=True)
    assert not cleared.is_varying(at + 9 * DAY_MS)
    announced = change(NEW, "owner", "x", at, variation_announced=True)
    assert announced.is_varying(at)


def test_announced_move_passes_the_right_to_announce_on() -> None:
    at = START + 10 * DAY_MS
    moved = change(NEW, "owner", "new", at, move_announced=True)
    assert moved.settled == "new"
    assert change(moved, "new", "x", at + HOUR_MS, variation_announced=True).varies
    stolen = change(NEW, "owner", "thief", at)
    assert change(stolen, "thief", "x", at, move_announced=True).settled == "owner"
