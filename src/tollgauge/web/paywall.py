"""The payment gate: what happens between a request to a paid route and its answer.

It reads top to bottom in `Gate.serve` and `Gate.sell`, one step a paragraph (contract.md section
1, payments.md): no payment header: 402 at once, whatever the body is; decode the payment (400);
read and validate the request (400, 422); compare what was signed (402); claim; verify (402, 503);
compute the whole answer; store it; write the intent; settle; release the answer.

Nothing here is charged before the answer is stored, and no answer leaves before it is paid. An
outcome that nobody knows is 503 and never 402, because a 402 makes clients sign and pay again.
"""

from __future__ import annotations

import asyncio
import base64
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

import orjson
from starlette.requests import Request
from starlette.responses import Response
from x402.schemas import PaymentRequired, PaymentRequirements, ResourceInfo, SettleResponse

from tollgauge.clients.evm import Authorization, Chain, RpcUnavailable
from tollgauge.clients.facilitator import (
    Facilitator,
    FacilitatorUnavailable,
    Refused,
    SettledReply,
)
from tollgauge.core import strictjson
from tollgauge.core.payment import (
    HEADER_MAX,
    Offer,
    Payment,
    PaymentHeaderError,
    State,
    canonical_body,
    decode,
    refusal,
    request_digest,
    resolved,
)
from tollgauge.store import payments
from tollgauge.store.engine import Store, StoreUnavailable
from tollgauge.store.payments import LedgerRow, StoredAnswer
from tollgauge.web.problem import Problem

Clock = Callable[[], int]

