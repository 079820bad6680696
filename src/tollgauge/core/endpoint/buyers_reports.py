"""Statements in which a payer reports whether a seller delivered, signed as EIP-712 typed data.

Statements are published and never scored: a seller can pay itself and praise itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tollgauge.core.base.signature import hash_domain, hash_struct, recover_signer, typed_digest
from tollgauge.core.base.units import DAY_MS, HOUR_MS, MINUTE_MS

REPORT_AGE_MS: Final = 7 * DAY_MS  # maximum age of the payment when its statement arrives
REPORT_AHEAD_MS: Final = 5 * MINUTE_MS  # tolerance for a payer's clock
SETTLEMENT_MS: Final = HOUR_MS
"""Maximum time between the payment that a statement names and its settlement."""
REPORTS_KEPT_MS: Final = 90 * DAY_MS
_TYPE: Final = "Outcome(string resource,address payTo,bytes32 nonce,string outcome,uint256 at)"


class BuyerOutcome(StrEnum):
    """The outcome of a payment for its payer. All but `delivered` count as not delivered."""

    DELIVERED = "delivered"
    NOT_DELIVERED = "not-delivered"
    NOT_MATCHING = "delivered-not-matching"
    EMPTY = "empty"
    ERROR = "error-after-payment"
    SETTLED = "settled-not-delivered"
    ASKED_AGAIN = "asked-again"


@dataclass(frozen=True, slots=True, kw_only=True)
class BuyersReports:
    """The number of payers with a statement about an endpoint, by outcome, and the sums of their
    weights of proven demand at the seller, in millionths.
    """

    delivered: int
    not_delivered: int
    delivered_weight: int = 0
    not_delivered_weight: int = 0

    @property
    def payers(self) -> int:
        """The number of payers."""
        return self.delivered + self.not_delivered


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeStatement:
    """A statement about one payment.

    Attributes:
        resource: The URL as signed.
        chain: The EVM chain of the payment.
        pay_to: The address that was paid, in lower-case hex.
        nonce: The nonce of the payment's authorization (32 bytes).
        at: When the payer signed the payment (Unix seconds).
    """

    resource: str
    chain: int
    pay_to: str
    nonce: bytes
    outcome: BuyerOutcome
    at: int

    def signer(self, signature: bytes) -> str | None:
        """Return the account (lower-case hex) that signed the statement; None if the signature is
        invalid.
        """
        pay_to = bytes.fromhex(self.pay_to[2:])
        message = hash_struct(_TYPE, self.resource, pay_to, self.nonce, self.outcome, self.at)
        domain = hash_domain("tollgauge outcome", "1", self.chain)
        return recover_signer(typed_digest(domain, message), signature)
