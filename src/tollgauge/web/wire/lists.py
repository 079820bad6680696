"""JSON and CSV of search results and endpoint lists."""

from __future__ import annotations

import csv
import io
from typing import Annotated, Final

import orjson

from tollgauge.core.base.text import shorten
from tollgauge.core.endpoint.identity import Listing, Transport, page_url
from tollgauge.core.lists.rated_endpoint import RatedEndpoint
from tollgauge.monitor.lists import EndpointPage, Match, Ranking, Search
from tollgauge.web.wire.response_model import (
    Dollars,
    OneOf,
    ResponseModel,
    Share,
    Time,
    absent_if_null,
    camel,
    dump,
    from_attribute,
)
from tollgauge.web.wire.scores import DemandResponse, DownResponse, RatedResponse
from tollgauge.web.wire.trust import AdvertisedBy

BRIEF_BYTES: Final = 720
"""Size of one result in a brief answer; five results stay below 4 KB."""
_BRIEF_DESCRIPTION: Final = 120
BRIEF: Final = (
    *("resource", "down", "similarity", "recommendation", "grade", "score", "payable24h"),
    *("confidence", "uptime30d", "amountUsd", "network", "advertisedBy", "endpointPage"),
)
"""The fields of a result in a brief answer."""
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r", "\n")
"""First characters of a cell that a spreadsheet runs as a formula (OWASP, CSV Injection)."""


class _ListHead(ResponseModel):
    # A separate base, because fields of a base class come before those of its subclasses.

    id: str
    resource: str
    host: str
    transport: Annotated[str, OneOf(Transport)]
    status: Annotated[str, OneOf(Listing)]


class ListRow(RatedResponse, _ListHead):
    """One endpoint of a list. `down` is null unless the endpoint is down. Text under `advertisedBy`
    comes from the provider and is unverified. `amountUsd` is null if no dollar price is advertised.
    """

    demand: DemandResponse | None
    amount_usd: Dollars | None = from_attribute("price_micro_usd")
    network: str | None
    first_seen: Time
    last_probed: Time | None
    advertised_by: AdvertisedBy
    endpoint_page: str
    simulated: bool


_NESTED: Final = ("down", "demand", "advertised_by")
_OWN: Final = tuple(name for name in ListRow.model_fields if name not in _NESTED)


class SearchRow(ListRow):
    """A search result; `similarity` is 0 to 1 in steps of 0.01."""

    similarity: Share = from_attribute("percent")


class SearchResponse(ResponseModel):
    """Search results, best first. `match` states the kind of search: by endpoint URL, by host, by
    payTo address, or by meaning. `ranking` states how a search by meaning is ranked: by `terms`, or
    `fused` with a ranking by an embedding model.
    """

    match: Match
    ranking: Ranking | None = absent_if_null()
    results: list[SearchRow]


class EndpointListResponse(ResponseModel):
    """One page of a list. `total` is the number of endpoints that match the filter. `nextCursor` is
    the cursor of the next page, and `next` its URL; both are null on the last page.
    """

    total: int
    endpoints: list[ListRow]
    next_cursor: str | None
    next: str | None


def search(search: Search, *, base_url: str) -> SearchResponse:
    """Build the JSON of search results."""
    results = [
        SearchRow.build(result.endpoint, result, **_parts(result.endpoint, base_url))
        for result in search.results
    ]
    return SearchResponse(match=search.match, ranking=search.ranking, results=results)


def brief_search(search: SearchResponse, *, limit: int) -> bytes:
    """Encode brief search results for agents.

    If `limit` results do not fit, because of long URLs, the last ones are omitted and counted in
    `leftOut`.
    """
    rows, room = [], limit * BRIEF_BYTES
    for row in search.results:
        full = orjson.loads(dump(row))
        brief = {name: full[name] for name in BRIEF}
        advertised = brief["advertisedBy"]
        advertised["description"] = shorten(advertised["description"], _BRIEF_DESCRIPTION)
        room -= len(orjson.dumps(brief))
        if room < 0:
            break
        rows.append(brief)
    answer: dict[str, object] = {"match": search.match, "results": rows}
    if search.ranking is not None:
        answer["ranking"] = search.ranking
    if len(rows) < len(search.results):
        answer["leftOut"] = len(search.results) - len(rows)
    return orjson.dumps(answer)


def endpoint_list(
    shown: EndpointPage, *, next_url: str | None, base_url: str
) -> EndpointListResponse:
    """Build the JSON of one page of a list."""
    return EndpointListResponse(
        total=shown.total,
        endpoints=[ListRow.build(row, **_parts(row, base_url)) for row in shown.rows],
        next_cursor=shown.next,
        next=next_url,
    )


def endpoint_csv(shown: EndpointListResponse) -> bytes:
    """Encode one page of a list as CSV (RFC 4180).

    Columns are the JSON fields; those of `down`, `demand` and `advertisedBy` come last. An
    apostrophe is put before text that a spreadsheet would run as a formula.
    """
    text = io.StringIO()
    writer = csv.writer(text)
    outage = [camel(f"down_{name}") for name in DownResponse.model_fields]
    sold = [camel(f"demand_{name}") for name in DemandResponse.model_fields]
    names = [camel(name) for name in _OWN]
    writer.writerow([*names, *outage, *sold, *map(camel, AdvertisedBy.model_fields)])
    for row in shown.endpoints:
        advertised = row.advertised_by
        values = [getattr(row, name) for name in _OWN]
        values += [getattr(row.down, name, None) for name in DownResponse.model_fields]
        values += [getattr(row.demand, name, None) for name in DemandResponse.model_fields]
        writer.writerow(map(_cell, [*values, advertised.service_name, advertised.description]))
    return text.getvalue().encode()


def _cell(value: object) -> object:
    if isinstance(value, bool):
        return str(value).lower()
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value


def _parts(row: RatedEndpoint, base_url: str) -> dict[str, object]:
    return {
        "advertised_by": AdvertisedBy.build(row),
        "endpoint_page": page_url(base_url, row.id),
    }
