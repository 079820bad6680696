"""Entry: one payment as the journal has it, and the states that it goes through.

    reserved -> in-flight -> answered | settled | open
    open -> in-flight (sent again) | paid-unanswered | dead | lapsed | written-off

Until a payment of a purchase is answered, settled, dead, lapsed or written off, no other one is
signed for the same purchase.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

SETTLE_MARGIN_S: Final = 6
"""An authorization is sent again only while more than this is left of it (x402 exact EVM)."""
PURCHASE_WINDOW_S: Final = 600
"""A purchase that is known by its request only ends this long after its payment expired, or was
found used.
"""


class Outcome(StrEnum):
    """The state of a payment."""

    RESERVED = "reserved"
    """It was allowed and is being signed."""
    IN_FLIGHT = "in-flight"
    """It was signed, and its answer is not complete yet."""
    OPEN = "open"
    """It was sent and not answered by a complete 2xx: it may still be taken."""
    ANSWERED = "answered"
    """A complete 2xx without a receipt."""
    SETTLED = "settled"
    """A complete 2xx with a receipt that names a transaction."""
    PAID_UNANSWERED = "paid-unanswered"
    """The chain shows that it was taken, and there was no complete 2xx."""
    DEAD = "dead"
    """It was not taken and no longer can be: the chain shows so, or it never left."""
    LAPSED = "lapsed"
    """Its purchase ended without an answer, which counts as a loss."""
    WRITTEN_OFF = "written-off"
    """Its owner agreed to pay for the purchase again."""


UNFINISHED: Final = (Outcome.IN_FLIGHT, Outcome.OPEN, Outcome.PAID_UNANSWERED)
"""Signed, and in the way of another payment for the same purchase."""
UNSETTLED: Final = (Outcome.IN_FLIGHT, Outcome.OPEN, Outcome.ANSWERED, Outcome.LAPSED)
"""Signed, and neither a receipt nor the chain says whether it was taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """What has budgets of its own: a payer and a token on a network; hex is lower case."""

    payer: str
    network: str
    asset: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PaidRequest:
    """The request that is paid: its host, its canonical resource, and a digest of method, URL
    and body of the call that led to it, by which the same call is known again. `payers` are the
    addresses of the wallets of its client: a purchase belongs to them.
    """

    host: str
    resource: str
    digest: str
    payers: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One signed payment. Times are unix seconds, `amount` atomic units, hex is lower case.

    `status` is that of the answer, and `settlement` the transaction that its receipt names. A
    transaction proves nothing while the payment is open.
    """

    id: int
    at: int
    host: str
    resource: str
    request_digest: str
    network: str
    asset: str
    pay_to: str
    amount: int
    micro_usd: int
    payer: str
    nonce: str
    valid_before: int
    outcome: Outcome
    status: int | None
    settlement: str | None
    found_at: int | None

    @property
    def retry_until(self) -> int:
        """Until when the same payment may be sent again (unix seconds)."""
        return self.valid_before - SETTLE_MARGIN_S

    @property
    def ends_at(self) -> int:
        """When its purchase ends, if nothing else is known of it than its request."""
        return max(self.valid_before, self.found_at or 0) + PURCHASE_WINDOW_S


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A payment that is in the way of another one for the same purchase.

    `entry` is None while it is being signed. `is_busy`: a process that runs is signing it, or
    waits for its answer. `header` is what is sent to send it again.
    """

    id: int
    entry: Entry | None
    is_busy: bool
    header: str | None
