"""Pages that find endpoints: `/search`, `/endpoints`, and `/endpoint?resource=URL`, which offers to
probe endpoints that are not monitored yet.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
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
from tollgauge.monitor.lists import EndpointPage, Search
from tollgauge.monitor.reports.endpoint import Uptimes, read_uptimes
from tollgauge.store.endpoints import rated_endpoints
from tollgauge.web.dependencies import (
    Dependencies,
    unknown_host,
    unknown_pay_to,
    unknown_resource,
)
from tollgauge.web.edge.messages import accepts_page
from tollgauge.web.edge.problem import Problem
from tollgauge.web.free.endpoint_lists import (
    EndpointLists,
    ListRequest,
    SearchRequest,
    with_cursor,
)
from tollgauge.web.pages.render import render
from tollgauge.web.paid.product import PaidDependencies, Product
from tollgauge.web.paid.products import trust
from tollgauge.web.wire.parameters import ResourceQuery, SearchText
from tollgauge.web.wire.request_model import resource_of

ROWS: Final = 40
"""Page size of the endpoint list."""
RESULTS: Final = 25
"""Page size of the search results."""
_NETWORKS_MAX: Final = 30


@dataclass(frozen=True, slots=True)
class SearchPages:
    """Handlers of the search and list pages."""

    dependencies: Dependencies

    async def search(self, request: Request, q: SearchText = "") -> Response:
        """Redirect to the endpoint or host that a text names, or render the results."""
        if not q.strip():
            return await self._results(q)
        try:
            wanted = SearchRequest.read({"query": q, "limit": RESULTS})
            named = self._lists.parse_text(q)
            search = await self._lists.find(named, wanted)
        except Problem as problem:
            if problem.status != 422 or not _is_browser(request):
                raise
            return await self._results(q, message=str(problem), status=422)
        if search.match == "meaning" or (search.match == "payto" and search.results):
            return await self._results(q, search)
        if search.results:
            best = search.results[0].endpoint
            is_one = search.match == "endpoint"
            return self._redirect(f"endpoint/{best.id}" if is_one else f"provider/{best.host}")
        return await self._answer_unknown(request, named, q)

    async def endpoint(self, request: Request, resource: ResourceQuery) -> Response:
        """Redirect to the page of a resource, or offer to probe it."""
        named = resource_of(resource, self.dependencies.perimeter)
        if await self.dependencies.store.reading(rated_endpoints.get_public, named.id) is None:
            return await self._answer_unknown(request, named, resource)
        return self._redirect(f"endpoint/{named.id}")

    async def endpoints(self, request: Request) -> Response:
        """Render one page of the endpoint list."""
        # An HTML form sends an empty parameter for each empty field.
        known = ListRequest.json_schema()["properties"]
        given = {
            name: text for name, text in request.query_params.items() if text and name in known
        }
        shown = await self._lists.page(ListRequest.read_query(given), limit=ROWS)
        uptimes = await load_uptimes(self.dependencies, shown.rows)
        html = endpoints_html(shown, given, uptimes, base_url=self.dependencies.base_url)
        return HTMLResponse(html)

    @property
    def _lists(self) -> EndpointLists:
        return EndpointLists(self.dependencies)

    def _redirect(self, path: str) -> Response:
        return RedirectResponse(f"{self.dependencies.base_url}/{path}", status_code=307)

    async def _results(
        self, text: str, search: Search | None = None, *, message: str = "", status: int = 200
    ) -> Response:
        base_url = self.dependencies.base_url
        rows = [result.endpoint for result in search.results] if search else []
        uptimes = await load_uptimes(self.dependencies, rows)
        return HTMLResponse(
            search_html(text, search, uptimes, message=message, base_url=base_url), status
        )

    async def _answer_unknown(self, request: Request, named: Named, text: str) -> Response:
        """Answer a browser with a page for an unknown resource, host or payTo.

        Raises Problem 404 for other clients.
        """
        if not isinstance(named, Resource):
            if not _is_browser(request):
                raise unknown_pay_to() if isinstance(named, PayTo) else unknown_host()
            message = f"No monitored endpoint for {text.strip()}."
            return await self._results(text, message=message, status=404)
        if not _is_browser(request):
            raise unknown_resource()
        store = self.dependencies.store
        neighbours = await store.reading(rated_endpoints.of_host, named.host, limit=1)
        html = unknown_html(
            named,
            report_offer(self.dependencies),
            host_is_known=bool(neighbours),
            base_url=self.dependencies.base_url,
        )
        return HTMLResponse(html)


async def load_uptimes(dependencies: Dependencies, rows: Iterable[RatedEndpoint]) -> Uptimes:
    """Load the daily uptimes of the endpoints in a list."""
    return await dependencies.read_now(read_uptimes, [row.id for row in rows])


def report_offer(dependencies: PaidDependencies) -> Offer | None:
    """Return the offer of a live report; None if sales are not configured."""
    return find_offer(dependencies, trust.PRODUCT)


def find_offer(dependencies: PaidDependencies, product: Product) -> Offer | None:
    """Return the offer of a product; None if sales are not configured."""
    try:
        return product.offer(dependencies)
    except Problem:
        return None


def search_html(
    text: str, search: Search | None, uptimes: Uptimes, *, message: str = "", base_url: str
) -> bytes:
    """Render the results for keywords or a payTo address.

    `search` is None if no search was made; `message` then states the reason.
    """
    results = search.results if search else ()
    return render(
        "search.html",
        base_url,
        text=text,
        searched=search is not None,
        by_pay_to=search is not None and search.match == "payto",
        message=message,
        rows=[result.endpoint for result in results],
        uptimes=uptimes,
        said={result.endpoint.id: _provider_words(result.endpoint) for result in results},
        simulated=any(result.endpoint.simulated for result in results),
    )


def endpoints_html(
    shown: EndpointPage, given: Mapping[str, str], uptimes: Uptimes, *, base_url: str
) -> bytes:
    """Render one page of the endpoint list with its filters."""
    conditions = {name: text for name, text in given.items() if name not in ("sort", "cursor")}

    def link(cursor: str | None, page: str = "endpoints") -> str | None:
        return None if cursor is None else _with_query(page, with_cursor(given, cursor))

    return render(
        "endpoints.html",
        base_url,
        shown=shown,
        rows=shown.rows,
        uptimes=uptimes,
        given=dict.fromkeys(ListRequest.json_schema()["properties"], "") | dict(given),
        is_filtered=conditions not in ({}, {"status": Listing.LISTED}),
        simulated=any(row.simulated for row in shown.rows),
        grades=GRADES,
        networks=_networks(shown.networks, given.get("network")),
        next=link(shown.next),
        previous=link(shown.previous),
        as_json=link("", "trust/endpoints"),
        as_csv=link("", "trust/endpoints.csv"),
    )


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


def _provider_words(endpoint: RatedEndpoint) -> str:
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
