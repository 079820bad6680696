"""A day's books: what explains a difference, and when nothing is left that could."""

from __future__ import annotations

from dataclasses import replace

from tollgauge.core.base.units import DAY_MS, HOUR_MS, MINUTE_MS
from tollgauge.core.sale.payment_state import (
    Account,
    ReceivedTransfer,
    UnmatchedSale,
    reconcile_day,
)

DAY = 20_000
BEGIN = DAY * DAY_MS
END = BEGIN + DAY_MS
READ = Account(
    network="eip155:8453",
    asset="0x" + "aa" * 20,
    address="0x" + "bb" * 20,
    read_from=BEGIN - HOUR_MS,
    read_to=END + HOUR_MS,
)
SALE = ReceivedTransfer(5_000, 5_000)


def unseen(created_at: int) -> UnmatchedSale:
    return UnmatchedSale(5_000, created_at, created_at // 1_000 + 300)


def test_three_sales_are_attributed_and_two_other_transfers_are_not() -> None:
    day = reconcile_day(
        READ, DAY, [SALE, SALE, SALE, ReceivedTransfer(700, None), ReceivedTransfer(40, None)], []
    )
    assert (day.sales, day.settled) == (3, 15_000)
    assert (day.transfers, day.received) == (5, 15_740)
    assert (day.unattributed_transfers, day.unattributed) == (2, 740)
    assert (day.difference, day.complete, day.unexplained) == (0, True, False)


def test_settled_sale_that_the_chain_never_showed_is_a_difference() -> None:
    day = reconcile_day(READ, DAY, [SALE], [unseen(BEGIN + HOUR_MS)])
    assert (day.sales, day.settled, day.received) == (2, 10_000, 5_000)
    assert (day.difference, day.awaited) == (-5_000, 0)
    assert day.unexplained


def test_sale_with_another_sum_on_the_chain_is_a_difference() -> None:
    day = reconcile_day(READ, DAY, [ReceivedTransfer(4_999, 5_000)], [])
    assert (day.difference, day.unexplained) == (-1, True)


def test_sale_is_awaited_until_its_authorization_has_ended() -> None:
    late = unseen(END - MINUTE_MS)
    before = replace(READ, read_to=END + 2 * MINUTE_MS)
    day = reconcile_day(before, DAY, [SALE], [late])
    assert (day.awaited, day.difference) == (5_000, 0)
    assert not day.complete, "the transfer may be in a block of the next day"
    after = replace(READ, read_to=END + 4 * MINUTE_MS)
    assert reconcile_day(after, DAY, [SALE], [late]).unexplained


def test_day_is_complete_when_all_of_it_was_read() -> None:
    assert reconcile_day(READ, DAY, [], []).complete
    assert not reconcile_day(replace(READ, read_to=END - 1), DAY, [], []).complete
    assert reconcile_day(replace(READ, read_to=END), DAY, [], []).complete
    # The first block that was read is of the day itself: others may be before it.
    assert not reconcile_day(replace(READ, read_from=BEGIN), DAY, [], []).complete
    assert reconcile_day(replace(READ, read_from=BEGIN - 1), DAY, [], []).complete


def test_without_a_node_every_sale_is_awaited_and_nothing_is_judged() -> None:
    blind = replace(READ, read_from=None, read_to=None)
    day = reconcile_day(blind, DAY, [], [unseen(BEGIN), unseen(BEGIN + HOUR_MS)])
    assert (day.settled, day.awaited, day.difference) == (10_000, 10_000, 0)
    assert not day.complete


def test_sale_from_before_the_chain_was_read_is_not_missing() -> None:
    late_start = replace(READ, read_from=BEGIN + 2 * HOUR_MS)
    day = reconcile_day(late_start, DAY, [], [unseen(BEGIN + HOUR_MS)])
    assert (day.awaited, day.difference) == (5_000, 0)
