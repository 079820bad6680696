"""The payment gate: what happens between a request to a paid route and its answer.

It reads top to bottom in `Gate.serve` and `Gate.sell`, one step a paragraph
(docs/payments.md): no payment header: 402 at once, whatever the body is; decode the payment (400);
read and validate the request (400, 422); compare what was signed (402); claim; verify (402, 503);
compute the whole answer; store it with the intent to settle; settle; prove; release the answer.

Nothing here is charged before the answer is stored, and no answer leaves before it is paid. Where
the operator names a node, *paid* is what the chain shows and the facilitator's word is a hint;
without one, its word is all there is. An outcome that nobody knows is 503 and never 402, because
a 402 makes clients sign and pay again.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from sqlalchemy import Connection
from starlette.requests import Request
from starlette.responses import Response

from tollgauge.clients.chain.authorization import ChainAnswer, Prover
from tollgauge.clients.chain.rpc import RpcError
from tollgauge.clients.facilitator import (
    Facilitator,
    FacilitatorUnavailable,
    Refused,
    SettledReply,
    Unclear,
)
from tollgauge.core.payment import (
    EXPIRED,
    FINAL_MS,
    REST_MS,
    Offer,
    Payment,
    Proof,
    State,
    canonical_body,
    decode,
    refusal,
    request_digest,
    resolved,
)
from tollgauge.db.engine import Store
from tollgauge.observe import alarm
from tollgauge.store.ledger import payments
from tollgauge.store.ledger.payments import Attempt, LedgerRow, StoredAnswer
from tollgauge.web.edge.problem import Problem
from tollgauge.web.paid import admission
from tollgauge.web.paid.claim import HeldClaim
from tollgauge.web.paid.payment_terms import Sale, payment_required
from tollgauge.web.paid.request import read_body, read_payment, unpaid_reason
from tollgauge.web.paid.response import pending, response_for, reused

Clock = Callable[[], int]

LEASE_MS: Final = 60_000
"""How long a worker may take from claim to intent before another may take the payment over."""
SETTLE_LEASE_MS: Final = 90_000
"""How long a settlement may take before another worker may ask what became of it."""
WAITS_S: Final = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.5)
"""How a second copy of a payment in flight waits for the first."""
PROOF_WAITS_S: Final = (0.25, 0.25, 0.5, 1.0, 2.0, 2.0)
"""How long a node may lag behind the facilitator's: three blocks of Base."""
ANSWER_S: Final = 50.0
"""How long a caller waits at most: many proxies and clients give up after 60 seconds. The sale
itself goes on, and its answer is fetched with the same payment."""
VAIN: Final = 422
"""The status of an answer that the request itself prevented, after work was done for it. A 404
costs us a look only."""
HEAD_START_MS: Final = 5_000
"""How long after a settlement its own request alone may show a secret to who repeats no ticket."""
SALE: Final = "sale"
"""The name of a task that sells; one that shuts down lets these finish."""


class _OvertakenError(Exception):
    """Another worker moved the row first. `row` is how it stands: their truth, not ours."""

    def __init__(self, row: LedgerRow) -> None:
        super().__init__()
        self.row = row


@dataclass(frozen=True, slots=True)
class _Sold:
    """What became of a payment: its row, and whether this very request made it so."""

    row: LedgerRow
    here: bool


