"""Guard: decides about each payment, reserves it, and checks what was signed and what leaves.

The steps of one payment, in order; each raises or refuses where anything is not as it must be:

1. `begin`: which wallets may pay, and that the request was not paid already
2. `purchase.find_kept`: no earlier payment of the same purchase may still be taken
3. `judge`: may this offer be paid? (before it is signed)
4. `reserve`: the amount is set aside in the journal, and goes over no budget (before it is signed)
5. `check_signed`: what was signed is what was allowed (after it is signed)
6. `seal`: the payload that will be sent is still the one that was checked, and is written down
7. `check_leaving`: the header of a request that leaves is the one that was sealed
8. `conclude`: what became of it

Which client calls them, and when, is the work of `hooks` and of the module of each client.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from x402.http.utils import decode_payment_signature_header, encode_payment_signature_header
from x402.schemas import PaymentPayload
from x402.schemas.v1 import PaymentPayloadV1

from tollgauge_guard.bundle import Bundle
from tollgauge_guard.bundle_source import BundleSource
from tollgauge_guard.decision import Allow, Ask, Code, Decision, Refuse, decide
from tollgauge_guard.entry import Account, Entry, Outcome
from tollgauge_guard.errors import GuardError
from tollgauge_guard.inherited import inherited
from tollgauge_guard.journal import Journal
from tollgauge_guard.offer import Offer, Terms
from tollgauge_guard.policy import Policy
from tollgauge_guard.purchase import resolve, unresolved
from tollgauge_guard.receipt import Answer, is_redirect, outcome_of
from tollgauge_guard.request import CALL, Attempt, PaymentRefusedError, Stage
from tollgauge_guard.resource import ResourceError
from tollgauge_guard.signed import Authorization, difference, read_signed, signer
from tollgauge_guard.wallets import AnyClient, payers_of

Payload = PaymentPayload | PaymentPayloadV1
AskFunction = Callable[[Ask, str], bool | Awaitable[bool]]
"""Called with a question and the URL; only an answer that is True lets pay."""
_log = logging.getLogger("tollgauge_guard")


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """What stands between a wallet and the sellers that its software meets.

    `ask` is called where a payment needs consent; without it such a payment is refused. `nodes` are
    the JSON-RPC nodes that say what became of a payment, by network (CAIP-2). `clock` returns unix
    seconds. `clients` are the official clients that pay with it.
    """

    bundles: BundleSource
    policy: Policy
    journal: Journal
    ask: AskFunction | None = None
    nodes: Mapping[str, str] = field(default_factory=dict)
    clock: Callable[[], float] = time.time
    clients: list[AnyClient] = field(default_factory=list)

    @property
    def now(self) -> int:
        """Unix seconds."""
        return int(self.clock())

    def unsettled(self) -> tuple[Entry, ...]:
        """The payments of this guard's wallets that were signed and got no receipt: with payer and
        nonce, the chain says whether one was taken.
        """
        return self.journal.unsettled(self._payers())

    def unresolved(self) -> tuple[Entry, ...]:
        """The payments of this guard's wallets after which no other one is signed for the same
        purchase.
        """
        return self.journal.unresolved(self._payers())

    def resolve(self, nonce: str, *, node: str | None = None, write_off: bool = False) -> Entry:
        """Ask a node (by default the one of `nodes`) what became of a payment, and write it down.
        `write_off` is your consent to pay for the same purchase again. Raises GuardError.
        """
        networks = [entry.network for entry in self.journal.of_nonce(nonce)]
        named = next((self.nodes[network] for network in networks if network in self.nodes), None)
        return resolve(self.journal, nonce, node=node or named, write_off=write_off, now=self.now)

    def begin(self, attempt: Attempt) -> None:
        """Start to pay a request. Raises PaymentRefusedError for one that was paid already: a hook
        that says it has recovered from a refusal does not get a second payment.
        """
        if attempt.stage is Stage.CONCLUDED:
            reason = "This request was paid already, and is not paid a second time."
            attempt.refusal = Refuse(Code.RETRY_STORM, reason)
            raise PaymentRefusedError(attempt.refusal)
        self.give_up(attempt)
        attempt.is_behind = False

    def judge(
        self, attempt: Attempt, offer: Offer, bundle: Bundle | None, *, again: Entry | None = None
    ) -> Decision:
        """Whether the offer that answered a request may be paid, by what a bundle knows. `again` is
        the payment that is to be sent again, which is not counted twice.
        """
        try:
            resource = attempt.resource
        except ResourceError as error:
            return Refuse(Code.RESOURCE_MISMATCH, f"The URL that was asked cannot be read. {error}")
        payer = attempt.payer if again is None else again.payer
        if not payer:
            reason = "The guard cannot read which account would sign."
            return Refuse(Code.SIGNED_DIFFERS, reason)
        now = self.now
        account = Account(payer=payer, network=str(offer.network), asset=str(offer.asset).lower())
        without = 0 if again is None else again.id
        decision = decide(
            None if bundle is None else bundle.record(resource),
            offer,
            attempt.url,
            self.policy,
            now,
            bundle_as_of=None if bundle is None else bundle.as_of,
            spent=self.journal.spent(attempt.paid_request, account, now, without=without),
            inherited=() if bundle is None else inherited(bundle, resource, attempt.hops),
        )
        if isinstance(decision, Allow) and decision.warning is not None:
            named = offer.resource_url
            _log.warning("payment.resource_mismatch asked=%s named=%r", resource.url, named)
        return decision

    def reserve(self, attempt: Attempt, terms: Terms) -> Refuse | None:
        """Set the amount aside, or say which budget it would go over. From here on, these terms and
        no others may be signed for the request. An attempt that finds an unfinished payment of the
        same purchase `is_behind`.
        """
        self.give_up(attempt)
        if (call := CALL.get()) is not None and call.paid not in (None, attempt):
            return Refuse(Code.RETRY_STORM, "The answer to the payment leads to another price.")
        reserved = self.journal.reserve(
            attempt.paid_request, terms, attempt.payer, self.policy, self.now
        )
        if reserved is None:
            attempt.is_behind = True
            found = self.journal.unfinished(attempt.paid_request, self.now)
            entry = None if found is None else found.entry
            return unresolved(self.journal, attempt.resource.url, entry)
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
        self.journal.sign(attempt.entry, attempt.signed, header, self.now)
        attempt.header, attempt.stage = header, Stage.SIGNED
        _paid_by(attempt)

    def keep(self, attempt: Attempt, entry: int, header: str) -> Payload:
        """Send a payment again that was signed earlier for the same purchase."""
        attempt.entry, attempt.header, attempt.stage = entry, header, Stage.KEPT
        _paid_by(attempt)
        return decode_payment_signature_header(header)

    def check_leaving(self, attempt: Attempt | None, url: str, headers: list[str]) -> Attempt:
        """The request that a payment leaves with. Raises PaymentRefusedError unless the payment
        headers of what leaves are exactly the one that was sealed for this URL.
        """
        if attempt is None or attempt.header is None or headers != [attempt.header]:
            raise self.refusal(attempt, "A payment was about to leave that was not allowed.")
        if url != attempt.url:
            raise self.refusal(attempt, "The payment was about to leave to another URL.")
        return attempt

    def answered(self, attempt: Attempt, outcome: Outcome, answer: Answer) -> None:
        """Write down the answer to a payment."""
        if is_redirect(answer.status) and (call := CALL.get()) is not None:
            call.redirected = attempt
        self._conclude(attempt, outcome, answer.status, answer.transaction)

    def leave(self, attempt: Attempt) -> None:
        """A payment leaves by a transport that is not the guard's: its answer may not be seen."""
        if not attempt.is_of_transport and attempt.stage in (Stage.SIGNED, Stage.KEPT):
            self._conclude(attempt, Outcome.OPEN)

    def note_answer(self, payload: Payload, answer: Answer) -> None:
        """Write down an answer that only the SDK saw."""
        signed = _read(payload)
        entry = None if signed is None else self.journal.signed(signed)
        if entry is not None:
            self.journal.finish(entry.id, outcome_of(answer), answer.status, answer.transaction)

    def has_left(self, attempt: Attempt) -> None:
        """The answer to a payment has begun, and is written down when it has ended."""
        attempt.stage = Stage.CONCLUDED

    def unanswered(self, attempt: Attempt) -> None:
        """Write down that a payment left and its answer did not come."""
        self._conclude(attempt, Outcome.OPEN)

    def give_up(self, attempt: Attempt) -> None:
        """End an attempt: what did not leave cannot be taken and counts as spent no longer."""
        match attempt.stage, attempt.entry:
            case Stage.RESERVED, int(entry):
                self.journal.release(entry)
            case Stage.SIGNED, int():
                self._conclude(attempt, Outcome.DEAD)
            case Stage.KEPT, int():
                self._conclude(attempt, Outcome.OPEN)
        if attempt.stage is not Stage.CONCLUDED:
            attempt.stage, attempt.entry, attempt.header = Stage.ASKED, None, None

    def _payers(self) -> set[str] | None:
        """The addresses of the wallets that pay with this guard, None where it knows of none."""
        return {payer for client in self.clients for payer in payers_of(client)} or None

    def _conclude(
        self,
        attempt: Attempt,
        outcome: Outcome,
        status: int | None = None,
        transaction: str | None = None,
    ) -> None:
        attempt.stage = Stage.CONCLUDED
        if attempt.entry is None:
            return
        try:
            self.journal.finish(attempt.entry, outcome, status, transaction)
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
        if signed.payer != attempt.payer:
            raise self.refusal(attempt, "It was signed by another account than was allowed.")
        if not self.policy.is_contract_wallet and signer(signed, terms) != signed.payer:
            raise self.refusal(attempt, "It was signed for another token, chain or account.")
        return signed


def _read(payload: Payload) -> Authorization | None:
    """What a payload authorizes, None where that cannot be read."""
    try:
        return read_signed(payload)
    except GuardError:
        return None


def _paid_by(attempt: Attempt) -> None:
    """Remember that the call is paid: its redirects are not."""
    if (call := CALL.get()) is not None:
        call.paid = attempt
