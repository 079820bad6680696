"""Which addresses an endpoint is known to be paid at, and since when."""

from __future__ import annotations

from collections.abc import Sequence

from tollgauge.core.base.units import DAY_MS
from tollgauge.core.directory.discovery import PAYTO_CHANGED
from tollgauge.core.guard.bundle import ADDRESSES_MS, list_addresses
from tollgauge.core.score.evidence import TermChange

NOW = 20_000 * DAY_MS
FIRST = NOW - 80 * DAY_MS


def change(days_ago: int, before: str, after: str) -> TermChange:
    at = NOW - days_ago * DAY_MS
    return TermChange(at=at, kind=PAYTO_CHANGED, source="probe", before=before, after=after)


def known(pay_to: str, *changes: TermChange, now: int = NOW) -> Sequence[tuple[str, int]]:
    """The addresses, each with for how many days it has been known."""
    addresses = list_addresses(pay_to, changes, first_seen=FIRST, now=now)
    return [(address.pay_to, (now - address.since) // DAY_MS) for address in addresses]


def test_an_address_that_never_changed_is_known_since_the_endpoint_is() -> None:
    assert known("0xa") == [("0xa", 80)]


def test_newest_address_comes_first_with_the_time_of_its_change() -> None:
    assert known("0xc", change(20, "0xa", "0xb"), change(3, "0xb", "0xc")) == [
        ("0xc", 3),
        ("0xb", 20),
        ("0xa", 80),
    ]


def test_an_address_is_forgotten_30_days_after_it_was_last_advertised() -> None:
    changes = (change(40, "0xa", "0xb"), change(31, "0xb", "0xc"), change(2, "0xc", "0xd"))
    assert known("0xd", *changes) == [("0xd", 2), ("0xc", 31)]
    at = changes[1].at + ADDRESSES_MS
    assert "0xb" in dict(known("0xd", *changes, now=at - 1))
    assert "0xb" not in dict(known("0xd", *changes, now=at))


def test_an_address_that_came_back_is_named_once_since_it_is_back() -> None:
    assert known("0xa", change(9, "0xa", "0xb"), change(2, "0xb", "0xa")) == [
        ("0xa", 2),
        ("0xb", 9),
    ]


def test_the_address_of_now_is_known_even_where_its_change_was_not_seen() -> None:
    assert known("0xc", change(5, "0xa", "0xb"))[0] == ("0xc", 5)
