"""`POST /v1/outcomes`: accept a payer's signed statement about whether a seller delivered."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import BeforeValidator, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response

from tollgauge.core.base.units import DAY_MS, SECOND_MS, chain_of
from tollgauge.core.endpoint.buyers_reports import (
    REPORT_AGE_MS,
    REPORT_AHEAD_MS,
    BuyerOutcome,
    OutcomeStatement,
)
from tollgauge.core.endpoint.identity import URL_MAX
from tollgauge.monitor import outcomes
from tollgauge.monitor.outcomes import Acceptance
from tollgauge.web.dependencies import Service, unknown_resource
from tollgauge.web.edge.messages import read_body
from tollgauge.web.edge.problem import Problem
from tollgauge.web.free.api import json_response
from tollgauge.web.route import Routes
from tollgauge.web.wire import examples, openapi
from tollgauge.web.wire.request_model import (
    ENDPOINT_URL,
    NETWORK,
    RequestedNetwork,
    RequestModel,
    invalid,
    read_resource,
    without_fraction,
)
from tollgauge.web.wire.response_model import OneOf, ResponseModel, camel

ROUTES: Final = Routes(tag="free", strict_query=True)
_REFUSED: Final = {
    Acceptance.NETWORK_NOT_INDEXED: (422, "Settlements on this network are not indexed."),
    Acceptance.PAYTO_NOT_ADVERTISED: (
        422,
        "The resource did not ask for payments to this payTo on this network at that time.",
    ),
    Acceptance.UNKNOWN_PAYMENT: (
        404,
        (
            "The signer has no known settlement with this nonce to this payTo near this time. If "
            "the payment is recent, send the statement again in a few minutes."
        ),
    ),
    Acceptance.ALREADY_REPORTED: (409, "The payer made another statement about this payment."),
}
_ERRORS: Final = {
    400: "The body is not JSON",
    404: "This resource is not monitored, or no settlement of this payment is known",
    409: "The payer made another statement about this payment",
    422: "A field or the signature is invalid, the payment is older than 7 days, its network is "
    "not indexed, or the resource did not advertise the payTo",
}
EXAMPLE: Final = {
    "resource": examples.RESOURCE,
    "payTo": examples.PAY_TO,
    "nonce": "0x" + "1f" * 32,
    "outcome": "delivered",
    "at": 1_795_000_000,
    "network": "eip155:8453",
    "payer": "0x" + "5b" * 20,
    "signature": "0x" + "2a" * 64 + "1b",
}
_EXAMPLE_ANSWER: Final = {"accepted": True, "payer": EXAMPLE["payer"], "outcome": "delivered"}


class OutcomeRequest(RequestModel):
    """A signed statement about one payment."""

    model_config = ConfigDict(alias_generator=camel)

    resource: Annotated[str, Field(max_length=URL_MAX)] = Field(description=ENDPOINT_URL)
    pay_to: str = Field(pattern="^0x[0-9a-fA-F]{40}$", description="Address that was paid")
    nonce: str = Field(
        pattern="^0x[0-9a-fA-F]{64}$", description="Nonce of the payment's authorization"
    )
    outcome: Annotated[str, OneOf(BuyerOutcome)] = Field(
        description="`delivered`; all other outcomes count as not delivered"
    )
    at: Annotated[int, Field(ge=0, le=10**10), BeforeValidator(without_fraction)] = Field(
        description="Time of the payment in Unix seconds, at most "
        f"{REPORT_AGE_MS // DAY_MS} days ago",
    )
    network: RequestedNetwork = Field(description=NETWORK)
    payer: str | None = Field(
        None, pattern="^0x[0-9a-fA-F]{40}$", description="Account that paid and signed"
    )
    signature: str = Field(
        pattern="^0x[0-9a-fA-F]{130}$", description="EIP-712 signature of the payer"
    )

    def statement(self) -> OutcomeStatement:
        """Return the signed statement. Raises Problem 422."""
        chain = chain_of(self.network)
        if chain is None:
            raise invalid("network", "network must be an EVM network.")
        return OutcomeStatement(
            resource=self.resource,
            chain=chain,
            pay_to=self.pay_to.lower(),
            nonce=bytes.fromhex(self.nonce[2:]),
            outcome=BuyerOutcome(self.outcome),
            at=self.at,
        )


class OutcomeResponse(ResponseModel):
    """The accepted statement."""

    accepted: bool
    payer: str
    outcome: Annotated[str, OneOf(BuyerOutcome)]


@ROUTES.post(
    "/v1/outcomes",
    openapi.free(OutcomeResponse, _EXAMPLE_ANSWER, _ERRORS),
    name="post_outcome",
    request={"requestBody": OutcomeRequest.body(EXAMPLE)},
)
async def submit(service: Service, request: Request) -> Response:
    """Report whether a seller delivered. Raises Problem 400, 404, 409 or 422."""
    asked = OutcomeRequest.read(await read_body(request), service.perimeter)
    resource = read_resource(asked.resource, service.perimeter)
    statement = asked.statement()
    _check_time(statement, now=service.clock())
    signature = bytes.fromhex(asked.signature[2:])
    payer = statement.signer(signature)
    if payer is None or (asked.payer or payer).lower() != payer:
        raise invalid("signature", "The signature is not the payer's for this statement.")
    result = await service.store.writing(
        outcomes.submit, statement, resource.id, payer=payer, signature=signature
    )
    if result is Acceptance.UNKNOWN_RESOURCE:
        raise unknown_resource()
    if result is not Acceptance.ACCEPTED:
        status, text = _REFUSED[result]
        raise Problem(status, result, text)
    return json_response(
        OutcomeResponse(accepted=True, payer=payer, outcome=statement.outcome.value)
    )


def _check_time(statement: OutcomeStatement, *, now: int) -> None:
    at = statement.at * SECOND_MS
    if at > now + REPORT_AHEAD_MS:
        raise invalid("at", "The time is in the future.")
    if at < now - REPORT_AGE_MS:
        raise invalid("at", "The payment is older than 7 days.")
