"""Alternatives: better-scored endpoints of a similar purpose, from an index kept in memory, which
searches and lists (monitor/lists) read too.

Rules (docs/similarity.md):
- the index covers every known endpoint. A refresh reads all rows in pages, analyses again only
  texts that changed, and builds the next index in a thread while the old one is being searched;
- a server builds the first index when it starts; a search before that waits for it, at most
  FIRST_S;
- refreshing takes at most one part in REST of the time: a search begins a refresh when the index is
  older than REST times as long as the last one took;
- an endpoint may be an alternative while a directory lists it, it has a score, that score's advice
  lets pay (core/score/advice.PAYABLE), and it has no confirmed outage;
- what is expected to be payable in 24 hours comes first (core/similarity/similarity_index);
- the index only proposes: candidates are checked and ranked by their present rows, so that an
  answer never names an endpoint that has since been delisted, moved or marked `avoid`;
- an endpoint that was never measured counts as one with score 0.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec
from sqlalchemy import Connection

from tollgauge.core.base.errors import TollgaugeError
from tollgauge.core.base.units import is_test_network
from tollgauge.core.endpoint.identity import Endpoint, Listing
from tollgauge.core.lists.rated_endpoint import RatedEndpoint
from tollgauge.core.score.advice import PAYABLE
from tollgauge.core.score.forecast import is_expected
from tollgauge.core.similarity.tokenizer import WeightedTerms, provider_text, weigh_terms
from tollgauge.db.engine import ReadOnlyStore
from tollgauge.store.endpoints import rated_endpoints

if TYPE_CHECKING:
    from tollgauge.core.similarity.similarity_index import IndexedEndpoint, SimilarityIndex

PAGE: Final = 500
REST: Final = 20
REST_S: Final = 1.0
"""The least time between two refreshes, in seconds."""
STALE_S: Final = 900.0
"""Where the index is older, a search waits as long for a new one as for the first."""
FIRST_S: Final = 20.0
"""How long a search waits for the first index."""
RENEWAL_S: Final = 0.25
"""How long a search waits for a fresher index; not at all where the last one took longer."""
PROPOSALS: Final = 15
"""How many more endpoints the index proposes than are wanted: some may have changed since."""


class IndexBuilding(TollgaugeError):  # noqa: N818 - a state, not a fault
    """There is no index to search yet."""


_Terms = dict[str, tuple[int, bytes, bytes]]
"""By endpoint id: the hash of a wording, and the ids and weights of its terms. What holds nothing
but numbers and bytes the garbage collector leaves alone, however much there is of it.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """An endpoint of a similar purpose. `percent` is how similar; `cheaper` compares advertised
    dollars, and is False where either has none.
    """

    endpoint: RatedEndpoint
    percent: int
    cheaper: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedAlternatives:
    """The endpoint that was asked for, and its alternatives, best first. `has_similar`: at least
    one endpoint of a similar purpose may be paid, whatever its score.
    """

    endpoint: RatedEndpoint
    alternatives: tuple[Alternative, ...]
    has_similar: bool


class Alternatives:
    """The index in memory and its refreshing; one for each process."""

    def __init__(self) -> None:
        self._index: SimilarityIndex | None = None
        self._terms: _Terms = {}
        self._built_at = 0.0
        self._took = 0.0
        self._refreshing: asyncio.Task[SimilarityIndex] | None = None

    def begin(self, store: ReadOnlyStore) -> None:
        """Start to build the first index, so that the first search waits less for it."""
        self._refresh(store)

    async def close(self) -> None:
        """End a refresh that is in flight."""
        if self._refreshing is not None:
            self._refreshing.cancel()
            await asyncio.wait((self._refreshing,))

    async def find(
        self, store: ReadOnlyStore, endpoint_id: str, *, limit: int, delta_tenths: int
    ) -> RankedAlternatives | None:
        """At most `limit` endpoints that score at least `delta_tenths` better, best first; None
        for an endpoint that nobody knows.

        Raises IndexBuilding while there is no index yet.
        """
        index = await self.fresh(store)
        return await store.reading(
            _ranked, index, endpoint_id, limit=limit, delta_tenths=delta_tenths
        )

    async def fresh(self, store: ReadOnlyStore) -> SimilarityIndex:
        """An index that is as new as the rules allow. Raises IndexBuilding."""
        index = self._index
        age = asyncio.get_running_loop().time() - self._built_at
        if index is not None and age < max(REST_S, REST * self._took):
            return index
        task = self._refresh(store)
        usable = index is not None and age < STALE_S
        if index is not None and usable and self._took > RENEWAL_S:
            return index
        await asyncio.wait((task,), timeout=RENEWAL_S if usable else FIRST_S)
        if task.done():
            return task.result()
        if index is None:
            raise IndexBuilding("The index of similar endpoints is being built.")
        return index

    async def refresh(self, store: ReadOnlyStore) -> SimilarityIndex:
        """An index of everything as it is now."""
        return await asyncio.shield(self._refresh(store))

    def _refresh(self, store: ReadOnlyStore) -> asyncio.Task[SimilarityIndex]:
        """The refresh in flight, or a new one."""
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = asyncio.create_task(self._rebuild(store))
            self._refreshing.add_done_callback(_ignore_failure)
        return self._refreshing

    async def _rebuild(self, store: ReadOnlyStore) -> SimilarityIndex:
        # It needs NumPy, which half of all commands never do.
        from tollgauge.core.similarity.similarity_index import SimilarityIndex

        began = asyncio.get_running_loop().time()
        terms: _Terms = {}
        entries: list[IndexedEndpoint] = []
        after = ""
        while True:
            rows = await store.reading(rated_endpoints.page, after=after, limit=PAGE)
            if not rows:
                break
            entries += await asyncio.to_thread(_entries, rows, self._terms, terms)
            after = rows[-1][0].id
        index = await asyncio.to_thread(SimilarityIndex, entries)
        self._terms, self._index = terms, index
        self._built_at = asyncio.get_running_loop().time()
        self._took = self._built_at - began
        return index


