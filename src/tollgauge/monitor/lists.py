"""Search and lists: endpoints by what somebody names or needs, and all of them page by page.

Rules (docs/search.md):
- the index in memory (monitor/alternatives) chooses the endpoints; every figure is read from the
  present rows, and what is no longer public, or what a filter no longer admits, is left out;
- a search by words finds listed endpoints. A URL, a host or a payTo address also finds those that
  are public and not listed, and needs no index: a server that has just started has none yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from msgspec.structs import replace
from sqlalchemy import Connection

from tollgauge.core.directory.search_text import Host, Named, PayTo, Words
from tollgauge.core.endpoint.identity import Resource
from tollgauge.core.lists.rated_endpoint import Filter, RatedEndpoint, Sort
from tollgauge.core.similarity.tokenizer import weigh_query
from tollgauge.db.engine import ReadOnlyStore
from tollgauge.monitor.alternatives import PROPOSALS, Alternatives
from tollgauge.store.endpoints import rated_endpoints

LIST_ROWS: Final = 100
"""How many endpoints one page of a list has."""

PAY_TO_ROWS: Final = 500
"""How many endpoints of a payTo address are read; filters apply to these."""
Match = Literal["endpoint", "provider", "payto", "meaning"]
"""What a search found: the endpoint of a URL, the endpoints of a host, those that ask to be paid at
an address, or those of a purpose.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """An endpoint that a search found; `percent` is how much it is like the question."""

    endpoint: RatedEndpoint
    percent: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """What a search found, the best first."""

    match: Match
    results: tuple[SearchResult, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointPage:
    """A page of a list. `total` endpoints match its filter, `before` of them are on earlier pages.
    `next` and `previous` are the cursors of its neighbours, None where there is none; an empty
    `previous` is the first page. `networks` are those that any endpoint asks to be paid on, the
    most frequent first.
    """

    rows: tuple[RatedEndpoint, ...]
    total: int
    before: int
    next: str | None
    previous: str | None
    networks: tuple[str, ...]


async def page(
    alternatives: Alternatives,
    store: ReadOnlyStore,
    wanted: Filter,
    sort: Sort,
    *,
    after: str,
    limit: int = LIST_ROWS,
) -> EndpointPage:
    """A page of a list, behind a cursor. Raises CursorError, and IndexBuilding while there is no
    index yet.
    """
    columns = (await alternatives.fresh(store)).columns
    chosen = columns.page(wanted, sort, after=after, limit=limit)
    return EndpointPage(
        rows=tuple(await store.reading(_admitted, chosen.ids, wanted)),
        total=chosen.total,
        before=chosen.before,
        next=chosen.next,
        previous=chosen.previous,
        networks=columns.networks,
    )


async def search(
    alternatives: Alternatives, store: ReadOnlyStore, named: Named, wanted: Filter, *, limit: int
) -> Search:
    """At most `limit` endpoints that a text names or asks for. Raises IndexBuilding while there is
    no index yet.
    """
    match named:
        case Resource():
            anywhere = replace(wanted, status=None)
            endpoints = await store.reading(_admitted, (named.id,), anywhere)
            if not endpoints and named.path == "/":
                return await search(alternatives, store, Host(named.host), wanted, limit=limit)
            return _exact("endpoint", endpoints)
        case Host():
            of_host = replace(wanted, status=None, host=named.name)
            if of_host == Filter(status=None, host=named.name):
                return _exact("provider", await store.reading(_of_host, of_host, limit=limit))
            columns = (await alternatives.fresh(store)).columns
            ids = columns.page(of_host, Sort.SCORE, limit=limit).ids
            return _exact("provider", await store.reading(_admitted, ids, of_host))
        case PayTo():
            anywhere = replace(wanted, status=None)
            found = await store.reading(_of_pay_to, named.address, anywhere)
            return _exact("payto", found[:limit])
        case Words():
            index = await alternatives.fresh(store)
            terms = weigh_query(named.text)
            matches = index.answers(terms, wanted, limit=limit + PROPOSALS)
            percents = {match.id: match.percent for match in matches}
            results = [
                SearchResult(endpoint=endpoint, percent=percents[endpoint.id])
                for endpoint in await store.reading(_admitted, tuple(percents), wanted)
            ]
            return Search(match="meaning", results=tuple(sorted(results, key=_rank)[:limit]))


def _exact(match: Match, endpoints: Sequence[RatedEndpoint]) -> Search:
    results = (SearchResult(endpoint=endpoint, percent=100) for endpoint in endpoints)
    return Search(match=match, results=tuple(results))


def _of_host(tx: Connection, of_host: Filter, *, limit: int) -> list[RatedEndpoint]:
    """The best endpoints of a host."""
    best = rated_endpoints.of_host(tx, of_host.host or "", limit=limit)
    return _admitted(tx, [endpoint.id for endpoint in best], of_host)


def _of_pay_to(tx: Connection, address: str, wanted: Filter) -> list[RatedEndpoint]:
    """The best endpoints that ask to be paid at an address."""
    return _admitted(tx, rated_endpoints.ids_of_pay_to(tx, address, limit=PAY_TO_ROWS), wanted)


def _admitted(tx: Connection, ids: Sequence[str], wanted: Filter) -> list[RatedEndpoint]:
    """The endpoints that are public and that a filter admits now, in the order of `ids`."""
    known = rated_endpoints.get_many(tx, ids)
    present = (known[id_] for id_ in ids if id_ in known)
    return [endpoint for endpoint in present if endpoint.public and wanted.admits(endpoint)]


def _rank(result: SearchResult) -> tuple[int, int, bool, int, str]:
    """The order of a search (docs/search.md); the index proposes in the same."""
    endpoint = result.endpoint
    price, score = endpoint.price_micro_usd, endpoint.score_tenths or 0
    return (-result.percent, -score, price is None, price or 0, endpoint.id)
