"""Handlers of the pages, which load data and render it, and the routes of all pages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from starlette.responses import HTMLResponse, Response

from tollgauge.core.score.policy import POLICY
from tollgauge.db.engine import StoreUnavailable
from tollgauge.monitor import calibration, directories, facilitators, statistics
from tollgauge.monitor.reports import endpoint as reports_endpoint
from tollgauge.monitor.reports import overview, snapshots
from tollgauge.monitor.reports.overview import ecosystem
from tollgauge.store.chain import cursors, volumes
from tollgauge.store.endpoints import ranking, rated_endpoints
from tollgauge.web.dependencies import Dependencies, unknown_host
from tollgauge.web.edge.problem import Problem
from tollgauge.web.free.api import read_known_directory, read_known_wallet
from tollgauge.web.free.endpoint_lists import LIST_PARAMETERS
from tollgauge.web.free.lint import Linting
from tollgauge.web.pages import lint_pages as lint
from tollgauge.web.pages import views
from tollgauge.web.pages.badge import BadgeResponse, Badges, badge_response
from tollgauge.web.pages.docs import docs_html
from tollgauge.web.pages.overview_pages import (
    DAYS,
    SHOWN_WEEKS,
    incidents_html,
    provider_html,
    statistics_html,
    wallet_html,
)
from tollgauge.web.pages.render import ASSETS, render
from tollgauge.web.pages.search import SearchPages, find_offer, load_uptimes, report_offer
from tollgauge.web.paid.products import similar
from tollgauge.web.route import INVALID_FILTER, INVALID_QUERY, UNKNOWN_PAGE, DocumentedRoute, Route
from tollgauge.web.wire import directory_answers, openapi
from tollgauge.web.wire.directory_answers import DirectoryResponse
from tollgauge.web.wire.facilitator_answers import facilitators as facilitators_json
from tollgauge.web.wire.lint_answers import RULES_PATH
from tollgauge.web.wire.parameters import (
    AfterEndpoint,
    AfterIncident,
    Compared,
    DirectoryName,
    EndpointId,
    Host,
    IncidentDays,
    IncidentType,
    PolicyVersion,
    UnmeasuredResource,
    WalletAddress,
)
from tollgauge.web.wire.request_model import invalid, resource_of


@dataclass(frozen=True, slots=True)
class Site:
    """Handlers of the pages; `documented` are the routes listed in the API guide."""

    dependencies: Dependencies
    documented: tuple[DocumentedRoute, ...]

    async def home(self) -> Response:
        """Render the home page."""
        return await self._board_page("home.html")

    async def leaderboard(self) -> Response:
        """Render the leaderboard."""
        return await self._board_page("leaderboard.html")

    async def _board_page(self, template: str) -> Response:
        board = await self.dependencies.read_now(overview.leaderboard)
        stats = await self.dependencies.read_now(ecosystem)
        html = views.board_html(
            template,
            board,
            stats,
            await load_uptimes(self.dependencies, board.rows),
            base_url=self.dependencies.base_url,
            loading=self.dependencies.loading.words,
        )
        return HTMLResponse(html)

    async def provider(self, host: Host, after: AfterEndpoint = None) -> Response:
        """Render one page of a host's endpoints."""
        provider = await self.dependencies.store.reading(snapshots.provider, host.lower(), after)
        if provider is None:
            raise unknown_host()
        uptimes = await load_uptimes(self.dependencies, provider.rows)
        return HTMLResponse(provider_html(provider, uptimes, base_url=self.dependencies.base_url))

    async def wallet(self, address: WalletAddress) -> Response:
        """Render the page of a payTo address."""
        wallet = await read_known_wallet(self.dependencies, address)
        uptimes = await load_uptimes(self.dependencies, wallet.rows)
        return HTMLResponse(wallet_html(wallet, uptimes, base_url=self.dependencies.base_url))

    async def methodology(self) -> Response:
        """Render the methodology of the current policy."""
        try:
            anchors = await self.dependencies.store.reading(volumes.anchors_of)
        except StoreUnavailable:
            anchors = None  # the rest of the page needs no database
        html = views.methodology_html(anchors, base_url=self.dependencies.base_url)
        return HTMLResponse(html)

    async def methodology_of(self, version: PolicyVersion) -> Response:
        """Render the methodology of a policy version. Raises Problem 404 for other versions."""
        if version != str(POLICY.version):
            message = f"No policy with this version. The current version is {POLICY.version}."
            raise Problem(404, "unknown-policy", message)
        return await self.methodology()

    async def calibration(self) -> Response:
        """Render the comparison of forecasts with outcomes."""
        report = await self.dependencies.read_now(calibration.report)
        return HTMLResponse(views.calibration_html(report, base_url=self.dependencies.base_url))

    async def incidents(
        self,
        type: IncidentType = None,  # noqa: A002 - the query's name
        days: IncidentDays = DAYS,
        after: AfterIncident = None,
    ) -> Response:
        """Render recent changes at all endpoints."""
        incidents = await self.dependencies.read_now(overview.incidents, type, days, after)
        return HTMLResponse(incidents_html(incidents, base_url=self.dependencies.base_url))

    async def statistics(self) -> Response:
        """Render the distributions over all endpoints."""
        counted = await self.dependencies.read_now(statistics.current)
        stats = await self.dependencies.read_now(ecosystem)
        weeks = await self.dependencies.store.reading(ranking.load_shares, limit=SHOWN_WEEKS)
        html = statistics_html(counted, stats, weeks, base_url=self.dependencies.base_url)
        return HTMLResponse(html)

    async def facilitators(self) -> Response:
        """Render the facilitators of each indexed network."""
        known = await self.dependencies.store.reading(facilitators.report)
        chains = await self.dependencies.store.reading(cursors.chains)
        html = render(
            "facilitators.html",
            self.dependencies.base_url,
            known=facilitators_json(known),
            indexes=bool(chains),
        )
        return HTMLResponse(html)

    async def directories(self) -> Response:
        """Render the figures of all directories."""
        report = await self.dependencies.read_now(directories.current)
        return self._directories_page(directory_answers.directories(report).directories)

    async def directory(self, name: DirectoryName) -> Response:
        """Render a directory with the entries that it dropped last."""
        found = await read_known_directory(self.dependencies, name)
        return self._directories_page([directory_answers.directory(*found)], name=name)

    def _directories_page(self, rows: Sequence[DirectoryResponse], name: str = "") -> Response:
        html = render("directories.html", self.dependencies.base_url, rows=rows, directory=name)
        return HTMLResponse(html)

    async def compare(
        self, a: Compared = None, b: Compared = None, c: Compared = None, d: Compared = None
    ) -> Response:
        """Render up to four endpoints side by side."""
        asked = views.parse_columns((a, b, c, d), self.dependencies.perimeter)
        ids = [one.id for one in asked if one.id is not None]
        views_by_id = await self.dependencies.read_now(reports_endpoint.views, ids)
        html = views.compare_html(asked, views_by_id, base_url=self.dependencies.base_url)
        return HTMLResponse(html)

    async def docs(self) -> Response:
        """Render the API guide, with examples for the best scored endpoint."""
        rows = await self.dependencies.read_now(overview.guide_endpoints)
        ids = [row.id for row in rows]
        better = await self.dependencies.store.reading(rated_endpoints.count_better, ids)
        key = self.dependencies.signing_key
        html = docs_html(
            self.documented,
            base_url=self.dependencies.base_url,
            resource=rows[0].resource if rows else None,
            report=report_offer(self.dependencies),
            fingerprint=key.fingerprint if key else None,
            replaceable=next((row.resource for row in rows if better.get(row.id)), None),
        )
        return HTMLResponse(html)

    async def endpoint(self, id: EndpointId) -> Response:  # noqa: A002 - the path's name
        """Render the page of an endpoint."""
        now = self.dependencies.clock()
        view = await self.dependencies.read_endpoint(reports_endpoint.view, id, now=now)
        offer = report_offer(self.dependencies)
        alternatives = find_offer(self.dependencies, similar.PRODUCT)
        html = views.endpoint_html(
            view,
            now=now,
            base_url=self.dependencies.base_url,
            report_micro_usd=offer.amount if offer else None,
            similar_micro_usd=alternatives.amount if alternatives else None,
            loading=self.dependencies.loading.words,
        )
        return HTMLResponse(html)

    async def upgrade(
        self,
        id: EndpointId,  # noqa: A002 - the path's name
        resource: UnmeasuredResource = None,
    ) -> Response:
        """Render the wallet page of an endpoint; an unmonitored one also needs its URL."""
        now = self.dependencies.clock()
        page = partial(
            views.upgrade_html,
            offer=report_offer(self.dependencies),
            base_url=self.dependencies.base_url,
            demo=self.dependencies.demo,
        )
        named = None
        if resource is not None:
            named = resource_of(resource, self.dependencies.perimeter)
            if named.id != id:
                raise invalid("resource", "The ID in the path belongs to another resource.")
        try:
            snapshot = await self.dependencies.read_endpoint(snapshots.snapshot, id, now=now)
        except Problem as problem:
            if problem.status != 404 or named is None:
                raise
            return HTMLResponse(page(named))
        return HTMLResponse(page(snapshot))

    async def static(self, name: str) -> Response:
        """Serve a static file of the pages."""
        asset = ASSETS.get(name)
        if asset is None:
            raise Problem(404, "no-such-file", "No static file with this name.")
        return Response(asset.body, media_type=asset.media_type)

    async def favicon(self) -> Response:
        """Serve the icon at the path that browsers request by default."""
        return await self.static("favicon.svg")


