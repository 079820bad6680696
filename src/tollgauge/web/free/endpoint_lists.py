"""Search and lists, free: `GET /trust/search` and `/v1/semantic-search`, and `GET /trust/endpoints`
as JSON and CSV. What they find is monitor/lists'.

A query string is read as a JSON body is, by a RequestModel, so that both are refused in the same
words.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any, Final
from urllib.parse import urlencode

import orjson
from fastapi import Query
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response

from tollgauge.core.directory.search_text import Named, read_search_text
from tollgauge.core.endpoint.identity import Listing, ResourceError
from tollgauge.core.lists.columns import CursorError
from tollgauge.core.lists.rated_endpoint import GRADES, Filter, Sort, grades_from
from tollgauge.core.score.advice import RECOMMENDATIONS
from tollgauge.monitor import lists as endpoint_pages
from tollgauge.monitor.alternatives import IndexBuilding
from tollgauge.monitor.lists import LIST_ROWS, EndpointPage, Search
from tollgauge.web.dependencies import Dependencies
from tollgauge.web.edge.body import read_body
from tollgauge.web.edge.headers import accepts_csv
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
_NUMBERS: Final = ("limit", "maxAmountUsd")
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
_MAX_PRICE: Final = "The most that a call may cost, in dollars"
_RECOMMENDATION: Final = "Only those with this recommendation"
_QUERY: Final = (
    "The URL of an endpoint, the host of a provider, a payTo address, or what you need, in words"
)
_MIN_GRADE: Final = "Only those with this grade or a better"


class _ListedRequest(RequestModel):
    """What searches and lists filter by."""

    model_config = ConfigDict(alias_generator=camel)

    max_amount_usd: Annotated[_Price | None, _NotNull] = Field(None, description=_MAX_PRICE)
    network: Annotated[RequestedNetwork | None, _NotNull] = Field(None, description=NETWORK)
    recommendation: Annotated[Recommendation | None, _NotNull] = Field(
        None, description=_RECOMMENDATION
    )

    def filters(self) -> dict[str, Any]:
        """The fields of a Filter that both have."""
        dollars = self.max_amount_usd
        return {
            "network": self.network,
            "recommendation": self.recommendation,
            "max_price": None if dollars is None else int(Decimal(str(dollars)) * 10**6),
        }


class SearchRequest(_ListedRequest):
    """What to search for: the URL of an endpoint, the host of a provider, a payTo, or words."""

    query: Annotated[str, Field(max_length=QUERY_MAX), AfterValidator(_not_empty)] = Field(
        description=_QUERY
    )
    limit: Annotated[int, Field(ge=1, le=LIMIT_MAX), BeforeValidator(without_fraction)] = Field(
        5, description="How many at most"
    )
    min_grade: Annotated[Grade | None, _NotNull] = Field(None, description=_MIN_GRADE)

    def wanted(self) -> Filter:
        """The filter of the search."""
        return Filter(
            grades=grades_from(self.min_grade) if self.min_grade else "", **self.filters()
        )


class ListRequest(_ListedRequest):
    """Which endpoints to list, in which order."""

    sort: Annotated[str, OneOf(Sort)] = "score"
    grade: Grade | None = None
    host: Annotated[str, Field(max_length=253), AfterValidator(_host)] | None = None
    status: Annotated[str, OneOf(Listing)] = "listed"
    cursor: Annotated[str, Field(max_length=_CURSOR_MAX)] = ""

    def wanted(self) -> Filter:
        """The filter of the list."""
        listing = Listing(self.status)
        return Filter(status=listing, host=self.host, grades=self.grade or "", **self.filters())


def _parameter(description: str, example: object, **schema: Any) -> Any:
    return Field(None, description=description, examples=[example], json_schema_extra=schema)


class _Parameters(BaseModel):
    """A query string as it comes: texts, which a RequestModel reads."""

    model_config = ConfigDict(alias_generator=camel)

    max_amount_usd: str | None = _parameter(
        _MAX_PRICE, 0.01, type="number", minimum=0, maximum=1_000_000
    )
    network: str | None = _parameter(NETWORK, "eip155:8453", maxLength=64)
    recommendation: str | None = _parameter(
        _RECOMMENDATION,
        "proceed",
        enum=[*RECOMMENDATIONS],
    )

    def document(self) -> dict[str, Any]:
        """The parameters that were given, as a JSON object."""
        given = self.model_dump(by_alias=True, exclude_none=True)
        return given | {name: _number(given[name]) for name in _NUMBERS if name in given}


class SearchParameters(_Parameters):
    """The query string of a search."""

    q: str = Field(
        description=_QUERY,
        examples=["weather forecast"],
        json_schema_extra={"minLength": 1, "maxLength": QUERY_MAX},
    )
    limit: str | None = _parameter(
        "How many at most; 5 by default", 5, type="integer", minimum=1, maximum=LIMIT_MAX
    )
    min_grade: str | None = _parameter(_MIN_GRADE, "B", enum=list(GRADES))

    def request(self) -> SearchRequest:
        """The search that it asks for. Raises Problem 422."""
        document = self.document()
        query = document.pop("q")
        return SearchRequest.read(document | {"query": query})


class ListParameters(_Parameters):
    """The query string of a list."""

    sort: str | None = _parameter(
        "The order: best score, lowest price, most uptime, lowest latency, first seen last, or "
        "address",
        "score",
        enum=list(Sort),
    )
    grade: str | None = _parameter("Only those with this grade", "A", enum=list(GRADES))
    host: str | None = _parameter("Only those of this host", "api.example.com", maxLength=253)
    status: str | None = _parameter(
        "Those that a directory lists (the default), those that one listed once, or those that are "
        "known by request only",
        "listed",
        enum=list(Listing),
    )
    cursor: str | None = _parameter(
        "`nextCursor` of the page before; without it the first page",
        "-914100~4f1c1e1d9a3b2c10",
        maxLength=_CURSOR_MAX,
    )

    def request(self) -> ListRequest:
        """The list that it asks for; an empty parameter is as good as none. Raises Problem 422."""
        return ListRequest.read(self.document())

    def without_empty(self) -> ListParameters:
        """The same without empty parameters, which an HTML form sends for what was left open."""
        given = self.model_dump(by_alias=True)
        return ListParameters.model_validate({name: given[name] or None for name in given})


SearchQuery = Annotated[SearchParameters, Query()]
ListQuery = Annotated[ListParameters, Query()]


@dataclass(frozen=True, slots=True)
class EndpointLists:
    """The handlers of searches and lists; also called by the pages and by the tool of web/mcp."""

    dependencies: Dependencies

    async def search(self, parameters: SearchQuery) -> Response:
        """What a search finds."""
        return json_response(await self.results(parameters.request()))

    async def search_by_post(self, request: Request) -> Response:
        """The same as GET, with a JSON body."""
        return json_response(await self.results(SearchRequest.read(await read_body(request))))

    async def endpoints(self, request: Request, parameters: ListQuery) -> Response:
        """A page of a list, as JSON or as CSV."""
        if accepts_csv(request.headers.get("accept", "").encode("latin-1")):
            return await self.endpoints_csv(parameters)
        model = await self._list(parameters, path=ENDPOINTS)
        response = json_response(model)
        response.headers.update(_VARY | _link(model))
        return response

    async def endpoints_csv(self, parameters: ListQuery) -> Response:
        """A page of a list as CSV; the header Link names the next one."""
        model = await self._list(parameters, path=f"{ENDPOINTS}.csv")
        return Response(
            lists.endpoint_csv(model),
            media_type="text/csv; charset=utf-8; header=present",
            headers=_VARY | _link(model),
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

    async def _list(self, parameters: ListParameters, *, path: str) -> lists.EndpointListResponse:
        shown = await self.page(parameters.request())
        base_url, next_url = self.dependencies.base_url, None
        if shown.next is not None:
            next_url = f"{base_url}{path}?{query_of(parameters, cursor=shown.next)}"
        return lists.endpoint_list(shown, next_url=next_url, base_url=base_url)


def query_of(parameters: ListParameters, *, cursor: str) -> str:
    """The query string of another page of the same list."""
    return urlencode(
        parameters.model_dump(by_alias=True, exclude_none=True, exclude={"cursor"})
        | ({"cursor": cursor} if cursor else {})
    )


def _number(text: str) -> object:
    """The number in a text; the text itself where it is none, which the model then refuses."""
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return text
    return value if type(value) in (int, float) else text


def _link(model: lists.EndpointListResponse) -> dict[str, str]:
    return {} if model.next is None else {"Link": f'<{model.next}>; rel="next"'}


def _building() -> Problem:
    return Problem(
        503,
        "index-building",
        "The index of all endpoints is being built. Try again in some seconds; a URL and a host "
        "are found meanwhile.",
        retry_after=10,
    )