LEASE_MS: Final = 60_000
"""How long a worker may take from claim to intent before another may take the payment over."""
SETTLE_LEASE_MS: Final = 90_000
"""How long a settlement may take before another worker may ask what became of it."""
WAIT_STEP_S: Final = 0.1
WAIT_STEPS: Final = 20
BODY_MAX: Final = 65_536
SALE: Final = "sale"
"""The name of a task that sells; one that shuts down lets these finish."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sale:
    """What a paid route sells: its offer, its words, and how to make the answer.

    `validate` turns the parsed body into the route's request or raises Problem 422; `compute`
    makes the whole answer's JSON bytes or raises Problem. `info` and `schema` describe input and
    output to directories (the `bazaar` extension).
    """

    offer: Offer
    description: str
    validate: Callable[[object], object]
    compute: Callable[[object], Awaitable[bytes]]
    info: dict[str, object] = field(default_factory=dict)
    schema: dict[str, object] = field(default_factory=dict)
    tags: tuple[str, ...] = ("x402", "trust", "reliability")


@dataclass(frozen=True, slots=True)
class Gate:
    """The gate's resources: the ledger's store, the facilitator, and, where the operator names a
    node, the chain that proves what a facilitator left unclear.
    """

    store: Store
    facilitator: Facilitator
    clock: Clock
    chain: Chain | None = None

    async def serve(self, request: Request, sale: Sale) -> Response:
        """Answer one request to a paid route."""
        header = request.headers.get("payment-signature")
        if header is None:
            return owed(sale, unpaid_reason(request))
        payment = read_payment(header)
        document = await read_body(request)
        digest = request_digest(request.method, request.url.path, canonical_body(document))
        return await self.sell(sale, payment, document, header=header, digest=digest)

    async def sell(
        self, sale: Sale, payment: Payment, document: object, *, header: str, digest: str
    ) -> Response:
        """Sell one answer for one payment, whatever brought them here; `document` is the request
        and `digest` what the payment is bound to. Raises Problem.
        """
        order = sale.validate(document)
        reason = refusal(payment, sale.offer, now_s=self.clock() // 1000)
        if reason is not None and not await self._was_ours(payment, digest):
            return owed(sale, reason)
        task = asyncio.create_task(self._sell(sale, payment, header, digest, order), name=SALE)
        return await asyncio.shield(task)

    async def _was_ours(self, payment: Payment, digest: str) -> bool:
        """Whether a payment that would be refused now (expired, say) was taken before."""
        row = await self._look(payment.id)
        return row is not None and row.digest == digest and row.state is not State.REJECTED

    async def _sell(
        self, sale: Sale, payment: Payment, header: str, digest: str, order: object
    ) -> Response:
        row, mine = await self._claim(sale, payment, header, digest)
        if not mine:
            return await self._again(sale, payment, row, digest)
        if row.state is State.CLAIMED:
            refused = await self._verify(sale, payment, row)
            if refused is not None:
                return refused
            row = await self._compute(sale, row, order)
        return await self._settle(sale, payment, row)

    async def _claim(
        self, sale: Sale, payment: Payment, header: str, digest: str
    ) -> tuple[LedgerRow, bool]:
        """Insert the key before any work. A ledger that cannot be written takes no payment."""
        async with self.store.write() as tx:
            claim = await payments.claim(
                tx,
                payment,
                sale.offer,
                header=header,
                digest=digest,
                owner=secrets.token_hex(8),
                now=self.clock(),
                lease_ms=LEASE_MS,
            )
        return claim.row, claim.mine

    async def _verify(self, sale: Sale, payment: Payment, row: LedgerRow) -> Response | None:
        """Ask the facilitator; a refusal or silence gives the claim back."""
        started = self.clock()
        try:
            answer = await self.facilitator.verify(payment, requirements(sale.offer))
        except FacilitatorUnavailable as error:
            await self._attempt(row, "verify", started, "unavailable")
            await self._release(row, "facilitator unavailable")
            raise Problem(
                503,
                "facilitator-unavailable",
                "The payment could not be verified because our facilitator did not answer. "
                "Nothing was charged; send the same request again.",
                retry_after=10,
            ) from error
        if isinstance(answer, Refused):
            await self._attempt(row, "verify", started, answer.reason)
            await self._release(row, answer.reason)
            return owed(sale, answer.reason)
        await self._attempt(row, "verify", started, "valid")
        return None

    async def _compute(self, sale: Sale, row: LedgerRow, order: object) -> LedgerRow:
        """Make the whole answer and store it; anything but an answer gives the claim back."""
        try:
            body = await sale.compute(order)
        except Problem as problem:
            await self._release(row, problem.code)
            raise
        except BaseException:
            await self._release(row, "the answer could not be made")
            raise
        answer = StoredAnswer(status=200, body=body)
        return await self._move(row, State.READY, answer=answer, lease_ms=LEASE_MS)

    async def _settle(self, sale: Sale, payment: Payment, row: LedgerRow) -> Response:
        """Write the intent, settle, write the outcome; release the answer only when it is paid."""
        row = await self._move(row, State.SETTLING, lease_ms=SETTLE_LEASE_MS)
        started = self.clock()
        reply = await self.facilitator.settle(payment, requirements(sale.offer))
        if isinstance(reply, SettledReply):
            row = await self._move(row, State.SETTLED, transaction=reply.transaction)
            await self._attempt(row, "settle", started, "settled", reply.transaction)
            return released(row)
        row = await self._move(
            row, State.UNKNOWN, reason=reply.reason, transaction=reply.transaction
        )
        await self._attempt(row, "settle", started, reply.reason, reply.transaction)
        return self._stands(sale, await self._proven(row))

    async def _again(self, sale: Sale, payment: Payment, row: LedgerRow, digest: str) -> Response:
        """The same payment once more: its answer, its wait, or 409 for another request."""
        if row.digest != digest:
            raise Problem(
                409,
                "payment-reused",
                "This payment already pays for another request. Sign a new payment.",
            )
        for _ in range(WAIT_STEPS):
            if row.state not in (State.CLAIMED, State.READY, State.SETTLING):
                break
            if row.state is State.SETTLING and row.lease_until <= self.clock():
                row = await self._move(row, State.UNKNOWN, reason="the settling worker died")
                break
            await asyncio.sleep(WAIT_STEP_S)
            row = await self._look(row.id) or row
        if row.state is State.UNKNOWN:
            return await self._settle_again(sale, payment, row)
        return self._stands(sale, row)

    async def _settle_again(self, sale: Sale, payment: Payment, row: LedgerRow) -> Response:
        """Ask the chain about an unknown settlement; while it is unused and valid, settle again:
        the authorization can be used only once, so the identical call is safe.
        """
        row = await self._proven(row)
        valid = row.valid_before_s > self.clock() // 1000
        if row.state is State.UNKNOWN and valid:
            return await self._settle(sale, payment, row)
        return self._stands(sale, row)

    async def _proven(self, row: LedgerRow) -> LedgerRow:
        """An unknown settlement, moved to what the chain proves of it, if it proves anything."""
        if self.chain is None:
            return row
        now_s = self.clock() // 1000
        try:
            found = await self.chain.proof(authorization(row), now_s=now_s)
        except RpcUnavailable:
            return row
        state = resolved(found.proof, valid_before_s=row.valid_before_s, now_s=now_s)
        if state is None:
            return row
        return await self._move(row, state, transaction=found.transaction, reason=found.proof.value)

    def _stands(self, sale: Sale, row: LedgerRow) -> Response:
        """The answer that a row's state allows."""
        if row.state is State.SETTLED:
            return released(row)
        if row.state in (State.FAILED, State.EXPIRED, State.REJECTED):
            return owed(sale, f"payment_{row.state.value}")
        raise Problem(
            503,
            "payment-pending",
            "This payment's settlement is not known yet. Do not pay again: send the same request "
            "with the same payment until it is answered.",
            retry_after=5,
            extra={"paymentId": row.id, "transaction": row.transaction},
        )

    async def _release(self, row: LedgerRow, reason: str) -> None:
        async with self.store.write() as tx:
            await payments.move(tx, row, State.REJECTED, now=self.clock(), reason=reason)

    async def _move(
        self,
        row: LedgerRow,
        state: State,
        *,
        answer: StoredAnswer | None = None,
        transaction: str | None = None,
        reason: str = "",
        lease_ms: int = 0,
    ) -> LedgerRow:
        async with self.store.write() as tx:
            moved = await payments.move(
                tx,
                row,
                state,
                now=self.clock(),
                answer=answer,
                transaction=transaction,
                reason=reason,
                lease_ms=lease_ms,
            )
        return moved or await self._lost(row)

    async def _lost(self, row: LedgerRow) -> LedgerRow:
        """Somebody else moved the row: their truth stands, and this worker stops."""
        current = await self._look(row.id) or row
        if current.state is State.SETTLED:
            return current
        raise Problem(
            503,
            "payment-pending",
            "Another worker is completing this payment. Send the same request again.",
            retry_after=2,
            extra={"paymentId": row.id, "transaction": current.transaction},
        )

    async def _look(self, payment_id: str) -> LedgerRow | None:
        async with self.store.read() as tx:
            return await payments.get(tx, payment_id)

    async def _attempt(
        self,
        row: LedgerRow,
        kind: str,
        started: int,
        outcome: str,
        transaction: str | None = None,
    ) -> None:
        async with self.store.write() as tx:
            await payments.record_attempt(
                tx,
                row.id,
                kind=kind,
                at=started,
                ended_at=self.clock(),
                outcome=outcome,
                transaction=transaction,
            )