@dataclass(frozen=True, slots=True)
class Gate:
    """The gate's resources: the ledger's store, the facilitator, and, where the operator names a
    node, the chain that proves what the facilitator says.
    """

    store: Store
    facilitator: Facilitator
    clock: Clock
    chain: Prover | None = None
    _selling: dict[asyncio.Task[Response | _Sold], Payment] = field(
        default_factory=dict, init=False, repr=False
    )

    async def serve(self, request: Request, sale: Sale) -> Response:
        """Answer one HTTP request to a paid route. Raises Problem."""
        sent = request.headers.getlist("payment-signature")
        if not sent:
            return payment_required(sale, unpaid_reason(request))
        # Several lines are one list (RFC 9110 section 5.3), which is not base64.
        payment = read_payment(", ".join(sent), sale.offer)
        document = await read_body(request, bodyless=sale.bodyless)
        digest = request_digest(request.method, request.url.path, canonical_body(document))
        return await self.sell(sale, payment, document, digest=digest)

    async def sell(
        self, sale: Sale, payment: Payment, document: object, *, digest: str
    ) -> Response:
        """Answer a request that came with a payment, whatever carried them. `digest` names the
        request that it pays. Raises Problem.

        From the claim on a caller that goes away stops nothing.
        """
        order = sale.validate(document)
        reason = refusal(payment, sale.offer, now_s=self._now_s())
        if reason is not None and not await self._was_taken(payment, reason):
            return payment_required(sale, reason)
        await self._admit(payment)
        selling = self._sell(sale, payment, order, digest=digest)
        task = asyncio.create_task(selling, name=SALE)
        self._selling[task] = payment  # the loop itself keeps no hold of a task
        task.add_done_callback(self._selling.pop)
        try:
            sold = await asyncio.wait_for(asyncio.shield(task), ANSWER_S)
        except TimeoutError:
            raise pending(payment.id) from None
        if isinstance(sold, Response):
            return sold
        return await self._leave(sale, payment, sold)

    async def _leave(self, sale: Sale, payment: Payment, sold: _Sold) -> Response:
        """The answer that a row allows. A secret in it is shown to everybody who repeats the
        ticket; to those who repeat none once, because what they send can be read on the chain.
        """
        response = response_for(sale, sold.row)
        answer = sold.row.answer
        if sold.row.state is not State.SETTLED or answer is None or sale.reveal is None:
            return response
        secret = bool(payment.ticket)
        if not secret and answer.shown_at is None:
            if not sold.here and self.clock() - sold.row.updated_at < HEAD_START_MS:
                raise _in_flight()
            secret = await self.store.writing(payments.show_secret, sold.row.id, now=self.clock())
        response.body = await sale.reveal(answer.body, secret=secret)
        response.headers["Content-Length"] = str(len(response.body))
        return response

    async def _admit(self, payment: Payment) -> None:
        """Begin no new sale while the facilitator stays silent, too many sales are in work, or
        too many of this payer: Problem 429 or 503 before any claim. A payment that may have been
        charged goes on.
        """
        problem = admission.refused(payment, self._selling.values(), self.facilitator)
        if problem is None:
            return
        row = await self._look(payment.id)
        if row is None or row.state in (State.CLAIMED, State.REJECTED):
            raise problem

    async def _was_taken(self, payment: Payment, reason: str) -> bool:
        """Whether a payment that would be refused now was taken before, at other prices or in
        time. One that only expired since its claim goes on in any state: the chain may show that
        it paid, and an honest facilitator refuses it otherwise.
        """
        row = await self._look(payment.id)
        if row is None:
            return False
        return reason == EXPIRED or row.state not in (State.CLAIMED, State.REJECTED)

    async def _sell(
        self, sale: Sale, payment: Payment, order: object, *, digest: str
    ) -> Response | _Sold:
        row, mine = await self._claim(sale, payment, order, digest)
        try:
            if not mine:
                return await self._again(sale, payment, row, digest)
            verified = await self._verify(sale, payment, row)
            if isinstance(verified, Response):
                return verified
            answer = await self._compute(sale, row, order, verified)
            row = await self._intend(row, verified, answer=answer)
            return _Sold(await self._settle(sale, row), here=True)
        except _OvertakenError as overtaken:
            return _Sold(replayed(payment, overtaken.row, digest), here=False)

    async def _claim(
        self, sale: Sale, payment: Payment, order: object, digest: str
    ) -> tuple[LedgerRow, bool]:
        """Insert the key before any work. A ledger that cannot be written takes no payment."""
        claim = await self.store.writing(self._claimed, sale, payment, order, digest=digest)
        return claim.row, claim.mine

    def _claimed(
        self, tx: Connection, sale: Sale, payment: Payment, order: object, *, digest: str
    ) -> payments.Claim:
        claim = payments.claim(
            tx,
            payment,
            sale.offer,
            digest=digest,
            owner=secrets.token_hex(8),
            now=self.clock(),
            lease_ms=LEASE_MS,
        )
        if claim.mine:
            admission.check_payer(tx, claim.row, now=self.clock())
            admission.check_hosts(tx, sale.hosts(order), now=self.clock())
            sale.check(tx, order)
        return claim

    async def _verify(self, sale: Sale, payment: Payment, row: LedgerRow) -> Attempt | Response:
        """Ask the facilitator; a refusal or silence gives the claim back."""
        started = self.clock()
        try:
            answer = await self.facilitator.verify(payment, sale.offer.requirements)
        except FacilitatorUnavailable as error:
            tried = self._tried("verify", started, "unavailable")
            await self._release(row, "facilitator unavailable", tried)
            raise Problem(
                503,
                "facilitator-unavailable",
                "The payment could not be verified because our facilitator did not answer. "
                "Nothing was charged; send the same request again.",
                retry_after=10,
            ) from error
        if not isinstance(answer, Refused):
            return self._tried("verify", started, "valid")
        tried = self._tried("verify", started, answer.reason)
        if await self._paid_meanwhile(row, tried):
            return tried
        await self._release(row, answer.reason, tried)
        return payment_required(sale, answer.reason)

    async def _paid_meanwhile(self, row: LedgerRow, tried: Attempt) -> bool:
        """Whether a refused payment was sent to the chain by somebody else after we claimed it.

        Before the claim it may have paid another service of the same payTo: that unlocks nothing.
        Chains count whole seconds, and the second of the claim is the payer's: they have paid.
        """
        if self.chain is None:
            return False
        found = await self._ask(row)
        if found is None:
            await self._release(row, tried.outcome, tried)
            raise Problem(
                503,
                "chain-unavailable",
                "The facilitator refused this payment and the chain could not be asked whether "
                "it was used already. Send the same request again.",
                retry_after=5,
            )
        return found.proof is Proof.PAID and (found.at_s or 0) >= row.created_at // 1000

    async def _compute(
        self, sale: Sale, row: LedgerRow, order: object, verified: Attempt
    ) -> StoredAnswer:
        """Make the whole answer; anything else gives the claim back."""
        try:
            body = await sale.compute(order, HeldClaim(store=self.store, row=row))
        except payments.ClaimLost:
            await self._overtaken(row)
            raise
        except Problem as problem:
            tried: tuple[Attempt, ...] = (verified,)
            if problem.status == VAIN or problem.host is not None:
                vain = self._tried("answer", self.clock(), problem.code)
                tried += (replace(vain, host=problem.host),)
            await self._release(row, problem.code, *tried)
            raise
        except BaseException:
            await self._release(row, "the answer could not be made", verified)
            raise
        return StoredAnswer(status=200, body=body)

    async def _intend(
        self, row: LedgerRow, *attempts: Attempt, answer: StoredAnswer | None = None
    ) -> LedgerRow:
        """Store the answer and the intent to settle, in one transaction. The intent gets an owner
        of its own: of two workers that try to settle again, one does.
        """
        intent = self._tried("intent", self.clock(), "written")
        return await self._move(
            row,
            State.SETTLING,
            owner=secrets.token_hex(8),
            answer=answer,
            lease_ms=SETTLE_LEASE_MS,
            attempts=(*attempts, intent),
        )

    async def _settle(self, sale: Sale, row: LedgerRow) -> LedgerRow:
        """Settle what was claimed, and write the outcome: the row as it is then."""
        started = self.clock()
        reply = await self.facilitator.settle(
            decode(row.header), claimed_offer(sale, row).requirements
        )
        said = "settled" if isinstance(reply, SettledReply) else reply.reason
        tried = self._tried("settle", started, said, reply.transaction)
        if self.chain is None and isinstance(reply, SettledReply):
            return await self._move(
                row,
                State.SETTLED,
                transaction=reply.transaction,
                reason="facilitator",
                lease_ms=FINAL_MS,
                attempts=(tried,),
            )
        found = await self._prove(row, reply)
        if isinstance(reply, SettledReply) and found and found.proof is not Proof.PAID:
            alarm("unproven", row.id)
        return await self._conclude(row, found, said, tried)

    async def _prove(self, row: LedgerRow, reply: SettledReply | Unclear) -> ChainAnswer | None:
        """What the chain says after a settle call. Where the facilitator says that it settled,
        our node gets the time to catch up with its.
        """
        found = await self._ask(row, reply.transaction)
        for pause in PROOF_WAITS_S if isinstance(reply, SettledReply) else ():
            if found is None or found.proof is not Proof.UNUSED:
                break
            await asyncio.sleep(pause)
            found = await self._ask(row, reply.transaction)
        return found

    async def _again(self, sale: Sale, payment: Payment, row: LedgerRow, digest: str) -> _Sold:
        """The same payment once more: its row after a wait, or Problem 409 for another request."""
        if row.state is State.REJECTED or not payments.same(row, payment, digest):
            return _Sold(replayed(payment, row, digest), here=False)
        for pause in WAITS_S:
            if row.state not in (State.CLAIMED, State.SETTLING):
                break
            if row.lease_until <= self.clock():
                break
            await asyncio.sleep(pause)
            row = await self._look(row.id) or row
        if row.state in (State.SETTLING, State.UNKNOWN):
            row = await self._conclude(row, await self._ask(row), row.reason)
        if row.state is State.UNKNOWN and row.valid_before_s > self._now_s():
            # Safe, because the authorization can be used only once, and identical: it is the
            # claimed header that is sent.
            return _Sold(await self._settle(sale, await self._intend(row)), here=True)
        return _Sold(replayed(payment, row, digest), here=False)

    async def _ask(self, row: LedgerRow, transaction: str | None = None) -> ChainAnswer | None:
        """What the chain says of a row; None where nobody can tell."""
        if self.chain is None:
            return None
        try:
            return await self.chain.proof(row.authorization, hint=transaction or row.transaction)
        except RpcError:
            return None

    async def _conclude(
        self, row: LedgerRow, found: ChainAnswer | None, reason: str, *attempts: Attempt
    ) -> LedgerRow:
        """Move a row to what the chain proves of it, else to `unknown`, unless a settlement of
        somebody else's is still in flight.
        """
        state = None
        if found is not None:
            state = resolved(found.proof, valid_before_s=row.valid_before_s, now_s=found.head_s)
        if found is None or state is None:
            in_flight = row.state is State.SETTLING and row.lease_until > self.clock()
            if row.state is State.UNKNOWN or (in_flight and not attempts):
                return row
            named = attempts[-1].transaction if attempts else None
            return await self._move(
                row,
                State.UNKNOWN,
                reason=reason,
                transaction=named,
                lease_ms=REST_MS,
                attempts=attempts,
            )
        moved = await self.store.writing(
            payments.conclude,
            row,
            state,
            now=self.clock(),
            transaction=found.transaction or "",
            reason=found.proof.value,
            lease_ms=FINAL_MS if state is State.SETTLED else 0,
            attempts=attempts,
        )
        return moved or await self._overtaken(row)

    async def _release(self, row: LedgerRow, reason: str, *attempts: Attempt) -> None:
        """Give the claim back. A worker that no longer holds it may not say that nothing was
        charged: it raises _OvertakenError.
        """
        await self._move(row, State.REJECTED, reason=reason, attempts=attempts)

    async def _move(
        self,
        row: LedgerRow,
        state: State,
        *,
        owner: str | None = None,
        answer: StoredAnswer | None = None,
        transaction: str | None = None,
        reason: str = "",
        lease_ms: int = 0,
        attempts: tuple[Attempt, ...] = (),
    ) -> LedgerRow:
        """Move a row that this worker holds. Raises _OvertakenError when it no longer does."""
        moved = await self.store.writing(
            payments.move,
            row,
            state,
            now=self.clock(),
            owner=owner,
            answer=answer,
            transaction=transaction,
            reason=reason,
            lease_ms=lease_ms,
            attempts=attempts,
        )
        return moved or await self._overtaken(row)

    async def _overtaken(self, row: LedgerRow) -> LedgerRow:
        raise _OvertakenError(await self._look(row.id) or row)

    async def _look(self, payment_id: str) -> LedgerRow | None:
        return await self.store.lookup(payments.get, payment_id)

    def _tried(
        self, kind: str, started: int, outcome: str, transaction: str | None = None
    ) -> Attempt:
        return Attempt(
            kind=kind,
            at=started,
            ended_at=self.clock(),
            outcome=outcome,
            transaction=transaction,
        )

    def _now_s(self) -> int:
        return self.clock() // 1000


def claimed_offer(sale: Sale, row: LedgerRow) -> Offer:
    """The offer that a row was claimed for: prices may have changed since."""
    if (sale.offer.amount, sale.offer.pay_to.lower()) == (row.amount, row.pay_to):
        return sale.offer
    return replace(sale.offer, amount=row.amount, pay_to=row.pay_to)


def replayed(payment: Payment, row: LedgerRow, digest: str) -> LedgerRow:
    """A row that others may have moved, for nobody else than whom it holds the payment of, and for
    the request that it holds. Raises Problem 409.
    """
    if row.state is not State.REJECTED and not payments.same(row, payment, digest):
        raise reused()
    return row


def _in_flight() -> Problem:
    """503 for a copy that came while the request that bought is being answered."""
    return Problem(
        503,
        "payment-in-flight",
        "The request that this payment was first sent with is being answered. Do not pay again: "
        "send the same request with the same payment in a few seconds.",
        retry_after=HEAD_START_MS // 1000,
    )
