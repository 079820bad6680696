"""The free JSON routes: each asks reports for its numbers and wire for their shape."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Final

from fastapi import APIRouter, Depends, Path, Query
from starlette.requests import Request
from starlette.responses import Response

from tollgauge.core.endpoint import Perimeter, parse_resource
from tollgauge.db.engine import Store
from tollgauge.monitor import reports
from tollgauge.web import wire
from tollgauge.web.edge.problem import Problem
from tollgauge.web.paid.catalogue import invalid, resource_of
from tollgauge.web.paid.request import check_query, read_body
from tollgauge.web.wire import examples, openapi

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
_PREVIEW: Final = "Three full sample reports: the best, the median and the worst endpoint"
_UNKNOWN: Final = {404: "Nothing is known of this resource"}
_INVALID: Final = {
    422: "The resource is missing, or no public https URL, or there is an unknown query parameter"
}
_EMPTY_OBJECT: Final = {
    "required": False,
    "content": {"application/json": {"schema": {"type": "object"}, "example": {}}},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FreeApi:
    """What the free routes need."""

    store: Store
    clock: Callable[[], int]
    base_url: str
    perimeter: Perimeter

    def router(self) -> APIRouter:
        """The routes with their descriptions."""
        samples = openapi.free(wire.PreviewShape, examples.preview(), openapi.QUERY)
        board = openapi.free(
            wire.LeaderboardShape, examples.leaderboard(self.base_url), openapi.QUERY
        )
        counts = openapi.free(wire.EcosystemShape, examples.stats(), openapi.QUERY)
        seen = openapi.free(
            wire.SnapshotShape, examples.snapshot(self.base_url), _UNKNOWN | openapi.QUERY
        )
        found = openapi.free(
            wire.SnapshotShape, examples.snapshot(self.base_url), _UNKNOWN | _INVALID
        )
        routes = APIRouter(default_response_class=Response, dependencies=[Depends(check_query)])
        for path, handler, answers, words in (
            ("/v1/x402-trust-preview", self.preview, samples, _PREVIEW),
            ("/trust/leaderboard", self.leaderboard, board, "The best 25 listed endpoints"),
            ("/trust/stats", self.stats, counts, "Counts over everything that is known"),
            ("/trust/snapshot", self.snapshot, found, "The cached snapshot of an endpoint"),
            ("/trust/snapshot/{id}", self.snapshot_by_id, seen, "The same by the endpoint's id"),
        ):
            routes.add_api_route(
                path,
                handler,
                methods=["GET"],
                summary=words,
                operation_id=f"get_{handler.__name__}",
                responses=openapi.cached(answers),
                tags=["free"],
            )
        routes.add_api_route(
            "/v1/x402-trust-preview",
            self.preview_by_post,
            methods=["POST"],
            summary=_PREVIEW,
            operation_id="post_preview",
            responses=openapi.free(
                wire.PreviewShape,
                examples.preview(),
                {
                    400: "The body is not JSON",
                    422: "The body is not a JSON object, or an unknown query parameter",
                },
            ),
            openapi_extra={"requestBody": _EMPTY_OBJECT},
            tags=["free"],
        )
        return routes

    async def preview(self) -> Response:
        """The best, the median and the worst endpoint, as they were scored last."""
        samples = await self.store.reading(reports.preview)
        return _json(wire.preview(samples))

    async def preview_by_post(self, request: Request) -> Response:
        """The same as GET; the body is optional and takes no parameters."""
        if await request.body() and not isinstance(await read_body(request), dict):
            raise invalid("", "The body must be a JSON object.")
        return await self.preview()

    async def leaderboard(self) -> Response:
        """The leaderboard."""
        board = await self.store.reading(reports.leaderboard, now=self.clock())
        return _json(wire.leaderboard(board, base_url=self.base_url))

    async def stats(self) -> Response:
        """The ecosystem's counts."""
        found = await self.store.reading(reports.ecosystem, now=self.clock())
        return _json(wire.ecosystem(found))

    async def snapshot(self, resource: ResourceQuery) -> Response:
        """A snapshot by resource URL; a query in it is ignored, as identity is host plus path."""
        return await self._snapshot(resource_of(resource, self.perimeter).id)

    async def snapshot_by_id(self, id: EndpointId) -> Response:  # noqa: A002 - the path's name
        """A snapshot by endpoint id."""
        return await self._snapshot(id)

    async def _snapshot(self, endpoint_id: str) -> Response:
        now = self.clock()
        found = None
        if ID.fullmatch(endpoint_id):
            found = await self.store.reading(reports.snapshot, endpoint_id, now=now)
        if found is None:
            raise unknown_resource()
        return _json(wire.snapshot(found, now=now, base_url=self.base_url))


def unknown_resource() -> Problem:
    """404 for an endpoint that nobody has seen."""
    return Problem(
        404,
        "unknown-resource",
        "Nothing is known of this resource. POST it to /v1/x402-trust to have it probed now.",
    )


def _json(shape: wire.Shape) -> Response:
    return Response(wire.dump(shape), media_type="application/json")
