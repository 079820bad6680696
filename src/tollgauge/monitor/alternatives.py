"""Find better-scored endpoints with a similar purpose, using an index in memory
(docs/similarity.md). Searches use the same index, and lists its columns.

The index only proposes. Candidates are checked and ranked by their current rows, so that a response
never names an endpoint that has since been delisted, moved or marked `avoid`.
"""

from __future__ import annotations

import asyncio
from array import array
from bisect import bisect_left
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from sqlalchemy import Connection

from tollgauge.core.base.errors import TollgaugeError
from tollgauge.core.lists.rated_endpoint import RatedEndpoint
from tollgauge.core.score.forecast import is_expected
from tollgauge.core.similarity.tokenizer import ProviderText, TermTable, WeightedTerms, weigh_terms
from tollgauge.db.engine import ReadOnlyStore
from tollgauge.monitor.embedding import Embed, embedded_text
from tollgauge.store.endpoints import rated_endpoints

if TYPE_CHECKING:
    from tollgauge.core.lists.columns import Columns
    from tollgauge.core.similarity.similarity_index import SimilarityIndex

T = TypeVar("T")

PAGE: Final = 500
REST: Final = 20  # minimum age of a value at a refresh, in durations of the last refresh
REST_S: Final = 1.0  # minimum time between two refreshes
STALE_S: Final = 900.0  # an older value is not used: a search waits as for the first one
FIRST_S: Final = 20.0  # maximum wait for the first value
RENEWAL_S: Final = 0.25  # maximum wait for a fresher value; no wait if the last one took longer
PROPOSALS: Final = 15  # extra candidates, because some may have changed since the index was built


class IndexBuilding(TollgaugeError):  # noqa: N818 - a state, not a fault
    """The first index is still being built."""


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


class ReadModel(Generic[T]):
    """A value in memory that is built from the database, and its refreshes; one per process.

    The next value is built while the current one is used.
    """

    def __init__(self, build: Callable[[ReadOnlyStore], Coroutine[Any, Any, T]]) -> None:
        self._build: Final = build
        self._value: T | None = None
        self._built_at = 0.0
        self._took = 0.0
        self._refreshing: asyncio.Task[T] | None = None

    async def close(self) -> None:
        """Cancel a running refresh."""
        if self._refreshing is not None:
            self._refreshing.cancel()
            await asyncio.wait((self._refreshing,))

    async def fresh(self, store: ReadOnlyStore) -> T:
        """Return the value, refreshed first if it is old.

        Raises:
            IndexBuilding: The first value is still being built.
        """
        value = self._value
        age = asyncio.get_running_loop().time() - self._built_at
        if value is not None and age < max(REST_S, REST * self._took):
            return value
        task = self.begin(store)
        usable = value is not None and age < STALE_S
        if value is not None and usable and self._took > RENEWAL_S:
            return value
        # `wait` does not cancel the task at the timeout: the refresh continues for later searches.
        await asyncio.wait((task,), timeout=RENEWAL_S if usable else FIRST_S)
        if task.done():
            return task.result()
        if value is None:
            raise IndexBuilding("The index of similar endpoints is being built.")
        return value

    async def refresh(self, store: ReadOnlyStore) -> T:
        """Build and return a new value."""
        return await asyncio.shield(self.begin(store))

    def begin(self, store: ReadOnlyStore) -> asyncio.Task[T]:
        """Return the running refresh, or start one."""
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = asyncio.create_task(self._rebuild(store))
            self._refreshing.add_done_callback(_ignore_failure)
        return self._refreshing

    def clear(self) -> None:
        """Forget the value, so that it is not in memory while the next one is built."""
        self._value = self._refreshing = None

    async def _rebuild(self, store: ReadOnlyStore) -> T:
        began = asyncio.get_running_loop().time()
        value = self._value = await self._build(store)
        self._built_at = asyncio.get_running_loop().time()
        self._took = self._built_at - began
        return value


@dataclass(frozen=True, slots=True, kw_only=True)
class _Texts:
    """The texts of providers, in the order of the endpoints' IDs.

    Attributes:
        digests: Hashes of the texts, to recognise those that did not change.
        terms: Their terms.
        embeddings: The float16 numbers of their vectors, empty without a model.
    """

    ids: Sequence[str] = ()
    digests: array[int] = field(default_factory=lambda: array("q"))
    terms: TermTable = field(default_factory=TermTable)
    embeddings: bytearray = field(default_factory=bytearray)

    def find(self, endpoint_id: str, digest: int) -> int | None:
        """Return the position of an endpoint if its text has this hash."""
        at = bisect_left(self.ids, endpoint_id)
        same = at < len(self.ids) and self.ids[at] == endpoint_id and self.digests[at] == digest
        return at if same else None


