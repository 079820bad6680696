"""Find better-scored endpoints with a similar purpose, using an index in memory
(docs/similarity.md). Searches and lists use the same index.

The index only proposes. Candidates are checked and ranked by their current rows, so that a response
never names an endpoint that has since been delisted, moved or marked `avoid`.
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
from tollgauge.monitor.embedding import Embed, embedded_text
from tollgauge.store.endpoints import rated_endpoints

if TYPE_CHECKING:
    from tollgauge.core.similarity.similarity_index import IndexedEndpoint, SimilarityIndex

PAGE: Final = 500
REST: Final = 20  # minimum age of the index at a refresh, in durations of the last refresh
REST_S: Final = 1.0  # minimum time between two refreshes
STALE_S: Final = 900.0  # an older index is not used: a search waits as for the first one
FIRST_S: Final = 20.0  # maximum wait for the first index
RENEWAL_S: Final = 0.25  # maximum wait for a fresher index; no wait if the last one took longer
PROPOSALS: Final = 15  # extra candidates, because some may have changed since the index was built


class IndexBuilding(TollgaugeError):  # noqa: N818 - a state, not a fault
    """The first index is still being built."""


# By endpoint ID: hash of the text, IDs and weights of its terms, its embedding. The garbage
# collector does not track tuples of numbers and bytes, so a large dictionary of them costs no
# collection time.
_Terms = dict[str, tuple[int, bytes, bytes, bytes]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """An endpoint with a similar purpose. `percent` is the similarity. `cheaper` compares prices in
    dollars and is False if either endpoint has none.
    """

    endpoint: RatedEndpoint
    percent: int
    cheaper: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedAlternatives:
    """The requested endpoint and its alternatives, best first. `has_similar`: at least one payable
    endpoint has a similar purpose, whatever its score.
    """

    endpoint: RatedEndpoint
    alternatives: tuple[Alternative, ...]
    has_similar: bool


class Alternatives:
    """The index in memory and its refreshes; one per process.

    A refresh reads all rows in pages, analyses only changed texts, and builds the next index in a
    thread while searches use the old one. With `embed`, searches also rank by meaning.
    """

    def __init__(self, embed: Embed | None = None) -> None:
        self.embed = embed
        self._index: SimilarityIndex | None = None
        self._terms: _Terms = {}
        self._built_at = 0.0
        self._took = 0.0
        self._refreshing: asyncio.Task[SimilarityIndex] | None = None

    def begin(self, store: ReadOnlyStore) -> None:
        """Start building the first index, to shorten the wait of the first search."""
        self._refresh(store)

    async def close(self) -> None:
        """Cancel a running refresh."""
        if self._refreshing is not None:
            self._refreshing.cancel()
            await asyncio.wait((self._refreshing,))

    async def find(
        self, store: ReadOnlyStore, endpoint_id: str, *, limit: int, delta_tenths: int
    ) -> RankedAlternatives | None:
        """Return at most `limit` endpoints that score at least `delta_tenths` more, best first.

        Returns:
            None if the endpoint is unknown.

        Raises:
            IndexBuilding: The first index is still being built.
        """
        index = await self.fresh(store)
        return await store.reading(
            _rank_proposals, index, endpoint_id, limit=limit, delta_tenths=delta_tenths
        )

    async def fresh(self, store: ReadOnlyStore) -> SimilarityIndex:
        """Return the index, refreshed first if it is old.

        Raises:
            IndexBuilding: The first index is still being built.
        """
        index = self._index
        age = asyncio.get_running_loop().time() - self._built_at
        if index is not None and age < max(REST_S, REST * self._took):
            return index
        task = self._refresh(store)
        usable = index is not None and age < STALE_S
        if index is not None and usable and self._took > RENEWAL_S:
            return index
        # `wait` does not cancel the task at the timeout: the refresh continues for later searches.
        await asyncio.wait((task,), timeout=RENEWAL_S if usable else FIRST_S)
        if task.done():
            return task.result()
        if index is None:
            raise IndexBuilding("The index of similar endpoints is being built.")
        return index

    async def refresh(self, store: ReadOnlyStore) -> SimilarityIndex:
        """Build and return a new index."""
        return await asyncio.shield(self._refresh(store))

    def _refresh(self, store: ReadOnlyStore) -> asyncio.Task[SimilarityIndex]:
        """Return the running refresh, or start one."""
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = asyncio.create_task(self._rebuild(store))
            self._refreshing.add_done_callback(_ignore_failure)
        return self._refreshing

    async def _rebuild(self, store: ReadOnlyStore) -> SimilarityIndex:
        # Imported here because it loads NumPy, which most commands do not need.
        from tollgauge.core.similarity.similarity_index import SimilarityIndex

        began = asyncio.get_running_loop().time()
        terms: _Terms = {}
        entries: list[IndexedEndpoint] = []
        after = ""
        while True:
            rows = await store.reading(rated_endpoints.page, after=after, limit=PAGE)
            if not rows:
                break
            entries += await asyncio.to_thread(_entries, rows, self._terms, terms, self.embed)
            after = rows[-1][0].id
        index = await asyncio.to_thread(SimilarityIndex, entries)
        self._terms, self._index = terms, index
        self._built_at = asyncio.get_running_loop().time()
        self._took = self._built_at - began
        return index


def _rank_proposals(
    tx: Connection, index: SimilarityIndex, endpoint_id: str, *, limit: int, delta_tenths: int
) -> RankedAlternatives | None:
    """Check and rank the index's proposals by their current rows."""
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
    """Return at most `limit` similar endpoints with at least this score, best first."""
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
    """Return whether an endpoint may be an alternative to others.

    It must be listed, scored and payable (core/score/advice.PAYABLE), not on a test network and
    without a confirmed outage.
    """
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
    """Retrieve the exception of a failed refresh, so that asyncio does not log it.

    Waiting searches still raise it, and the next search starts another refresh.
    """
    if not task.cancelled():
        task.exception()


def _entries(
    rows: Iterable[tuple[Endpoint, RatedEndpoint]],
    before: _Terms,
    after: _Terms,
    embed: Embed | None,
) -> list[IndexedEndpoint]:
    """Build the index entries of rows.

    Terms of unchanged texts are taken from `before`; all terms are added to `after`.
    """
    from tollgauge.core.similarity.similarity_index import IndexedEndpoint

    entries = []
    for endpoint, row in rows:
        wording = provider_text(endpoint)
        digest = hash(wording)
        previous = before.get(row.id)
        if previous is None or previous[0] != digest:
            terms = weigh_terms(wording)
            vector = embed([embedded_text(wording)])[0].astype("f2").tobytes() if embed else b""
            previous = (digest, terms.ids, terms.weights, vector)
        after[row.id] = previous
        # All entries are in memory until the index is built, so texts are left out.
        brief = msgspec.structs.replace(row, service_name="", description="", sources=())
        terms = WeightedTerms(*previous[1:3])
        entries.append(
            IndexedEndpoint(
                endpoint=brief, offered=is_offered(row), terms=terms, embedding=previous[3]
            )
        )
    return entries


def _rank(row: Alternative) -> tuple[bool, int, int, int, bool, int, str]:
    """Return the sort key of alternatives (docs/similarity.md). The index proposes in the same
    order.
    """
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
