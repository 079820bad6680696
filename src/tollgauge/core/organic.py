"""The organic interval: how much of what a payTo takes in comes from independent buyers.

Nobody can tell from transfers who owns a wallet, so there are two readings, both from the indexed
transfers of one chain and window alone; `intervals` states the rules. Which payTo addresses are one
seller is core/clusters', what a payTo's own flows tell core/signals/volume's.

The flows are read twice, one payTo at a time. What is kept between: for each payer the days he paid
on and the payTo addresses where he pays most, for each payTo the numbers of its payers.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from heapq import heappush, heappushpop
from itertools import groupby
from operator import attrgetter
from typing import Final, NamedTuple

from tollgauge.core.clusters import Clusters
from tollgauge.core.evidence import ChainSums, PayerSums
from tollgauge.core.signals.volume import WHOLE_WEIGHT, Flow, flow_sums, payer_sums
from tollgauge.core.units import DAY_MS, HOUR_MS

WHOLE_OUTSIDE: Final = 60_000_000
"""Outside spending in a window (atomic USDC) that makes a payer count whole: $60, $2 a day.

It is what makes weight expensive. At the low end, equal payers of weight w count as w effective
payers each, and no payer adds more than his weight to those that are there: for a volume u beside
payers with the sums a and b, (a + wu)^2 / (b + wu^2) is at most a^2 / b + w. The activity is at
most what the table of payers gives, whose steepest part is 12.5 for one payer, 1.875 points of a
score where activity weighs 15. So a point takes outside spending of at least $60 / 1.875 = $32 a
window: more than $1 a day, as a window touches at most 31 days. Ten points more are 3 that cost
nothing (the score may lie 20 above the low end) and 7 for at least $7 a day.
"""
CREDIT: Final = 3
"""A payer's credited volume is at most so many times his outside spending."""
LEAST_VOLUME: Final = 10_000
"""Less than this in a window counts nothing: one cent."""
SEEN_DAYS: Final = 2
KNOWN_MS: Final = 7 * DAY_MS
BATCH: Final = 5
"""So many payers who first paid within one hour, at one payTo, were born in a batch."""
MOST_OUTLETS: Final = 12
"""What a payer spends is known of so many payTo addresses, where he paid most."""


class First(NamedTuple):
    """The first payment that is known of a payer: to which payTo, and when (ms UTC)."""

    payer: bytes
    pay_to: bytes
    at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Market:
    """The window of a chain that ends `as_of`. `flows` reads each payTo with its flows by
    counterparty, the same whenever it is called. `firsts` are in the order of payTo and time.
    `indexed_from` says since when (ms UTC) the transfers of a payTo are known.
    """

    as_of: int
    flows: Callable[[], Iterable[tuple[bytes, Mapping[bytes, Flow]]]]
    firsts: Iterable[First]
    indexed_from: Mapping[bytes, int]


def intervals(market: Market) -> Iterator[tuple[bytes, ChainSums]]:
    """Who pays a payTo is judged from the transfers of all indexed payTo addresses of its chain.

    **Clusters.** PayTo addresses are one seller if they send money to each other, straight or in a
    circle, or if they share at least half of their payers, with at least 5 each. Payments within a
    cluster are left out. A transfer to a payer, from any address of the cluster or from a payTo
    that it sends money to, cancels the same amount of his volume. A payer's volume below $0.01
    counts nothing.

    **High end.** Everybody else, without payers born in a batch: at least 5 whose first indexed
    payments fall into one hour and to one payTo, which was indexed for 7 days before.

    **Low end.** A payer weighs min(1, outside spending / $60), if he was seen on at least 2 days
    and is known for at least 7, else nothing. His credited volume u is at most 3 times his outside
    spending. The volume is Σwu; effective payers are (Σwu)² / Σwu², never more than Σw.

    **Outside spending** is what he paid in other clusters, at the 12 addresses where he pays most,
    less what payTo addresses sent him. What all payers of a seller spend at another address counts
    only up to what others spend there: a second shop that lives on the same wallets is no outside.
    """
    census = _read(market)
    census.settle()
    for pay_to, flows in market.flows():
        yield pay_to, _sums(census, pay_to, flows)


