"""Inverted index with tf-idf weights in integer arithmetic.

- Document frequency counts hosts, not endpoints, so that a host with a thousand paths cannot make a
  term common or rare. A term of a single host is not `shared`: endpoints of one host are not
  alternatives to each other, so only searches use it.
- Weights are L2-normalised and scaled to integers: sums do not depend on the order of addition, on
  the machine or on the number of endpoints processed together.
- Candidates are numbered by rank, best first, so those above a score are a prefix of each postings
  list.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from tollgauge.core.similarity.tokenizer import TermTable, WeightedTerms

SCALE: Final = 4_096  # the length of a document vector
IDF_SCALE: Final = 64  # idf = 1 + ln((hosts + 1) / (hosts with the term + 1)), in 64ths

PIVOT_SCALE: Final = 1_024
PIVOT_TENTHS: Final = 3  # share of a document's own length in its normalisation for searches
_BLOCK: Final = 2_048  # documents that are processed together

Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]
VectorWeights = npt.NDArray[np.int16]


@dataclass(frozen=True, slots=True, kw_only=True)
class InvertedIndex:
    """Postings of the candidates: those of term `t` are at `[indptr[t], indptr[t + 1])`, ascending
    by rank.

    Attributes:
        vocabulary: Term ids, ascending.
        idf: Inverse document frequency of each term, in 1 / IDF_SCALE.
        shared: Whether several hosts use the term.
        search_factors: By rank, the factor of a query's cosine in 1 / PIVOT_SCALE: pivoted length
            normalisation (Singhal, Buckley and Mitra 1996). Without it, an endpoint whose whole
            text is one word of the query would come first.
    """

    vocabulary: npt.NDArray[np.uint32]
    idf: npt.NDArray[np.int16]
    shared: npt.NDArray[np.bool_]
    indptr: Int32s
    ranks: Int32s
    weights: VectorWeights
    search_factors: Int64s
    candidates: int
    hosts: int

    def ends(self, terms: Int32s, end: int) -> Int32s:
        """Return where the postings of some terms reach the rank `end`."""
        last = self.indptr[terms + 1]
        if end == self.candidates:
            return last
        ranks, parts = self.ranks.data, zip(self.indptr[terms], last, strict=True)
        return np.array([bisect_left(ranks, end, *part) for part in parts], np.int32)

    def vectorize(self, terms: WeightedTerms) -> tuple[Int32s, VectorWeights]:
        """Return the known terms as positions in the vocabulary, with their weights.

        Unknown terms have no position but count for the length of the vector.
        """
        ids = np.frombuffer(terms.ids, np.uint32)
        frequency = np.frombuffer(terms.weights, np.uint8).astype(np.int64)
        position = np.searchsorted(self.vocabulary, ids).astype(np.int32)
        position[position == len(self.vocabulary)] = 0
        known = (
            self.vocabulary[position] == ids
            if len(self.vocabulary)
            else np.zeros(len(ids), np.bool_)
        )
        weights = frequency * _compute_idf(min(1, self.hosts), self.hosts)
        weights[known] = frequency[known] * self.idf[position[known]]
        length = math.sqrt(int((weights * weights).sum())) or 1.0
        scaled = np.rint(weights[known] * (SCALE / length)).astype(np.int16)
        return position[known], scaled


def build_index(
    table: TermTable, order: Int64s, hosts: Int32s, *, candidates: int
) -> InvertedIndex:
    """Build the postings of the first `candidates` endpoints of an order.

    Args:
        table: The terms of all endpoints.
        order: Endpoints by rank: their indices in the table.
        hosts: A number per endpoint, the same for endpoints of the same host.
        candidates: Number of endpoints with postings.
    """
    vocabulary, document_frequency, host_count = _count_hosts(table, hosts)
    size = len(vocabulary)
    idf_by_frequency = [_compute_idf(frequency, host_count) for frequency in range(host_count + 1)]
    idf = np.array(idf_by_frequency, np.int16)[document_frequency]
    counts = np.zeros(size, np.int64)
    for begin in range(0, candidates, _BLOCK):
        ids = _read(table, order[begin : min(begin + _BLOCK, candidates)])[0]
        counts += np.bincount(np.searchsorted(vocabulary, ids), minlength=size)
    indptr = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
    ranks, weights = np.empty(indptr[-1], np.int32), np.empty(indptr[-1], np.int16)
    lengths, free = np.zeros(len(order), np.int64), indptr[:-1].copy()
    # A counting sort by term, in blocks: an array with 8 bytes per term of each endpoint has 60 MB.
    for begin in range(0, len(order), _BLOCK):
        block = order[begin : begin + _BLOCK]
        ids, frequency, document = _read(table, block)
        indices = np.searchsorted(vocabulary, ids)
        scaled, of_block = _normalise(
            frequency.astype(np.int64) * idf[indices], document, len(block)
        )
        lengths[begin : begin + _BLOCK] = of_block
        posted = int(np.searchsorted(document, candidates - begin))
        # Documents are in order of rank, and a stable sort by term keeps that order within a term.
        posted_by_term = np.argsort(indices[:posted], kind="stable")
        terms = indices[posted_by_term]
        position = free[terms] + np.arange(posted) - np.searchsorted(terms, terms)
        ranks[position] = begin + document[posted_by_term]
        weights[position] = scaled[posted_by_term]
        free += np.bincount(terms, minlength=size)
    mean = int(lengths.sum()) // max(len(lengths), 1)
    factors = PIVOT_SCALE * 10 * lengths // ((10 - PIVOT_TENTHS) * mean + PIVOT_TENTHS * lengths)
    return InvertedIndex(
        vocabulary=vocabulary,
        idf=idf,
        shared=document_frequency > 1,
        indptr=indptr,
        ranks=ranks,
        weights=weights,
        search_factors=factors[:candidates],
        candidates=candidates,
        hosts=host_count,
    )


def _read(
    table: TermTable, documents: Int64s
) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint8], Int64s]:
    """Return the terms of some endpoints, their weights, and the number of each term's document."""
    ends: Int64s = np.frombuffer(table.ends, np.int64)
    begins = ends[documents]
    sizes = ends[documents + 1] - begins
    document = np.repeat(np.arange(len(documents)), sizes)
    at = (begins - np.cumsum(sizes) + sizes)[document] + np.arange(len(document))
    return (
        np.frombuffer(table.ids, np.uint32)[at],
        np.frombuffer(table.weights, np.uint8)[at],
        document,
    )


