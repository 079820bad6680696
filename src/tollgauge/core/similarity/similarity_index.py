"""Ranking of similar endpoints and of search results over an inverted index.

Rules (docs/similarity.md):
- similarity is the cosine of two document vectors in whole percents, rounded half up;
- below FLOOR percent two endpoints do not serve a similar purpose: unrelated services of the
  labelled set reach that by chance;
- endpoints that are expected to be payable in 24 hours (core/score/forecast) come first; then
  similarity, that probability, score, price (none comes last) and id decide;
- endpoints of the same host or with the same payTo are left out;
- only an endpoint that is `offered` and has a score may be an alternative;
- a search query ranks every listed endpoint by its cosine with pivoted length normalisation
  (core/similarity/inverted_index) in whole percents, then score, price (none comes last) and id.
  Unknown terms count for the query's length. If the best match is below QUERY_FLOOR, nothing fits
  and there is no result;
- with an embedding model, that ranking is fused with one by the cosine of the embeddings
  (reciprocal rank fusion; Cormack, Clarke and Buettcher 2009).

An index is built from all endpoints and never changed, so it can be searched while the next one is
built.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from tollgauge.core.lists.columns import NOTHING, Columns
from tollgauge.core.lists.rated_endpoint import Filter
from tollgauge.core.score.forecast import EXPECTED_PERMILLE
from tollgauge.core.similarity.inverted_index import (
    PIVOT_SCALE,
    SCALE,
    Int32s,
    Int64s,
    InvertedIndex,
    VectorWeights,
    build_index,
)
from tollgauge.core.similarity.tokenizer import TermTable, WeightedTerms

FLOOR: Final = 15  # minimum similarity of alternatives, in percent
QUERY_FLOOR: Final = 5  # minimum similarity of the best search result, in percent
QUERY_FRACTION: Final = 10  # a search result has at least a tenth of the best one's similarity
MAX_COUNT: Final = 10  # a free snapshot counts at most this many alternatives
FUSED_MAX: Final = 100  # results of each ranking that are fused
EMBEDDING_FLOOR: Final = 30  # minimum cosine of the embeddings, in percent
_FUSION_OFFSET: Final = 60  # a result at position n of a ranking gains 1 / (60 + n)
DELTA_TENTHS: Final = 50  # by default, alternatives score at least 5 points better
TOP_RANKED: Final = 4_096  # counted first; the rest only if these give fewer than MAX_COUNT
_POSTINGS: Final = 2**18  # postings that are summed together


@dataclass(frozen=True, slots=True)
class Match:
    """A similar endpoint with its similarity in percent."""

    id: str
    percent: int


class SimilarityIndex:
    """A snapshot of all endpoints by their terms."""

    def __init__(
        self, columns: Columns, table: TermTable, embeddings: npt.NDArray[np.float16] | None = None
    ) -> None:
        """Build the index of the endpoints in `columns`.

        Args:
            columns: The figures of the endpoints.
            table: Their terms, in the same order.
            embeddings: Their vectors, in the same order; None without a model.
        """
        offered, listed = columns.offered, columns.match(Filter())
        score = _fill_zero(columns.numbers["score_tenths"])
        merit = (columns.id_ranks, columns.numbers["price_micro_usd"], -score)
        # Possible alternatives, then listed endpoints, each by score, price and ID; then the rest.
        order = np.lexsort((*merit, ~(listed | offered), ~offered))
        candidates = int(np.count_nonzero(listed | offered))
        self.size: Final = len(order)
        self.columns: Final = columns
        self._table: Final = table
        self._order: Final[Int64s] = order
        self._host: Final[Int32s] = columns.texts["host"][order]
        self._pay_to: Final[Int32s] = columns.texts["pay_to"][order]
        self._payable: Final = _fill_zero(columns.numbers["payable_24h_permille"])[order]
        # `searchsorted` needs ascending numbers, and the best score comes first.
        self._negative_scores: Final[Int64s] = -score[order]
        self._offered: Final = int(np.count_nonzero(offered))
        self._query_ranks: Final = np.empty(candidates, np.int32)
        by_merit = np.lexsort([key[order[:candidates]] for key in merit])
        self._query_ranks[by_merit] = np.arange(candidates)
        self._index: Final = build_index(table, order, columns.texts["host"], candidates=candidates)
        self._embeddings: Final = (
            None if embeddings is None else embeddings[order[:candidates]].astype(np.float32)
        )

    def find_alternatives(
        self, terms: WeightedTerms, *, host: str, pay_to: str | None, least_tenths: int, limit: int
    ) -> tuple[Match, ...]:
        """Return the `limit` best alternatives with a score of `least_tenths` or more, best first,
        without those of this host or payTo.
        """
        term, vector = self._keep_shared(*self._index.vectorize(terms))
        rank, percent = self._similar(term, vector, end=self._count_scoring(least_tenths))
        others = (self._host[rank] != self.columns.codes["host"].get(host, -2)) & (
            self._pay_to[rank] != self.columns.codes["pay_to"].get(pay_to or "", -2)
        )
        rank, percent = rank[others], percent[others]
        payable = self._payable[rank]
        best = np.lexsort((rank, -payable, -percent, payable < EXPECTED_PERMILLE))[:limit]
        return self._matches(rank[best], percent[best])

    def search(
        self,
        terms: WeightedTerms,
        wanted: Filter,
        *,
        limit: int,
        embedding: npt.NDArray[np.float32] | None = None,
    ) -> tuple[Match, ...]:
        """Return the `limit` best listed endpoints for a search query and a filter, best first.

        Args:
            terms: The terms of the query.
            wanted: The filter.
            limit: Maximum number of results.
            embedding: The vector of the query; None ranks only by terms.
        """
        end = self._index.candidates
        if not end:
            return ()
        matching = self.columns.match(wanted)[self._order[:end]]
        if embedding is None or self._embeddings is None:
            return self._matches(*self._rank_by_terms(terms, matching, limit))
        by_terms = self._rank_by_terms(terms, matching, FUSED_MAX)
        cosines = np.rint(100 * (self._embeddings @ embedding)).astype(np.int64)
        similar = np.flatnonzero(matching & (cosines >= EMBEDDING_FLOOR))
        order = np.lexsort((self._query_ranks[similar], -cosines[similar]))
        by_meaning = similar[order][:FUSED_MAX]
        return self._fuse(by_terms, (by_meaning, cosines[by_meaning]), limit=limit)

    def _fuse(self, *rankings: tuple[Int64s, Int64s], limit: int) -> tuple[Match, ...]:
        """Fuse rankings, each of ranks and their percents; a result has its highest percent."""
        points: dict[int, float] = {}
        percents: dict[int, int] = {}
        for ranks, values in rankings:
            found = zip(ranks.tolist(), values.tolist(), strict=True)
            for position, (at, percent) in enumerate(found, 1):
                points[at] = points.get(at, 0) + 1 / (_FUSION_OFFSET + position)
                percents[at] = max(percents.get(at, 0), percent)
        best = sorted(points, key=lambda at: (-points[at], self._query_ranks[at]))[:limit]
        return self._matches(best, [percents[at] for at in best])

    def _matches(self, ranks: Iterable[int], percents: Iterable[int]) -> tuple[Match, ...]:
        found = zip(ranks, percents, strict=True)
        return tuple(Match(self._id(rank), int(percent)) for rank, percent in found)

    def _id(self, rank: int) -> str:
        return self.columns.ids[int(self._order[rank])]

    def _rank_by_terms(
        self, terms: WeightedTerms, matching: npt.NDArray[np.bool_], limit: int
    ) -> tuple[Int64s, Int64s]:
        """Return the ranks of the `limit` best matches by terms, and their percents."""
        index = self._index
        cosines = _compute_dots(index, *index.vectorize(terms), end=index.candidates)
        dots = cosines * index.search_factors // PIVOT_SCALE
        dots[~matching] = 0
        best = int(_to_percents(dots.max()))
        if best < QUERY_FLOOR:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        rank = np.flatnonzero(dots >= _min_dot(-(-best // QUERY_FRACTION)))
        percent = _to_percents(dots[rank])
        keys = (100 - percent) * self.size + self._query_ranks[rank]
        # Sorting all of 100,000 matches would take six times as long.
        first = np.argpartition(keys, min(limit, len(keys)) - 1)[:limit]
        first = first[np.argsort(keys[first])]
        return rank[first], percent[first]

    def count_alternatives(self, first: int, last: int) -> list[tuple[str, int]]:
        """Return (id, number of better alternatives) of the endpoints at `[first, last)`; at most
        MAX_COUNT each. The whole index is `count_alternatives(0, index.size)`.
        """
        return [(self._id(at), self._count_better(at)) for at in range(first, min(last, self.size))]

    def _count_better(self, at: int) -> int:
        """Count the better alternatives of one endpoint, up to MAX_COUNT."""
        terms = self._table[self._order[at]]
        term, vector = self._keep_shared(*self._index.vectorize(terms))
        end = self._count_scoring(DELTA_TENTHS - self._negative_scores[at])
        count = 0
        for limit in (min(end, TOP_RANKED), end):
            count = self._count_others(at, self._similar(term, vector, end=limit)[0])
            if count >= MAX_COUNT or limit == end:
                break
        return min(count, MAX_COUNT)

    def _count_others(self, at: int, rank: Int64s) -> int:
        """Count the candidates at some ranks that have another host and another payTo."""
        pay_to = self._pay_to[at]
        others = self._host[rank] != self._host[at]
        if pay_to >= 0:
            others &= self._pay_to[rank] != pay_to
        return int(np.count_nonzero(others))

    def _count_scoring(self, least_tenths: int) -> int:
        """Count the candidates with at least this score."""
        offered = self._negative_scores[: self._offered]
        return int(np.searchsorted(offered, -least_tenths, side="right"))

    def _keep_shared(self, term: Int32s, vector: VectorWeights) -> tuple[Int32s, VectorWeights]:
        """Return the terms of a vector that several hosts use."""
        shared = self._index.shared[term]
        return term[shared], vector[shared]

    def _similar(self, term: Int32s, vector: VectorWeights, *, end: int) -> tuple[Int64s, Int64s]:
        """Return the candidates below the rank `end` with at least FLOOR percent, ascending, and
        their percents.
        """
        if not end or not len(term):
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        dots = _compute_dots(self._index, term, vector, end)
        ranks = np.flatnonzero(dots >= _min_dot(FLOOR))
        return ranks, _to_percents(dots[ranks].astype(np.int64))


def _min_dot(percent: int) -> int:
    """Return the smallest dot product that rounds to a number of percent."""
    return -(-SCALE * SCALE * (2 * percent - 1) // 200)


def _to_percents(dots: Int64s) -> Int64s:
    """Return whole percents, rounded half up; the rounding of weights may exceed 100."""
    return np.minimum((200 * dots + SCALE * SCALE) // (2 * SCALE * SCALE), 100)


def _compute_dots(index: InvertedIndex, term: Int32s, vector: VectorWeights, end: int) -> Int64s:
    """Return the dot product of a query vector and each candidate below the rank `end`."""
    begins = index.indptr[term]
    sizes = index.ends(term, end) - begins
    # In parts, so that a query of common terms uses little memory.
    parts = np.flatnonzero(np.diff(np.cumsum(sizes) // _POSTINGS)) + 1
    dots = np.zeros(end)
    for begin, size, weight in zip(
        *(np.split(of, parts) for of in (begins, sizes, vector)), strict=True
    ):
        place = np.repeat(begin - np.cumsum(size) + size, size) + np.arange(size.sum())
        weights = np.repeat(weight.astype(np.float64), size) * index.weights[place]
        # Sums of integers below 2**53 are exact in any order.
        dots += np.bincount(index.ranks[place], weights=weights, minlength=end)
    return dots.astype(np.int64)


def _fill_zero(numbers: Int64s) -> Int64s:
    return np.where(numbers == NOTHING, 0, numbers)
