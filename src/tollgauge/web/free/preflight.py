"""`GET /trust/preflight`: whether an offer may be paid, by what is known of its endpoint.

The rules are core/guard/preflight's, the record is the newest one (monitor/trust_records). The
bundle (web/free/bundle_download) has the same records, for whoever wants to tell nobody what is
paid.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final

from pydantic import ConfigDict, Field
from starlette.responses import Response

from tollgauge.core.guard.bundle import TrustRecord
from tollgauge.core.guard.preflight import Code, Decision, PreflightOffer, PreflightVerdict, decide
from tollgauge.monitor import trust_records
from tollgauge.web.dependencies import Dependencies
from tollgauge.web.free.api import json_response
from tollgauge.web.wire.parameters import (
    OfferedAmount,
    OfferedNetwork,
    OfferedPayTo,
    ResourceQuery,
)
from tollgauge.web.wire.request_model import (
    NETWORK,
    RequestedNetwork,
    RequestedResource,
    RequestModel,
)
from tollgauge.web.wire.response_model import (
    Grade,
    OneOf,
    Percent,
    Recommendation,
    ResponseModel,
    camel,
    iso,
    tenths,
)

PATH: Final = "/trust/preflight"
SUMMARY: Final = "Whether an offer may be paid, by what is known of its endpoint"


class PreflightRequest(RequestModel):
    """An offer of an endpoint; what is left out is not judged."""

    model_config = ConfigDict(alias_generator=camel)

    resource: RequestedResource
    pay_to: str | None = Field(None, description="The address that the offer asks to pay")
    amount: str | None = Field(None, description="Its amount in atomic units, as decimal text")
    network: RequestedNetwork | None = Field(None, description=NETWORK)


@dataclass(frozen=True, slots=True)
class Preflights:
    """The handler of the route; also called by the tool of web/mcp."""

    dependencies: Dependencies

    async def preflight(
        self,
        resource: ResourceQuery,
        pay_to: OfferedPayTo = None,
        amount: OfferedAmount = None,
        network: OfferedNetwork = None,
    ) -> Response:
        """Whether an offer may be paid. An unknown resource is an answer, too."""
        offer = {"resource": resource, "payTo": pay_to, "amount": amount, "network": network}
        given = {name: value for name, value in offer.items() if value is not None}
        return json_response(await self.judge(given))

    async def judge(self, document: object) -> PreflightResponse:
        """The verdict about an offer from JSON. Raises Problem 422."""
        request = PreflightRequest.read(document, self.dependencies.perimeter)
        record = await self.dependencies.read_now(trust_records.record, request.resource.id)
        offer = PreflightOffer(
            pay_to=request.pay_to, amount=request.amount, network=request.network
        )
        return preflight(decide(record, offer), record, resource=request.resource.url)


class PreflightResponse(ResponseModel):
    """Whether to pay an offer: `allow`, `ask` whoever may decide, or `refuse`. `code` says which
    rule decided, null for `allow`, and `reason` the same in a sentence. The rest is what is known:
    `knownPayTo` are the addresses that the endpoint asked to be paid at in the last 30 days, newest
    first, `knownAmount` its price in atomic units of a dollar token with 6 decimals on
    `knownNetwork`; `asOf` is when its score was computed. Null is unknown.
    """

    decision: Annotated[str, OneOf(Decision)]
    code: Annotated[str, OneOf(Code)] | None
    reason: str
    resource: str
    recommendation: Recommendation | None
    grade: Grade | None
    score: Percent | None
    known_pay_to: list[str]
    known_amount: str | None
    known_network: str | None
    as_of: str | None


def preflight(
    verdict: PreflightVerdict, record: TrustRecord | None, *, resource: str
) -> PreflightResponse:
    """A verdict as JSON, with the record that it rests on, None where nothing is known."""
    return PreflightResponse(
        decision=verdict.decision,
        code=verdict.code,
        reason=verdict.reason,
        resource=resource,
        recommendation=record.recommendation if record else None,
        grade=record.grade if record else None,
        score=tenths(record.score_tenths) if record else None,
        known_pay_to=list(record.pay_to) if record else [],
        known_amount=None if record is None or record.amount is None else str(record.amount),
        known_network=record.network if record else None,
        as_of=iso(record.as_of) if record else None,
    )
