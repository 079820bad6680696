"""The routes of most pages: their handlers load data and render it."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from starlette.responses import HTMLResponse, Response

from tollgauge.core.score.policy import POLICY
from tollgauge.db.engine import StoreUnavailable
from tollgauge.monitor import calibration as forecasts
from tollgauge.monitor import directories as directory_reports
from tollgauge.monitor import facilitators as facilitator_records
from tollgauge.monitor import statistics as statistics_reports
from tollgauge.monitor.reports import endpoint as reports_endpoint
from tollgauge.monitor.reports import overview, snapshots
from tollgauge.monitor.reports.overview import ecosystem
from tollgauge.store.chain import cursors, volumes
from tollgauge.store.endpoints import ranking, rated_endpoints
from tollgauge.web.dependencies import Service, unknown_host
from tollgauge.web.edge.problem import Problem
from tollgauge.web.free.api import read_known_directory, read_known_wallet
from tollgauge.web.pages import views
from tollgauge.web.pages.docs import docs_html
from tollgauge.web.pages.overview_pages import (
    DAYS,
    SHOWN_WEEKS,
    incidents_html,
    provider_html,
    statistics_html,
)
from tollgauge.web.pages.render import ASSETS, render
from tollgauge.web.pages.search import find_offer, load_uptimes, report_offer
from tollgauge.web.paid.products import similar
from tollgauge.web.route import UNKNOWN_PAGE, Documented, Routes
from tollgauge.web.wire import directory_answers, openapi
from tollgauge.web.wire.facilitator_answers import facilitators as facilitators_json
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
from tollgauge.web.wire.request_model import invalid, read_resource

HOME_ROWS: Final = 10
"""Number of endpoints on the home page."""
# Pages accept unknown query parameters: mail and social sites append their own to links.
PAGES: Final = Routes(tag="pages", cached=True)
_HTML: Final = openapi.page()
_CHECKED_HTML: Final = openapi.page(own={422: "A query parameter is invalid"})


def _page(service: Service, template: str, **values: Any) -> Response:
    return HTMLResponse(render(template, service.base_url, **values))


@PAGES.get("/", _HTML)
async def home(service: Service) -> Response:
    """Home page."""
    return await _board_page(service, "home.html", HOME_ROWS)


@PAGES.get("/leaderboard", _HTML)
async def leaderboard(service: Service) -> Response:
    """Leaderboard (HTML)."""
    return await _board_page(service, "leaderboard.html", None)


async def _board_page(service: Service, template: str, rows_max: int | None) -> Response:
    board = await service.read_now(overview.leaderboard)
    stats = await service.read_now(ecosystem)
    rows = board.rows[:rows_max]
    return _page(
        service,
        template,
        board=board,
        stats=stats,
        rows=rows,
        uptimes=await load_uptimes(service, rows),
        simulated=stats.simulated,
        loading=service.loading.text,
    )


@PAGES.get("/provider/{host}", openapi.page(own=UNKNOWN_PAGE))
async def provider(service: Service, host: Host, after: AfterEndpoint = None) -> Response:
    """Endpoints of a host (HTML)."""
    found = await service.store.reading(snapshots.provider, host.lower(), after)
    if found is None:
        raise unknown_host()
    uptimes = await load_uptimes(service, found.rows)
    return HTMLResponse(provider_html(found, uptimes, base_url=service.base_url))


@PAGES.get("/wallet/{address}", openapi.page(own={404: "No endpoint names or named this address"}))
async def wallet(service: Service, address: WalletAddress) -> Response:
    """Endpoints and income of a payTo address (HTML)."""
    found = await read_known_wallet(service, address)
    uptimes = await load_uptimes(service, found.rows)
    return _page(service, "wallet.html", wallet=found, rows=found.rows, uptimes=uptimes)


@PAGES.get("/methodology", _HTML)
async def methodology(service: Service) -> Response:
    """Scoring methodology."""
    try:
        anchors = await service.store.reading(volumes.anchors_of)
    except StoreUnavailable:
        anchors = None  # the rest of the page needs no database
    html = views.methodology_html(anchors, base_url=service.base_url)
    return HTMLResponse(html)


@PAGES.get("/methodology/{version}", openapi.page(own={404: "No policy with this version"}))
async def methodology_of(service: Service, version: PolicyVersion) -> Response:
    """Methodology of a policy. Raises Problem 404 for other versions than the current one."""
    if version != str(POLICY.version):
        message = f"No policy with this version. The current version is {POLICY.version}."
        raise Problem(404, "unknown-policy", message)
    return await methodology(service)


@PAGES.get("/calibration", _HTML)
async def calibration(service: Service) -> Response:
    """Forecasts compared with outcomes (HTML)."""
    report = await service.read_now(forecasts.report)
    return _page(service, "calibration.html", calibration=report)


@PAGES.get("/incidents", _CHECKED_HTML)
async def incidents(
    service: Service,
    kind: IncidentType = None,
    days: IncidentDays = DAYS,
    after: AfterIncident = None,
) -> Response:
    """Recent changes."""
    found = await service.read_now(overview.incidents, kind, days, after)
    return HTMLResponse(incidents_html(found, base_url=service.base_url))


@PAGES.get("/statistics", _HTML)
async def statistics(service: Service) -> Response:
    """Distributions over all endpoints."""
    counted = await service.read_now(statistics_reports.current)
    stats = await service.read_now(ecosystem)
    weeks = await service.store.reading(ranking.load_shares, limit=SHOWN_WEEKS)
    html = statistics_html(counted, stats, weeks, base_url=service.base_url)
    return HTMLResponse(html)


@PAGES.get("/facilitators", _HTML)
async def facilitators(service: Service) -> Response:
    """Facilitators of each network."""
    known = await service.store.reading(facilitator_records.report)
    chains = await service.store.reading(cursors.chains)
    return _page(service, "facilitators.html", known=facilitators_json(known), indexes=bool(chains))


@PAGES.get("/directories", _HTML)
async def directories(service: Service) -> Response:
    """Entries of each directory (HTML)."""
    report = await service.read_now(directory_reports.current)
    figures = directory_answers.directories(report).directories
    return _page(service, "directories.html", figures=figures, directory="")


@PAGES.get("/directories/{name}", openapi.page(own={404: "No directory with this name"}))
async def directory(service: Service, name: DirectoryName) -> Response:
    """Entries of a directory (HTML). Includes those that it dropped last."""
    found = await read_known_directory(service, name)
    figures = [directory_answers.directory(*found)]
    return _page(service, "directories.html", figures=figures, directory=name)


@PAGES.get("/compare", _CHECKED_HTML)
async def compare(
    service: Service, a: Compared = None, b: Compared = None, c: Compared = None, d: Compared = None
) -> Response:
    """Compare up to four endpoints."""
    asked = views.parse_columns((a, b, c, d), service.perimeter)
    ids = [one.id for one in asked if one.id is not None]
    views_by_id = await service.read_now(reports_endpoint.views, ids)
    html = views.compare_html(asked, views_by_id, base_url=service.base_url)
    return HTMLResponse(html)


@PAGES.get("/docs", _HTML)
async def docs(service: Service, documented: Documented) -> Response:
    """API guide. Its examples name the best scored endpoint."""
    rows = await service.read_now(overview.guide_endpoints)
    ids = [row.id for row in rows]
    better = await service.store.reading(rated_endpoints.count_better, ids)
    key = service.signing_key
    html = docs_html(
        documented,
        base_url=service.base_url,
        resource=rows[0].resource if rows else None,
        report=report_offer(service),
        fingerprint=key.fingerprint if key else None,
        replaceable=next((row.resource for row in rows if better.get(row.id)), None),
    )
    return HTMLResponse(html)


@PAGES.get("/endpoint/{id}", openapi.page(own=UNKNOWN_PAGE))
async def endpoint(service: Service, endpoint_id: EndpointId) -> Response:
    """Snapshot of an endpoint (HTML)."""
    now = service.clock()
    view = await service.read_endpoint(reports_endpoint.view, endpoint_id, now=now)
    offer = report_offer(service)
    alternatives = find_offer(service, similar.PRODUCT)
    html = views.endpoint_html(
        view,
        now=now,
        base_url=service.base_url,
        report_micro_usd=offer.amount if offer else None,
        similar_micro_usd=alternatives.amount if alternatives else None,
        loading=service.loading.text,
    )
    return HTMLResponse(html)


@PAGES.get(
    "/endpoint/{id}/upgrade",
    openapi.page(own=UNKNOWN_PAGE | {422: "`resource` does not match the ID in the path"}),
)
async def upgrade(
    service: Service, endpoint_id: EndpointId, resource: UnmeasuredResource = None
) -> Response:
    """Buy a live report with a browser wallet. An unmonitored endpoint also needs its URL."""
    now = service.clock()
    page = partial(
        views.upgrade_html,
        offer=report_offer(service),
        base_url=service.base_url,
        demo=service.demo,
    )
    named = None
    if resource is not None:
        named = read_resource(resource, service.perimeter)
        if named.id != endpoint_id:
            raise invalid("resource", "The ID in the path belongs to another resource.")
    try:
        snapshot = await service.read_endpoint(snapshots.snapshot, endpoint_id, now=now)
    except Problem as problem:
        if problem.status != 404 or named is None:
            raise
        return HTMLResponse(page(named))
    return HTMLResponse(page(snapshot))


@PAGES.get("/static/{name}", {}, internal=True)
async def static(name: str) -> Response:
    """Serve a static file of the pages."""
    asset = ASSETS.get(name)
    if asset is None:
        raise Problem(404, "no-such-file", "No static file with this name.")
    return Response(asset.body, media_type=asset.media_type)


@PAGES.get("/favicon.ico", {}, internal=True)
async def favicon() -> Response:
    """Serve the icon at the path that browsers request by default."""
    return await static("favicon.svg")
