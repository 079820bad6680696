"""Index: the endpoints that are most alike to one, how many better ones there are, and those that
say most of a question.

Rules (docs/similarity.md):
- similarity is the cosine of two endpoints' terms in whole percents, rounded half up;
- below FLOOR percent two endpoints do not serve a similar purpose: among the labelled services,
  chance alone goes so far;
- what is expected to be payable in 24 hours (core/score/forecast) comes before what is not; then
  ranked by similarity, the chance of that, score, price (none advertised comes last) and id;
- endpoints of the same host or with the same payTo are left out;
- only an entry that is `offered` and has a score may be an alternative;
- a question finds every listed entry: ranked by the cosine in whole percents, then score, price
  (none advertised comes last) and id. Words that no entry says do not count. It is shorter than
  what it finds, so its floor is lower, and rises with the best match: see QUESTION_FLOOR.

An index is built from all entries and never changed, so that it can be searched while the next one
is built.
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
from tollgauge.core.similarity.postings import (
    FIRST,
    SCALE,
    Directions,
    Ints,
    Longs,
    Postings,
    Steps,
    build,
)
from tollgauge.core.similarity.search_terms import WeightedTerms

Sums = npt.NDArray[np.float64]

FLOOR: Final = 15
"""The least similarity of a similar purpose, in percent."""
QUESTION_FLOOR: Final = 3
"""The least similarity to a question, in percent."""
QUESTION_SHARE: Final = 10
"""A match has at least a tenth of the best match's similarity to a question."""
COUNT_MAX: Final = 10
"""The most alternatives that are counted for a free snapshot (docs/similarity.md)."""
DELTA_TENTHS: Final = 50
"""How much better than an endpoint its alternatives are by default: 5 points."""
_MANY: Final = 8
"""A term that more than one in so many candidates say is summed by itself, without a list of its
postings' places."""
_SLACK: Final = 64
"""Steps by which rounding may make a direction longer. Each of at most 256 terms is off by half a
step at most, all together by sqrt(256) / 2 = 8; this is more than enough."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """An endpoint and the terms of its texts. `offered`: it may be an alternative."""

    endpoint: RatedEndpoint
    offered: bool
    terms: WeightedTerms


@dataclass(frozen=True, slots=True)
class Match:
    """An endpoint of a similar purpose, and how similar in percent."""

    id: str
    percent: int


class Index:
    """All endpoints by their terms, as of one moment."""

    def __init__(self, entries: Iterable[Entry]) -> None:
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
        self._host: Final[Ints] = np.array(hosts, np.int32)
        self._pay_to: Final[Ints] = np.array(pay_tos, np.int32)
        self._payable: Final[Ints] = np.array(
            [endpoint.payable_24h_permille or 0 for endpoint in endpoints], np.int32
        )
        self.columns: Final = Columns(endpoints)
        self._score: Final = tuple([endpoint.score_tenths or 0 for endpoint in endpoints])
        offered = sum(_offered(entry) for entry in ordered)
        # `searchsorted` needs ascending numbers, and the best score comes first.
        self._negative_scores: Final[Longs] = -np.array(self._score[:offered], np.int64)
        candidates = sum(_is_candidate(entry) for entry in ordered)
        self._places: Final = _places(ordered[:candidates])
        terms = [entry.terms for entry in ordered]
        postings, directions = build(terms, hosts, candidates=candidates)
        self._postings: Final[Postings] = postings
        self._directions: Final[Directions] = directions

    def search(
        self, terms: WeightedTerms, *, host: str, pay_to: str | None, least_tenths: int, limit: int
    ) -> tuple[Match, ...]:
        """The `limit` best endpoints of a similar purpose with a score of `least_tenths` or more,
        best first, without those of this host and of this payTo.
        """
        term, step = self._shared(*self._postings.direction(terms))
        rank, percent = self._alike(term, step, end=self._above(least_tenths))
        others = (self._host[rank] != self._hosts.get(host, -2)) & (
            self._pay_to[rank] != self._pay_tos.get(pay_to or "", -2)
        )
        rank, percent = rank[others], percent[others]
        payable = self._payable[rank]
        best = np.lexsort((rank, -payable, -percent, payable < EXPECTED_PERMILLE))[:limit]
        return tuple(Match(self._ids[rank[at]], int(percent[at])) for at in best)

    def answers(self, terms: WeightedTerms, wanted: Filter, *, limit: int) -> tuple[Match, ...]:
        """The `limit` listed endpoints that say most of a question and that a filter admits, best
        first.
        """
        end = self._postings.candidates
        if not end:
            return ()
        dots = _dots(self._postings, *self._postings.direction(terms, of_known=True))
        dots[~self.columns.matching(wanted)[:end]] = 0
        least = _least_shown(dots, limit)
        above = np.flatnonzero(dots >= _of_percent(least + 1))
        tied = np.flatnonzero((dots >= _of_percent(least)) & (dots < _of_percent(least + 1)))
        # The places of what is offered ascend with its rank, and so do those of the rest.
        rest = int(np.searchsorted(tied, len(self._negative_scores)))
        rank = np.concatenate((above, tied[:rest][:limit], tied[rest:][:limit]))
        percent = _percents(dots[rank].astype(np.int64))
        best = np.argsort((100 - percent) * self.size + self._places[rank])[:limit]
        return tuple(Match(self._ids[rank[at]], int(percent[at])) for at in best)

    def counts(self, first: int, last: int) -> list[tuple[str, int]]:
        """(id, number of better alternatives) of the endpoints at places `first` to `last`, the
        last excluded; at most COUNT_MAX each. The whole index is `counts(0, index.size)`.
        """
        return [(self._ids[at], self._count(at)) for at in range(first, min(last, self.size))]

    def _count(self, at: int) -> int:
        """The better alternatives of one endpoint: of the FIRST candidates, of all if need be."""
        own = slice(self._directions.starts[at], self._directions.starts[at + 1])
        term, step = self._shared(self._directions.term[own], self._directions.step[own])
        end = self._above(self._score[at] + DELTA_TENTHS)
        count = 0
        for limit in (min(end, FIRST), end):
            count = self._others(at, self._alike(term, step, end=limit)[0])
            if count >= COUNT_MAX or limit == end:
                break
        return min(count, COUNT_MAX)

    def _others(self, at: int, rank: Longs) -> int:
        """How many of the candidates at some ranks have another host and another payTo."""
        pay_to = self._pay_to[at]
        others = self._host[rank] != self._host[at]
        if pay_to >= 0:
            others &= self._pay_to[rank] != pay_to
        return int(np.count_nonzero(others))

    def _above(self, least_tenths: int) -> int:
        """How many candidates have at least this score."""
        return int(np.searchsorted(self._negative_scores, -least_tenths, side="right"))

    def _shared(self, term: Ints, step: Steps) -> tuple[Ints, Steps]:
        """The terms of a direction that several hosts say."""
        shared = self._postings.shared[term]
        return term[shared], step[shared]

    def _alike(self, term: Ints, step: Steps, *, end: int) -> tuple[Longs, Longs]:
        """The candidates below the rank `end` with at least FLOOR percent, ascending, and their
        percents.

        The common terms together cannot bring a candidate to the floor, so candidates come from the
        rare ones, and what the common terms add is computed for those alone.
        """
        if not end or not len(term):
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        posted = self._postings
        begins = posted.starts[term]
        sizes = posted.ends(term, end) - begins
        order = np.argsort(-sizes, kind="stable")
        tail = np.sqrt(np.cumsum(step[order].astype(np.float64) ** 2))
        common = order[: int(np.searchsorted(tail, SCALE * FLOOR / 300))]
        rare = order[len(common) :]
        left = float(tail[len(common) - 1]) * (SCALE + _SLACK) if len(common) else 0.0
        sums = _sums(posted, begins[rare], sizes[rare], step[rare], end)
        least = _of_percent(FLOOR)
        ranks = np.flatnonzero(sums >= least - left)
        dots = sums[ranks]
        if len(common):
            dots += self._common(ranks, term[common], step[common], sizes[common], begins[common])
        alike = dots >= least
        return ranks[alike], _percents(dots[alike].astype(np.int64))

    def _common(self, ranks: Longs, term: Ints, step: Steps, sizes: Longs, begins: Longs) -> Sums:
        """What common terms add to the candidates at some ranks: searched one by one for few
        candidates, summed over all postings for many.
        """
        posted = self._postings
        if len(ranks) * len(term) * 4 > int(sizes.sum()):
            return _sums(posted, begins, sizes, step, posted.candidates)[ranks]
        keys = term.astype(np.int64)[:, None] * posted.candidates + ranks
        place = np.minimum(np.searchsorted(posted.key, keys), len(posted.key) - 1)
        present = posted.key[place] == keys
        added: Sums = ((posted.step[place] * present).astype(np.float64) * step[:, None]).sum(
            axis=0
        )
        return added


def _of_percent(percent: int) -> int:
    """The least sum that rounds to so many percent."""
    return -(-SCALE * SCALE * (2 * percent - 1) // 200)


def _percents(dots: Longs) -> Longs:
    """Sums as whole percents, rounded half up; rounding of steps may bring one above 100."""
    return np.minimum((200 * dots + SCALE * SCALE) // (2 * SCALE * SCALE), 100)


def _least_shown(dots: Ints, limit: int) -> int:
    """How alike the `limit` best answers to a question are at least, in percent, and near the best
    one: what is less alike need not be put in order.
    """
    best = int(_percents(dots.max().astype(np.int64)))
    low, high = max(QUESTION_FLOOR, -(-best // QUESTION_SHARE)), best
    while low < high:
        middle = (low + high + 1) // 2
        if np.count_nonzero(dots >= _of_percent(middle)) < limit:
            high = middle - 1
        else:
            low = middle
    return low


def _dots(posted: Postings, term: Ints, step: Steps) -> Ints:
    """For every candidate, the sum over its postings of some terms."""
    dots = np.zeros(posted.candidates, np.int32)
    for begin, end, weight in zip(posted.starts[term], posted.starts[term + 1], step, strict=True):
        weights = np.multiply(posted.step[begin:end], weight, dtype=np.int32)
        if end - begin == posted.candidates:
            dots += weights
        else:
            dots[posted.rank[begin:end]] += weights
    return dots


def _sums(posted: Postings, begins: Longs, sizes: Longs, step: Steps, end: int) -> Sums:
    """For every rank below `end`, the sum over some terms' postings. Sums of whole numbers below
    2**53: exact in any order.
    """
    many = sizes * _MANY > end
    few = ~many
    sums = _sums_of_few(posted, begins[few], sizes[few], step[few], end)
    for begin, size, weight in zip(begins[many], sizes[many], step[many], strict=True):
        of_term = slice(begin, begin + size)
        weights = posted.step[of_term] * np.float64(weight)
        if size < end:
            summed = np.bincount(posted.rank[of_term], weights=weights, minlength=end)
            weights = summed.astype(np.float64, copy=False)
        sums += weights
    return sums


def _sums_of_few(posted: Postings, begins: Longs, sizes: Longs, step: Steps, end: int) -> Sums:
    """The same of terms that few candidates say, all at once."""
    total = int(sizes.sum())
    offsets = np.concatenate(([0], np.cumsum(sizes)))[:-1]
    place = np.repeat(begins - offsets, sizes) + np.arange(total)
    weights = np.repeat(step, sizes).astype(np.float64) * posted.step[place]
    sums = np.bincount(posted.rank[place], weights=weights, minlength=end)
    return sums.astype(np.float64, copy=False)


def _offered(entry: Entry) -> bool:
    return entry.offered and entry.endpoint.score_tenths is not None


def _is_candidate(entry: Entry) -> bool:
    endpoint = entry.endpoint
    return (endpoint.public and endpoint.status is Listing.LISTED) or _offered(entry)


def _places(candidates: list[Entry]) -> Ints:
    """The places of candidates by score, then price, then id, offered or not."""
    places = np.empty(len(candidates), np.int32)
    places[sorted(range(len(candidates)), key=lambda at: _rank(candidates[at])[2:])] = np.arange(
        len(candidates)
    )
    return places


def _rank(entry: Entry) -> tuple[bool, bool, int, bool, int, str]:
    """What may be an alternative first, then what is listed, each by score, then price, then id;
    the others after them.
    """
    endpoint = entry.endpoint
    price = endpoint.price_micro_usd
    return (
        not _offered(entry),
        not _is_candidate(entry),
        -(endpoint.score_tenths or 0),
        price is None,
        price or 0,
        endpoint.id,
    )
