"""Free search and lists: `GET /trust/search`, `/v1/semantic-search`, and `GET /trust/endpoints` as
JSON and CSV.

Query strings and JSON bodies are parsed by the same RequestModel, and give the same errors.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Annotated, Any, Final
from urllib.parse import urlencode

import orjson
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
from tollgauge.web.dependencies import Service
from tollgauge.web.edge.messages import accepts_csv, read_body
from tollgauge.web.edge.problem import Invalid, Problem
from tollgauge.web.free.api import json_response
from tollgauge.web.route import INVALID_FILTER, INVALID_OBJECT, Routes
from tollgauge.web.wire import lists, openapi
from tollgauge.web.wire.request_model import (
    NETWORK,
    RequestedNetwork,
    RequestModel,
    invalid,
    refuse,
    without_fraction,
)
from tollgauge.web.wire.response_model import Grade, OneOf, Recommendation, camel

ROUTES: Final = Routes(tag="free", cached=True, strict_query=True)
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


_FOUND: Final = openapi.free(lists.SearchResponse, "search", INVALID_FILTER)
_PAGE: Final = openapi.free(lists.EndpointListResponse, "endpoint_list", INVALID_FILTER)
_CSV: Final = openapi.csv(INVALID_FILTER)
_LIST_EXAMPLE: Final = "?sort=price&grade=A"


@ROUTES.get(SEMANTIC_SEARCH, _FOUND, name="get_semantic_search", request=SEARCH_PARAMETERS)
@ROUTES.get(
    "/trust/search",
    _FOUND,
    request=SEARCH_PARAMETERS,
    example="?q=weather%20forecast&minGrade=B",
)
async def search(service: Service, request: Request) -> Response:
    """Search endpoints by URL, host, payTo address or keywords."""
    query = dict(request.query_params)
    if "q" not in query:
        raise invalid("q", "q is missing.")
    query["query"] = query.pop("q")
    return json_response(await build_results(service, SearchRequest.read_query(query)))


@ROUTES.post(
    SEMANTIC_SEARCH,
    openapi.free(lists.SearchResponse, "search", INVALID_OBJECT),
    name="post_semantic_search",
    request={"requestBody": SearchRequest.body(EXAMPLE)},
    example=orjson.dumps(EXAMPLE).decode(),
)
async def search_by_post(service: Service, request: Request) -> Response:
    """Search endpoints by URL, host, payTo address or keywords."""
    asked = SearchRequest.read(await read_body(request))
    return json_response(await build_results(service, asked))


@ROUTES.get(
    ENDPOINTS,
    _PAGE | {200: openapi.either(_PAGE[200], _CSV[200])},
    request=LIST_PARAMETERS,
    example=_LIST_EXAMPLE,
)
async def endpoints(service: Service, request: Request) -> Response:
    """List all endpoints, 100 per page, as JSON or CSV. `Accept` selects the format."""
    if accepts_csv(request.headers.get("accept", "").encode("latin-1")):
        return await endpoints_csv(service, request)
    page = await _list(service, request.query_params, path=ENDPOINTS)
    response = json_response(page)
    response.headers.update(_VARY | _link(page))
    return response


@ROUTES.get(f"{ENDPOINTS}.csv", _CSV, request=LIST_PARAMETERS, example=_LIST_EXAMPLE)
async def endpoints_csv(service: Service, request: Request) -> Response:
    """List all endpoints as CSV. The `Link` header contains the next page."""
    page = await _list(service, request.query_params, path=f"{ENDPOINTS}.csv")
    return Response(
        lists.endpoint_csv(page),
        media_type="text/csv; charset=utf-8; header=present",
        headers=_VARY | _link(page),
    )


async def build_results(service: Service, request: SearchRequest) -> lists.SearchResponse:
    """Return search results. Raises Problem 422 or 503."""
    found = await find(service, parse_text(service, request.query), request)
    return lists.search(found, base_url=service.base_url)


def parse_text(service: Service, text: str) -> Named:
    """Parse the text of a search. Raises Problem 422."""
    try:
        return read_search_text(text, service.perimeter)
    except ResourceError as error:
        errors = (Invalid(path="query", message=str(error)),)
        raise Problem(422, error.code, f"{error} {error.hint}", errors=errors) from error


async def find(service: Service, named: Named, request: SearchRequest) -> Search:
    """Search the endpoints. Raises Problem 503 while the index is being built."""
    try:
        return await endpoint_pages.search(
            service.alternatives,
            service.store,
            named,
            request.build_filter(),
            limit=request.limit,
        )
    except IndexBuilding as error:
        raise _index_unavailable() from error


async def load_page(
    service: Service, request: ListRequest, *, limit: int = LIST_ROWS
) -> EndpointPage:
    """Load one page of a list. Raises Problem 422 or 503."""
    try:
        return await endpoint_pages.page(
            service.alternatives,
            service.store,
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


async def _list(
    service: Service, query: Mapping[str, str], *, path: str
) -> lists.EndpointListResponse:
    shown = await load_page(service, ListRequest.read_query(query))
    base_url, next_url = service.base_url, None
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
