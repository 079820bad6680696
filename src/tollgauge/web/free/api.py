"""The free JSON routes: numbers come from monitor/reports, and their JSON from web/wire."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final

from starlette.requests import Request
from starlette.responses import Response

from tollgauge.core.chain.trace.result import DECODERS, NETWORKS, Model
from tollgauge.core.sale.answer_signature import Typ
from tollgauge.monitor import calibration, statistics
from tollgauge.monitor.reports import overview, trust_reports
from tollgauge.monitor.reports.snapshots import detailed
from tollgauge.monitor.reports.trust_reports import evidence_of
from tollgauge.web.dependencies import Dependencies
from tollgauge.web.edge.input import read_body
from tollgauge.web.edge.problem import Problem
from tollgauge.web.signing import signature_header
from tollgauge.web.wire import calibration_answers, snapshots, trust
from tollgauge.web.wire.counts import ecosystem
from tollgauge.web.wire.parameters import Digest, EndpointId, ResourceQuery
from tollgauge.web.wire.request_model import RequestModel, resource_of
from tollgauge.web.wire.response_model import OneOf, ResponseModel, dump
from tollgauge.web.wire.snapshots import LeaderboardResponse
from tollgauge.web.wire.trust import PreviewResponse

PREVIEW_PATH: Final = "/v1/x402-trust-preview"
PREVIEW: Final = "Three full sample reports: the best, the median and the worst endpoint"
IMMUTABLE: Final = "public, max-age=31536000, immutable"
EMPTY_OBJECT: Final = {
    "required": False,
    "content": {"application/json": {"schema": {"type": "object"}, "example": {}}},
}


@dataclass(frozen=True, slots=True)
class FreeApi:
    """The handlers of the free JSON routes; also called by the free tools of web/mcp."""

    dependencies: Dependencies

    async def preview(self) -> Response:
        """The best, the median and the worst endpoint, as they were scored last."""
        return self._signed(await self.samples(), "tollgauge-report")

    async def samples(self) -> PreviewResponse:
        """What the preview shows."""
        samples = await self.dependencies.read_now(trust_reports.preview)
        return trust.preview(samples, base_url=self.dependencies.base_url)

    async def preview_by_post(self, request: Request) -> Response:
        """The same as GET; the body is optional and takes no parameters."""
        if await request.body():
            RequestModel.read(await read_body(request))
        return await self.preview()

    async def leaderboard(self) -> Response:
        """The leaderboard."""
        return json_response(await self.best())

    async def best(self) -> LeaderboardResponse:
        """What the leaderboard shows."""
        board = await self.dependencies.read_now(overview.leaderboard)
        return snapshots.leaderboard(board, base_url=self.dependencies.base_url)

    async def stats(self) -> Response:
        """The ecosystem's counts."""
        stats = await self.dependencies.read_now(overview.ecosystem)
        spread = await self.dependencies.read_now(statistics.current)
        return json_response(ecosystem(stats, spread))

    async def calibration(self) -> Response:
        """Forecasts held against what happened, by policy."""
        report = await self.dependencies.read_now(calibration.report)
        return json_response(calibration_answers.calibration(report, now=self.dependencies.clock()))

    async def snapshot(self, resource: ResourceQuery) -> Response:
        """A snapshot by resource URL; a query in it is ignored, as identity is host plus path."""
        return await self.snapshot_by_id(resource_of(resource, self.dependencies.perimeter).id)

    async def snapshot_by_id(self, id: EndpointId) -> Response:  # noqa: A002 - the path's name
        """A snapshot by endpoint id."""
        now, base_url = self.dependencies.clock(), self.dependencies.base_url
        snapshot = await self.dependencies.read_endpoint(detailed, id, now=now)
        model = snapshots.snapshot(snapshot, now=now, base_url=base_url)
        return self._signed(model, "tollgauge-snapshot")

    async def evidence(self, digest: Digest) -> Response:
        """The evidence document that a report names: the same bytes for ever, so that a client need
        not ask again.
        """
        document = await self.dependencies.store.reading(
            evidence_of, digest, now=self.dependencies.clock()
        )
        if document is None:
            raise Problem(
                404,
                "unknown-evidence",
                "No report has named evidence with this digest in the last 90 days.",
            )
        return Response(
            document, media_type="application/json", headers={"Cache-Control": IMMUTABLE}
        )

    def _signed(self, model: ResponseModel, typ: Typ) -> Response:
        """A response as the body of a response, with its signature where there is a key. The cache
        keeps both, so that an answer is signed once however often it is read.
        """
        response, key = json_response(model), self.dependencies.signing_key
        now = self.dependencies.clock()
        response.headers.update(signature_header(key, bytes(response.body), typ, now))
        return response


def json_response(model: ResponseModel) -> Response:
    """A response as the body of a response."""
    return Response(dump(model), media_type="application/json")


class ModelResponse(ResponseModel):
    """A decoder: the node's methods that it needs, what it gives, and its price in dollars, which
    comes on top of the route's.
    """

    id: Annotated[str, OneOf(Model)]
    needs: list[str]
    gives: str
    price_usd: float


class ModelsResponse(ResponseModel):
    """The catalogue, cheapest first, and the networks that requests can name."""

    models: list[ModelResponse]
    networks: list[str]


CATALOGUE: Final = ModelsResponse(
    models=[
        ModelResponse(
            id=decoder.model.value,
            needs=list(decoder.needs),
            gives=decoder.gives,
            price_usd=decoder.price_usd,
        )
        for decoder in DECODERS
    ],
    networks=list(NETWORKS),
)


async def models() -> Response:
    """Each decoder with what it needs of a node, and its price."""
    return json_response(CATALOGUE)
