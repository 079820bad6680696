"""The free JSON routes: each asks reports for its numbers and wire for their shape."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from fastapi import APIRouter
from starlette.responses import Response

from tollgauge import reports
from tollgauge.core.endpoint import Perimeter
from tollgauge.store.engine import Store
from tollgauge.web import wire
from tollgauge.web.paid import resource_of
from tollgauge.web.problem import PROBLEM_RESPONSE, Problem

ID: Final = re.compile(r"[0-9a-f]{16}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class FreeApi:
    """What the free routes need."""

    store: Store
    clock: Callable[[], int]
    base_url: str
    perimeter: Perimeter

    def router(self) -> APIRouter:
        """The routes with their descriptions."""
        routes = APIRouter()
        rows: tuple[tuple[str, list[str], Any, type[wire.Shape], str], ...] = (
            (
                "/v1/x402-trust-preview",
                ["GET", "POST"],
                self.preview,
                wire.PreviewShape,
                "Three full sample reports: the best, the median and the worst endpoint",
            ),
            (
                "/trust/leaderboard",
                ["GET"],
                self.leaderboard,
                wire.LeaderboardShape,
                "The best 25 listed endpoints",
            ),
            (
                "/trust/stats",
                ["GET"],
                self.stats,
                wire.EcosystemShape,
                "Counts over everything that is known",
            ),
            (
                "/trust/snapshot",
                ["GET"],
                self.snapshot,
                wire.SnapshotShape,
                "The cached snapshot of an endpoint, by its URL",
            ),
            (
                "/trust/snapshot/{id}",
                ["GET"],
                self.snapshot_by_id,
                wire.SnapshotShape,
                "The cached snapshot of an endpoint, by its id",
            ),
        )
        for path, methods, handler, shape, words in rows:
            for method in methods:
                routes.add_api_route(
                    path,
                    handler,
                    methods=[method],
                    summary=words,
                    operation_id=f"{method.lower()}_{handler.__name__}",
                    response_class=Response,
                    responses=_answers(shape, path),
                )
        return routes

    async def preview(self) -> Response:
        """Sample reports as they were scored last."""
        async with self.store.read() as tx:
            samples = await reports.preview(tx)
        return _json(wire.preview(samples))

    async def leaderboard(self) -> Response:
        """The leaderboard."""
        async with self.store.read() as tx:
            board = await reports.leaderboard(tx, now=self.clock())
        return _json(wire.leaderboard(board, base_url=self.base_url))

    async def stats(self) -> Response:
        """The ecosystem's counts."""
        async with self.store.read() as tx:
            found = await reports.ecosystem(tx, now=self.clock())
        return _json(wire.ecosystem(found))

    async def snapshot(self, resource: str | None = None) -> Response:
        """A snapshot by resource URL; a query in it is ignored, as identity is host plus path."""
        return await self._snapshot(resource_of(resource, self.perimeter).id)

    async def snapshot_by_id(self, id: str) -> Response:  # noqa: A002 - the contract's name
        """A snapshot by endpoint id."""
        return await self._snapshot(id)

    async def _snapshot(self, endpoint_id: str) -> Response:
        now = self.clock()
        found = None
        if ID.fullmatch(endpoint_id):
            async with self.store.read() as tx:
                found = await reports.snapshot(tx, endpoint_id, now=now)
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


def _answers(shape: type[wire.Shape], path: str) -> dict[int | str, dict[str, Any]]:
    answers: dict[int | str, dict[str, Any]] = {
        200: {"model": shape, "description": "Success"},
        429: PROBLEM_RESPONSE | {"description": "Too many requests from one address"},
        503: PROBLEM_RESPONSE | {"description": "The database cannot be read now"},
    }
    if "snapshot" in path:
        answers[404] = PROBLEM_RESPONSE | {"description": "Nothing is known of this resource"}
        answers[422] = PROBLEM_RESPONSE | {"description": "Not a public https URL"}
    return answers
