"""The guard: decides about each payment, reserves it, and checks the signed and sent payload.

The steps of one payment, in order; each raises or refuses if anything is not as it must be:

1. `begin`: the request was not paid already
2. `purchase.resolve_earlier`: no earlier payment of the same purchase can still be taken
3. `judge`: may this offer be paid? (before it is signed)
4. `reserve`: the exposure is reserved in the journal and exceeds no budget (before it is signed)
5. `check_signed`: the signed payment is the allowed one (after it is signed)
6. `seal`: the payload that will be sent is still the one that was checked, and is recorded
7. `check_leaving`: the header of a request that leaves is the one that was sealed
8. `record_answer`, `record_silence` or `give_up`: the outcome
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from x402.http.utils import decode_payment_signature_header, encode_payment_signature_header

from tollgauge_guard.approval import ApprovalQueue, AskFunction
from tollgauge_guard.authorization import Authorization, Payload
from tollgauge_guard.budget import Exposure
from tollgauge_guard.bundle_source import BundleSource
from tollgauge_guard.codes import Code
from tollgauge_guard.decision import Allow, Ask, Decision, Refuse, decide
from tollgauge_guard.errors import GuardError
from tollgauge_guard.journal import Journal
from tollgauge_guard.lookup import look_up
from tollgauge_guard.nodes import NodeReader
from tollgauge_guard.offer import Offer, Terms, signing_extensions
from tollgauge_guard.opinion import Preflight
from tollgauge_guard.payment import Event, Payment, State
from tollgauge_guard.policy import Policy
from tollgauge_guard.purchase import build_unresolved, resolve
from tollgauge_guard.purchase_key import account_id
from tollgauge_guard.receipt import Answer, IsAnswer, classify_answer, is_redirect
from tollgauge_guard.refusal import PaymentRefusedError
from tollgauge_guard.request import Attempt, Stage, build_refusal
from tollgauge_guard.resource import ResourceError
from tollgauge_guard.sign_in import SignInAccount
from tollgauge_guard.signed import find_difference, find_signer, read_payment_id, read_signed
from tollgauge_guard.wallets import AnyClient, list_wallets

OnChange = Callable[[Payment, Event], None]
"""Called after each change of state, with the payment as it is now."""
HANDLE: Final = "tollgauge_payment"
"""Name under which responses and errors carry the handle of their payment."""
_log = logging.getLogger("tollgauge_guard")
_WARNED: Final = frozenset({State.OPEN, State.PAID_UNANSWERED, State.LAPSED, State.WRITTEN_OFF})


class Guard:
    """Guards the payments of an agent's wallets.

    Args:
        bundles: source of the bundle.
        policy: the owner's rules.
        journal: where payments are recorded.
        ask: is called if a payment needs consent; without `ask` and `queue` it is refused.
        queue: questions for `tollgauge-guard approve`, used if there is no `ask`.
        nodes: reads what happened to a payment from the owner's nodes.
        clock: returns unix seconds.
        is_answer: what answers a purchase, in addition to a complete 2xx.
        on_change: called after each change of a payment's state.
        preflight: queried about unknown endpoints if the policy requires a second opinion.
        account: may sign in (extension `sign-in-with-x`) to request the answer to a payment.
    """

    def __init__(
        self,
        *,
        bundles: BundleSource,
        policy: Policy,
        journal: Journal,
        ask: AskFunction | None = None,
        queue: ApprovalQueue | None = None,
        nodes: NodeReader | None = None,
        clock: Callable[[], float] = time.time,
        is_answer: IsAnswer | None = None,
        on_change: OnChange | None = None,
        preflight: Preflight | None = None,
        account: SignInAccount | None = None,
    ) -> None:
        self.bundles = bundles
        self.policy = policy
        self.journal = journal
        self.ask = ask
        self.queue = queue
        self.nodes = nodes or NodeReader()
        self.clock = clock
        self.is_answer = is_answer
        self.on_change = on_change
        self.preflight = preflight
        self.account = account
        self.session = secrets.token_urlsafe(12)
        self.clients: list[AnyClient] = []
        self.is_stopped = False

    @property
    def now(self) -> int:
        """Unix seconds."""
        return int(self.clock())

    @property
    def has_approver(self) -> bool:
        """Whether questions can be answered."""
        return self.ask is not None or self.queue is not None

    def stop(self) -> None:
        """Refuse every payment from now on, also those that were signed and have not left."""
        self.is_stopped = True

    def unresolved(self) -> tuple[Payment, ...]:
        """Return the payments of this guard's clients that block their purchase."""
        if not self.clients:
            return self.journal.find_unresolved()
        accounts = {account_id(list_wallets(client)) for client in self.clients}
        return tuple(
            found for name in sorted(accounts) for found in self.journal.find_unresolved(name)
        )

    def resolve(self, handle: str, *, write_off: bool = False) -> Payment:
        """Read from the owner's nodes what happened to a payment, and record it.

        Args:
            handle: of the payment, or its nonce.
            write_off: the owner's consent to pay for the same purchase again, if the payment is
                still unresolved after that. Its exposure stays counted.

        Raises:
            GuardError: there is no such payment, or a running call waits for its answer.
        """
        return resolve(self, handle, write_off=write_off)

    def payment(self, response: object) -> Payment | None:
        """Return the payment that a response answers, None if the request was not paid."""
        extensions = getattr(response, "extensions", None)
        handle = extensions.get(HANDLE) if isinstance(extensions, dict) else None
        handle = handle or getattr(response, HANDLE, None)
        return None if handle is None else self.journal.find(str(handle))

    def change(self, payment: Payment, event: Event, **values: Any) -> bool:
        """Apply an event to a payment that still has the state that was read."""
        is_changed = self.journal.change(
            payment.id, event, self.now, expected=payment.state, **values
        )
        if is_changed:
            self._report(payment.id, event)
        return is_changed

    def begin(self, attempt: Attempt) -> None:
        """Start to pay a request.

        Raises PaymentRefusedError for one that was paid already: a hook that reports to have
        recovered from a refusal does not get a second payment.
        """
        if attempt.stage is Stage.CONCLUDED:
            attempt.refusal = Refuse(Code.PAID_ALREADY, "This request was paid already.")
            raise PaymentRefusedError(attempt.refusal)
        self.give_up(attempt)
        attempt.is_behind, attempt.refusal = False, None
        for found in (attempt.dropped, attempt.known, attempt.spent):
            found.clear()

    def judge(
        self, attempt: Attempt, offer: Offer, payer: str, again: Payment | None = None
    ) -> Decision:
        """Decide about an offer that `payer` would sign; `again` is the payment that is resent."""
        try:
            resource = attempt.resource
            purchase = attempt.purchase(self.session)
        except ResourceError as error:
            return Refuse(Code.RESOURCE_MISMATCH, f"The requested URL cannot be read. {error}")
        if not payer:
            return Refuse(Code.SIGNED_DIFFERS, "The guard cannot read which account would sign.")
        now, network = self.now, str(offer.network)
        asset = str(offer.asset)
        where = Exposure(
            account=purchase.account,
            network=network,
            asset=asset.lower() if asset.startswith("0x") else asset,
            host=resource.host,
            session=self.session,
            at=now,
        )
        spent = attempt.spent.get(where)
        if spent is None:
            # The reservation checks the budgets again, in its transaction.
            spent = attempt.spent[where] = self.journal.sum_spent(where)
        if again is not None:
            is_same_session = again.session == self.session
            spent = spent.without(again.exposure, is_same_session=is_same_session)
        known = attempt.known.get(pay_to := str(offer.pay_to))
        if known is None:
            known = look_up(attempt.bundle, resource, attempt.hops, pay_to, tool=attempt.tool)
            attempt.known[pay_to] = known
        asked = attempt.as_question(is_stopped=self.is_stopped)
        decision = decide(known, offer, asked, self.policy, now, spent)
        if isinstance(decision, Allow) and decision.warning is not None:
            named = offer.resource_url
            _log.warning("payment.resource_mismatch asked=%s named=%r", resource.url, named)
        return decision

    def reserve(self, attempt: Attempt, terms: Terms) -> Refuse | None:
        """Reserve the exposure; from here on, only these terms may be signed for the request.

        Returns the refusal if a budget is exceeded. If an unfinished payment of the same purchase
        was found, the attempt `is_behind`.
        """
        self.give_up(attempt)
        if attempt.call is not None and attempt.call.paid not in (None, attempt):
            return Refuse(Code.PAID_ALREADY, "The answer to the payment leads to another price.")
        purchase = attempt.purchase(self.session)
        reserved = self.journal.reserve(purchase, terms, attempt.payer, self.policy, self.now)
        if reserved is None:
            attempt.is_behind = True
            return build_unresolved(self.journal, purchase.resource, None)
        if isinstance(reserved, Refuse):
            return reserved
        attempt.terms, attempt.signed, attempt.header = terms, None, None
        attempt.payment, attempt.handle = reserved.id, reserved.handle
        attempt.stage = Stage.RESERVED
        return None

    def check_signed(self, attempt: Attempt, payload: Payload, declared: object) -> None:
        """Raise PaymentRefusedError unless the signed payment is the allowed one.

        `declared` are the extensions of the 402: nothing may be signed for them in addition.
        """
        terms, signed = attempt.terms, _read(payload)
        if terms is None or signed is None or attempt.stage is not Stage.RESERVED:
            raise self.refusal(attempt, "The signed payment cannot be read, or none was allowed.")
        if other := find_difference(signed, terms, self.now):
            raise self.refusal(attempt, f"The signed payment has another {other} than allowed.")
        if signed.payer != attempt.payer:
            raise self.refusal(attempt, "It was signed by another account than was allowed.")
        if not self.policy.is_contract_wallet and find_signer(signed, terms) != signed.payer:
            raise self.refusal(attempt, "It was signed for another token, chain or account.")
        sent, asked = getattr(payload, "extensions", None) or {}, declared or {}
        for name in signing_extensions(sent):
            is_echo = isinstance(asked, Mapping) and sent.get(name) == asked.get(name)
            if not is_echo and name not in self.policy.allow_extensions:
                raise self.refusal(attempt, f"The extension {name} had the wallet sign more.")
        attempt.signed = signed

    def seal(self, attempt: Attempt, payload: Payload) -> None:
        """Record the payment, and fix the header that may leave.

        Raises PaymentRefusedError unless the payload is still the one that was checked after
        signing: extensions and other hooks may have changed it since.
        """
        signed, terms = attempt.signed, attempt.terms
        if attempt.payment is None or signed is None or terms is None or _read(payload) != signed:
            raise self.refusal(attempt, "The payment is not the one that was checked.")
        header = encode_payment_signature_header(payload)
        found: dict[str, Any] = {
            "evidence": signed.evidence,
            "payment_id": read_payment_id(payload),
        }
        if signed.exposed is not None:
            found["settled"] = -(-terms.exposure * signed.exposed // terms.exposed)
        if terms.method == "solana":
            found["valid_height"] = self.nodes.last_valid_height(terms.network)
        self.journal.sign(attempt.payment, signed, header, self.now, **found)
        attempt.header, attempt.stage = header, Stage.SIGNED
        attempt.mark_paid()

    def resend(self, attempt: Attempt, payment: Payment) -> Payload:
        """Send a payment again that was signed earlier for the same purchase."""
        header = str(payment.payload)
        attempt.payment, attempt.handle = payment.id, payment.handle
        attempt.header, attempt.stage = header, Stage.KEPT
        attempt.mark_paid()
        return decode_payment_signature_header(header)

    def check_leaving(self, attempt: Attempt | None, url: str, headers: list[str]) -> Attempt:
        """Return the attempt that a payment leaves with, recorded as in flight.

        Raises PaymentRefusedError unless the payment headers are exactly the one that was sealed
        for this URL.
        """
        if attempt is None or attempt.header is None or headers != [attempt.header]:
            raise self.refusal(attempt, "A payment was about to leave that was not allowed.")
        if url != attempt.url:
            raise self.refusal(attempt, "The payment was about to leave to another URL.")
        if self.is_stopped:
            raise self._refuse(attempt, Refuse(Code.STOPPED, "Payments were stopped."))
        if attempt.stage is Stage.SIGNED and attempt.payment is not None:
            expected = State.SIGNED
            if not self.journal.change(attempt.payment, Event.SEND, self.now, expected=expected):
                raise self.refusal(attempt, "The payment was changed by another process.")
            attempt.stage = Stage.KEPT
        return attempt

    def record_answer(self, attempt: Attempt, answer: Answer, event: Event | None = None) -> None:
        """Record the answer to a payment; `event` if it is not a complete answer."""
        if is_redirect(answer.status) and attempt.call is not None:
            attempt.call.redirected = attempt
        self._conclude(attempt, event or classify_answer(answer), answer)

    def record_sent_elsewhere(self, attempt: Attempt) -> None:
        """Record that a payment leaves by a transport that is not the guard's."""
        if attempt.is_of_transport or attempt.payment is None:
            return
        if attempt.stage is Stage.SIGNED:
            self.journal.change(attempt.payment, Event.SEND, self.now)
        if attempt.stage in (Stage.SIGNED, Stage.KEPT):
            # Its answer may never be seen, and the call may not be made again by this process.
            self._conclude(attempt, Event.NO_ANSWER)

    def note_answer(self, payload: Payload, answer: Answer) -> None:
        """Record an answer that only the SDK saw."""
        signed = _read(payload)
        payment = None if signed is None else self.journal.find_signed(signed)
        if payment is not None:
            hint: dict[str, Any] = {"status": answer.status, "settlement": answer.transaction}
            self.journal.change(payment.id, classify_answer(answer), self.now, **hint)

    def mark_sent(self, attempt: Attempt) -> None:
        """Note that a payment left and its answer has begun; the end of the answer is recorded."""
        attempt.stage = Stage.CONCLUDED

    def record_silence(self, attempt: Attempt, error: BaseException | None = None) -> None:
        """Record that a payment left and got no answer; the error gets its handle."""
        if error is not None:
            setattr(error, HANDLE, attempt.handle)
        self._conclude(attempt, Event.NO_ANSWER)

    def give_up(self, attempt: Attempt) -> None:
        """End an attempt. A payment that did not leave cannot be taken, and its budget is freed."""
        match attempt.stage, attempt.payment:
            case Stage.RESERVED, int(payment):
                self.journal.change(payment, Event.NOT_SIGNED, self.now)
            case ((Stage.SIGNED | Stage.KEPT), int()):
                self._conclude(attempt, Event.NOT_SENT)
        if attempt.stage is not Stage.CONCLUDED:
            attempt.stage, attempt.payment, attempt.header = Stage.ASKED, None, None

    def refusal(self, attempt: Attempt | None, reason: str) -> PaymentRefusedError:
        """Return the error for a payment that differs from the allowed one. It ends the attempt."""
        return self._refuse(attempt, Refuse(Code.SIGNED_DIFFERS, reason))

    def record(self, attempt: Attempt, refusal: Refuse | Ask, offer: Offer | None = None) -> None:
        """Record a decision other than allow."""
        self.journal.refuse(build_refusal(attempt, refusal, offer, self.now))

    def _refuse(self, attempt: Attempt | None, refuse: Refuse) -> PaymentRefusedError:
        if attempt is not None:
            attempt.refusal, attempt.header = refuse, None
        return PaymentRefusedError(refuse)

    def _conclude(self, attempt: Attempt, event: Event, answer: Answer | None = None) -> None:
        attempt.stage = Stage.CONCLUDED
        if attempt.payment is None:
            return
        hint: dict[str, Any] = {}
        if answer is not None:
            hint["status"] = answer.status
            if answer.transaction is not None:
                hint["settlement"] = answer.transaction
        try:
            if self.journal.change(attempt.payment, event, self.now, **hint):
                self._report(attempt.payment, event)
        except GuardError as error:
            # The answer was paid for, and the journal names the payment as unanswered.
            _log.warning("journal.outcome_not_written id=%d reason=%s", attempt.payment, error)

    def _report(self, number: int, event: Event) -> None:
        if self.on_change is None and event in (Event.SEND, Event.ANSWER):
            return  # nothing to warn about
        payment = self.journal.payment(number)
        if payment is None:
            return
        if payment.state in _WARNED:
            _log.warning(
                "payment.%s handle=%s resource=%s exposure=%d",
                *(payment.state, payment.handle, payment.resource, payment.exposure),
            )
        try:
            if self.on_change is not None:
                self.on_change(payment, event)
        except Exception:  # noqa: BLE001  # a callback neither pays nor loses an answer
            _log.exception("on_change failed")


def _read(payload: Payload) -> Authorization | None:
    """Return the authorization in a payload, None if it cannot be read."""
    try:
        return read_signed(payload)
    except GuardError:
        return None