_UNKNOWN: Final = {404: "This resource is not monitored"}
_OTHER: Final = {422: "`resource` does not match the ID in the path"}


def page_routes(
    dependencies: Dependencies, documented: tuple[DocumentedRoute, ...]
) -> Iterable[Route]:
    """Yield the routes of the pages and their static files."""
    # Pages accept unknown query parameters: mail and social sites append their own to links.
    site, badges = Site(dependencies, documented), Badges(dependencies)
    page, known = openapi.page(), openapi.page(own=UNKNOWN_PAGE)
    asked = openapi.page(own={422: "A query parameter is invalid"})
    wallet = openapi.page(own={404: "No endpoint names or named this address"})
    directory = openapi.page(own={404: "No directory with this name"})
    policies = openapi.page(own={404: "No policy with this version"})
    badge = openapi.page("image/svg+xml", own=UNKNOWN_PAGE | INVALID_QUERY)
    paying = "Buy a live report with a browser wallet"
    get = partial(Route, "GET", tag="pages")
    for path, summary, handler, answers in (
        ("/", "Home page", site.home, page),
        ("/leaderboard", "Leaderboard (HTML)", site.leaderboard, page),
        ("/provider/{host}", "Endpoints of a host (HTML)", site.provider, known),
        (
            "/wallet/{address}",
            "Endpoints and income of a payTo address (HTML)",
            site.wallet,
            wallet,
        ),
        ("/methodology", "Scoring methodology", site.methodology, page),
        ("/methodology/{version}", "Methodology of a policy", site.methodology_of, policies),
        ("/calibration", "Forecasts compared with outcomes (HTML)", site.calibration, page),
        ("/docs", "API guide", site.docs, page),
        ("/endpoint/{id}", "Snapshot of an endpoint (HTML)", site.endpoint, known),
        ("/endpoint/{id}/badge.svg", "Badge of an endpoint", badges.badge, badge),
        ("/endpoint/{id}/upgrade", paying, site.upgrade, openapi.page(own=UNKNOWN_PAGE | _OTHER)),
        ("/statistics", "Distributions over all endpoints", site.statistics, page),
        ("/facilitators", "Facilitators of each network", site.facilitators, page),
        ("/directories", "Entries of each directory (HTML)", site.directories, page),
        ("/directories/{name}", "Entries of a directory (HTML)", site.directory, directory),
        ("/incidents", "Recent changes", site.incidents, asked),
        ("/compare", "Compare up to four endpoints", site.compare, asked),
    ):
        yield get(path, summary, handler, f"page_{handler.__name__}", answers, cached=True)
    shield = openapi.free(
        BadgeResponse, badge_response("proceed", "A", 914).model_dump(by_alias=True), _UNKNOWN
    )
    yield Route(
        "GET",
        "/endpoint/{id}/badge.json",
        "Badge of an endpoint for shields.io",
        badges.badge_json,
        "get_badge_json",
        shield,
        tag="free",
        cached=True,
        strict_query=True,
    )
    search, redirect = SearchPages(dependencies), openapi.redirect()
    leads = "Find the page of a resource by its URL"
    yield get("/endpoint", leads, search.endpoint, "page_find", redirect)
    yield get("/search", "Search (HTML)", search.search, "page_search", redirect)
    every, lists_page = "List all endpoints (HTML)", openapi.page(own=INVALID_FILTER)
    yield get(
        "/endpoints",
        every,
        search.endpoints,
        "page_endpoints",
        lists_page,
        cached=True,
        request=LIST_PARAMETERS,
    )
    for path, file in (("/static/{name}", site.static), ("/favicon.ico", site.favicon)):
        yield get(path, "", file, "", {}, cached=True, internal=True)
    yield from _lint_routes(dependencies)


def _lint_routes(dependencies: Dependencies) -> Iterable[Route]:
    """Yield the routes of the linter's pages."""
    pages = lint.LintPages(Linting(dependencies))
    row = partial(Route, tag="pages")
    html = partial(openapi.page, own=lint.ERRORS)
    for method, path, summary, handler, cached, request in (
        ("GET", lint.PATH, "Linter form", pages.form, True, {}),
        ("POST", lint.PATH, "Linter result", pages.submit, False, lint.REQUEST),
        ("GET", RULES_PATH, "List linter rules", pages.rules, True, {}),
        ("GET", f"{RULES_PATH}/{{slug}}", "Linter rule", pages.rule, True, {}),
    ):
        id_ = f"page_lint_{handler.__name__}"
        yield row(method, path, summary, handler, id_, html(), cached=cached, request=request)
