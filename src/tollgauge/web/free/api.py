"""The free JSON routes: numbers come from monitor/reports, and their JSON from web/wire."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from tollgauge.monitor import calibration, reports
from tollgauge.web import wire
from tollgauge.web.dependencies import Dependencies
from tollgauge.web.edge.body import read_body
from tollgauge.web.free.badge import badge_svg
from tollgauge.web.wire.parameters import EndpointId, ResourceQuery
from tollgauge.web.wire.request_model import RequestModel, resource_of

PREVIEW_PATH: Final = "/v1/x402-trust-preview"
PREVIEW: Final = "Three full sample reports: the best, the median and the worst endpoint"
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
        samples = await self.dependencies.read_now(reports.preview)
        return json_response(wire.preview(samples))

    async def preview_by_post(self, request: Request) -> Response:
        """The same as GET; the body is optional and takes no parameters."""
        if await request.body():
            RequestModel.read(await read_body(request))
        return await self.preview()

    async def leaderboard(self) -> Response:
        """The leaderboard."""
        board = await self.dependencies.read_now(reports.leaderboard)
        return json_response(wire.leaderboard(board, base_url=self.dependencies.base_url))

    async def stats(self) -> Response:
        """The ecosystem's counts."""
        return json_response(wire.ecosystem(await self.dependencies.read_now(reports.ecosystem)))

    async def calibration(self) -> Response:
        """Forecasts held against what happened, by policy."""
        report = await self.dependencies.read_now(calibration.report)
        return json_response(wire.calibration(report, now=self.dependencies.clock()))

    async def snapshot(self, resource: ResourceQuery) -> Response:
        """A snapshot by resource URL; a query in it is ignored, as identity is host plus path."""
        return await self.snapshot_by_id(resource_of(resource, self.dependencies.perimeter).id)

    async def snapshot_by_id(self, id: EndpointId) -> Response:  # noqa: A002 - the path's name
        """A snapshot by endpoint id."""
        now, base_url = self.dependencies.clock(), self.dependencies.base_url
        snapshot = await self.dependencies.read_endpoint(reports.snapshot, id, now=now)
        return json_response(wire.snapshot(snapshot, now=now, base_url=base_url))

    async def badge(self, id: EndpointId) -> Response:  # noqa: A002 - the path's name
        """The badge of one endpoint, grey while nothing is known of it."""
        now = self.dependencies.clock()
        snapshot = await self.dependencies.read_endpoint(reports.snapshot, id, now=now)
        image = badge_svg(snapshot.recommendation, snapshot.grade, snapshot.score_tenths)
        return Response(image, media_type="image/svg+xml")


def json_response(shape: wire.Shape) -> Response:
    """A shape as the body of a response."""
    return Response(wire.dump(shape), media_type="application/json")
