"""The payment gate: from a request to a paid route to its answer.

It reads top to bottom (docs/payments.md):

1. `serve` answers 402 to requests without a payment, whatever their body is; otherwise it reads the
   payment (400, 431) and the request (400, 413).
2. `sell` validates the request (422), compares the signed payment with the offer (402, or 409 if
   the chain shows that it has already paid this service), and limits concurrent sales (429, 503).
3. `_carry_out` is the sale, step by step: claim the payment in the ledger, verify it with the
   facilitator (402, 409, 503), compute the whole answer, store it with the intent to settle, settle
   and prove. A payment that was claimed before is answered from its row instead (409).
4. `_release` returns the answer that the row allows.

Nothing is charged before the answer is stored, and no answer is sent before it is paid. An unknown
outcome is 503 and never 402, because a 402 makes clients sign and pay again. The answers to each
state are in web/paid/request; settlement and every change of the row after the claim are in
web/paid/settle. If another worker wrote the row first, the caller is answered from that row.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Coroutine
from dataclasses import dataclass, field, replace
from typing import Any, Final

from sqlalchemy import Connection
from starlette.requests import Request
from starlette.responses import Response

from tollgauge.clients.chain.authorization import ChainAnswer, Prover
from tollgauge.clients.facilitator import Facilitator, FacilitatorUnavailable, Refused
from tollgauge.core.base.units import Clock
from tollgauge.core.sale.payment import (
    EXPIRED,
    Payment,
    canonical_body,
    find_refusal,
    may_have_paid,
    reports_used_nonce,
    request_digest,
    signed_transfer,
)
from tollgauge.core.sale.payment_state import BEFORE_SETTLEMENT, IN_DOUBT, IN_WORK, Proof, State
from tollgauge.db.engine import Store, StoreUnavailable
from tollgauge.observe import alarm, log, place_of
from tollgauge.store.ledger import attempts, payments
from tollgauge.store.ledger.attempts import Attempt, StoredAnswer
from tollgauge.store.ledger.payments import Claim, LedgerRow
from tollgauge.web.edge.messages import read_body
from tollgauge.web.edge.problem import Problem
from tollgauge.web.paid import admission
from tollgauge.web.paid.request import (
    buyer_first,
    chain_unavailable,
    check_same_request,
    facilitator_unavailable,
    payment_pending,
    payment_required,
    read_payment,
    response_for,
    unknown_settlement,
    unpaid_reason,
)
from tollgauge.web.paid.sale import HeldClaim, Sale
from tollgauge.web.paid.settle import OvertakenError, Settler

LEASE_MS: Final = 60_000
"""Maximum time from claim to intent, after which another worker may take the payment over."""
POLL_DELAYS_S: Final = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.5)
"""Pauses of a second copy of a payment while the first is being answered."""
RESPONSE_TIMEOUT_S: Final = 50.0
"""Response timeout, because many proxies and clients give up after 60 seconds. The sale continues,
and the same payment fetches its answer."""
COSTLY_REFUSAL: Final = 422
"""The status of a refusal after work was done for the request: it counts against the payer. A 404
costs one look into the database."""
HEAD_START_MS: Final = 5_000
"""For this long after a settlement, a secret is shown only to the request that bought it, if the
payment does not repeat the ticket."""
SALE: Final = "sale"
"""The name of a task that sells. A process that shuts down lets these finish."""


@dataclass(frozen=True, slots=True)
class _Outcome:
    """The outcome of a payment: its row, and whether this request settled it."""

    row: LedgerRow
    settled_here: bool


@dataclass(frozen=True, slots=True)
class Gate:
    """The gate's resources: the ledger's store, the facilitator, the clock (milliseconds UTC),
    and the chain if a node is configured. `contact` is where buyers ask about a payment.
    """

    store: Store
    facilitator: Facilitator
    clock: Clock
    chain: Prover | None = None
    contact: str = ""
    _selling: dict[asyncio.Task[Response | _Outcome], Payment] = field(
        default_factory=dict, init=False, repr=False
    )

    @property
    def settlement(self) -> Settler:
        """How payments are settled, with the same resources."""
        return Settler(self.store, self.facilitator, self.clock, self.chain)

    async def serve(self, request: Request, sale: Sale) -> Response:
        """Answer one HTTP request to a paid route. Raises Problem."""
        headers = request.headers.getlist("payment-signature")
        if not headers:
            return payment_required(sale, unpaid_reason(request))
        # Several lines are one list (RFC 9110 section 5.3), which is not base64.
        payment = read_payment(", ".join(headers), sale.offer)
        document = await read_body(request, bodyless=sale.bodyless)
        digest = request_digest(request.method, request.url.path, canonical_body(document))
        return await self.sell(sale, payment, document, digest=digest)

    async def sell(
        self, sale: Sale, payment: Payment, document: object, *, digest: str
    ) -> Response:
        """Answer a request that came with a payment, over HTTP or as a tool call. `digest` names
        the request that is paid for. Raises Problem.

        After the claim the sale continues even if its caller disconnects.
        """
        order = sale.validate(document)
        reason = find_refusal(payment, sale.offer, now_s=self.clock() // 1000)
        if reason is not None and await self._was_taken(payment, reason):
            reason = None
        if reason is not None and (self.chain is None or not may_have_paid(payment, sale.offer)):
            return payment_required(sale, reason)
        await self._check_room(payment)
        steps: Coroutine[Any, Any, Response | _Outcome] = (
            self._carry_out(sale, payment, order, digest)
            if reason is None
            else self._refuse(sale, payment, reason)
        )
        task = asyncio.create_task(steps, name=SALE)
        self._selling[task] = payment  # the event loop itself keeps no reference to a task
        task.add_done_callback(self._selling.pop)
        try:
            # Without the shield, a timeout or a caller that disconnects would cancel the sale while
            # a settlement could be in progress.
            outcome = await asyncio.wait_for(asyncio.shield(task), RESPONSE_TIMEOUT_S)
        except asyncio.CancelledError:
            task.add_done_callback(_log_failure)
            raise
        except TimeoutError:
            task.add_done_callback(_log_failure)
            raise payment_pending(payment.id) from None
        if isinstance(outcome, Response):
            return outcome
        return await self._release(sale, payment, outcome)

    async def _was_taken(self, payment: Payment, reason: str) -> bool:
        """Return whether a payment that would be refused now was accepted before, at other prices
        or in time. A payment that only expired since its claim continues in any state: the chain
        may show that it paid; if it did not, an honest facilitator refuses it.
        """
        row = await self.settlement.row(payment.id)
        if row is None:
            return False
        return reason == EXPIRED or row.state not in BEFORE_SETTLEMENT

    async def _check_room(self, payment: Payment) -> None:
        """Raise Problem 429 or 503, before any claim, if no new sale may begin: the facilitator
        does not respond, or too many sales, in total or of this payer, are in progress. A payment
        that may have been charged continues.
        """
        problem = admission.find_refusal(payment, self._selling.values(), self.facilitator)
        if problem is None:
            return
        row = await self.settlement.row(payment.id)
        if row is None or row.state in BEFORE_SETTLEMENT:
            raise problem

    async def _refuse(self, sale: Sale, payment: Payment, reason: str) -> Response:
        """402 for a payment that does not pay the offer and that the ledger does not know, unless
        the chain shows that it has paid us (409) or cannot be queried (503).
        """
        signed = signed_transfer(payment, sale.offer, now_s=self.clock() // 1000)
        answer = await self.settlement.ask_chain_about(signed)
        if answer is None:
            raise chain_unavailable()
        self._check_not_settled(payment, answer)
        return payment_required(sale, reason)

    def _check_not_settled(self, payment: Payment, answer: ChainAnswer) -> None:
        """Raise Problem 409 if the chain shows a settlement that the ledger does not know, as after
        the restore of an older backup. A 402 would make the client pay again.
        """
        if answer.proof is Proof.PAID:
            alarm("unknown-settlement", payment.id)
            raise unknown_settlement(payment.id, answer.transaction, self.contact)

    async def _carry_out(
        self, sale: Sale, payment: Payment, order: object, digest: str
    ) -> Response | _Outcome:
        """The sale, from the claim to the outcome. A Response is a 402."""
        claim, seen = await self._claim(sale, payment, order, digest)
        row = claim.row
        try:
            if not claim.claimed:
                return await self._replay(sale, payment, row, digest)
            verified = await self._verify(sale, payment, row)
            if isinstance(verified, Response):
                return verified
            held = HeldClaim(store=self.store, row=row, seen=seen)
            answer = await self._compute(sale, held, order, verified)
            row = await self._store(held, answer, verified)
            row = await self.settlement.settle(sale, row)
            return _Outcome(row, settled_here=True)
        except OvertakenError as overtaken:
            check_same_request(payment, overtaken.row, digest)
            return _Outcome(overtaken.row, settled_here=False)

    async def _claim(
        self, sale: Sale, payment: Payment, order: object, digest: str
    ) -> tuple[Claim, object]:
        """Insert the payment's key before any work, so that no payment is accepted while the ledger
        cannot be written.

        Returns the claim, and the result of the sale's `check` if this request claimed it. Raises
        Problem for an order that cannot be served now, and StoreUnavailable; then nothing is
        claimed. A paid and stored answer is still returned while nothing can be written.
        """

        def insert(tx: Connection) -> tuple[Claim, object]:
            now = self.clock()
            claim = payments.claim(
                tx,
                payment,
                sale.offer,
                digest=digest,
                owner=secrets.token_hex(8),
                now=now,
                lease_ms=LEASE_MS,
            )
            if not claim.claimed:
                return claim, None
            admission.check(tx, claim.row, sale.hosts(order), now=now)
            return claim, sale.check(tx, order)

        try:
            self.store.check_undamaged()
            # The primary key decides between concurrent copies of a payment: one inserts the row,
            # the others read it.
            return await self.store.writing(insert)
        except StoreUnavailable:
            row = await self.settlement.row(payment.id)
            if row is None or row.state is not State.SETTLED:
                raise
            return Claim(row=row, claimed=False), None

    async def _verify(self, sale: Sale, payment: Payment, row: LedgerRow) -> Attempt | Response:
        """Ask the facilitator. A refusal (402) or silence (503) gives the claim back."""
        started = self.clock()
        try:
            reply = await self.facilitator.verify(payment, sale.offer.requirements)
        except FacilitatorUnavailable as error:
            attempt = self.settlement.attempt("verify", started, "unavailable")
            await self.settlement.give_back(row, "facilitator unavailable", attempt)
            raise facilitator_unavailable(row.id) from error
        if not isinstance(reply, Refused):
            return self.settlement.attempt("verify", started, "valid")
        attempt = self.settlement.attempt("verify", started, reply.reason)
        answer = await self._ask_about_refused(row, attempt)
        # A payment that a third party submitted to the chain after our claim is honored. Before
        # the claim it may have paid another service with the same payTo, so it does not count.
        # Chains count whole seconds; the second of the claim counts in favor of the payer.
        paid = answer is not None and answer.proof is Proof.PAID
        if answer and paid and (answer.at_s or 0) >= row.created_at // 1000:
            return attempt
        await self.settlement.give_back(row, reply.reason, attempt)
        if answer is not None:
            self._check_not_settled(payment, answer)
        # The facilitator's node may be ahead of our node; without a node, this cannot be checked.
        if reports_used_nonce(reply.reason) and (answer is None or answer.proof is Proof.UNUSED):
            raise chain_unavailable()
        return payment_required(sale, reply.reason)

    async def _ask_about_refused(self, row: LedgerRow, attempt: Attempt) -> ChainAnswer | None:
        """Ask the chain about a payment that the facilitator refused; None without a node. A
        node that does not answer gives the claim back: Problem 503.
        """
        answer = await self.settlement.ask_chain(row)
        if answer is None and self.chain is not None:
            await self.settlement.give_back(row, attempt.outcome, attempt)
            raise chain_unavailable()
        return answer

    async def _compute(
        self, sale: Sale, held: HeldClaim, order: object, verified: Attempt
    ) -> StoredAnswer:
        """Make the whole answer. Any failure gives the claim back."""
        row = held.row
        try:
            body = await sale.compute(order, held)
        except payments.ClaimLost:
            await self.settlement.raise_overtaken(row)
        except Problem as problem:
            attempts: tuple[Attempt, ...] = (verified,)
            if problem.status == COSTLY_REFUSAL or problem.wasted:
                wasted = self.settlement.attempt("answer", self.clock(), problem.code)
                attempts += (replace(wasted, host=problem.host),)
            await self.settlement.give_back(row, problem.code, *attempts)
            raise
        except BaseException:  # cancellation too: otherwise the claim lasts until its lease ends
            await self.settlement.give_back(row, "the answer could not be made", verified)
            raise
        return StoredAnswer(status=200, body=body)

    async def _store(self, held: HeldClaim, answer: StoredAnswer, verified: Attempt) -> LedgerRow:
        """Store the answer with the intent to settle, and the rows that the product writes with it.
        Any failure gives the claim back.
        """
        try:
            return await self.settlement.store_intent(
                held.row, verified, answer=answer, also=held.with_answer
            )
        except OvertakenError:
            raise
        except Exception:
            reason = "the answer could not be stored"
            await self.settlement.give_back(held.row, reason, verified)
            raise

    async def _replay(self, sale: Sale, payment: Payment, row: LedgerRow, digest: str) -> _Outcome:
        """The same payment again: its row, after a wait for the worker that has it. Raises
        Problem 409 if it pays for another request.
        """
        check_same_request(payment, row, digest)
        if row.state is State.REJECTED:
            return _Outcome(row, settled_here=False)
        row = await self._wait_for_worker(row)
        # From here on, the worker may be dead: a lease that ended proves nothing about the money.
        check_same_request(payment, row, digest)  # it may have been freed and reused
        if row.state in IN_DOUBT:
            answer = await self.settlement.ask_chain(row)
            row = await self.settlement.conclude(row, answer, row.reason)
        if row.state is State.UNKNOWN and row.valid_before_s > self.clock() // 1000:
            # Settling twice is safe: the authorization can be used only once (EIP-3009), and it is
            # the claimed header that is sent again.
            row = await self.settlement.settle(sale, await self.settlement.store_intent(row))
            return _Outcome(row, settled_here=True)
        return _Outcome(row, settled_here=False)

    async def _wait_for_worker(self, row: LedgerRow) -> LedgerRow:
        """The row when its worker is done, its lease has ended, or `POLL_DELAYS_S` have passed."""
        for pause in POLL_DELAYS_S:
            if row.state not in IN_WORK or row.lease_until <= self.clock():
                break
            await asyncio.sleep(pause)
            row = await self.settlement.row(row.id) or row
        return row

    async def _release(self, sale: Sale, payment: Payment, outcome: _Outcome) -> Response:
        """Return the answer that a row allows.

        A secret in it is shown to every caller with the ticket. Without a ticket it is shown once,
        because anyone can read the payment on the chain.
        """
        row = outcome.row
        response = response_for(sale, row)
        if row.state is not State.SETTLED or row.answer is None or sale.reveal is None:
            return response
        secret = bool(payment.ticket)
        if not secret and row.answer.shown_at is None:
            if not outcome.settled_here and self.clock() - row.updated_at < HEAD_START_MS:
                raise buyer_first(HEAD_START_MS // 1000)
            secret = await self.store.writing(attempts.show_secret, row.id, now=self.clock())
        response.body = await sale.reveal(row.answer.body, secret=secret)
        response.headers["Content-Length"] = str(len(response.body))
        return response


def _log_failure(task: asyncio.Task[Response | _Outcome]) -> None:
    """Log an internal error in a sale whose caller has gone. A refusal is in its row."""
    error = None if task.cancelled() else task.exception()
    if error is not None and not isinstance(error, Problem | StoreUnavailable):
        log().error("sale.fail", error=type(error).__name__, where=place_of(error))