def _ranked(
    tx: Connection, index: SimilarityIndex, endpoint_id: str, *, limit: int, delta_tenths: int
) -> RankedAlternatives | None:
    """The proposals of an index, checked and ranked by their present rows."""
    known = rated_endpoints.get_whole(tx, endpoint_id)
    if known is None:
        return None
    terms, target = weigh_terms(provider_text(known[0])), known[1]
    least = (target.score_tenths or 0) + delta_tenths
    alternatives = _candidates(tx, index, target, terms, least_tenths=least, limit=limit)
    return RankedAlternatives(
        endpoint=target,
        alternatives=tuple(alternatives),
        has_similar=bool(
            alternatives or _candidates(tx, index, target, terms, least_tenths=0, limit=1)
        ),
    )


def _candidates(
    tx: Connection,
    index: SimilarityIndex,
    target: RatedEndpoint,
    terms: WeightedTerms,
    *,
    least_tenths: int,
    limit: int,
) -> list[Alternative]:
    """At most `limit` endpoints of a similar purpose with at least this score, best first."""
    proposed = index.search(
        terms,
        host=target.host,
        pay_to=target.pay_to,
        least_tenths=least_tenths,
        limit=limit + PROPOSALS,
    )
    known = rated_endpoints.get_many(tx, [match.id for match in proposed])
    alternatives = [
        Alternative(endpoint=row, percent=match.percent, cheaper=_is_cheaper(row, target))
        for match in proposed
        if (row := known.get(match.id)) is not None
        and is_offered(row)
        and (row.score_tenths or 0) >= least_tenths
        and row.host != target.host
        and (target.pay_to is None or row.pay_to != target.pay_to)
    ]
    alternatives.sort(key=_rank)
    return alternatives[:limit]


def is_offered(row: RatedEndpoint) -> bool:
    """Whether an endpoint may be an alternative to others; none on a test network is."""
    if row.network is not None and is_test_network(row.network):
        return False
    is_down = row.down is not None and row.down.confirmed
    return (
        row.status is Listing.LISTED
        and row.score_tenths is not None
        and row.recommendation in PAYABLE
        and not is_down
    )


def _ignore_failure(task: asyncio.Task[SimilarityIndex]) -> None:
    """Retrieve the exception of a refresh for which nobody may wait: the next search begins
    another, and those that do wait raise it all the same.
    """
    if not task.cancelled():
        task.exception()


def _entries(
    rows: Iterable[tuple[Endpoint, RatedEndpoint]], before: _Terms, after: _Terms
) -> list[IndexedEndpoint]:
    """The index entries of rows. Terms of texts that did not change come from `before`; those of
    all are added to `after`.
    """
    from tollgauge.core.similarity.similarity_index import IndexedEndpoint

    entries = []
    for endpoint, row in rows:
        wording = provider_text(endpoint)
        digest = hash(wording)
        previous = before.get(row.id)
        if previous is not None and previous[0] == digest:
            terms = WeightedTerms(*previous[1:])
        else:
            terms = weigh_terms(wording)
        after[row.id] = (digest, terms.ids, terms.weights)
        # The entries of all endpoints are in memory until the index is built: without their texts.
        brief = msgspec.structs.replace(row, service_name="", description="", sources=())
        entries.append(IndexedEndpoint(endpoint=brief, offered=is_offered(row), terms=terms))
    return entries


def _rank(row: Alternative) -> tuple[bool, int, int, int, bool, int, str]:
    """The order of alternatives (docs/similarity.md); the index proposes in the same."""
    endpoint, price = row.endpoint, row.endpoint.price_micro_usd
    payable = endpoint.payable_24h_permille
    return (
        not is_expected(payable),
        -row.percent,
        -(payable or 0),
        -(endpoint.score_tenths or 0),
        price is None,
        price or 0,
        endpoint.id,
    )


def _is_cheaper(row: RatedEndpoint, target: RatedEndpoint) -> bool:
    price, other = row.price_micro_usd, target.price_micro_usd
    return price is not None and other is not None and price < other
