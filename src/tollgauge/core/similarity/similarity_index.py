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

from tollgauge.core.endpoint.identity import Listing
from tollgauge.core.lists.columns import Columns
from tollgauge.core.lists.rated_endpoint import Filter, RatedEndpoint
from tollgauge.core.score.forecast import EXPECTED_PERMILLE
from tollgauge.core.similarity.inverted_index import (
    PIVOT_SCALE,
    SCALE,
    DocumentVectors,
    Int32s,
    Int64s,
    InvertedIndex,
    VectorWeights,
    build_index,
)
from tollgauge.core.similarity.tokenizer import WeightedTerms

Sums = npt.NDArray[np.float64]

FLOOR: Final = 15  # minimum similarity of alternatives, in percent
QUERY_FLOOR: Final = 5  # minimum similarity of the best search result, in percent
QUERY_FRACTION: Final = 10  # a search result has at least a tenth of the best one's similarity
MAX_COUNT: Final = 10  # a free snapshot counts at most this many alternatives
FUSED_MAX: Final = 100  # results of each ranking that are fused
EMBEDDING_FLOOR: Final = 30  # minimum cosine of the embeddings, in percent
_FUSION_OFFSET: Final = 60  # a result at position n of a ranking gains 1 / (60 + n)
DELTA_TENTHS: Final = 50  # by default, alternatives score at least 5 points better
TOP_RANKED: Final = 4_096  # counted first; the rest only if these give fewer than MAX_COUNT
_DENSE_FRACTION: Final = 8  # longer postings lists are added one by one, without a position list
# Rounding may lengthen a vector: each of at most 256 weights is off by at most 1/2, all together by
# sqrt(256) / 2 = 8.
_ROUNDING_SLACK: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexedEndpoint:
    """An endpoint and the terms of its texts. `offered`: it may be an alternative. `embedding`: the
    float16 numbers of its vector, empty without a model.
    """

    endpoint: RatedEndpoint
    offered: bool
    terms: WeightedTerms
    embedding: bytes = b""


@dataclass(frozen=True, slots=True)
class Match:
    """A similar endpoint with its similarity in percent."""

    id: str
    percent: int