@dataclass(slots=True)
class _Census:
    """What is known of all payTo addresses and payers, by their numbers in the order they were met.

    Of payers: `days` (bits), `spent` (the largest amounts, each with a payTo), whether they are
    `known` long enough and `born` in a batch. Of payTo addresses: their `customers` and their
    `income`, since `settle` without what their own cluster pays. `sent` is what payTo addresses
    sent to an address.

    Of clusters: their `members`, the payTo addresses (`takers`) that they sent money to, and the
    `outside`: what their payers spend at others together, and how much of that counts. It is kept
    for clusters of several alone.
    """

    pay_tos: dict[bytes, int] = field(default_factory=dict)
    addresses: list[bytes] = field(default_factory=list)
    income: list[int] = field(default_factory=list)
    customers: list[array[int]] = field(default_factory=list)
    payers: dict[bytes, int] = field(default_factory=dict)
    days: list[int] = field(default_factory=list)
    spent: list[list[tuple[int, int]]] = field(default_factory=list)
    known: bytearray = field(default_factory=bytearray)
    born: bytearray = field(default_factory=bytearray)
    sent: dict[bytes, dict[int, int]] = field(default_factory=dict)
    clusters: Clusters = field(default_factory=lambda: Clusters(0))
    members: dict[int, list[int]] = field(default_factory=dict)
    takers: dict[int, set[int]] = field(default_factory=dict)
    outside: dict[int, Mapping[int, tuple[int, int]]] = field(default_factory=dict)

    def add(self, pay_to: bytes, flows: Mapping[bytes, Flow]) -> None:
        """Read what one payTo took in and sent."""
        number = self.pay_tos.setdefault(pay_to, len(self.pay_tos))
        self.addresses.append(pay_to)
        customers, income = array("Q"), 0
        for other, flow in flows.items():
            if flow.returned:
                self.sent.setdefault(other, {})[number] = flow.returned
            if other == pay_to or flow.paid < LEAST_VOLUME:
                continue
            payer = self._payer(other)
            customers.append(payer)
            self.days[payer] |= flow.days
            keep = heappush if len(self.spent[payer]) < MOST_OUTLETS else heappushpop
            keep(self.spent[payer], (flow.paid, number))
            income += max(0, flow.paid - flow.returned)
        self.customers.append(array("Q", sorted(customers)))
        self.income.append(income)

    def _payer(self, address: bytes) -> int:
        number = self.payers.get(address)
        if number is None:
            number = self.payers[address] = len(self.payers)
            self.days.append(0)
            self.spent.append([])
            self.known.append(False)
            self.born.append(False)
        return number

    def settle(self) -> None:
        """Form the clusters, once everything is read."""
        self._form_clusters()
        for number in range(len(self.income)):
            self.members.setdefault(self.clusters.of(number), []).append(number)
        for address, taker in self.pay_tos.items():
            own = self.clusters.of(taker)
            for giver, amount in self.sent.get(address, {}).items():
                if self.clusters.of(giver) == own:
                    self.income[taker] -= amount

    def _form_clusters(self) -> None:
        sent: dict[int, list[int]] = {}
        for address, taker in self.pay_tos.items():
            for giver in self.sent.get(address, {}):
                sent.setdefault(giver, []).append(taker)
        self.clusters = Clusters(len(self.pay_tos))
        self.clusters.join_circles(sent)
        self.clusters.join_alike(self.customers)
        for giver, takers in sent.items():
            self.takers.setdefault(self.clusters.of(giver), set()).update(takers)

    def outside_of(self, cluster: int) -> Mapping[int, tuple[int, int]]:
        """For each payTo of other clusters, what all payers of a cluster spend there together, and
        how much of that counts: no more than others spend there.
        """
        known = self.outside.get(cluster)
        if known is not None:
            return known
        members = self.members[cluster]
        payers = set().union(*(self.customers[number] for number in members))
        addresses = (self.addresses[number] for number in members)
        payers |= {self.payers[address] for address in addresses if address in self.payers}
        together: Counter[int] = Counter()
        for payer in payers:
            for paid, pay_to in self.spent[payer]:
                if self.clusters.of(pay_to) != cluster:
                    together[pay_to] += paid
        outside = {
            pay_to: (spent, min(spent, max(0, self.income[pay_to] - spent)))
            for pay_to, spent in together.items()
        }
        if len(members) > 1:
            self.outside[cluster] = outside
        return outside