class Alternatives:
    """The read models of one process: the columns of all endpoints, and the index of their texts.

    With `embed`, searches also rank by meaning.
    """

    def __init__(self, embed: Embed | None = None) -> None:
        self.embed = embed
        self.columns: ReadModel[Columns] = ReadModel(_load_columns)
        self.index: ReadModel[SimilarityIndex] = ReadModel(self._build_index)
        self._texts = _Texts()
        self._serves = False

    def begin(self, store: ReadOnlyStore) -> None:
        """Start building them, to shorten the wait of the first search, and never release them."""
        self._serves = True
        self.index.begin(store)

    def release(self) -> None:
        """Forget the index and the columns after use by a process that serves no searches."""
        if not self._serves:
            self.index.clear()
            self.columns.clear()

    async def close(self) -> None:
        """Cancel running refreshes."""
        await self.index.close()
        await self.columns.close()

    async def find(
        self, store: ReadOnlyStore, endpoint_id: str, *, limit: int, delta_tenths: int
    ) -> RankedAlternatives | None:
        """Return at most `limit` endpoints that score at least `delta_tenths` more, best first.

        Returns:
            None if the endpoint is unknown.

        Raises:
            IndexBuilding: The first index is still being built.
        """
        index = await self.index.fresh(store)
        return await store.reading(
            _rank_proposals, index, endpoint_id, limit=limit, delta_tenths=delta_tenths
        )

    async def _build_index(self, store: ReadOnlyStore) -> SimilarityIndex:
        # Imported here because it loads NumPy, which most commands do not need.
        import numpy as np

        from tollgauge.core.similarity.similarity_index import SimilarityIndex

        columns = await self.columns.refresh(store)
        texts = _Texts(ids=columns.ids)
        for start in range(0, len(columns.ids), PAGE):
            ids = columns.ids[start : start + PAGE]
            read = await store.reading(rated_endpoints.provider_texts, ids)
            await asyncio.to_thread(self._add_texts, texts, [read.get(id_) for id_ in ids])
        self._texts = texts
        embeddings = None
        if self.embed is not None and columns.ids:
            embeddings = np.frombuffer(texts.embeddings, np.float16).reshape(len(columns.ids), -1)
        return await asyncio.to_thread(SimilarityIndex, columns, texts.terms, embeddings)

    def _add_texts(self, texts: _Texts, read: Iterable[ProviderText | None]) -> None:
        """Add the next texts, with the terms of the last refresh if they are the same.

        Endpoints that were deleted since the columns were read have no text.
        """
        before, embed = self._texts, self.embed
        for text in read:
            wording = text or ProviderText()
            digest = hash(wording)
            at = before.find(texts.ids[len(texts.digests)], digest)
            texts.digests.append(digest)
            if at is None:
                texts.terms.append(weigh_terms(wording))
                if embed is not None:
                    texts.embeddings.extend(
                        embed([embedded_text(wording)])[0].astype("f2").tobytes()
                    )
            else:
                texts.terms.append(before.terms[at])
                size = len(before.embeddings) // len(before.ids)
                texts.embeddings.extend(before.embeddings[at * size : (at + 1) * size])


async def _load_columns(store: ReadOnlyStore) -> Columns:
    from tollgauge.core.lists.columns import ColumnBuilder, Columns

    builder, after = ColumnBuilder(), ""
    while page := await store.reading(rated_endpoints.page, after=after, limit=PAGE):
        await asyncio.to_thread(builder.add, page)
        after = page[-1].id
    return await asyncio.to_thread(Columns, builder)


def _rank_proposals(
    tx: Connection, index: SimilarityIndex, endpoint_id: str, *, limit: int, delta_tenths: int
) -> RankedAlternatives | None:
    """Check and rank the index's proposals by their current rows."""
    target = rated_endpoints.get_many(tx, [endpoint_id]).get(endpoint_id)
    if target is None:
        return None
    terms = weigh_terms(rated_endpoints.provider_texts(tx, [endpoint_id])[endpoint_id])
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
    proposed = index.find_alternatives(
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
        and row.offered
        and (row.score_tenths or 0) >= least_tenths
        and row.host != target.host
        and (target.pay_to is None or row.pay_to != target.pay_to)
    ]
    alternatives.sort(key=_rank)
    return alternatives[:limit]


def _ignore_failure(task: asyncio.Task[Any]) -> None:
    """Retrieve the exception of a failed refresh, so that asyncio does not log it.

    Waiting searches still raise it, and the next search starts another refresh.
    """
    if not task.cancelled():
        task.exception()


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
