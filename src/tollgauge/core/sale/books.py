"""Books: a day's settled sales against what the chain brought to the address we sell to.

Rules (docs/payments.md):
- a day is a UTC day. A sale belongs to the day of its transfer's block, and to the day of its
  payment while no transfer is known;
- a transfer is attributed when a settled sale has its network, asset, payer and nonce. Every other
  one is unattributed: it is counted, shown, and unlocks nothing;
- a settled sale without a transfer is awaited while the chain may still show one: until every
  block in which the authorization could be used was read. After that it is missing;
- a day is complete when every block of it was read once it was final, and nothing is awaited;
- what is left between the two sums is the difference. On a complete day nothing explains it.

Amounts are atomic units. Reading the rows is store/ledger/books's work.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from tollgauge.core.base.units import DAY_MS, MINUTE_MS

CLOCKS_MS: Final = 10 * MINUTE_MS
"""How much earlier than the payment's arrival at our clock its block's time may be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """An address that we sell to, for one asset on one network. Hex is lower case.

    The final blocks from `read_from` to `read_to` (ms UTC) are indexed for it; both are None where
    no node is configured.
    """

    network: str
    asset: str
    address: str
    read_from: int | None = None
    read_to: int | None = None

    def same_as(self, other: Account) -> bool:
        """Whether both are the same address, whatever part of the chain is indexed for each."""
        return (self.network, self.asset, self.address) == (
            other.network,
            other.asset,
            other.address,
        )

    def covers(self, begin: int, end: int) -> bool:
        """Whether every block from `begin` up to but without `end` (ms UTC) is read."""
        if self.read_from is None or self.read_to is None:
            return False
        return self.read_from < begin and self.read_to >= end


class ReceivedTransfer(NamedTuple):
    """A transfer to an account: its value, and what the settled sale cost that it paid for, None
    when it is unattributed.
    """

    value: int
    sold: int | None


class UnmatchedSale(NamedTuple):
    """A settled sale whose transfer is not known: when its payment was first seen (ms), and when
    the authorization ends (seconds).
    """

    amount: int
    created_at: int
    valid_before_s: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Day:
    """The books of one account on one UTC day (days since the epoch)."""

    account: Account
    day: int
    sales: int = 0
    settled: int = 0
    transfers: int = 0
    received: int = 0
    unattributed: int = 0
    unattributed_transfers: int = 0
    awaited: int = 0

    @property
    def difference(self) -> int:
        """What the chain brought beyond what the ledger explains; below zero when it brought less
        than was sold.
        """
        return self.received - self.unattributed - (self.settled - self.awaited)

    @property
    def complete(self) -> bool:
        """Whether nothing can change this day's books any more."""
        begin = self.day * DAY_MS
        return self.account.covers(begin, begin + DAY_MS) and not self.awaited

    @property
    def unexplained(self) -> bool:
        """Whether the sums differ although the day is complete."""
        return self.complete and self.difference != 0


def books_of_day(
    account: Account,
    day: int,
    received: Iterable[ReceivedTransfer],
    unmatched: Iterable[UnmatchedSale],
) -> Day:
    """The books of a day from its transfers, and from the settled sales that have none."""
    transfers, sales = list(received), list(unmatched)
    sold = [transfer.sold for transfer in transfers if transfer.sold is not None]
    unattributed = [transfer.value for transfer in transfers if transfer.sold is None]
    return Day(
        account=account,
        day=day,
        sales=len(sold) + len(sales),
        settled=sum(sold) + sum(sale.amount for sale in sales),
        transfers=len(transfers),
        received=sum(transfer.value for transfer in transfers),
        unattributed=sum(unattributed),
        unattributed_transfers=len(unattributed),
        awaited=sum(sale.amount for sale in sales if _awaited(account, sale)),
    )


def _awaited(account: Account, sale: UnmatchedSale) -> bool:
    begin = sale.created_at - CLOCKS_MS
    return not account.covers(begin, max(begin, 1_000 * sale.valid_before_s))
