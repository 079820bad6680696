"""States of a payment, and the chain's proof: of one payment, and of a day's sales.

A settlement without proof is `unknown` until the chain decides it.

Reconciliation compares a day's settled sales with the transfers to the selling address
(docs/operating/reconciliation.md):
- a day is a UTC day. A sale belongs to the day of its transfer's block, and to the day of its
  payment while no transfer is known;
- a transfer is attributed if a settled sale has its network, asset, payer and nonce. All others are
  unattributed: counted, shown, and without any effect;
- a settled sale without a transfer is awaited while the chain may still show one: until every
  block in which the authorization could be used was read. After that it is missing;
- a day is complete when every block of it was read after it was final, and nothing is awaited;
- the remainder between the two sums is the difference. On a complete day it is unexplained.

Amounts are atomic units. store/ledger/reconciliation reads the rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from tollgauge.core.base.units import DAY_MS, MINUTE_MS

REST_MS: Final = 15_000
"""Delay before the reconciler checks an unclear settlement again."""
FINAL_MS: Final = 30 * MINUTE_MS
"""Delay after settlement before a payment is checked again: Base's blocks are final by then."""
EXPIRY_GRACE_S: Final = 120
"""Minimum time by which the chain's clock must be past validBefore: allows for a short
reorganisation.
"""
CLOCKS_MS: Final = 10 * MINUTE_MS
"""Maximum time by which a block's time may precede the arrival of its payment by the local
clock.
"""


class State(StrEnum):
    """The state of a payment."""

    CLAIMED = "claimed"
    """A worker verifies it and computes the response."""
    REJECTED = "rejected"
    """Refused before settlement: nothing was charged."""
    SETTLING = "settling"
    """A request to the facilitator to settle it was sent or is about to be sent."""
    SETTLED = "settled"
    """It was paid."""
    UNKNOWN = "unknown"
    """The facilitator's reply proves nothing; the chain decides."""
    FAILED = "failed"
    """The chain shows that the authorization was cancelled or used for another transfer."""
    EXPIRED = "expired"
    """It was not used before `validBefore` and can no longer be used."""


TRANSITIONS: Final[dict[State, frozenset[State]]] = {
    State.CLAIMED: frozenset({State.CLAIMED, State.REJECTED, State.SETTLING}),
    State.REJECTED: frozenset({State.CLAIMED}),
    State.SETTLING: frozenset({State.SETTLED, State.UNKNOWN}),
    State.UNKNOWN: frozenset({State.SETTLING, State.SETTLED, State.FAILED, State.EXPIRED}),
    State.SETTLED: frozenset({State.UNKNOWN}),
    State.FAILED: frozenset(),
    State.EXPIRED: frozenset(),
}
"""The states that may follow each state. `claimed` may follow itself if a worker takes over a dead
worker's claim; `rejected` may be claimed again because nothing was charged; `settled` returns to
`unknown` only if the transfer is missing when the chain is checked again after finality.
"""
PATHS: Final[dict[State, tuple[State, ...]]] = {
    State.SETTLING: (State.UNKNOWN,),
    State.SETTLED: (State.UNKNOWN,),
    State.UNKNOWN: (),
}
"""The states between an abandoned row's state and `unknown`, from which the chain's proof
moves it.
"""

BEFORE_SETTLEMENT: Final = frozenset({State.CLAIMED, State.REJECTED})
"""The facilitator has received no request to settle: nothing can have been charged."""
IN_WORK: Final = frozenset({State.CLAIMED, State.SETTLING})
"""A worker holds the payment until its lease ends."""
IN_DOUBT: Final = frozenset({State.SETTLING, State.UNKNOWN})
"""It may have been charged; only the chain can decide."""
NEVER_PAID: Final = frozenset({State.FAILED, State.EXPIRED})
"""The chain has proved that it will never be paid."""
NOT_PAID: Final = NEVER_PAID | {State.REJECTED}
"""It brought no money: refused, or proved never to be paid. A rejected payment may be claimed
again.
"""
CONCLUDED: Final = NOT_PAID | {State.SETTLED}
"""The outcome is known."""
CHECKED_ON_CHAIN: Final = frozenset(PATHS)
"""The reconciler queries the chain about these: unclear outcomes, and settled ones until final."""


class Proof(StrEnum):
    """Evidence of the chain about an authorization."""

    PAID = "paid"
    """`AuthorizationUsed` and the matching `Transfer` are in one transaction."""
    CANCELLED = "cancelled"
    """The payer cancelled it; it can never pay."""
    OTHER = "other"
    """It was used for another transfer than the signed one."""
    UNUSED = "unused"
    """The known part of the chain does not contain it."""


def proven_state(proof: Proof | None, *, valid_before_s: int, now_s: int | None) -> State | None:
    """Return the state that a proof moves an unknown payment to; None while the outcome is open.

    `now_s` is the chain's time at the proof (Unix seconds), not the local time: a node that lags by
    minutes lacks recent blocks. `authorizationState` is not sufficient as a proof, because it is
    true for a cancelled authorization too.
    """
    if proof is Proof.PAID:
        return State.SETTLED
    if proof in (Proof.CANCELLED, Proof.OTHER):
        return State.FAILED
    late = now_s is not None and now_s > valid_before_s + EXPIRY_GRACE_S
    return State.EXPIRED if proof is Proof.UNUSED and late else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """An address that receives payments, for one asset on one network. Hex is lower case.

    Its final blocks from `read_from` to `read_to` (ms UTC) are indexed; both are None without a
    node.
    """

    network: str
    asset: str
    address: str
    read_from: int | None = None
    read_to: int | None = None

    def same_as(self, other: Account) -> bool:
        """Return whether both are the same address, regardless of their indexed blocks."""
        return (self.network, self.asset, self.address) == (
            other.network,
            other.asset,
            other.address,
        )

    def covers(self, begin: int, end: int) -> bool:
        """Return whether every block from `begin` up to, but not including, `end` (ms UTC) is
        read.
        """
        if self.read_from is None or self.read_to is None:
            return False
        return self.read_from < begin and self.read_to >= end


class ReceivedTransfer(NamedTuple):
    """A transfer to an account: its value, and the price of the settled sale that it paid for (None
    if it is unattributed).
    """

    value: int
    sold: int | None


class UnmatchedSale(NamedTuple):
    """A settled sale without a known transfer: arrival of its payment (ms), and end of the
    authorization (seconds).
    """

    amount: int
    created_at: int
    valid_before_s: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Day:
    """The reconciliation of one account on one UTC day (days since the epoch)."""

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
        """The amount received beyond the explained amount; negative if less was received than
        sold.
        """
        return self.received - self.unattributed - (self.settled - self.awaited)

    @property
    def complete(self) -> bool:
        """Whether this day's figures are final."""
        begin = self.day * DAY_MS
        return self.account.covers(begin, begin + DAY_MS) and not self.awaited

    @property
    def unexplained(self) -> bool:
        """Whether the sums differ although the day is complete."""
        return self.complete and self.difference != 0


def reconcile_day(
    account: Account,
    day: int,
    received: Iterable[ReceivedTransfer],
    unmatched: Iterable[UnmatchedSale],
) -> Day:
    """Reconcile a day from its transfers, and from the settled sales without one."""
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
        awaited=sum(sale.amount for sale in sales if _is_awaited(account, sale)),
    )


def _is_awaited(account: Account, sale: UnmatchedSale) -> bool:
    begin = sale.created_at - CLOCKS_MS
    return not account.covers(begin, max(begin, 1_000 * sale.valid_before_s))
