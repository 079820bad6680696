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
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from tollgauge.core.similarity.tokenizer import WeightedTerms

SCALE: Final = 4_096  # the length of a document vector
IDF_SCALE: Final = 64  # idf = 1 + ln((hosts + 1) / (hosts with the term + 1)), in 64ths

PIVOT_SCALE: Final = 1_024
PIVOT_TENTHS: Final = 3  # share of a document's own length in its normalisation for searches

Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]
VectorWeights = npt.NDArray[np.int16]


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentVectors:
    """Endpoints as sparse vectors in CSR layout: `indices` and `weights` of endpoint `n` are at
    `[indptr[n], indptr[n + 1])`. An index is a position in the vocabulary.
    """

    indptr: Int64s
    indices: Int32s
    weights: VectorWeights


@dataclass(frozen=True, slots=True, kw_only=True)
class InvertedIndex:
    """Postings of the candidates: those of term `t` are at `[indptr[t], indptr[t + 1])`, ascending
    by rank.

    Attributes:
        vocabulary: Term ids, ascending.
        idf: Inverse document frequency of each term, in 1 / IDF_SCALE.
        shared: Whether several hosts use the term.
        keys: `t * candidates + rank` of each posting, ascending over all postings.
        search_factors: By rank, the factor of a query's cosine in 1 / PIVOT_SCALE: pivoted length
            normalisation (Singhal, Buckley and Mitra 1996). Without it, an endpoint whose whole
            text is one word of the query would come first.
    """

    vocabulary: npt.NDArray[np.uint32]
    idf: Int64s
    shared: npt.NDArray[np.bool_]
    indptr: Int64s
    keys: Int64s
    ranks: Int32s
    weights: VectorWeights
    search_factors: Int64s
    candidates: int
    hosts: int

    def ends(self, terms: Int32s, end: int) -> Int64s:
        """Return where the postings of some terms reach the rank `end`."""
        if end == self.candidates:
            return self.indptr[terms + 1]
        return np.searchsorted(self.keys, terms.astype(np.int64) * self.candidates + end)

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
        weights = frequency * _idf(min(1, self.hosts), self.hosts)
        weights[known] = frequency[known] * self.idf[position[known]]
        length = math.sqrt(int((weights * weights).sum())) or 1.0
        scaled = np.rint(weights[known] * (SCALE / length)).astype(np.int16)
        return position[known], scaled


def build_index(
    terms: Sequence[WeightedTerms], hosts: Sequence[int], *, candidates: int
) -> tuple[InvertedIndex, DocumentVectors]:
    """Build the postings of the first `candidates` endpoints and the vectors of all.

    `hosts` has a number per endpoint, the same for endpoints of the same host.
    """
    indptr = _offsets(np.fromiter(map(len, terms), np.int64, len(terms)))
    ids = np.frombuffer(b"".join(item.ids for item in terms), np.uint32)
    frequency = np.frombuffer(b"".join(item.weights for item in terms), np.uint8)
    vocabulary, positions = np.unique(ids, return_inverse=True)
    indices: Int32s = positions.astype(np.int32)
    del ids, positions  # 12 bytes per term of each endpoint, at the peak of a rebuild
    document = np.repeat(np.arange(len(terms), dtype=np.int32), np.diff(indptr))
    host = np.asarray(hosts, np.int64)
    host_count = int(host.max(initial=-1)) + 1
    document_frequency = _document_frequency(indices, host[document], host_count, len(vocabulary))
    idf = np.array([_idf(int(df), host_count) for df in document_frequency], np.int64)
    weights, search_factors = _normalise(frequency * idf[indices], document, len(terms))
    posted = np.flatnonzero(document < candidates)
    # Documents are in order of rank, and a stable sort by term keeps that order within a term.
    posted = posted[np.argsort(indices[posted], kind="stable")]
    index = InvertedIndex(
        vocabulary=vocabulary,
        idf=idf,
        shared=document_frequency > 1,
        indptr=_offsets(np.bincount(indices[posted], minlength=len(vocabulary))),
        keys=indices[posted].astype(np.int64) * candidates + document[posted],
        ranks=document[posted],
        weights=weights[posted],
        search_factors=search_factors[:candidates],
        candidates=candidates,
        hosts=host_count,
    )
    return index, DocumentVectors(indptr=indptr, indices=indices, weights=weights)


def _document_frequency(indices: Int32s, host: Int64s, hosts: int, size: int) -> Int64s:
    """Return the number of hosts with each term."""
    pairs = np.unique(indices.astype(np.int64) * max(hosts, 1) + host)
    return np.bincount(pairs // max(hosts, 1), minlength=size)


def _idf(document_frequency: int, hosts: int) -> int:
    return round(IDF_SCALE * (1 + math.log((hosts + 1) / (document_frequency + 1))))


def _normalise(weights: Int64s, document: Int32s, size: int) -> tuple[VectorWeights, Int64s]:
    """Scale each document's weights to the length SCALE; return them and the search factors."""
    squares = weights.astype(np.float64) ** 2  # their sums are below 2**53, so they are exact
    length = np.sqrt(np.bincount(document, weights=squares, minlength=size))
    length[length == 0] = 1.0
    scaled: VectorWeights = np.rint(weights * (SCALE / length)[document]).astype(np.int16)
    whole = np.rint(length).astype(np.int64)
    mean = int(whole.sum()) // max(size, 1)
    factors = PIVOT_SCALE * 10 * whole // ((10 - PIVOT_TENTHS) * mean + PIVOT_TENTHS * whole)
    return scaled, factors


def _offsets(sizes: Int64s) -> Int64s:
    """Return where consecutive parts of some sizes begin, and where the last one ends."""
    return np.concatenate(([0], np.cumsum(sizes, dtype=np.int64)))
