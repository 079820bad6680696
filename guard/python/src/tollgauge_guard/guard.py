"""Guard: decides about each payment, reserves it, and checks what was signed and what leaves.

The steps of one payment, in order; each raises or refuses where anything is not as it must be:

1. `judge`: may this offer be paid? (before it is signed)
2. `reserve`: the amount is set aside in the journal, and goes over no budget (before it is signed)
3. `check_signed`: what was signed is what was allowed (after it is signed)
4. `seal`: the payload that will be sent is still the one that was checked, and is written down
5. `check_leaving`: the header of a request that leaves is the one that was sealed
6. `answered` or `unanswered`: what became of it

Which client calls them, and when, is the work of `hooks` and of the module of each client.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Final

from x402.http.utils import decode_payment_signature_header, encode_payment_signature_header
from x402.schemas import PaymentPayload
from x402.schemas.v1 import PaymentPayloadV1

from tollgauge_guard.bundle import Bundle
from tollgauge_guard.bundle_source import BundleSource
from tollgauge_guard.decision import Allow, Ask, Code, Decision, Refuse, decide
from tollgauge_guard.errors import GuardError
from tollgauge_guard.journal import Entry, Journal, Outcome, Price
from tollgauge_guard.offer import Offer, Terms
from tollgauge_guard.policy import Policy
from tollgauge_guard.request import CALL, Attempt, PaymentRefusedError, Stage
from tollgauge_guard.resource import ResourceError
from tollgauge_guard.signed import Authorization, difference, read_signed, signer

Payload = PaymentPayload | PaymentPayloadV1
AskFunction = Callable[[Ask, str], bool | Awaitable[bool]]
"""Called with a question and the URL; only an answer that is True lets pay."""
PAYMENT_REQUIRED: Final = 402
_SERVER_ERROR: Final = 500
_LATER: Final = frozenset({408, 425, 429})
"""The seller wants the same request later: in time, not so early, not so often."""
_log = logging.getLogger("tollgauge_guard")


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """What stands between a wallet and the sellers that its software meets.

    `ask` is called where a payment needs consent; without it such a payment is refused. `clock`
    returns unix seconds.
    """

    bundles: BundleSource
    policy: Policy
    journal: Journal
    ask: AskFunction | None = None
    clock: Callable[[], float] = time.time

    @property
    def now(self) -> int:
        """Unix seconds."""
        return int(self.clock())

    def unsettled(self) -> tuple[Entry, ...]:
        """The payments that were signed and got no receipt: with payer and nonce, the chain says
        whether one was taken.
        """
        return self.journal.unsettled()

    def judge(self, attempt: Attempt, offer: Offer, bundle: Bundle | None) -> Decision:
        """Whether the offer that answered a request may be paid, by what a bundle knows."""
        try:
            resource = attempt.resource
        except ResourceError as error:
            return Refuse(Code.RESOURCE_MISMATCH, f"The URL that was asked cannot be read. {error}")
        now = self.now
        decision = decide(
            None if bundle is None else bundle.record(resource),
            offer,
            attempt.url,
            self.policy,
            now,
            bundle_as_of=None if bundle is None else bundle.as_of,
            spent=self.journal.spent(attempt.paid_request, now),
        )
        if isinstance(decision, Allow) and decision.warning is not None:
            named = offer.resource_url
            _log.warning("payment.resource_mismatch asked=%s named=%r", resource.url, named)
        return decision

    def reserve(self, attempt: Attempt, terms: Terms) -> Refuse | None:
        """Set the amount aside, or say which budget it would go over. From here on, these terms and
        no others may be signed for the request.
        """
        self.give_up(attempt)
        if (call := CALL.get()) is not None and call.paid not in (None, attempt):
            return Refuse(Code.RETRY_STORM, "The answer to the payment leads to another price.")
        reserved = self.journal.reserve(attempt.paid_request, terms, self.policy, self.now)
        if isinstance(reserved, Refuse):
            return reserved
        attempt.terms, attempt.entry, attempt.signed, attempt.header = terms, reserved, None, None
        attempt.stage = Stage.RESERVED
        return None

    def check_signed(self, attempt: Attempt, payload: Payload) -> None:
        """Raises PaymentRefusedError unless what was signed is what was allowed."""
        attempt.signed = self._as_allowed(attempt, payload)

    def seal(self, attempt: Attempt, payload: Payload) -> None:
        """Write the payment down, and fix the header that may leave. Raises PaymentRefusedError
        unless the payload still holds what was checked when it was signed: extensions and other
        hooks may have changed it since.
        """
        if attempt.entry is None or attempt.signed is None or _read(payload) != attempt.signed:
            raise self.refusal(attempt, "The payment is not the one that was checked.")
        header = encode_payment_signature_header(payload)
        self.journal.sign(attempt.entry, attempt.signed, header)
        attempt.header, attempt.stage = header, Stage.SIGNED
        _paid_by(attempt)

    def kept_payment(self, attempt: Attempt, offers: Iterable[Offer]) -> Payload | None:
        """A payment that was signed earlier for the same request, is still valid, got no answer and
        pays one of the offers: it is sent again instead of a second one.
        """
        asked = (_price(offer) for offer in offers)
        try:
            reusable = self.journal.reuse(attempt.paid_request, asked, self.now)
        except ResourceError:
            return None  # which the decision explains
        if reusable is None:
            return None
        attempt.entry, attempt.header, attempt.stage = reusable.entry, reusable.header, Stage.KEPT
        _paid_by(attempt)
        return decode_payment_signature_header(reusable.header)

    def check_leaving(self, attempt: Attempt | None, url: str, headers: list[str]) -> Attempt:
        """The request that a payment leaves with. Raises PaymentRefusedError unless the payment
        headers of what leaves are exactly the one that was sealed for this URL.
        """
        if attempt is None or attempt.header is None or headers != [attempt.header]:
            raise self.refusal(attempt, "A payment was about to leave that was not allowed.")
        if url != attempt.url:
            raise self.refusal(attempt, "The payment was about to leave to another URL.")
        return attempt

    def answered(self, attempt: Attempt, status: int, settlement: str | None) -> None:
        """Write down the answer to a payment: its status, and the transaction of its receipt."""
        if settlement:
            outcome = Outcome.SETTLED
        elif status == PAYMENT_REQUIRED:
            # One that was sent before may have been taken then.
            outcome = Outcome.UNKNOWN if attempt.stage is Stage.KEPT else Outcome.REFUSED
        else:
            is_open = status >= _SERVER_ERROR or status in _LATER
            outcome = Outcome.UNKNOWN if is_open else Outcome.ANSWERED
        self._conclude(attempt, outcome, status, settlement)

    def unanswered(self, attempt: Attempt) -> None:
        """Write down that a payment left and its answer did not come."""
        self._conclude(attempt, Outcome.UNKNOWN)

    def give_up(self, attempt: Attempt) -> None:
        """End an attempt: what did not leave cannot be taken and counts as spent no longer."""
        match attempt.stage, attempt.entry:
            case Stage.RESERVED, int(entry):
                self.journal.release(entry)
            case Stage.SIGNED, int():
                self._conclude(attempt, Outcome.NOT_TAKEN)
            case Stage.KEPT, int():
                self._conclude(attempt, Outcome.UNKNOWN)
        attempt.stage, attempt.entry, attempt.header = Stage.ASKED, None, None

    def _conclude(
        self,
        attempt: Attempt,
        outcome: Outcome,
        status: int | None = None,
        settlement: str | None = None,
    ) -> None:
        attempt.stage = Stage.CONCLUDED
        if attempt.entry is None:
            return
        try:
            self.journal.finish(attempt.entry, outcome, status, settlement)
        except GuardError as error:
            # The answer was paid for, and the journal names the payment as unanswered.
            _log.warning("journal.outcome_not_written entry=%d reason=%s", attempt.entry, error)

    def refusal(self, attempt: Attempt | None, reason: str) -> PaymentRefusedError:
        """The error for something that is not what was allowed; it ends the attempt."""
        refuse = Refuse(Code.SIGNED_DIFFERS, reason)
        if attempt is not None:
            attempt.refusal, attempt.header = refuse, None
        return PaymentRefusedError(refuse)

    def _as_allowed(self, attempt: Attempt, payload: Payload) -> Authorization:
        terms, signed = attempt.terms, _read(payload)
        if terms is None or signed is None or attempt.stage is not Stage.RESERVED:
            raise self.refusal(attempt, "What was signed cannot be read, or nothing was allowed.")
        if other := difference(signed, terms, self.now):
            raise self.refusal(attempt, f"What was signed has another {other} than was allowed.")
        if not self.policy.is_contract_wallet and signer(signed, terms) != signed.payer:
            raise self.refusal(attempt, "It was signed for another token, chain or account.")
        return signed


def _read(payload: Payload) -> Authorization | None:
    """What a payload authorizes, None where that cannot be read."""
    try:
        return read_signed(payload)
    except GuardError:
        return None


def _price(offer: Offer) -> Price:
    """What an offer asks for, as the journal writes it."""
    asset, pay_to = str(offer.asset).lower(), str(offer.pay_to).lower()
    return str(offer.network), asset, pay_to, str(offer.amount)


def _paid_by(attempt: Attempt) -> None:
    """Remember that the call is paid: its redirects are not."""
    if (call := CALL.get()) is not None:
        call.paid = attempt
