"""`GET /trust/preflight`: check an offer against the trust record of its endpoint.

The rules are in core/guard/preflight. The bundle (web/free/downloads) contains the same
records for clients that do not want to disclose which endpoints they pay.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

from pydantic import ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response

from tollgauge.core.guard.bundle import TrustRecord
from tollgauge.core.guard.preflight import Code, Decision, PreflightOffer, PreflightVerdict, decide
from tollgauge.monitor import trust_records
from tollgauge.web.dependencies import Service
from tollgauge.web.free.api import json_response
from tollgauge.web.route import INVALID_RESOURCE, Routes
from tollgauge.web.wire import openapi
from tollgauge.web.wire.examples import PAY_TO, RESOURCE
from tollgauge.web.wire.request_model import (
    NETWORK,
    RequestedNetwork,
    RequestedResource,
    RequestModel,
)
from tollgauge.web.wire.response_model import (
    Amount,
    Grade,
    OneOf,
    Percent,
    Recommendation,
    ResponseModel,
    Time,
    camel,
    from_attribute,
)

ROUTES: Final = Routes(tag="free", cached=True, strict_query=True)


class PreflightRequest(RequestModel):
    """An offer of an endpoint; omitted fields are not checked."""

    model_config = ConfigDict(alias_generator=camel)

    resource: RequestedResource
    pay_to: str | None = Field(None, description="payTo address of the offer")
    amount: str | None = Field(
        None, description="Amount of the offer in atomic units, as a decimal string"
    )
    network: RequestedNetwork | None = Field(None, description=NETWORK)


class PreflightResponse(ResponseModel):
    """The decision about an offer: `allow`, `ask` (the owner decides) or `refuse`. `code` is the
    rule that decided, null for `allow`; `reason` explains it. The other fields are the stored state
    of the endpoint, null if unknown: `knownPayTo` are its payTo addresses of the last 30 days,
    newest first; `knownAmount` is its highest price of that time in micro-dollars on
    `knownNetwork`; `asOf` is the time of its score.
    """

    decision: Annotated[str, OneOf(Decision)]
    code: Annotated[str, OneOf(Code)] | None
    reason: str
    resource: str
    recommendation: Recommendation | None
    grade: Grade | None
    score: Percent | None = from_attribute("score_tenths")
    known_pay_to: list[str] = from_attribute("pay_to")
    known_amount: Amount | None = from_attribute("amount")
    known_network: str | None = from_attribute("network")
    as_of: Time | None


@ROUTES.get(
    "/trust/preflight",
    openapi.free(PreflightResponse, "preflight", INVALID_RESOURCE),
    request=PreflightRequest.query_parameters(
        {"resource": RESOURCE, "payTo": PAY_TO, "amount": "10000", "network": "eip155:8453"}
    ),
    example=f"?resource={RESOURCE}&payTo={PAY_TO}&amount=10000",
)
async def preflight(service: Service, request: Request) -> Response:
    """Check an offer before paying. An unknown resource is not an error."""
    return json_response(await judge(service, dict(request.query_params)))


async def judge(service: Service, document: object) -> PreflightResponse:
    """Return the decision about an offer. Raises Problem 422."""
    request = PreflightRequest.read(document, service.perimeter)
    record = await service.read_now(trust_records.record, request.resource.id)
    offer = PreflightOffer(pay_to=request.pay_to, amount=request.amount, network=request.network)
    return build_decision(decide(record, offer), record, resource=request.resource.url)


def build_decision(
    verdict: PreflightVerdict, record: TrustRecord | None, *, resource: str
) -> PreflightResponse:
    """Build the JSON of a decision; `record` is None for an unknown endpoint."""
    unknown: dict[str, Any] = {}
    if record is None:
        names = ("recommendation", "grade", "score", "known_amount", "known_network", "as_of")
        unknown = dict.fromkeys(names) | {"known_pay_to": []}
    return PreflightResponse.build(verdict, record, resource=resource, **unknown)
