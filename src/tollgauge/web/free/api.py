"""The free JSON routes: each asks reports for its numbers and wire for their shape."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Final

from fastapi import Path, Query
from starlette.requests import Request
from starlette.responses import Response

from tollgauge.core.endpoint import parse_resource
from tollgauge.monitor import reports
from tollgauge.web import wire
from tollgauge.web.dependencies import Dependencies
from tollgauge.web.edge.body import read_body
from tollgauge.web.edge.problem import Problem
from tollgauge.web.paid.catalogue import PaidDependencies
from tollgauge.web.wire import examples
from tollgauge.web.wire.request_model import RequestModel, resource_of

ID: Final = re.compile(r"[0-9a-f]{16}", re.ASCII)
ResourceQuery = Annotated[
    str,
    Query(
        description="Full endpoint URL starting with https://, as listed in discovery",
        examples=[examples.RESOURCE],
        json_schema_extra={"maxLength": 2048, "pattern": "^https://"},
    ),
]
EndpointId = Annotated[
    str,
    Path(
        description="First 16 hex digits of SHA-256 of the canonical resource URL",
        examples=[parse_resource(examples.RESOURCE).id],
        json_schema_extra={"pattern": "^[0-9a-f]{16}$"},
    ),
]
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
        samples = await self.dependencies.store.reading(reports.preview)
        return _json(wire.preview(samples))

    async def preview_by_post(self, request: Request) -> Response:
        """The same as GET; the body is optional and takes no parameters."""
        if await request.body():
            RequestModel.read(await read_body(request))
        return await self.preview()

    async def leaderboard(self) -> Response:
        """The leaderboard."""
        board = await self.dependencies.store.reading(
            reports.leaderboard, now=self.dependencies.clock()
        )
        return _json(wire.leaderboard(board, base_url=self.dependencies.base_url))

    async def stats(self) -> Response:
        """The ecosystem's counts."""
        counts = await self.dependencies.store.reading(
            reports.ecosystem, now=self.dependencies.clock()
        )
        return _json(wire.ecosystem(counts))

    async def snapshot(self, resource: ResourceQuery) -> Response:
        """A snapshot by resource URL; a query in it is ignored, as identity is host plus path."""
        return await self._snapshot(resource_of(resource, self.dependencies.perimeter).id)

    async def snapshot_by_id(self, id: EndpointId) -> Response:  # noqa: A002 - the path's name
        """A snapshot by endpoint id."""
        return await self._snapshot(id)

    async def _snapshot(self, endpoint_id: str) -> Response:
        now = self.dependencies.clock()
        snapshot = await snapshot_of_id(self.dependencies, endpoint_id, now=now)
        return _json(wire.snapshot(snapshot, now=now, base_url=self.dependencies.base_url))


async def snapshot_of_id(
    dependencies: PaidDependencies, endpoint_id: str, *, now: int
) -> reports.Snapshot:
    """The snapshot of an endpoint. Raises Problem 404 for an id of none that is known."""
    snapshot = None
    if ID.fullmatch(endpoint_id):
        snapshot = await dependencies.store.reading(reports.snapshot, endpoint_id, now=now)
    if snapshot is None:
        raise unknown_resource()
    return snapshot


def unknown_resource() -> Problem:
    """404 for an endpoint that nobody has seen."""
    return Problem(
        404,
        "unknown-resource",
        "Nothing is known of this resource. POST it to /v1/x402-trust to have it probed now.",
    )


def _json(shape: wire.Shape) -> Response:
    return Response(wire.dump(shape), media_type="application/json")