def _read(market: Market) -> _Census:
    census = _Census()
    for pay_to, flows in market.flows():
        census.add(pay_to, flows)
    for pay_to, group in groupby(market.firsts, attrgetter("pay_to")):
        births = list(group)
        since = market.indexed_from.get(pay_to, market.as_of) + KNOWN_MS
        for place, first in enumerate(births):
            payer = census.payers.get(first.payer)
            if payer is None:
                continue
            census.known[payer] = first.at <= market.as_of - KNOWN_MS
            census.born[payer] = since <= first.at and _in_batch(births, place)
    return census


def _in_batch(births: list[First], place: int) -> bool:
    """Whether a birth is one of BATCH of the same payTo within an hour; they are in order."""
    begins = range(max(0, place - BATCH + 1), min(place, len(births) - BATCH) + 1)
    return any(births[begin + BATCH - 1].at - births[begin].at < HOUR_MS for begin in begins)


def _sums(census: _Census, pay_to: bytes, flows: Mapping[bytes, Flow]) -> ChainSums:
    cluster = census.clusters.of(census.pay_tos[pay_to])
    siblings = {*census.members[cluster]} - {census.pay_tos[pay_to]}
    givers = siblings | (census.takers.get(cluster, set()) - {census.pay_tos[pay_to]})
    outside = census.outside_of(cluster)
    elsewhere: set[int] = set()
    high: list[int] = []
    low: list[tuple[int, int]] = []
    for address, flow in flows.items():
        if flow.paid < LEAST_VOLUME or address == pay_to:
            continue
        if siblings and census.pay_tos.get(address) in siblings:
            continue
        payer = census.payers[address]
        volume = flow.paid - flow.returned - _returned_by(census, givers, address)
        if volume < LEAST_VOLUME:
            continue
        elsewhere.update(
            census.clusters.of(other) for _, other in census.spent[payer] if other in outside
        )
        if not census.born[payer]:
            high.append(volume)
        if census.known[payer] and census.days[payer].bit_count() >= SEEN_DAYS:
            spent = _outside(census, address, outside)
            if weight := min(WHOLE_WEIGHT, WHOLE_WEIGHT * spent // WHOLE_OUTSIDE):
                low.append((weight, min(volume, CREDIT * spent)))
    sums = flow_sums(flows, pay_to)
    return replace(sums, clusters=len(elsewhere), high=payer_sums(high), low=_weighed(low))


def _returned_by(census: _Census, givers: set[int], address: bytes) -> int:
    """What some payTo addresses sent a payer, beyond what he paid each of them."""
    sent = census.sent.get(address, {})
    amounts = {number: amount for number, amount in sent.items() if number in givers}
    if amounts:
        for paid, number in census.spent[census.payers[address]]:
            if number in amounts:
                amounts[number] = max(0, amounts[number] - paid)
    return sum(amounts.values())


def _outside(census: _Census, address: bytes, outside: Mapping[int, tuple[int, int]]) -> int:
    """What a payer spends outside of a cluster, as far as it counts."""
    spent = 0
    for paid, pay_to in census.spent[census.payers[address]]:
        together, counts = outside.get(pay_to, (1, 0))
        spent += paid * counts // together
    return max(0, spent - sum(census.sent.get(address, {}).values()))


def _weighed(payers: list[tuple[int, int]]) -> PayerSums:
    """The sums of payers by (weight, volume). Each counts as much as he weighs: the sums are Σwu
    and Σwu², in whole units, so that rounding makes payers fewer.
    """
    squares = sum(weight * volume * volume for weight, volume in payers)
    return PayerSums(
        payers=len(payers),
        volume=sum(weight * volume for weight, volume in payers) // WHOLE_WEIGHT,
        squares=-(-squares // WHOLE_WEIGHT),
        top=max((weight * volume for weight, volume in payers), default=0) // WHOLE_WEIGHT,
        weight=sum(weight for weight, _ in payers),
    )
