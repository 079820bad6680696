"""Clusters: which payTo addresses are taken for one seller.

Rules, over the transfers of a window:
- payTo addresses that send to each other, straight or in a circle, are one. A gift joins nobody to
  anybody, because the receiver cannot refuse it: a few cents could make one seller of those who
  never met, and strangers of their buyers;
- two that have at least 5 payers each, and share at least half of those that either has (Jaccard),
  are one.
This is transitive, and amounts play no part, so more volume never divides a cluster. PayTo
addresses and payers are numbers here; what a cluster means for the score is core/score/organic's
rule.
"""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

ALIKE_PAYERS: Final = 5
"""With fewer payers, sharing them says nothing."""

Arrows = Mapping[int, Collection[int]]
"""From each payTo to those that it sent money to."""


class Clusters:
    """A disjoint-set forest of payTo addresses 0 to `count` - 1."""

    def __init__(self, count: int) -> None:
        self._parents = list(range(count))

    def of(self, pay_to: int) -> int:
        """The number of a payTo's cluster: that of its first member."""
        parents = self._parents
        while parents[pay_to] != pay_to:
            parents[pay_to] = parents[parents[pay_to]]
            pay_to = parents[pay_to]
        return pay_to

    def join(self, one: int, other: int) -> None:
        """Make the clusters of two addresses one."""
        first, second = sorted((self.of(one), self.of(other)))
        self._parents[second] = first

    def join_circles(self, sent: Arrows) -> None:
        """Join who sent money to each other, straight or in a circle: the strongly connected
        components, by two searches (Kosaraju and Sharir, 1981).
        """
        backwards: dict[int, list[int]] = defaultdict(list)
        for giver, takers in sent.items():
            for taker in takers:
                backwards[taker].append(giver)
        seen: set[int] = set()
        finished = [pay_to for start in sent for pay_to in _search(sent, start, seen)]
        seen = set()
        for start in reversed(finished):
            for pay_to in _search(backwards, start, seen):
                self.join(start, pay_to)

    def join_alike(self, payers: Sequence[Sequence[int]]) -> None:
        """Join who share at least half of their payers. `payers` are those of each address, each
        once, in ascending order.
        """
        members = self._first_of_each_set(payers)
        frequency = Counter(payer for pay_to in members for payer in payers[pay_to])
        # Two sets that share half of their union share one of the rarest half of each (prefix
        # filtering: Chaudhuri, Ganti and Kaushik, 2006), so only those are compared.
        by_payer: dict[int, list[int]] = defaultdict(list)
        for pay_to in members:
            ids = payers[pay_to]
            rarest = sorted(ids, key=lambda payer: (frequency[payer], payer))
            shared = [payer for payer in rarest[: len(ids) // 2 + 1] if frequency[payer] > 1]
            for other in set().union(*(by_payer[payer] for payer in shared)):
                if self.of(other) != self.of(pay_to) and _alike(ids, payers[other]):
                    self.join(other, pay_to)
            for payer in shared:
                by_payer[payer].append(pay_to)

    def _first_of_each_set(self, payers: Sequence[Sequence[int]]) -> list[int]:
        """One address for each set of enough payers; all that have the same set are joined."""
        first: dict[bytes, int] = {}
        for pay_to, ids in enumerate(payers):
            if len(ids) >= ALIKE_PAYERS:
                self.join(first.setdefault(array("Q", ids).tobytes(), pay_to), pay_to)
        return list(first.values())


def _search(arrows: Arrows, start: int, seen: set[int]) -> Iterator[int]:
    """Depth first: the addresses that can be reached and were not `seen` yet, in postorder."""
    if start in seen:
        return
    seen.add(start)
    stack = [(start, iter(arrows.get(start, ())))]
    while stack:
        pay_to, takers = stack[-1]
        taker = next((taker for taker in takers if taker not in seen), None)
        if taker is None:
            stack.pop()
            yield pay_to
        else:
            seen.add(taker)
            stack.append((taker, iter(arrows.get(taker, ()))))


def _alike(one: Sequence[int], other: Sequence[int]) -> bool:
    """Whether two sets share at least half of their union."""
    small, large = sorted((one, other), key=len)
    if 2 * len(small) < len(large):
        return False
    shared = len(set(small).intersection(large))
    return 2 * shared >= len(one) + len(other) - shared
