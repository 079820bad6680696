"""`GET /trust/preflight`: whether an offer may be paid, by what is known of its endpoint.

The rules are core/guard/preflight's, the record is the newest one (monitor/trust_records). The
bundle (web/free/bundle_download) has the same records, for whoever wants to tell nobody what is
paid.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pydantic import ConfigDict, Field
from starlette.responses import Response

from tollgauge.core.guard.preflight import PreflightOffer, decide
from tollgauge.monitor import trust_records
from tollgauge.web.dependencies import Dependencies
from tollgauge.web.free.api import json_response
from tollgauge.web.wire.parameters import (
    OfferedAmount,
    OfferedNetwork,
    OfferedPayTo,
    ResourceQuery,
)
from tollgauge.web.wire.preflight_answers import PreflightResponse, preflight
from tollgauge.web.wire.request_model import (
    NETWORK,
    RequestedNetwork,
    RequestedResource,
    RequestModel,
)
from tollgauge.web.wire.response_model import camel

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
