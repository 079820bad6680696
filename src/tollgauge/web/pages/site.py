"""The routes of the pages: which view each page asks for, and what it does without one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Final

from fastapi import APIRouter, Path
from starlette.responses import RedirectResponse, Response

from tollgauge.core.endpoint import Perimeter
from tollgauge.core.policy import POLICIES
from tollgauge.core.scoring import FLAG_RULES
from tollgauge.db.engine import Store
from tollgauge.monitor import reports
from tollgauge.web.edge.problem import Problem
from tollgauge.web.free.api import ID, EndpointId, ResourceQuery, unknown_resource
from tollgauge.web.free.badge import badge_svg
from tollgauge.web.pages import views
from tollgauge.web.pages.assets import ASSETS
from tollgauge.web.paid.catalogue import resource_of
from tollgauge.web.wire import openapi

HTML: Final = "text/html; charset=utf-8"
Host = Annotated[str, Path(description="A host name", examples=["api.example.com"])]
FLAGS: Final = tuple((rule.code, rule.severity.value, rule.words) for rule in FLAG_RULES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """What the pages need; `report_micro_usd` is the price of a live report, None while
    nothing is sold.
    """

    store: Store
    clock: Callable[[], int]
    base_url: str
    perimeter: Perimeter
    report_micro_usd: int | None
    routes: tuple[views.Route, ...]

    def router(self) -> APIRouter:
        """The routes with their descriptions; files that pages load are no interface."""
        routes = APIRouter(default_response_class=Response, tags=["pages"])
        known = {404: "Nothing is known of it"}
        for path, handler, answers, words in (
            ("/", self.home, openapi.page(), "The first page"),
            ("/leaderboard", self.leaderboard, openapi.page(), "The leaderboard as a page"),
            ("/provider/{host}", self.provider, openapi.page(own=known), "One host's endpoints"),
            ("/methodology", self.methodology, openapi.page(), "How scores come about"),
            ("/docs", self.docs, openapi.page(), "How to ask"),
            ("/endpoint", self.find, openapi.redirect(), "From a resource's URL to its page"),
            ("/endpoint/{id}", self.endpoint, openapi.page(own=known), "A snapshot as a page"),
            (
                "/endpoint/{id}/badge.svg",
                self.badge,
                openapi.page("image/svg+xml", own=known),
                "The badge of an endpoint",
            ),
        ):
            routes.add_api_route(
                path,
                handler,
                methods=["GET"],
                summary=words,
                operation_id=f"page_{handler.__name__}",
                responses=answers,
            )
        for path, file in (("/static/{name}", self.static), ("/favicon.ico", self.favicon)):
            routes.add_api_route(path, file, methods=["GET"], include_in_schema=False)
        return routes

    async def home(self) -> Response:
        """The first page."""
        async with self.store.read() as tx:
            board = await reports.leaderboard(tx, now=self.clock())
            stats = await reports.ecosystem(tx, now=self.clock())
        return Response(views.home_html(board, stats, base_url=self.base_url), media_type=HTML)

    async def leaderboard(self) -> Response:
        """The whole leaderboard."""
        async with self.store.read() as tx:
            board = await reports.leaderboard(tx, now=self.clock())
            stats = await reports.ecosystem(tx, now=self.clock())
        return Response(
            views.leaderboard_html(board, stats, base_url=self.base_url), media_type=HTML
        )

    async def provider(self, host: Host) -> Response:
        """One host's endpoints."""
        found = await self.store.reading(reports.provider, host.lower(), now=self.clock())
        if found is None:
            raise Problem(404, "unknown-host", "No endpoint of this host is known.")
        return Response(views.provider_html(found, base_url=self.base_url), media_type=HTML)

    async def methodology(self) -> Response:
        """How scores come about, written from the newest policy."""
        html = views.methodology_html(POLICIES[max(POLICIES)], flags=FLAGS, base_url=self.base_url)
        return Response(html, media_type=HTML)

    async def docs(self) -> Response:
        """How to ask, with examples about the best endpoint."""
        board = await self.store.reading(reports.leaderboard, now=self.clock())
        best = board.rows[0].resource if board.rows else None
        sells = self.report_micro_usd is not None
        html = views.docs_html(self.routes, base_url=self.base_url, resource=best, sells=sells)
        return Response(html, media_type=HTML)

    async def find(self, resource: ResourceQuery) -> Response:
        """From a resource's URL to its page."""
        wanted = resource_of(resource, self.perimeter)
        return RedirectResponse(f"{self.base_url}/endpoint/{wanted.id}", status_code=307)

    async def endpoint(self, id: EndpointId) -> Response:  # noqa: A002 - the path's name
        """The page of one endpoint."""
        view = None
        now = self.clock()
        if ID.fullmatch(id):
            view = await self.store.reading(reports.view, id, now=now)
        if view is None:
            raise unknown_resource()
        html = views.endpoint_html(
            view, now=now, base_url=self.base_url, report_micro_usd=self.report_micro_usd
        )
        return Response(html, media_type=HTML)

    async def badge(self, id: EndpointId) -> Response:  # noqa: A002 - the path's name
        """The badge of one endpoint, grey while it has no score."""
        found = None
        if ID.fullmatch(id):
            found = await self.store.reading(reports.snapshot, id, now=self.clock())
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
