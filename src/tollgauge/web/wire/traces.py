"""JSON of payment traces."""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import BeforeValidator

from tollgauge.core.base.units import LAST_SECOND, SECOND_MS, iso_seconds
from tollgauge.core.chain.trace.calldata import Method
from tollgauge.core.chain.trace.result import (
    Model,
    Party,
    TracedPayment,
    TraceResult,
    TraceStatus,
    network_name,
)
from tollgauge.core.sale.payment_state import State
from tollgauge.web.wire.response_model import (
    Amount,
    Dollars,
    OneOf,
    ResponseModel,
    Time,
    absent_if_null,
    from_attribute,
)


def _iso(at: int | None) -> str | None:
    """Format a time (ms UTC) in whole seconds; None if ISO 8601 cannot express it."""
    return None if at is None or at // SECOND_MS > LAST_SECOND else iso_seconds(at)


class BlockResponse(ResponseModel):
    """The block of the transaction, with its current finality."""

    number: int
    hash: str | None
    timestamp: Annotated[str | None, BeforeValidator(_iso)] = from_attribute("at")
    finality: Annotated[str, OneOf(("latest", "safe", "finalized"))] | None


class TokenResponse(ResponseModel):
    """The token. Unless `amountUsd` is a number, its texts come from the contract, unverified."""

    address: str
    symbol: str | None
    decimals: int | None


class AuthorizationResponse(ResponseModel):
    """The signed authorization: unix seconds as decimal strings, null if only logs are known."""

    nonce: str
    valid_after: Amount | None
    valid_before: Amount | None


class PaymentResponse(ResponseModel):
    """One payment. `form` is `eip3009`, `permit2` or `upto` through a Permit2 proxy,
    `batch-settlement` or `auth-capture` from an escrow, or `exact` on Solana. `method` is null on
    Solana and if it is not visible in logs or call data, `amountUsd` for other tokens than known
    dollars, `logIndex` (of the Transfer) on Solana and while pending. `payer` is the escrow if the
    transaction does not prove the payer.
    """

    form: str
    method: Annotated[str, OneOf(Method)] | None
    payer: str
    payee: str
    amount: Amount
    amount_usd: Dollars | None
    token: TokenResponse
    authorization: AuthorizationResponse | None
    log_index: int | None

    @classmethod
    def of(cls, payment: TracedPayment, network: str) -> Self:
        """Build the JSON of a payment on a network (CAIP-2)."""
        return cls.build(
            payment,
            amount_usd=payment.micro_usd(network),
            authorization=AuthorizationResponse.build(payment) if payment.nonce else None,
        )


class LedgerResponse(ResponseModel):
    """The sale of this service that the transaction paid for, if any."""

    match: bool
    payment_id: str | None = absent_if_null("id")
    route: str | None = absent_if_null()
    at: Time | None = absent_if_null()
    status: Annotated[str, OneOf(State)] | None = absent_if_null("state")


class HintResponse(ResponseModel):
    """Whether a payment matches the current offer of the resource; null if it is unknown."""

    resource: str
    pay_to_matches: bool | None
    amount_matches: bool | None


class AuthorizationUseResponse(ResponseModel):
    """The authorization in the request; `used` is also true if it was canceled on chain."""

    payer: str
    nonce: str
    used: bool


class TraceResponse(ResponseModel):
    """A transaction's payments, as `tollgauge trace` prints them. `fault` is the party that caused
    the transaction to revert, if that is known.
    """

    tx_hash: str | None
    network: Annotated[str, BeforeValidator(network_name)]
    chain_id: int | None
    status: Annotated[str, OneOf(TraceStatus)]
    block: BlockResponse | None
    submitter: str | None
    decoder: Annotated[str, OneOf(Model)]
    payments: list[PaymentResponse]
    payer: str | None
    payee: str | None
    amount: str | None
    token: TokenResponse | None
    reason: str | None = absent_if_null()
    fault: Annotated[str, OneOf(Party)] | None = absent_if_null()

    @classmethod
    def of(cls, result: TraceResult, **given: Any) -> Self:
        """Build the JSON of a trace."""
        payments = [PaymentResponse.of(one, result.network) for one in result.payments]
        first = payments[0] if payments else None
        names = ("payer", "payee", "amount", "token")
        summary = {name: getattr(first, name, None) for name in names}
        return cls.build(result, payments=payments, **summary, **given)


def trace_json(result: TraceResult) -> dict[str, Any]:
    """Return a trace as a JSON object."""
    return TraceResponse.of(result).model_dump(by_alias=True)


class PaymentTraceResponse(TraceResponse):
    """The payments of a transaction; single fields describe the first payment. `authorization` is
    present if the request contains one; `txHash` is null until a transaction uses it. `reason`
    explains why there is no payment, or which part of the proof is missing.
    """

    ledger: LedgerResponse
    hint: HintResponse | None = absent_if_null()
    authorization: AuthorizationUseResponse | None = absent_if_null()
