"""Search and lists, free: `GET /trust/search` and `/v1/semantic-search`, and `GET /trust/endpoints`
as JSON and CSV. What they find is monitor/lists'.

A query string is read as a JSON body is, by a RequestModel, so that both give the same errors.
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
from tollgauge.core.endpoint.identity import Listing, ResourceError
from tollgauge.core.lists.columns import CursorError
from tollgauge.core.lists.rated_endpoint import Filter, Sort, grades_from
from tollgauge.monitor import lists as endpoint_pages
from tollgauge.monitor.alternatives import IndexBuilding
from tollgauge.monitor.lists import LIST_ROWS, EndpointPage, Search
from tollgauge.web.dependencies import Dependencies
from tollgauge.web.edge.headers import accepts_csv
from tollgauge.web.edge.input import read_body
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
    "network": "eip155:8453",
    "recommendation": "proceed",
    "minProvenPayers": 3,
}
EXAMPLE: Final = {"query": "weather forecast for a city", "maxAmountUsd": 0.01}


def _not_empty(text: str) -> str:
    if not text.strip():
        refuse(invalid("", "The search is empty: give a URL, a host, a payTo address, or words."))
    return text


def _host(text: str) -> str:
    return text.strip().lower()


def _not_null(value: object) -> object:
    if value is None:
        raise ValueError("what is not wanted is left out")
    return value


_NotNull = BeforeValidator(_not_null)
_Price = Annotated[float, Field(ge=0, le=1_000_000)]


class _ListedRequest(RequestModel):
    """The filters that searches and lists share."""

    model_config = ConfigDict(alias_generator=camel)

    max_amount_usd: Annotated[_Price | None, _NotNull] = Field(
        None, description="The most that a call may cost, in dollars"
    )
    network: Annotated[RequestedNetwork | None, _NotNull] = Field(None, description=NETWORK)
    recommendation: Annotated[Recommendation | None, _NotNull] = Field(
        None, description="Only those with this recommendation"
    )
    min_proven_payers: Annotated[
        Annotated[int, Field(ge=1, le=1_000_000_000), BeforeValidator(without_fraction)] | None,
        _NotNull,
    ] = Field(
        None, description="The minimum number of payers who also buy from established sellers"
    )

    def filters(self) -> dict[str, Any]:
        """The shared fields of a Filter."""
        dollars = self.max_amount_usd
        return {
            "network": self.network,
            "recommendation": self.recommendation,
            "max_price": None if dollars is None else int(Decimal(str(dollars)) * 10**6),
            "min_proven_payers": self.min_proven_payers,
        }


class SearchRequest(_ListedRequest):
    """What to search for: the URL of an endpoint, the host of a provider, a payTo, or words."""

    query: Annotated[str, Field(max_length=QUERY_MAX), AfterValidator(_not_empty)] = Field(
        description="The URL of an endpoint, the host of a provider, a payTo address, or what you "
        "need, in words"
    )
    limit: Annotated[int, Field(ge=1, le=LIMIT_MAX), BeforeValidator(without_fraction)] = Field(
        5, description="How many at most"
    )
    min_grade: Annotated[Grade | None, _NotNull] = Field(
        None, description="Only those with this grade or a better"
    )

    def wanted(self) -> Filter:
        """The filter of the search."""
        grades = grades_from(self.min_grade) if self.min_grade else ""
        return Filter(grades=grades, **self.filters())


class ListRequest(_ListedRequest):
    """Which endpoints to list, in which order."""

    sort: Annotated[str, OneOf(Sort)] = Field(
        "score",
        description="The order: best score, lowest price, most uptime, lowest latency, first seen "
        "last, or address",
    )
    grade: Grade | None = Field(None, description="Only those with this grade")
    host: Annotated[str, Field(max_length=253), AfterValidator(_host)] | None = Field(
        None, description="Only those of this host"
    )
    status: Annotated[str, OneOf(Listing)] = Field(
        "listed",
        description="Those that a directory lists, those that one listed once, or those that are "
        "known by request only",
    )
    cursor: Annotated[str, Field(max_length=_CURSOR_MAX)] = Field(
        "", description="`nextCursor` of the previous page. Default: the first page"
    )

    def wanted(self) -> Filter:
        """The filter of the list."""
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
    """The handlers of searches and lists; also called by the pages and by the tool of web/mcp."""

    dependencies: Dependencies

    async def search(self, request: Request) -> Response:
        """What a search finds."""
        query = dict(request.query_params)
        if "q" not in query:
            raise invalid("q", "q is missing.")
        query["query"] = query.pop("q")
        return json_response(await self.results(SearchRequest.read_query(query)))

    async def search_by_post(self, request: Request) -> Response:
        """The same as GET, with a JSON body."""
        return json_response(await self.results(SearchRequest.read(await read_body(request))))

    async def endpoints(self, request: Request) -> Response:
        """A page of a list, as JSON or as CSV."""
        if accepts_csv(request.headers.get("accept", "").encode("latin-1")):
            return await self.endpoints_csv(request)
        page = await self._list(request.query_params, path=ENDPOINTS)
        response = json_response(page)
        response.headers.update(_VARY | _link(page))
        return response

    async def endpoints_csv(self, request: Request) -> Response:
        """A page of a list as CSV; the header Link names the next one."""
        page = await self._list(request.query_params, path=f"{ENDPOINTS}.csv")
        return Response(
            lists.endpoint_csv(page),
            media_type="text/csv; charset=utf-8; header=present",
            headers=_VARY | _link(page),
        )

    async def results(self, request: SearchRequest) -> lists.SearchResponse:
        """What a search finds, as JSON. Raises Problem 422 and 503."""
        search = await self.find(self.named(request.query), request)
        return lists.search(search, base_url=self.dependencies.base_url)

    def named(self, text: str) -> Named:
        """What the text of a search names. Raises Problem 422."""
        try:
            return read_search_text(text, self.dependencies.perimeter)
        except ResourceError as error:
            errors = (Invalid(path="query", message=str(error)),)
            raise Problem(422, error.code, f"{error} {error.hint}", errors=errors) from error

    async def find(self, named: Named, request: SearchRequest) -> Search:
        """What a search finds. Raises Problem 503."""
        known = (self.dependencies.alternatives, self.dependencies.store)
        try:
            return await endpoint_pages.search(*known, named, request.wanted(), limit=request.limit)
        except IndexBuilding as error:
            raise _building() from error

    async def page(self, request: ListRequest, *, limit: int = LIST_ROWS) -> EndpointPage:
        """A page of a list. Raises Problem 422 and 503."""
        known = (self.dependencies.alternatives, self.dependencies.store)
        try:
            return await endpoint_pages.page(
                *known, request.wanted(), Sort(request.sort), after=request.cursor, limit=limit
            )
        except CursorError as error:
            message = "Take the cursor from nextCursor of the page before, with the same sort."
            raise invalid("cursor", message) from error
        except IndexBuilding as error:
            raise _building() from error

    async def _list(self, query: Mapping[str, str], *, path: str) -> lists.EndpointListResponse:
        shown = await self.page(ListRequest.read_query(query))
        base_url, next_url = self.dependencies.base_url, None
        if shown.next is not None:
            next_url = f"{base_url}{path}?{with_cursor(query, shown.next)}"
        return lists.endpoint_list(shown, next_url=next_url, base_url=base_url)


def with_cursor(query: Mapping[str, str], cursor: str) -> str:
    """The query string of another page of the same list; an empty cursor is the first page."""
    given = {name: text for name, text in query.items() if name != "cursor"}
    return urlencode(given | ({"cursor": cursor} if cursor else {}))


def _link(page: lists.EndpointListResponse) -> dict[str, str]:
    return {} if page.next is None else {"Link": f'<{page.next}>; rel="next"'}


def _building() -> Problem:
    return Problem(
        503,
        "index-building",
        "The index of all endpoints is being built. Try again in some seconds; a URL and a host "
        "are found meanwhile.",
        retry_after=10,
    )
