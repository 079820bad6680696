"""The handlers of the pages: which view each page asks for, and what it does without one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final

from fastapi import Path
from starlette.responses import RedirectResponse, Response

from tollgauge.core.policy import POLICIES
from tollgauge.core.scoring import FLAG_RULES
from tollgauge.monitor import reports
from tollgauge.web.dependencies import Dependencies
from tollgauge.web.edge.problem import Problem
from tollgauge.web.free.api import (
    ID,
    EndpointId,
    ResourceQuery,
    snapshot_of_id,
    unknown_resource,
)
from tollgauge.web.free.badge import badge_svg
from tollgauge.web.pages import views
from tollgauge.web.pages.assets import ASSETS
from tollgauge.web.paid import catalogue
from tollgauge.web.paid.catalogue import resource_of

HTML: Final = "text/html; charset=utf-8"
Host = Annotated[str, Path(description="A host name", examples=["api.example.com"])]
FLAGS: Final = tuple((rule.code, rule.severity.value, rule.words) for rule in FLAG_RULES)


@dataclass(frozen=True, slots=True)
class Site:
    """The handlers of the pages. `documented` are the routes that the documentation shows."""

    dependencies: Dependencies
    documented: tuple[views.Route, ...]

    async def home(self) -> Response:
        """The first page."""
        store, now = self.dependencies.store, self.dependencies.clock()
        board = await store.reading(reports.leaderboard, now=now)
        stats = await store.reading(reports.ecosystem, now=now)
        return Response(
            views.home_html(board, stats, base_url=self.dependencies.base_url), media_type=HTML
        )

    async def leaderboard(self) -> Response:
        """The whole leaderboard."""
        store, now = self.dependencies.store, self.dependencies.clock()
        board = await store.reading(reports.leaderboard, now=now)
        stats = await store.reading(reports.ecosystem, now=now)
        return Response(
            views.leaderboard_html(board, stats, base_url=self.dependencies.base_url),
            media_type=HTML,
        )

    async def provider(self, host: Host) -> Response:
        """One host's endpoints."""
        provider = await self.dependencies.store.reading(
            reports.provider, host.lower(), now=self.dependencies.clock()
        )
        if provider is None:
            raise Problem(404, "unknown-host", "No endpoint of this host is known.")
        return Response(
            views.provider_html(provider, base_url=self.dependencies.base_url), media_type=HTML
        )

    async def methodology(self) -> Response:
        """How scores come about, written from the newest policy."""
        html = views.methodology_html(
            POLICIES[max(POLICIES)], flags=FLAGS, base_url=self.dependencies.base_url
        )
        return Response(html, media_type=HTML)

    async def docs(self) -> Response:
        """How to ask, with examples about the best endpoint."""
        board = await self.dependencies.store.reading(
            reports.leaderboard, now=self.dependencies.clock()
        )
        best = board.rows[0].resource if board.rows else None
        sells = bool(self.dependencies.settings.pay_to)
        html = views.docs_html(
            self.documented, base_url=self.dependencies.base_url, resource=best, sells=sells
        )
        return Response(html, media_type=HTML)

    async def find(self, resource: ResourceQuery) -> Response:
        """From a resource's URL to its page."""
        wanted = resource_of(resource, self.dependencies.perimeter)
        return RedirectResponse(
            f"{self.dependencies.base_url}/endpoint/{wanted.id}", status_code=307
        )

    async def endpoint(self, id: EndpointId) -> Response:  # noqa: A002 - the path's name
        """The page of one endpoint."""
        view = None
        now = self.dependencies.clock()
        if ID.fullmatch(id):
            view = await self.dependencies.store.reading(reports.view, id, now=now)
        if view is None:
            raise unknown_resource()
        html = views.endpoint_html(
            view,
            now=now,
            base_url=self.dependencies.base_url,
            report_micro_usd=self._report_micro_usd(),
        )
        return Response(html, media_type=HTML)

    async def badge(self, id: EndpointId) -> Response:  # noqa: A002 - the path's name
        """The badge of one endpoint, grey while it has no score."""
        now = self.dependencies.clock()
        snapshot = await snapshot_of_id(self.dependencies, id, now=now)
        image = badge_svg(snapshot.grade, snapshot.score_tenths)
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

    def _report_micro_usd(self) -> int | None:
        """The price of a live report, None while nothing is for sale."""
        settings = self.dependencies.settings
        return settings.micro_usd(catalogue.TRUST) if settings.pay_to else None