class SimilarityIndex:
    """A snapshot of all endpoints by their terms."""

    def __init__(self, entries: Iterable[IndexedEndpoint]) -> None:
        ordered = sorted(entries, key=_rank)
        endpoints = [entry.endpoint for entry in ordered]
        self.size: Final = len(ordered)
        # Tuples of texts and numbers: the garbage collector does not look through them.
        self._ids: Final = tuple([endpoint.id for endpoint in endpoints])
        self._hosts: Final[dict[str, int]] = {}
        self._pay_tos: Final[dict[str | None, int]] = {None: -1}
        hosts = [self._hosts.setdefault(endpoint.host, len(self._hosts)) for endpoint in endpoints]
        pay_tos = [
            self._pay_tos.setdefault(endpoint.pay_to, len(self._pay_tos)) for endpoint in endpoints
        ]
        self._host: Final[Int32s] = np.array(hosts, np.int32)
        self._pay_to: Final[Int32s] = np.array(pay_tos, np.int32)
        self._payable: Final[Int32s] = np.array(
            [endpoint.payable_24h_permille or 0 for endpoint in endpoints], np.int32
        )
        self.columns: Final = Columns(endpoints)
        self._score: Final = tuple([endpoint.score_tenths or 0 for endpoint in endpoints])
        offered = sum(_is_offered(entry) for entry in ordered)
        # `searchsorted` needs ascending numbers, and the best score comes first.
        self._negative_scores: Final[Int64s] = -np.array(self._score[:offered], np.int64)
        candidates = sum(_is_candidate(entry) for entry in ordered)
        self._query_ranks: Final = _query_ranks(ordered[:candidates])
        terms = [entry.terms for entry in ordered]
        index, vectors = build_index(terms, hosts, candidates=candidates)
        self._index: Final[InvertedIndex] = index
        self._vectors: Final[DocumentVectors] = vectors
        packed = b"".join(entry.embedding for entry in ordered[:candidates])
        embeddings = np.frombuffer(packed, np.float16).reshape(candidates, -1) if packed else None
        self._embeddings: Final = None if embeddings is None else embeddings.astype(np.float32)

    def search(
        self, terms: WeightedTerms, *, host: str, pay_to: str | None, least_tenths: int, limit: int
    ) -> tuple[Match, ...]:
        """Return the `limit` best alternatives with a score of `least_tenths` or more, best first,
        without those of this host or payTo.
        """
        term, vector = self._keep_shared(*self._index.vectorize(terms))
        rank, percent = self._similar(term, vector, end=self._count_scoring(least_tenths))
        others = (self._host[rank] != self._hosts.get(host, -2)) & (
            self._pay_to[rank] != self._pay_tos.get(pay_to or "", -2)
        )
        rank, percent = rank[others], percent[others]
        payable = self._payable[rank]
        best = np.lexsort((rank, -payable, -percent, payable < EXPECTED_PERMILLE))[:limit]
        return tuple(Match(self._ids[rank[at]], int(percent[at])) for at in best)

    def answers(
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
        matching = self.columns.match(wanted)[:end]
        if embedding is None or self._embeddings is None:
            rank, percent = self._rank_by_terms(terms, matching, limit)
            found = zip(rank.tolist(), percent.tolist(), strict=True)
            return tuple(Match(self._ids[at], of) for at, of in found)
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
        return tuple(Match(self._ids[at], percents[at]) for at in best)

    def _rank_by_terms(
        self, terms: WeightedTerms, matching: npt.NDArray[np.bool_], limit: int
    ) -> tuple[Int64s, Int64s]:
        """Return the ranks of the `limit` best matches by terms, and their percents."""
        cosines = _dot_products(self._index, *self._index.vectorize(terms))
        dots = cosines * self._index.search_factors // PIVOT_SCALE
        dots[~matching] = 0
        least = _min_shown(dots, limit)
        if least is None:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        above = np.flatnonzero(dots >= _min_dot(least + 1))
        tied = np.flatnonzero((dots >= _min_dot(least)) & (dots < _min_dot(least + 1)))
        # The query ranks of offered endpoints ascend with their rank, and so do those of the rest.
        rest = int(np.searchsorted(tied, len(self._negative_scores)))
        rank = np.concatenate((above, tied[:rest][:limit], tied[rest:][:limit]))
        percent = _percents(dots[rank].astype(np.int64))
        best = np.argsort((100 - percent) * self.size + self._query_ranks[rank])[:limit]
        return rank[best], percent[best]

    def counts(self, first: int, last: int) -> list[tuple[str, int]]:
        """Return (id, number of better alternatives) of the endpoints at `[first, last)`; at most
        MAX_COUNT each. The whole index is `counts(0, index.size)`.
        """
        return [
            (self._ids[at], self._count_alternatives(at))
            for at in range(first, min(last, self.size))
        ]

    def _count_alternatives(self, at: int) -> int:
        """Count the better alternatives of one endpoint, up to MAX_COUNT."""
        own = slice(self._vectors.indptr[at], self._vectors.indptr[at + 1])
        term, vector = self._keep_shared(self._vectors.indices[own], self._vectors.weights[own])
        end = self._count_scoring(self._score[at] + DELTA_TENTHS)
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
        return int(np.searchsorted(self._negative_scores, -least_tenths, side="right"))

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
        index = self._index
        begins = index.indptr[term]
        sizes = index.ends(term, end) - begins
        # The most common terms together cannot bring a candidate to the floor (Cauchy-Schwarz), so
        # candidates come from the rare terms, and common terms are added only for these.
        order = np.argsort(-sizes, kind="stable")
        tail = np.sqrt(np.cumsum(vector[order].astype(np.float64) ** 2))
        common = order[: int(np.searchsorted(tail, SCALE * FLOOR / 300))]
        rare = order[len(common) :]
        left = float(tail[len(common) - 1]) * (SCALE + _ROUNDING_SLACK) if len(common) else 0.0
        sums = _sum_postings(index, begins[rare], sizes[rare], vector[rare], end)
        least = _min_dot(FLOOR)
        ranks = np.flatnonzero(sums >= least - left)
        dots = sums[ranks]
        if len(common):
            dots += self._add_common(
                ranks, term[common], vector[common], sizes[common], begins[common]
            )
        alike = dots >= least
        return ranks[alike], _percents(dots[alike].astype(np.int64))

    def _add_common(
        self, ranks: Int64s, term: Int32s, vector: VectorWeights, sizes: Int64s, begins: Int64s
    ) -> Sums:
        """Return what common terms add to the candidates at some ranks.

        Looked up for few candidates, summed over all postings for many.
        """
        index = self._index
        if len(ranks) * len(term) * 4 > int(sizes.sum()):
            return _sum_postings(index, begins, sizes, vector, index.candidates)[ranks]
        keys = term.astype(np.int64)[:, None] * index.candidates + ranks
        place = np.minimum(np.searchsorted(index.keys, keys), len(index.keys) - 1)
        present = index.keys[place] == keys
        added: Sums = ((index.weights[place] * present).astype(np.float64) * vector[:, None]).sum(
            axis=0
        )
        return added


def _min_dot(percent: int) -> int:
    """Return the smallest dot product that rounds to a number of percent."""
    return -(-SCALE * SCALE * (2 * percent - 1) // 200)


def _percents(dots: Int64s) -> Int64s:
    """Return whole percents, rounded half up; the rounding of weights may exceed 100."""
    return np.minimum((200 * dots + SCALE * SCALE) // (2 * SCALE * SCALE), 100)


def _min_shown(dots: Int64s, limit: int) -> int | None:
    """Return the similarity, in percent, below which no result is among the `limit` best; None if
    nothing fits.
    """
    best = int(_percents(dots.max()))
    if best < QUERY_FLOOR:
        return None
    low, high = -(-best // QUERY_FRACTION), best
    while low < high:
        middle = (low + high + 1) // 2
        if np.count_nonzero(dots >= _min_dot(middle)) < limit:
            high = middle - 1
        else:
            low = middle
    return low


def _dot_products(index: InvertedIndex, term: Int32s, vector: VectorWeights) -> Int32s:
    """Return the dot product of a query vector and each candidate."""
    dots = np.zeros(index.candidates, np.int32)
    for begin, end, weight in zip(index.indptr[term], index.indptr[term + 1], vector, strict=True):
        weights = np.multiply(index.weights[begin:end], weight, dtype=np.int32)
        if end - begin == index.candidates:
            dots += weights
        else:
            dots[index.ranks[begin:end]] += weights
    return dots


def _sum_postings(
    index: InvertedIndex, begins: Int64s, sizes: Int64s, vector: VectorWeights, end: int
) -> Sums:
    """Return the dot product for each rank below `end`, over some terms' postings. Sums of integers
    below 2**53 are exact in any order.
    """
    many = sizes * _DENSE_FRACTION > end
    few = ~many
    sums = _sum_sparse(index, begins[few], sizes[few], vector[few], end)
    for begin, size, weight in zip(begins[many], sizes[many], vector[many], strict=True):
        of_term = slice(begin, begin + size)
        weights = index.weights[of_term] * np.float64(weight)
        if size < end:
            summed = np.bincount(index.ranks[of_term], weights=weights, minlength=end)
            weights = summed.astype(np.float64, copy=False)
        sums += weights
    return sums


def _sum_sparse(
    index: InvertedIndex, begins: Int64s, sizes: Int64s, vector: VectorWeights, end: int
) -> Sums:
    """Return the same for short postings lists, concatenated."""
    total = int(sizes.sum())
    offsets = np.concatenate(([0], np.cumsum(sizes)))[:-1]
    place = np.repeat(begins - offsets, sizes) + np.arange(total)
    weights = np.repeat(vector, sizes).astype(np.float64) * index.weights[place]
    sums = np.bincount(index.ranks[place], weights=weights, minlength=end)
    return sums.astype(np.float64, copy=False)


def _is_offered(entry: IndexedEndpoint) -> bool:
    return entry.offered and entry.endpoint.score_tenths is not None


def _is_candidate(entry: IndexedEndpoint) -> bool:
    endpoint = entry.endpoint
    return (endpoint.public and endpoint.status is Listing.LISTED) or _is_offered(entry)


def _query_ranks(candidates: list[IndexedEndpoint]) -> Int32s:
    """Return the candidates' ranks by score, then price, then id, offered or not."""
    places = np.empty(len(candidates), np.int32)
    places[sorted(range(len(candidates)), key=lambda at: _rank(candidates[at])[2:])] = np.arange(
        len(candidates)
    )
    return places


def _rank(entry: IndexedEndpoint) -> tuple[bool, bool, int, bool, int, str]:
    """Sort key: possible alternatives, then listed endpoints, each by score, price and id; then
    the others.
    """
    endpoint = entry.endpoint
    price = endpoint.price_micro_usd
    return (
        not _is_offered(entry),
        not _is_candidate(entry),
        -(endpoint.score_tenths or 0),
        price is None,
        price or 0,
        endpoint.id,
    )
