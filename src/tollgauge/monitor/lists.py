"""Search for endpoints and page through lists of them (docs/search.md).

The index in memory (monitor/alternatives) proposes endpoints. All values are then read from the
database, and endpoints that are no longer public or no longer match the filter are dropped.
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

LIST_ROWS: Final = 100  # page size
PAY_TO_ROWS: Final = 500  # endpoints read per payTo address, before filters apply
Match = Literal["endpoint", "provider", "payto", "meaning"]
"""Kind of a search result: the endpoint of a URL, the endpoints of a host, those of a payTo
address, or those that match the words.
"""


Ranking = Literal["terms", "fused"]
"""How a search by meaning is ranked: by terms, or fused with a ranking by embeddings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """An endpoint found by a search; `percent` is its similarity to the query."""

    endpoint: RatedEndpoint
    percent: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """Results of a search, best first. `ranking` is None unless `match` is `meaning`."""

    match: Match
    results: tuple[SearchResult, ...]
    ranking: Ranking | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointPage:
    """A page of a list.

    `total` endpoints match the filter; `before` of them are on earlier pages. `next` and `previous`
    are cursors, None without such a page; an empty `previous` is the first page. `networks`
    contains all networks that endpoints accept payments on, most frequent first.
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
    """Return the page of a list after a cursor.

    Raises:
        CursorError: The cursor is invalid or of another list.
        IndexBuilding: The first index is still being built.
    """
    columns = await alternatives.columns.fresh(store)
    chosen = columns.page(wanted, sort, after=after, limit=limit)
    return EndpointPage(
        rows=tuple(await store.reading(_load_matching, chosen.ids, wanted)),
        total=chosen.total,
        before=chosen.before,
        next=chosen.next,
        previous=chosen.previous,
        networks=columns.networks,
    )


async def search(
    alternatives: Alternatives, store: ReadOnlyStore, named: Named, wanted: Filter, *, limit: int
) -> Search:
    """Return at most `limit` endpoints that match a URL, a host, a payTo address or words.

    URLs, hosts and addresses also find public endpoints that are not listed, and need no index,
    unless filters apply to a host.

    Raises:
        IndexBuilding: The first index is still being built.
    """
    match named:
        case Resource():
            anywhere = replace(wanted, status=None)
            endpoints = await store.reading(_load_matching, (named.id,), anywhere)
            if not endpoints and named.path == "/":
                return await search(alternatives, store, Host(named.host), wanted, limit=limit)
            return _exact("endpoint", endpoints)
        case Host():
            of_host = replace(wanted, status=None, host=named.name)
            if of_host == Filter(status=None, host=named.name):
                return _exact("provider", await store.reading(_of_host, of_host, limit=limit))
            columns = await alternatives.columns.fresh(store)
            ids = columns.page(of_host, Sort.SCORE, limit=limit).ids
            return _exact("provider", await store.reading(_load_matching, ids, of_host))
        case PayTo():
            anywhere = replace(wanted, status=None)
            found = await store.reading(_of_pay_to, named.address, anywhere)
            return _exact("payto", found[:limit])
        case Words():
            index = await alternatives.index.fresh(store)
            terms = weigh_query(named.text)
            embed = alternatives.embed
            embedding = None if embed is None else embed([named.text])[0]
            matches = index.search(terms, wanted, limit=limit + PROPOSALS, embedding=embedding)
            percents = {match.id: match.percent for match in matches}
            results = [
                SearchResult(endpoint=endpoint, percent=percents[endpoint.id])
                for endpoint in await store.reading(_load_matching, tuple(percents), wanted)
            ]
            if embed is None:  # fused results are in the order of the index
                results.sort(key=_rank)
            ranking: Ranking = "terms" if embed is None else "fused"
            return Search(match="meaning", results=tuple(results[:limit]), ranking=ranking)


def _exact(match: Match, endpoints: Sequence[RatedEndpoint]) -> Search:
    results = (SearchResult(endpoint=endpoint, percent=100) for endpoint in endpoints)
    return Search(match=match, results=tuple(results))


def _of_host(tx: Connection, of_host: Filter, *, limit: int) -> list[RatedEndpoint]:
    """Return the best endpoints of a host."""
    best = rated_endpoints.of_host(tx, of_host.host or "", limit=limit)
    return _load_matching(tx, [endpoint.id for endpoint in best], of_host)


def _of_pay_to(tx: Connection, address: str, wanted: Filter) -> list[RatedEndpoint]:
    """Return the best endpoints of a payTo address."""
    return _load_matching(tx, rated_endpoints.ids_of_pay_to(tx, address, limit=PAY_TO_ROWS), wanted)


def _load_matching(tx: Connection, ids: Sequence[str], wanted: Filter) -> list[RatedEndpoint]:
    """Return the endpoints that are public and match the filter now, in the order of `ids`."""
    known = rated_endpoints.get_many(tx, ids)
    present = (known[id_] for id_ in ids if id_ in known)
    return [endpoint for endpoint in present if endpoint.public and wanted.admits(endpoint)]


def _rank(result: SearchResult) -> tuple[int, int, bool, int, str]:
    """Return the sort key of a search (docs/search.md). The index proposes in the same order."""
    endpoint = result.endpoint
    price, score = endpoint.price_micro_usd, endpoint.score_tenths or 0
    return (-result.percent, -score, price is None, price or 0, endpoint.id)
