"""`POST /v1/x402-payment-trace`: the payments of a transaction, from the chain.

Rules:
- a network without a node and an invalid request are refused before a payment is taken;
- payer and nonce of an authorization can replace a transaction's hash; an unused authorization is
  an answer;
- an unknown hash and a node that cannot answer cost nothing;
- a transaction without a payment, one that reverted and one that is pending are answers;
- of a payment to this service the ledger shows its id, route, time and state.

The rest of the answer is core/chain/trace's.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Annotated, Final, Self

from pydantic import AfterValidator, ConfigDict, Field, model_validator

from tollgauge.clients.chain.rpc import RpcError
from tollgauge.clients.chain.transactions import (
    DecoderUnavailable,
    NetworkNotConfiguredError,
    Transactions,
)
from tollgauge.core.base.units import (
    EVM_ADDRESS_PATTERN,
    EVM_WORD_PATTERN,
    SOLANA_SIGNATURE_PATTERN,
    eip3009_assets,
)
from tollgauge.core.chain.trace.decode import not_found
from tollgauge.core.chain.trace.reason import UNUSED
from tollgauge.core.chain.trace.result import (
    DEFAULT_NETWORK,
    NETWORKS,
    Model,
    TracedPayment,
    TraceResult,
    TraceStatus,
    network_name,
)
from tollgauge.core.endpoint.identity import Resource
from tollgauge.core.endpoint.terms import Quote
from tollgauge.store.endpoints import endpoints
from tollgauge.store.ledger.reconciliation import Key, PaymentSummary, payment_of
from tollgauge.web.edge.problem import Problem
from tollgauge.web.paid.product import Call, PaidDependencies, Product, ToolSpec
from tollgauge.web.paid.sale import HeldClaim
from tollgauge.web.wire.examples import read_example
from tollgauge.web.wire.request_model import RequestedResource, RequestModel, invalid, refuse
from tollgauge.web.wire.response_model import OneOf, camel, dump
from tollgauge.web.wire.traces import (
    AuthorizationUseResponse,
    HintResponse,
    LedgerResponse,
    PaymentTraceResponse,
)

DEADLINE_S: Final = 25.0
"""Timeout of the nodes, well below the lease of a claim (web/paid/gate)."""
_RETRY_S: Final = 5

EXAMPLE: Final = {"txHash": "0x" + "5a" * 32, "network": "base-mainnet"}


_Network = Annotated[str, OneOf((*NETWORKS, *NETWORKS.values())), AfterValidator(network_name)]
_Hash = Annotated[str, Field(pattern=f"^{EVM_WORD_PATTERN.pattern}$"), AfterValidator(str.lower)]
_TransactionHash = Annotated[
    str,
    Field(pattern=f"^({EVM_WORD_PATTERN.pattern}|{SOLANA_SIGNATURE_PATTERN.pattern})$"),
    AfterValidator(lambda text: text.lower() if text.startswith("0x") else text),
]
_Address = Annotated[
    str, Field(pattern=f"^{EVM_ADDRESS_PATTERN.pattern}$"), AfterValidator(str.lower)
]


class TraceRequest(RequestModel):
    """The transaction to decode, or the authorization of a payment whose answer was lost."""

    model_config = ConfigDict(
        alias_generator=camel,
        json_schema_extra={"anyOf": [{"required": ["txHash"]}, {"required": ["payer", "nonce"]}]},
    )

    tx_hash: _TransactionHash | None = Field(
        None, description="Hash of the settlement transaction; on Solana its signature"
    )
    payer: _Address | None = Field(None, description="Signer of the authorization")
    nonce: _Hash | None = Field(None, description="Nonce of the authorization")
    hint_resource: RequestedResource | None = Field(
        None, description="Resource that the payment is expected to be for"
    )
    network: _Network = DEFAULT_NETWORK
    model: Annotated[Model, OneOf(Model)] | None = Field(
        None, description="Decoder from GET /v1/models. Default: the cheapest that works"
    )

    @model_validator(mode="after")
    def _check_subject(self) -> Self:
        named = (self.payer is not None, self.nonce is not None)
        if self.tx_hash is None and named != (True, True):
            refuse(invalid("txHash", "Send txHash, or payer and nonce."))
        if self.tx_hash is not None and any(named):
            refuse(invalid("txHash", "Send either txHash, or payer and nonce."))
        is_evm = self.tx_hash is None or self.tx_hash.startswith("0x")
        if is_evm != NETWORKS[self.network].startswith("eip155:"):
            refuse(invalid("txHash", "Send a signature on Solana, and hex on other networks."))
        return self


def _prepare(
    dependencies: PaidDependencies, request: TraceRequest, _call: Call | None
) -> TraceRequest:
    """Raises Problem 503 if the network has no node."""
    if not dependencies.transactions.has_node(NETWORKS[request.network]):
        raise _not_configured(request.network)
    return request


async def _answer(
    dependencies: PaidDependencies, request: TraceRequest, _claim: HeldClaim
) -> bytes:
    """Make the whole answer. Raises Problem 404 for an unknown hash, 503 if no node can answer."""
    network = NETWORKS[request.network]
    result = await _trace(dependencies.transactions, request, network)
    if result.status is TraceStatus.NOT_FOUND and request.tx_hash is not None:
        raise Problem(
            404,
            "unknown-transaction",
            "The chain does not know this transaction. Nothing was charged.",
        )
    store = dependencies.store
    row = await store.reading(
        payment_of,
        _keys(request, result),
        network=result.network,
        transaction=result.tx_hash,
    )
    hint = None
    if request.hint_resource is not None:
        endpoint = await store.reading(endpoints.get, request.hint_resource.id)
        hint = _compare_price(request.hint_resource, endpoint.quote if endpoint else None, result)
    use = None
    if request.nonce is not None:
        use = AuthorizationUseResponse.build(request, used=result.tx_hash is not None)
    return dump(PaymentTraceResponse.of(result, ledger=_ledger(row), hint=hint, authorization=use))


def _keys(request: TraceRequest, result: TraceResult) -> list[Key]:
    """Return the keys of the traced payments, and of the authorization in the request.

    The ledger may know a payment before the chain does.
    """
    keys = [
        Key(asset=payment.token.address, payer=payment.payer, nonce=payment.nonce or "")
        for payment in result.payments
    ]
    if request.payer is None or request.nonce is None:
        return keys
    assets = eip3009_assets(result.network)
    asked = [Key(asset=row.address, payer=request.payer, nonce=request.nonce) for row in assets]
    return [*keys, *asked]


async def _trace(transactions: Transactions, request: TraceRequest, network: str) -> TraceResult:
    try:
        async with asyncio.timeout(DEADLINE_S):
            tx_hash = request.tx_hash
            if tx_hash is None:
                payer, nonce = request.payer or "", request.nonce or ""
                tx_hash = await transactions.find_transaction(network, payer, nonce)
            if tx_hash is None:
                return replace(not_found(None, network=network), reason=UNUSED)
            return await transactions.trace(network, tx_hash, request.model)
    except NetworkNotConfiguredError as error:
        raise _not_configured(request.network) from error
    except DecoderUnavailable as error:
        raise Problem(
            503,
            "model-unavailable",
            f"{error} {error.hint} Nothing was charged.",
            retry_after=3600,
        ) from error
    except (RpcError, TimeoutError) as error:
        raise Problem(
            503,
            "rpc-unavailable",
            "The nodes of this network did not answer. Nothing was charged; try again.",
            retry_after=_RETRY_S,
        ) from error


def _not_configured(name: str) -> Problem:
    return Problem(
        503,
        "network-not-configured",
        f"No node for {name} is configured on this server. Nothing was charged.",
        retry_after=3600,
    )


def _ledger(row: PaymentSummary | None) -> LedgerResponse:
    return LedgerResponse(match=False) if row is None else LedgerResponse.build(row, match=True)


def _compare_price(resource: Resource, quote: Quote | None, result: TraceResult) -> HintResponse:
    """Return whether a payment of the trace fits an advertised price; nulls if none is known.

    The amount is compared for payments to the advertised wallet, or for all payments if none went
    there. Dollars are compared with dollars, across chains too.
    """
    if quote is None:
        return HintResponse(resource=resource.url, pay_to_matches=None, amount_matches=None)
    to_wallet = [payment for payment in result.payments if payment.payee == quote.pay_to]
    amounts = (_pays(one, quote, result.network) for one in to_wallet or result.payments)
    return HintResponse(
        resource=resource.url, pay_to_matches=bool(to_wallet), amount_matches=any(amounts)
    )


def _pays(payment: TracedPayment, quote: Quote, network: str) -> bool:
    dollars = payment.micro_usd(network)
    if dollars is not None and quote.micro_usd is not None:
        return dollars == quote.micro_usd
    same_token = (network, payment.token.address) == (quote.network, quote.asset)
    return same_token and payment.amount == quote.amount


PRODUCT: Final = Product(
    path="/v1/x402-payment-trace",
    position=40,
    price="0.011673",
    summary="Decode the payments of a settlement transaction",
    description="Decodes a settlement transaction (EIP-3009): payer, payee, amount, token, "
    "method and authorization of every payment in it, including batched, proxied and nested "
    "payments. On Solana: payer, payee, amount and token.",
    request=TraceRequest,
    example=dict(EXAMPLE),
    answer=read_example("payment_trace"),
    response=PaymentTraceResponse,
    prepare=_prepare,
    compute=_answer,
    tool=ToolSpec(name="x402_payment_trace"),
    refusals={
        404: "The chain does not know this transaction; nothing was charged",
        503: "No node for the network is configured, or the nodes did not answer; nothing was "
        "charged unless the payment is pending",
    },
)
PRODUCTS: Final = (PRODUCT,)