def read_payment(header: str) -> Payment:
    """The payment of a header, or Problem 431 or 400."""
    if len(header) > HEADER_MAX:
        raise Problem(431, "payment-header-too-large", f"Keep it under {HEADER_MAX} bytes.")
    try:
        return decode(header)
    except PaymentHeaderError as error:
        raise Problem(400, "payment-header-invalid", str(error)) from error


async def read_body(request: Request) -> object:
    """The request's JSON document, or Problem 413 or 400."""
    body = await request.body()
    if len(body) > BODY_MAX:
        raise Problem(413, "body-too-large", f"Keep the body under {BODY_MAX} bytes.")
    try:
        return strictjson.loads(body)
    except strictjson.StrictJsonError as error:
        raise Problem(400, "json-invalid", str(error)) from error


def unpaid_reason(request: Request) -> str:
    """Why a request without `PAYMENT-SIGNATURE` is not paid, in words that a v1 client needs."""
    if "x-payment" in request.headers:
        return "This service takes x402 version 2: sign again and send PAYMENT-SIGNATURE."
    return "PAYMENT-SIGNATURE header is required"


def requirements(offer: Offer) -> dict[str, object]:
    """The offer as an x402 v2 `accepts` entry."""
    return PaymentRequirements(
        scheme="exact",
        network=offer.network,
        asset=offer.asset,
        amount=str(offer.amount),
        pay_to=offer.pay_to,
        max_timeout_seconds=offer.timeout_seconds,
        extra={"name": offer.domain_name, "version": offer.domain_version},
    ).model_dump(by_alias=True, exclude_none=True)


def owed(sale: Sale, reason: str) -> Response:
    """402: the terms in `PAYMENT-REQUIRED` and in the body, with the reason."""
    extensions = {"bazaar": {"info": sale.info, "schema": sale.schema}} if sale.info else None
    document = PaymentRequired(
        error=reason,
        resource=ResourceInfo(
            url=sale.offer.resource,
            description=sale.description,
            mime_type="application/json",
            service_name="tollgauge",
            tags=list(sale.tags),
        ),
        accepts=[PaymentRequirements.model_validate(requirements(sale.offer))],
        extensions=extensions,
    ).model_dump(by_alias=True, exclude_none=True)
    body = orjson.dumps(document)
    return Response(
        body,
        status_code=402,
        media_type="application/json",
        headers={
            "PAYMENT-REQUIRED": base64.b64encode(body).decode(),
            "Cache-Control": "no-store",
        },
    )


def released(row: LedgerRow) -> Response:
    """A paid answer with its receipt, or Problem 410 once the stored answer has been dropped."""
    if row.answer is None:
        raise Problem(410, "answer-expired", "This payment's answer was kept for 30 days.")
    receipt = SettleResponse(
        success=True,
        transaction=row.transaction or "",
        network=row.network,
        payer=row.payer,
        amount=str(row.amount),
    ).model_dump_json(by_alias=True, exclude_none=True)
    return Response(
        row.answer.body,
        status_code=row.answer.status,
        media_type="application/json",
        headers={
            "PAYMENT-RESPONSE": base64.b64encode(receipt.encode()).decode(),
            "Cache-Control": "no-store",
            "Vary": "PAYMENT-SIGNATURE",
        },
    )


def authorization(row: LedgerRow) -> Authorization:
    """The transfer that a ledger row waits for."""
    return Authorization(
        asset=row.asset,
        payer=row.payer,
        nonce=row.nonce,
        to=row.pay_to,
        value=row.amount,
        since_s=row.created_at // 1000,
    )


__all__ = ["Gate", "Sale", "StoreUnavailable", "owed", "read_body", "read_payment", "requirements"]
