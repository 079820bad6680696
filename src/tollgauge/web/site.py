"""The routes of the pages: which view each page asks for, and what it does without one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from fastapi import APIRouter
from starlette.responses import RedirectResponse, Response

from tollgauge import reports
from tollgauge.core.endpoint import Perimeter
from tollgauge.core.policy import POLICIES
from tollgauge.core.scoring import FLAG_RULES
from tollgauge.store.engine import Store
from tollgauge.web import pages
from tollgauge.web.api import ID, unknown_resource
from tollgauge.web.assets import ASSETS
from tollgauge.web.badge import badge_svg
from tollgauge.web.paid import resource_of
from tollgauge.web.problem import Problem

HTML: Final = "text/html; charset=utf-8"
FLAGS: Final = tuple((rule.code, rule.severity.value, rule.words) for rule in FLAG_RULES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """What the pages need; `report_micro_usd` is the price of a live report."""

    store: Store
    clock: Callable[[], int]
    base_url: str
    perimeter: Perimeter
    report_micro_usd: int
    routes: tuple[pages.Route, ...]

    def router(self) -> APIRouter:
        """The routes; none of them is part of the interface description."""
        routes = APIRouter(include_in_schema=False, default_response_class=Response)
        for path, handler in (
            ("/", self.home),
            ("/leaderboard", self.leaderboard),
            ("/provider/{host}", self.provider),
            ("/methodology", self.methodology),
            ("/docs", self.docs),
            ("/endpoint", self.find),
            ("/endpoint/{id}", self.endpoint),
            ("/endpoint/{id}/badge.svg", self.badge),
            ("/static/{name}", self.static),
            ("/favicon.ico", self.favicon),
        ):
            routes.add_api_route(path, handler, methods=["GET"])
        return routes

    async def home(self) -> Response:
        """The first page."""
        async with self.store.read() as tx:
            board = await reports.leaderboard(tx, now=self.clock())
            stats = await reports.ecosystem(tx, now=self.clock())
        return Response(pages.home_html(board, stats, base_url=self.base_url), media_type=HTML)

    async def leaderboard(self) -> Response:
        """The whole leaderboard."""
        async with self.store.read() as tx:
            board = await reports.leaderboard(tx, now=self.clock())
            stats = await reports.ecosystem(tx, now=self.clock())
        return Response(
            pages.leaderboard_html(board, stats, base_url=self.base_url), media_type=HTML
        )

    async def provider(self, host: str) -> Response:
        """One host's endpoints."""
        async with self.store.read() as tx:
            found = await reports.provider(tx, host.lower(), now=self.clock())
        if found is None:
            raise Problem(404, "unknown-host", "No endpoint of this host is known.")
        return Response(pages.provider_html(found, base_url=self.base_url), media_type=HTML)

    async def methodology(self) -> Response:
        """How scores come about, written from the newest policy."""
        html = pages.methodology_html(POLICIES[max(POLICIES)], flags=FLAGS, base_url=self.base_url)
        return Response(html, media_type=HTML)

    async def docs(self) -> Response:
        """How to ask."""
        return Response(pages.docs_html(self.routes, base_url=self.base_url), media_type=HTML)

    async def find(self, resource: str | None = None) -> Response:
        """From a resource's URL to its page."""
        wanted = resource_of(resource, self.perimeter)
        return RedirectResponse(f"{self.base_url}/endpoint/{wanted.id}", status_code=307)

    async def endpoint(self, id: str) -> Response:  # noqa: A002 - the contract's name
        """The page of one endpoint."""
        view = None
        now = self.clock()
        if ID.fullmatch(id):
            async with self.store.read() as tx:
                view = await reports.view(tx, id, now=now)
        if view is None:
            raise unknown_resource()
        html = pages.endpoint_html(
            view, now=now, base_url=self.base_url, report_micro_usd=self.report_micro_usd
        )
        return Response(html, media_type=HTML)

    async def badge(self, id: str) -> Response:  # noqa: A002 - the contract's name
        """The badge of one endpoint, grey while nothing is known."""
        found = None
        if ID.fullmatch(id):
            async with self.store.read() as tx:
                found = await reports.snapshot(tx, id, now=self.clock())
        if found is None:
            raise unknown_resource()
        image = badge_svg(found.grade, found.score_tenths)
        return Response(image, media_type="image/svg+xml")

    async def static(self, name: str) -> Response:
        """One of the files that pages load."""
        asset = ASSETS.get(name)
        if asset is None:
            raise Problem(404, "no-such-file", "There is no such file.")
        return Response(asset.body, media_type=asset.media_type)

    async def favicon(self) -> Response:
        """The icon, for browsers that ask by habit."""
        return await self.static("favicon.svg")
