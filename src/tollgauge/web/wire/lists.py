"""Lists of endpoints as JSON and CSV: what a search found, and the pages of a list."""

from __future__ import annotations

import csv
import io
from typing import Annotated, Final

import orjson

from tollgauge.core.base.text import shorten
from tollgauge.core.endpoint.identity import Listing, page_url
from tollgauge.core.lists.rated_endpoint import RatedEndpoint
from tollgauge.monitor.lists import EndpointPage, Match, Search, SearchResult
from tollgauge.web.wire.response_model import (
    Chance,
    OneOf,
    ResponseModel,
    camel,
    dump,
    iso,
    micro_usd,
)
from tollgauge.web.wire.scores import DemandResponse, DownResponse, RatedResponse, rated_fields
from tollgauge.web.wire.trust import AdvertisedBy

BRIEF_BYTES: Final = 720
"""What one endpoint of a brief answer has room for, so that five stay below 4 KB."""
_BRIEF_DESCRIPTION: Final = 120
BRIEF: Final = (
    *("resource", "down", "similarity", "recommendation", "grade", "score", "payable24h"),
    *("confidence", "uptime30d", "amountUsd", "network", "advertisedBy", "endpointPage"),
)
"""The fields of a result in a brief answer."""
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r", "\n")
"""How a cell begins that a spreadsheet would run (OWASP, CSV Injection)."""


class _ListHead(ResponseModel):
    """The first fields of a row; those of a base class come before those of its subclasses."""

    id: str
    resource: str
    host: str
    status: Annotated[str, OneOf(Listing)]


class ListRow(RatedResponse, _ListHead):
    """One endpoint of a list. `down` is null unless it is down. Text under `advertisedBy` is the
    provider's own and unverified; `amountUsd` is null if no price in a known dollar is advertised.
    """

    amount_usd: float | None
    network: str | None
    first_seen: str
    last_probed: str | None
    advertised_by: AdvertisedBy
    endpoint_page: str
    simulated: bool


_NESTED: Final = ("down", "demand", "advertised_by")
_OWN: Final = tuple(name for name in ListRow.model_fields if name not in _NESTED)


class SearchRow(ListRow):
    """One endpoint that a search found; `similarity` is 0 to 1 in steps of a hundredth."""

    similarity: Chance


class SearchResponse(ResponseModel):
    """What a search found, best first. `match` says what was searched by: the URL of an endpoint,
    the host of a provider, the address that sellers are paid at, or the meaning of words.
    """

    match: Match
    results: list[SearchRow]


class EndpointListResponse(ResponseModel):
    """A page of a list. `total` endpoints match its filter. `nextCursor` asks for the page behind
    this one, which is at `next`; both are null on the last page.
    """

    total: int
    endpoints: list[ListRow]
    next_cursor: str | None
    next: str | None


def search(search: Search, *, base_url: str) -> SearchResponse:
    """What a search found, as JSON."""
    results = [_search_row(result, base_url) for result in search.results]
    return SearchResponse(match=search.match, results=results)


def brief_search(search: SearchResponse, *, limit: int) -> bytes:
    """What a search found in short, as JSON bytes: an agent reads all that it is given. Where
    addresses are so long that `limit` endpoints have no room, the last ones are left out, and
    `leftOut` says how many.
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
    if len(rows) < len(search.results):
        answer["leftOut"] = len(search.results) - len(rows)
    return orjson.dumps(answer)


def endpoint_list(
    shown: EndpointPage, *, next_url: str | None, base_url: str
) -> EndpointListResponse:
    """A page of a list as JSON."""
    return EndpointListResponse(
        total=shown.total,
        endpoints=[ListRow.model_validate(_fields(row, base_url)) for row in shown.rows],
        next_cursor=shown.next,
        next=next_url,
    )


def endpoint_csv(shown: EndpointListResponse) -> bytes:
    """A page of a list as CSV (RFC 4180) with the fields of its JSON, those of `down`, `demand`
    and `advertisedBy` last.
    A text that a spreadsheet would run as a formula begins with an apostrophe.
    """
    text = io.StringIO()
    writer = csv.writer(text)
    outage = [camel(f"down_{name}") for name in DownResponse.model_fields]
    demand = [camel(f"demand_{name}") for name in DemandResponse.model_fields]
    names = [camel(name) for name in _OWN]
    writer.writerow([*names, *outage, *demand, *map(camel, AdvertisedBy.model_fields)])
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


def _search_row(result: SearchResult, base_url: str) -> SearchRow:
    fields = _fields(result.endpoint, base_url)
    return SearchRow.model_validate(fields | {"similarity": result.percent / 100})


def _fields(row: RatedEndpoint, base_url: str) -> dict[str, object]:
    return {
        "id": row.id,
        "resource": row.resource,
        "host": row.host,
        "status": row.status,
        **rated_fields(row),
        "amount_usd": micro_usd(row.price_micro_usd),
        "network": row.network,
        "first_seen": iso(row.first_seen),
        "last_probed": iso(row.last_probed),
        "advertised_by": {"service_name": row.service_name, "description": row.description},
        "endpoint_page": page_url(base_url, row.id),
        "simulated": row.simulated,
    }
