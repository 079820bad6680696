"""Free search and lists: `GET /trust/search`, `/v1/semantic-search`, and `GET /trust/endpoints` as
JSON and CSV.

Query strings and JSON bodies are parsed by the same RequestModel, and give the same errors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any, Final
from urllib.parse import urlencode

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response

from tollgauge.core.directory.search_text import Named, read_search_text
from tollgauge.core.endpoint.identity import Listing, ResourceError, Transport
from tollgauge.core.lists.columns import CursorError
from tollgauge.core.lists.rated_endpoint import Filter, Sort, grades_from
from tollgauge.monitor import lists as endpoint_pages
from tollgauge.monitor.alternatives import IndexBuilding
from tollgauge.monitor.lists import LIST_ROWS, EndpointPage, Search
from tollgauge.web.dependencies import Dependencies
from tollgauge.web.edge.messages import accepts_csv, read_body
from tollgauge.web.edge.problem import Invalid, Problem
from tollgauge.web.free.api import json_response
from tollgauge.web.wire import lists
from tollgauge.web.wire.request_model import (
    NETWORK,
    RequestedNetwork,
    RequestModel,
    invalid,
    refuse,
    without_fraction,
)
from tollgauge.web.wire.response_model import Grade, OneOf, Recommendation, camel

SEARCH: Final = "/trust/search"
SEMANTIC_SEARCH: Final = "/v1/semantic-search"
ENDPOINTS: Final = "/trust/endpoints"
QUERY_MAX: Final = 300
LIMIT_MAX: Final = 50
_CURSOR_MAX: Final = 2_100
_VARY: Final = {"Vary": "Accept"}
_FILTER_EXAMPLES: Final = {
    "maxAmountUsd": 0.01,
    "transport": "http",
    "network": "eip155:8453",
    "recommendation": "proceed",
    "minProvenPayers": 3,
}
EXAMPLE: Final = {"query": "weather forecast for a city", "maxAmountUsd": 0.01}


def _not_empty(text: str) -> str:
    if not text.strip():
        refuse(invalid("", "The query is empty. Send a URL, host, payTo address or keywords."))
    return text


def _host(text: str) -> str:
    return text.strip().lower()


def _not_null(value: object) -> object:
    if value is None:
        raise ValueError("omit the field instead of null")
    return value


_NotNull = BeforeValidator(_not_null)
_Price = Annotated[float, Field(ge=0, le=1_000_000)]


class _ListedRequest(RequestModel):
    """Filters of searches and lists."""

    model_config = ConfigDict(alias_generator=camel)

    max_amount_usd: Annotated[_Price | None, _NotNull] = Field(
        None, description="Maximum price per call in dollars"
    )
    transport: Annotated[Annotated[str, OneOf(Transport)] | None, _NotNull] = Field(
        None, description="Only endpoints called over http, tools of mcp servers, or a2a agents"
    )
    network: Annotated[RequestedNetwork | None, _NotNull] = Field(None, description=NETWORK)
    recommendation: Annotated[Recommendation | None, _NotNull] = Field(
        None, description="Only endpoints with this recommendation"
    )
    min_proven_payers: Annotated[
        Annotated[int, Field(ge=1, le=1_000_000_000), BeforeValidator(without_fraction)] | None,
        _NotNull,
    ] = Field(
        None, description="The minimum number of payers who also buy from established sellers"
    )

    def filters(self) -> dict[str, Any]:
        """Return the shared fields of a Filter."""
        dollars = self.max_amount_usd
        return {
            "transport": self.transport,
            "network": self.network,
            "recommendation": self.recommendation,
            "max_price": None if dollars is None else int(Decimal(str(dollars)) * 10**6),
            "min_proven_payers": self.min_proven_payers,
        }


class SearchRequest(_ListedRequest):
    """A search."""

    query: Annotated[str, Field(max_length=QUERY_MAX), AfterValidator(_not_empty)] = Field(
        description="Endpoint URL, provider host, payTo address, or keywords"
    )
    limit: Annotated[int, Field(ge=1, le=LIMIT_MAX), BeforeValidator(without_fraction)] = Field(
        5, description="Maximum number of results"
    )
    min_grade: Annotated[Grade | None, _NotNull] = Field(
        None, description="Only endpoints with this grade or better"
    )

    def build_filter(self) -> Filter:
        """Return the filter of the search."""
        grades = grades_from(self.min_grade) if self.min_grade else ""
        return Filter(grades=grades, **self.filters())


class ListRequest(_ListedRequest):
    """Filters and order of a list."""

    sort: Annotated[str, OneOf(Sort)] = Field(
        "score",
        description="Order: best score, lowest price, highest uptime, lowest latency, newest, or "
        "address",
    )
    grade: Grade | None = Field(None, description="Only endpoints with this grade")
    host: Annotated[str, Field(max_length=253), AfterValidator(_host)] | None = Field(
        None, description="Only endpoints of this host"
    )
    status: Annotated[str, OneOf(Listing)] = Field(
        "listed",
        description="Endpoints that a directory lists, listed in the past, or never listed",
    )
    cursor: Annotated[str, Field(max_length=_CURSOR_MAX)] = Field(
        "", description="`nextCursor` of the previous page"
    )

    def build_filter(self) -> Filter:
        """Return the filter of the list."""
        listing = Listing(self.status)
        return Filter(status=listing, host=self.host, grades=self.grade or "", **self.filters())


SEARCH_PARAMETERS: Final = SearchRequest.query_parameters(
    _FILTER_EXAMPLES | {"q": "weather forecast", "limit": 5, "minGrade": "B"},
    renamed={"query": "q"},
)
LIST_PARAMETERS: Final = ListRequest.query_parameters(
    _FILTER_EXAMPLES
    | {"sort": "score", "grade": "A", "host": "api.example.com", "status": "listed"}
    | {"cursor": "-91590600000000030~4f1c1e1d9a3b2c10"}
)


@dataclass(frozen=True, slots=True)
class EndpointLists:
    """Handlers of searches and lists; the pages and the MCP tool call them too."""

    dependencies: Dependencies

    async def search(self, request: Request) -> Response:
        """Return search results."""
        query = dict(request.query_params)
        if "q" not in query:
            raise invalid("q", "q is missing.")
        query["query"] = query.pop("q")
        return json_response(await self.results(SearchRequest.read_query(query)))

    async def search_by_post(self, request: Request) -> Response:
        """Return search results for a JSON body."""
        return json_response(await self.results(SearchRequest.read(await read_body(request))))

    async def endpoints(self, request: Request) -> Response:
        """Return one page of the list as JSON or CSV, depending on `Accept`."""
        if accepts_csv(request.headers.get("accept", "").encode("latin-1")):
            return await self.endpoints_csv(request)
        page = await self._list(request.query_params, path=ENDPOINTS)
        response = json_response(page)
        response.headers.update(_VARY | _link(page))
        return response

    async def endpoints_csv(self, request: Request) -> Response:
        """Return one page of the list as CSV; the `Link` header contains the next page."""
        page = await self._list(request.query_params, path=f"{ENDPOINTS}.csv")
        return Response(
            lists.endpoint_csv(page),
            media_type="text/csv; charset=utf-8; header=present",
            headers=_VARY | _link(page),
        )

    async def results(self, request: SearchRequest) -> lists.SearchResponse:
        """Return search results. Raises Problem 422 or 503."""
        search = await self.find(self.parse_text(request.query), request)
        return lists.search(search, base_url=self.dependencies.base_url)

    def parse_text(self, text: str) -> Named:
        """Parse the text of a search. Raises Problem 422."""
        try:
            return read_search_text(text, self.dependencies.perimeter)
        except ResourceError as error:
            errors = (Invalid(path="query", message=str(error)),)
            raise Problem(422, error.code, f"{error} {error.hint}", errors=errors) from error

    async def find(self, named: Named, request: SearchRequest) -> Search:
        """Search the endpoints. Raises Problem 503 while the index is being built."""
        known = (self.dependencies.alternatives, self.dependencies.store)
        try:
            return await endpoint_pages.search(
                *known, named, request.build_filter(), limit=request.limit
            )
        except IndexBuilding as error:
            raise _index_unavailable() from error

    async def page(self, request: ListRequest, *, limit: int = LIST_ROWS) -> EndpointPage:
        """Load one page of a list. Raises Problem 422 or 503."""
        known = (self.dependencies.alternatives, self.dependencies.store)
        try:
            return await endpoint_pages.page(
                *known,
                request.build_filter(),
                Sort(request.sort),
                after=request.cursor,
                limit=limit,
            )
        except CursorError as error:
            message = "Send nextCursor of the previous page, with the same sort."
            raise invalid("cursor", message) from error
        except IndexBuilding as error:
            raise _index_unavailable() from error

    async def _list(self, query: Mapping[str, str], *, path: str) -> lists.EndpointListResponse:
        shown = await self.page(ListRequest.read_query(query))
        base_url, next_url = self.dependencies.base_url, None
        if shown.next is not None:
            next_url = f"{base_url}{path}?{with_cursor(query, shown.next)}"
        return lists.endpoint_list(shown, next_url=next_url, base_url=base_url)


def with_cursor(query: Mapping[str, str], cursor: str) -> str:
    """Return the query string of another page; an empty cursor means the first page."""
    given = {name: text for name, text in query.items() if name != "cursor"}
    return urlencode(given | ({"cursor": cursor} if cursor else {}))


def _link(page: lists.EndpointListResponse) -> dict[str, str]:
    return {} if page.next is None else {"Link": f'<{page.next}>; rel="next"'}


def _index_unavailable() -> Problem:
    return Problem(
        503,
        "index-building",
        "The search index is being built. Retry in a few seconds; searches by URL and by host "
        "already work.",
        retry_after=10,
    )
