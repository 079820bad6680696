"""Postings: for every term, which candidates say it and how much it is of what they say.

Rules:
- a term's rarity counts hosts, not endpoints: what one host says on all of its thousand paths
  counts once, and no host can make a word common or rare by listing more paths;
- a term that a single host says is not `shared`: endpoints of one host are no alternatives to each
  other, so that only searches follow it;
- an endpoint's terms are a direction of unit length in whole steps of 1/SCALE. Integers make every
  sum exact, whatever the order of adding, the machine and the number of endpoints at once;
- candidates are numbered by rank: those that may be alternatives first, best first, so that those
  above a score are a prefix.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from tollgauge.core.similarity.search_terms import WeightedTerms

SCALE: Final = 4_096
FIRST: Final = 4_096
"""How many of the best candidates are searched before all are."""
_RARITY: Final = 64
"""Steps of rarity: 1 + ln(hosts / hosts that say it), in 64ths."""

Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]
Steps = npt.NDArray[np.int16]
Numbers = npt.NDArray[np.uint32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Directions:
    """Endpoints as directions: those of endpoint `n` are `[starts[n], starts[n + 1])`. `term` is
    a place in the vocabulary, `step` its share in 1/SCALE.
    """

    starts: Longs
    term: Ints
    step: Steps


@dataclass(frozen=True, slots=True, kw_only=True)
class Postings:
    """`vocabulary` are the known term ids, ascending, `rarity` theirs, `shared` whether several
    hosts say them; the postings of the term at
    place `t` are `[starts[t], starts[t + 1])`, by rank of the candidate. `key` is
    `t * candidates + rank`: ascending over all postings. `firsts` says where each term's
    postings reach the rank FIRST.
    """

    vocabulary: Numbers
    rarity: Longs
    shared: npt.NDArray[np.bool_]
    starts: Longs
    firsts: Longs
    key: Longs
    rank: Ints
    step: Steps
    candidates: int
    hosts: int

    def ends(self, term: Ints, end: int) -> Longs:
        """Where the postings of some terms reach the rank `end`."""
        if end == self.candidates:
            return self.starts[term + 1]
        if end == FIRST:
            return self.firsts[term]
        return np.searchsorted(self.key, term.astype(np.int64) * self.candidates + end)

    def direction(self, terms: WeightedTerms, *, of_known: bool = False) -> tuple[Ints, Steps]:
        """Places and steps of terms as the index sees them; terms that it does not know are left
        out, but count for the length of the direction unless it is that `of_known` ones.
        """
        ids = np.frombuffer(terms.ids, np.uint32)
        tenths = np.frombuffer(terms.weights, np.uint8).astype(np.int64)
        place = np.searchsorted(self.vocabulary, ids).astype(np.int32)
        place[place == len(self.vocabulary)] = 0
        known = (
            self.vocabulary[place] == ids if len(self.vocabulary) else np.zeros(len(ids), np.bool_)
        )
        weight = tenths * _rarest(self.hosts)
        weight[known] = tenths[known] * self.rarity[place[known]]
        counted = weight[known] if of_known else weight
        length = math.sqrt(int((counted * counted).sum())) or 1.0
        step = np.rint(weight[known] * (SCALE / length)).astype(np.int16)
        return place[known], step


def build(
    terms: Sequence[WeightedTerms], hosts: Sequence[int], *, candidates: int
) -> tuple[Postings, Directions]:
    """The postings of the first `candidates` endpoints and the directions of all. `hosts` are
    numbers, the same for the same host.
    """
    starts = _offsets(np.fromiter(map(len, terms), np.int64, len(terms)))
    ids = np.frombuffer(b"".join(item.ids for item in terms), np.uint32)
    tenths = np.frombuffer(b"".join(item.weights for item in terms), np.uint8)
    vocabulary, places = np.unique(ids, return_inverse=True)
    term: Ints = places.astype(np.int32)
    owner = np.repeat(np.arange(len(terms), dtype=np.int32), np.diff(starts))
    host = np.asarray(hosts, np.int64)
    total = int(host.max(initial=-1)) + 1
    said_by = _hosts_of_terms(term, host[owner], total, len(vocabulary))
    rarity = _rarities(said_by, total)
    step = _steps(tenths * rarity[term], owner, len(terms))
    posted = np.flatnonzero(owner < candidates)
    # Entries are in order of rank already, and a stable sort by term leaves them so within a term.
    posted = posted[np.argsort(term[posted], kind="stable")]
    key = term[posted].astype(np.int64) * candidates + owner[posted]
    every = np.arange(len(vocabulary), dtype=np.int64)
    postings = Postings(
        vocabulary=vocabulary,
        rarity=rarity,
        shared=said_by > 1,
        starts=_offsets(np.bincount(term[posted], minlength=len(vocabulary))),
        firsts=np.searchsorted(key, every * candidates + min(FIRST, candidates)),
        key=key,
        rank=owner[posted],
        step=step[posted],
        candidates=candidates,
        hosts=total,
    )
    return postings, Directions(starts=starts, term=term, step=step)


def _hosts_of_terms(term: Ints, host: Longs, hosts: int, size: int) -> Longs:
    """How many hosts say each term."""
    pairs = np.unique(term.astype(np.int64) * max(hosts, 1) + host)
    return np.bincount(pairs // max(hosts, 1), minlength=size)


def _rarities(said_by: Longs, hosts: int) -> Longs:
    """The rarity of each term, computed once for each number of hosts."""
    numbers, place = np.unique(said_by, return_inverse=True)
    table = np.array([_rarity(int(number), hosts) for number in numbers], np.int64)
    return table[place] if len(table) else np.zeros(0, np.int64)


def _rarity(said_by: int, hosts: int) -> int:
    """The rarity of a term that `said_by` of all `hosts` say."""
    return round(_RARITY * (1 + math.log((hosts + 1) / (said_by + 1))))


def _rarest(hosts: int) -> int:
    """The rarity of a term that the index does not know: its own host alone says it."""
    return _rarity(min(1, hosts), hosts)


def _steps(weight: Longs, owner: Ints, size: int) -> Steps:
    """Weights as steps of unit length. The squares sum below 2**53, so the sums are exact."""
    squares = weight.astype(np.float64) ** 2
    length = np.sqrt(np.bincount(owner, weights=squares, minlength=size))
    length[length == 0] = 1.0
    steps: Steps = np.rint(weight * (SCALE / length)[owner]).astype(np.int16)
    return steps


def _offsets(sizes: Longs) -> Longs:
    """Where parts of some sizes begin, and where the last one ends."""
    return np.concatenate(([0], np.cumsum(sizes, dtype=np.int64)))
