"""The answer that a payment's row in the ledger allows.

The table of states is in docs/payments.md. 402 is answered only where the payment took nothing,
because it makes clients sign and pay again; 503 while nobody can tell.
"""

from __future__ import annotations

import base64

from starlette.responses import Response
from x402.schemas import SettleResponse

from tollgauge.core.payment import Payment, State, decode
from tollgauge.store.ledger.payments import LedgerRow
from tollgauge.web.edge.problem import Problem
from tollgauge.web.paid.payment_terms import Sale, payment_required


def response_for(sale: Sale, row: LedgerRow) -> Response:
    """The answer that a row's state allows, or a 402 where the payment took nothing. Raises
    Problem 503 while nobody can tell, and 410 when the stored answer has been dropped.
    """
    if row.state is State.SETTLED:
        return _stored_answer(row)
    if row.state in (State.FAILED, State.EXPIRED):
        return payment_required(sale, f"payment_{row.state.value}")
    if row.state is State.REJECTED:
        raise Problem(
            503,
            "payment-released",
            "Another request with this payment just failed. Nothing was charged; send the same "
            "request again.",
            retry_after=1,
        )
    raise pending(row.id, row.transaction)


def _stored_answer(row: LedgerRow) -> Response:
    """A paid answer with its receipt (x402 v2, `PAYMENT-RESPONSE`)."""
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


def pending(payment_id: str, transaction: str | None = None) -> Problem:
    """503: nobody can tell yet what became of a payment."""
    return Problem(
        503,
        "payment-pending",
        "This payment's settlement is not known yet. Do not pay again: send the same request "
        "with the same payment until it is answered.",
        retry_after=5,
        extra={"paymentId": payment_id, "transaction": transaction},
    )


def replay_row(payment: Payment, row: LedgerRow, digest: str) -> LedgerRow:
    """The row of a payment that comes again. Raises Problem 409 unless it comes from the same payer
    (signature and ticket) for the same request (`digest`), or the row holds no payment.
    """
    if row.state is not State.REJECTED and not same_request(row, payment, digest):
        raise Problem(
            409,
            "payment-reused",
            "This payment already pays for another request. Sign a new payment.",
        )
    return row


def same_request(row: LedgerRow, payment: Payment, digest: str) -> bool:
    """Whether a payment is the one of a row: the same signature and ticket, sent for the same
    request. A settled signature alone proves nothing, because anyone can read it on the chain; the
    ticket is known to the payer alone. Not for rejected rows, whose header is not kept.
    """
    stored = decode(row.header)
    same_payer = (stored.signer_mark, stored.ticket) == (payment.signer_mark, payment.ticket)
    return row.digest == digest and same_payer