def _count_hosts(table: TermTable, hosts: Int32s) -> tuple[npt.NDArray[np.uint32], Int64s, int]:
    """Return all terms, ascending, the number of hosts with each, and the number of hosts."""
    by_host = np.argsort(hosts, kind="stable")
    first_of_host = np.flatnonzero(np.diff(hosts[by_host], prepend=-1))
    groups = np.split(by_host, first_of_host)
    # Each host's terms without repeats, sorted in place: np.unique would need four times the space.
    used = np.concatenate([np.unique(_read(table, group)[0]) for group in groups])
    used.sort()
    first = np.flatnonzero(np.concatenate(([True], used[1:] != used[:-1]))[: len(used)])
    return used[first], np.diff(first, append=len(used)), len(first_of_host)


def _compute_idf(document_frequency: int, hosts: int) -> int:
    return round(IDF_SCALE * (1 + math.log((hosts + 1) / (document_frequency + 1))))


def _normalise(weights: Int64s, document: Int64s, size: int) -> tuple[VectorWeights, Int64s]:
    """Scale each document's weights to the length SCALE; return them and the rounded lengths."""
    squares = weights.astype(np.float64) ** 2  # their sums are below 2**53, so they are exact
    length = np.sqrt(np.bincount(document, weights=squares, minlength=size))
    length[length == 0] = 1.0
    scaled: VectorWeights = np.rint(weights * (SCALE / length)[document]).astype(np.int16)
    return scaled, np.rint(length).astype(np.int64)
