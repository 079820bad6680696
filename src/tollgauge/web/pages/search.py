"""Pages that find endpoints: `/search`, `/endpoints`, and `/endpoint?resource=URL`, which offers to
probe endpoints that are not monitored yet.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from typing import Final
from urllib.parse import urlencode

import orjson
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from tollgauge.core.base.units import dollars
from tollgauge.core.directory.search_text import Named, PayTo
from tollgauge.core.endpoint.identity import Listing, Resource
from tollgauge.core.lists.rated_endpoint import GRADES, RatedEndpoint
from tollgauge.core.sale.payment import Offer
from tollgauge.monitor.lists import Search
from tollgauge.monitor.reports.endpoint import Uptimes, read_uptimes
from tollgauge.store.endpoints import rated_endpoints
from tollgauge.web.dependencies import Service, unknown_host, unknown_pay_to, unknown_resource
from tollgauge.web.edge.messages import accepts_page
from tollgauge.web.edge.problem import Problem
from tollgauge.web.free import endpoint_lists
from tollgauge.web.free.endpoint_lists import (
    LIST_PARAMETERS,
    ListRequest,
    SearchRequest,
    with_cursor,
)
from tollgauge.web.pages.render import render
from tollgauge.web.paid.product import PaidDependencies, Product
from tollgauge.web.paid.products import trust
from tollgauge.web.route import INVALID_FILTER, Routes
from tollgauge.web.wire import openapi
from tollgauge.web.wire.parameters import ResourceQuery, SearchText
from tollgauge.web.wire.request_model import read_resource

ROUTES: Final = Routes(tag="pages")
ROWS: Final = 40
"""Page size of the endpoint list."""
RESULTS: Final = 25
"""Page size of the search results."""
_NETWORKS_MAX: Final = 30


@ROUTES.get("/search", openapi.redirect())
async def search(service: Service, request: Request, q: SearchText = "") -> Response:
    """Search (HTML). Redirects to the endpoint or host that a text names."""
    if not q.strip():
        return await _results(service, q)
    try:
        wanted = SearchRequest.read({"query": q, "limit": RESULTS})
        named = endpoint_lists.parse_text(service, q)
        found = await endpoint_lists.find(service, named, wanted)
    except Problem as problem:
        if problem.status != 422 or not _is_browser(request):
            raise
        return await _results(service, q, message=str(problem), status=422)
    if found.match == "meaning" or (found.match == "payto" and found.results):
        return await _results(service, q, found)
    if found.results:
        best = found.results[0].endpoint
        is_one = found.match == "endpoint"
        return _redirect(service, f"endpoint/{best.id}" if is_one else f"provider/{best.host}")
    return await _answer_unknown(service, request, named, q)


@ROUTES.get("/endpoint", openapi.redirect())
async def find(service: Service, request: Request, resource: ResourceQuery) -> Response:
    """Find the page of a resource by its URL. A browser is offered a probe of an unknown one."""
    named = read_resource(resource, service.perimeter)
    if await service.store.reading(rated_endpoints.get_public, named.id) is None:
        return await _answer_unknown(service, request, named, resource)
    return _redirect(service, f"endpoint/{named.id}")


@ROUTES.get("/endpoints", openapi.page(own=INVALID_FILTER), request=LIST_PARAMETERS, cached=True)
async def endpoints(service: Service, request: Request) -> Response:
    """List all endpoints (HTML)."""
    # An HTML form sends an empty parameter for each empty field.
    known = ListRequest.json_schema()["properties"]
    given = {name: text for name, text in request.query_params.items() if text and name in known}
    shown = await endpoint_lists.load_page(service, ListRequest.read_query(given), limit=ROWS)
    conditions = {name: text for name, text in given.items() if name not in ("sort", "cursor")}

    def link(cursor: str | None, page: str = "endpoints") -> str | None:
        return None if cursor is None else _with_query(page, with_cursor(given, cursor))

    html = render(
        "endpoints.html",
        service.base_url,
        shown=shown,
        rows=shown.rows,
        uptimes=await load_uptimes(service, shown.rows),
        given=dict.fromkeys(known, "") | given,
        is_filtered=conditions not in ({}, {"status": Listing.LISTED}),
        grades=GRADES,
        networks=_networks(shown.networks, given.get("network")),
        next=link(shown.next),
        previous=link(shown.previous),
        as_json=link("", "trust/endpoints"),
        as_csv=link("", "trust/endpoints.csv"),
    )
    return HTMLResponse(html)


def _redirect(service: Service, path: str) -> Response:
    return RedirectResponse(f"{service.base_url}/{path}", status_code=307)


async def _results(
    service: Service,
    text: str,
    search: Search | None = None,
    *,
    message: str = "",
    status: int = 200,
) -> Response:
    """Render the results for keywords or a payTo address.

    `search` is None if no search was made; `message` then states the reason.
    """
    rows = [result.endpoint for result in search.results] if search else []
    html = render(
        "search.html",
        service.base_url,
        text=text,
        searched=search is not None,
        by_pay_to=search is not None and search.match == "payto",
        message=message,
        rows=rows,
        uptimes=await load_uptimes(service, rows),
        notes={row.id: _provider_text(row) for row in rows},
    )
    return HTMLResponse(html, status)


async def _answer_unknown(service: Service, request: Request, named: Named, text: str) -> Response:
    """Answer a browser with a page for an unknown resource, host or payTo.

    Raises Problem 404 for other clients.
    """
    if not isinstance(named, Resource):
        if not _is_browser(request):
            raise unknown_pay_to() if isinstance(named, PayTo) else unknown_host()
        message = f"No monitored endpoint for {text.strip()}."
        return await _results(service, text, message=message, status=404)
    if not _is_browser(request):
        raise unknown_resource()
    store = service.store
    neighbours = await store.reading(rated_endpoints.of_host, named.host, limit=1)
    html = unknown_html(
        named,
        report_offer(service),
        host_is_known=bool(neighbours),
        base_url=service.base_url,
    )
    return HTMLResponse(html)


async def load_uptimes(service: Service, rows: Iterable[RatedEndpoint]) -> Uptimes:
    """Load the daily uptimes of the endpoints in a list."""
    return await service.read_now(read_uptimes, [row.id for row in rows])


def report_offer(dependencies: PaidDependencies) -> Offer | None:
    """Return the offer of a live report; None if sales are not configured."""
    return find_offer(dependencies, trust.PRODUCT)


def find_offer(dependencies: PaidDependencies, product: Product) -> Offer | None:
    """Return the offer of a product; None if sales are not configured."""
    try:
        return product.offer(dependencies)
    except Problem:
        return None


def unknown_html(
    resource: Resource, offer: Offer | None, *, host_is_known: bool, base_url: str
) -> bytes:
    """Render the page of an unmonitored resource; `offer` is None if sales are not configured."""
    base = base_url.rstrip("/")
    return render(
        "unknown.html",
        base_url,
        resource=resource,
        host_is_known=host_is_known,
        price=offer and dollars(offer.amount),
        upgrade=f"endpoint/{resource.id}/upgrade?{urlencode({'resource': resource.url})}",
        arguments=orjson.dumps({"resource": resource.url}).decode(),
        command=f"tollgauge buy {shlex.quote(resource.url)} --service {shlex.quote(base)}",
    )


def _provider_text(endpoint: RatedEndpoint) -> str:
    """Return the provider's name and description of an endpoint in one line."""
    texts = (endpoint.service_name, endpoint.description)
    return ": ".join(text for text in texts if text)


def _networks(known: tuple[str, ...], chosen: str | None) -> list[str]:
    """Return the networks in the form, including the selected one."""
    offered = list(known[:_NETWORKS_MAX])
    return offered if chosen in (None, *offered) else [*offered, str(chosen)]


def _with_query(path: str, query: str) -> str:
    return f"{path}?{query}" if query else path


def _is_browser(request: Request) -> bool:
    return accepts_page(request.headers.get("accept", ""))
