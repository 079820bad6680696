"""The free JSON routes: numbers come from monitor/reports, and their JSON from web/wire."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Final, TypeVar

from fastapi import Path, Query
from starlette.requests import Request
from starlette.responses import Response

from tollgauge.core.endpoint import parse_resource
from tollgauge.monitor import reports
from tollgauge.web import wire
from tollgauge.web.dependencies import Dependencies
from tollgauge.web.edge.body import read_body
from tollgauge.web.edge.problem import Problem
from tollgauge.web.wire import examples
from tollgauge.web.wire.request_model import RequestModel, resource_of

R = TypeVar("R")

_ID: Final = re.compile(r"[0-9a-f]{16}", re.ASCII)
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
Host = Annotated[str, Path(description="A host name", examples=["api.example.com"])]
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

    async def snapshot(self, resource: ResourceQuery) -> Response:
        """A snapshot by resource URL; a query in it is ignored, as identity is host plus path."""
        return await self.snapshot_by_id(resource_of(resource, self.dependencies.perimeter).id)

    async def snapshot_by_id(self, id: EndpointId) -> Response:  # noqa: A002 - the path's name
        """A snapshot by endpoint id."""
        now, base_url = self.dependencies.clock(), self.dependencies.base_url
        snapshot = await read_endpoint(self.dependencies, reports.snapshot, id, now=now)
        return json_response(wire.snapshot(snapshot, now=now, base_url=base_url))


async def read_endpoint(
    dependencies: Dependencies, read: Callable[..., R | None], endpoint_id: str, **arguments: int
) -> R:
    """What a function of the read side gives for an endpoint's id. Raises Problem 404 for None,
    and for a text that is no id.
    """
    result = None
    if _ID.fullmatch(endpoint_id):
        result = await dependencies.store.reading(read, endpoint_id, **arguments)
    if result is None:
        raise Problem(
            404,
            "unknown-resource",
            "Nothing is known of this resource. POST it to /v1/x402-trust to have it probed now.",
        )
    return result


def unknown_host() -> Problem:
    """404 for a host of no endpoint."""
    return Problem(404, "unknown-host", "No endpoint of this host is known.")


def json_response(shape: wire.Shape) -> Response:
    """A shape as the body of a response."""
    return Response(wire.dump(shape), media_type="application/json")
