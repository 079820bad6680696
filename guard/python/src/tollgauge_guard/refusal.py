"""The errors of a call that must not pay."""

from __future__ import annotations

from dataclasses import dataclass

from tollgauge_guard.decision import Refuse
from tollgauge_guard.errors import GuardError
from tollgauge_guard.payment import Payment


class PaymentRefusedError(GuardError):
    """The guard refused a payment, and nothing left the process.

    `code` is the rule that decided, `remedy` tells the owner how to allow the payment.
    """

    def __init__(self, refusal: Refuse) -> None:
        super().__init__(f"{refusal.code}: {refusal.reason}", hint=refusal.remedy)
        self.code = refusal.code
        self.reason = refusal.reason
        self.remedy = refusal.remedy

    def for_model(self) -> dict[str, object]:
        """Return the refusal for a language model, without addresses and settings that loosen."""
        return {"error": "payment-refused", "code": str(self.code)}


@dataclass(frozen=True, slots=True)
class Unresolved(Refuse):
    """A purchase whose earlier payment has no answer; None while it is being signed."""

    payment: Payment | None = None


class PaymentUnresolved(PaymentRefusedError):  # noqa: N818  # the name in every language
    """An earlier payment of the same purchase has no answer, so no other one was signed.

    Attributes:
        handle: names the payment for `guard.resolve` and the commands; None while it is being
            signed by another call.
        state: `open`, or `paid-unanswered` if the chain shows that it was taken.
        retry_until: time until which the same call sends the same payment again (unix seconds).
        remedy: the owner's options.
        nonce, network, payer, resource: of the payment.
    """

    def __init__(self, unresolved: Unresolved) -> None:
        super().__init__(unresolved)
        payment = unresolved.payment
        self.handle = None if payment is None else payment.handle
        self.state = "reserved" if payment is None else str(payment.state)
        self.retry_until = None if payment is None else payment.retry_until
        self.nonce = None if payment is None else payment.nonce
        self.network = None if payment is None else payment.network
        self.payer = None if payment is None else payment.payer
        self.resource = None if payment is None else payment.resource

    def for_model(self) -> dict[str, object]:
        """Return the handle, the state, and until when the same call may be repeated."""
        state = {"handle": self.handle, "state": self.state, "retryUntil": self.retry_until}
        return super().for_model() | state


def to_error(refusal: Refuse) -> PaymentRefusedError:
    """Return the error for a refusal."""
    if isinstance(refusal, Unresolved):
        return PaymentUnresolved(refusal)
    return PaymentRefusedError(refusal)
