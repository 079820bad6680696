"""The organic interval: how much of what a payTo takes in comes from independent buyers.

Nobody can tell from transfers who owns a wallet, so there are two readings, both from the indexed
transfers of one chain and window alone; `intervals` states the rules. Which payTo addresses are one
seller is core/chain/clusters', what a payTo's own flows tell core/score/signals/volume's.

The flows are read once, one payTo at a time. They take 16 bytes for each payer of each payTo, and
for each payer the days of its payments and where it pays most.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from heapq import heappush, heappushpop
from itertools import groupby
from operator import attrgetter
from typing import Final, NamedTuple

from tollgauge.core.base.units import DAY_MS, HOUR_MS
from tollgauge.core.chain.clusters import Clusters
from tollgauge.core.score.evidence import ChainSums, PayerSums
from tollgauge.core.score.signals.volume import WHOLE_WEIGHT, Flow, flow_sums, payer_sums

WHOLE_OUTSIDE: Final = 60_000_000
"""Outside spending in a window (atomic USDC) that makes a payer count whole: $60, $2 a day.

It is what makes weight expensive. At the low end, equal payers of weight w count as w effective
payers each, and no payer adds more than its weight to those that are there: for a volume u beside
payers with the sums a and b, (a + wu)^2 / (b + wu^2) is at most a^2 / b + w. The activity is at
most what the table of payers gives, whose steepest part is 12.5 for one payer, 1.875 points of a
score where activity weighs 15. So a point takes outside spending of at least $60 / 1.875 = $32 a
window: more than $1 a day, as a window touches at most 31 days. Ten points more are 3 that cost
nothing (the score may lie 20 above the low end) and 7 for at least $7 a day.
"""
CREDIT: Final = 3
"""A payer's credited volume is at most so many times its outside spending."""
LEAST_VOLUME: Final = 10_000
"""Less than this in a window (atomic USDC, one cent) counts nothing."""
MOST_VOLUME: Final = 2**63 - 1
"""More than this (atomic USDC, nine trillion dollars) counts as this."""
SEEN_DAYS: Final = 2
"""The least UTC days with a payment of a payer who counts at the low end."""
KNOWN_MS: Final = 7 * DAY_MS
"""How long a payer must be known to count at the low end."""
BATCH: Final = 5
"""So many payers who first paid within one hour, at one payTo, were born in a batch."""
MOST_OUTLETS: Final = 12
"""Of each payer, so many payTo addresses are known where it paid most."""


class First(NamedTuple):
    """The first payment that is known of a payer: to which payTo, and when (ms UTC)."""

    payer: bytes
    pay_to: bytes
    at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Market:
    """The window of a chain that ends `as_of`. `flows` are those of each payTo by
    counterparty, in the order of addresses; `firsts` are in the order of payTo and time.
    `indexed_from` says since when (ms UTC) the transfers of a payTo are known.
    """

    as_of: int
    flows: Iterable[tuple[bytes, Mapping[bytes, Flow]]]
    firsts: Iterable[First]
    indexed_from: Mapping[bytes, int]


def intervals(market: Market) -> Iterator[tuple[bytes, ChainSums]]:
    """Who pays a payTo is judged from the transfers of all indexed payTo addresses of its chain.

    **Clusters.** PayTo addresses are one seller if they send money to each other, straight or in a
    circle, or if they share at least half of their payers, with at least 5 each. Payments within a
    cluster are left out. A transfer to a payer, from any address of the cluster or from a payTo
    that it sends money to, cancels the same amount of its volume. A payer's volume below $0.01
    counts nothing.

    **High end.** Everybody else, without payers born in a batch: at least 5 whose first indexed
    payments fall into one hour and to one payTo, which was indexed for 7 days before.

    **Low end.** A payer weighs min(1, outside spending / $60), if it was seen on at least 2 days
    and is known for at least 7, else nothing. Its credited volume u is at most 3 times its outside
    spending. The volume is Σwu; effective payers are (Σwu)² / Σwu², never more than Σw.

    **Outside spending** is what it paid in other clusters, at the 12 addresses where it pays most,
    less what payTo addresses sent it. What all payers of a seller spend at another address counts
    only up to what others spend there: a second shop that the same wallets pay is no outside.

    So three points of a score can be had for nothing, and each one more takes outside spending of
    at least $32 in 30 days.
    """
    census = _Census()
    for pay_to, flows in market.flows:
        census.add(pay_to, flows)
    census.note_births(market)
    census.form_clusters()
    for members in census.members.values():
        yield from _seller(census, members)


@dataclass(slots=True)
class _Census:
    """What is known of all payTo addresses and payers, which are numbered in the order of
    reading.

    Of payTo addresses: their own `sums`; their `customers` with the `volumes` of each; and their
    `income`, in the end without what their own cluster pays. Of payers: `days` (bits); `spent`, the
    largest amounts with the payTo of each; whether they are `known` long enough, and `born` in a
    batch. `sent` is what payTo addresses sent to an address, `returns` the same to payers. Of
    clusters: their `members`, and the payTo addresses (`takers`) that they sent money to.
    """

    pay_tos: dict[bytes, int] = field(default_factory=dict)
    sums: list[ChainSums] = field(default_factory=list)
    customers: list[array[int]] = field(default_factory=list)
    volumes: list[array[int]] = field(default_factory=list)
    income: list[int] = field(default_factory=list)
    payers: dict[bytes, int] = field(default_factory=dict)
    days: list[int] = field(default_factory=list)
    spent: list[list[tuple[int, int]]] = field(default_factory=list)
    known: bytearray = field(default_factory=bytearray)
    born: bytearray = field(default_factory=bytearray)
    sent: dict[bytes, dict[int, int]] = field(default_factory=dict)
    clusters: list[int] = field(default_factory=list)
    members: dict[int, list[int]] = field(default_factory=dict)
    takers: dict[int, set[int]] = field(default_factory=dict)
    addresses: list[bytes] = field(default_factory=list)
    returns: dict[int, dict[int, int]] = field(default_factory=dict)

    def add(self, pay_to: bytes, flows: Mapping[bytes, Flow]) -> None:
        """Read what one payTo took in and sent."""
        number = self.pay_tos.setdefault(pay_to, len(self.pay_tos))
        volume_of: dict[int, int] = {}
        for other, flow in flows.items():
            if flow.returned:
                self.sent.setdefault(other, {})[number] = flow.returned
            if other == pay_to or flow.paid < LEAST_VOLUME:
                continue
            payer = self._payer(other)
            volume_of[payer] = min(max(0, flow.paid - flow.returned), MOST_VOLUME)
            self.days[payer] |= flow.days
            keep = heappush if len(self.spent[payer]) < MOST_OUTLETS else heappushpop
            keep(self.spent[payer], (flow.paid, number))
        self.customers.append(array("Q", sorted(volume_of)))
        self.volumes.append(array("Q", (volume_of[payer] for payer in self.customers[number])))
        self.income.append(sum(volume_of.values()))
        self.sums.append(flow_sums(flows, pay_to))

    def _payer(self, address: bytes) -> int:
        number = self.payers.get(address)
        if number is None:
            number = self.payers[address] = len(self.payers)
            self.days.append(0)
            self.spent.append([])
            self.known.append(False)
            self.born.append(False)
        return number

    def note_births(self, market: Market) -> None:
        """Note who is known for long enough, and who was born in a batch."""
        for pay_to, group in groupby(market.firsts, attrgetter("pay_to")):
            births = list(group)
            since = market.indexed_from.get(pay_to, market.as_of) + KNOWN_MS
            for place, first in enumerate(births):
                payer = self.payers.get(first.payer)
                if payer is not None:
                    self.known[payer] = first.at <= market.as_of - KNOWN_MS
                    self.born[payer] = since <= first.at and _in_batch(births, place)

    def form_clusters(self) -> None:
        """Form the clusters, once everything is read."""
        sent: dict[int, list[int]] = {}
        for address, taker in self.pay_tos.items():
            for giver in self.sent.get(address, {}):
                sent.setdefault(giver, []).append(taker)
        clusters = Clusters(len(self.pay_tos))
        clusters.join_circles(sent)
        clusters.join_alike(self.customers)
        self.addresses = list(self.pay_tos)
        self.returns = {
            self.payers[address]: amounts
            for address, amounts in self.sent.items()
            if address in self.payers
        }
        self.clusters = [clusters.of(number) for number in range(len(self.pay_tos))]
        for number, cluster in enumerate(self.clusters):
            self.members.setdefault(cluster, []).append(number)
        for giver, takers in sent.items():
            self.takers.setdefault(self.clusters[giver], set()).update(takers)
        for address, taker in self.pay_tos.items():
            for giver, amount in self.sent.get(address, {}).items():
                if self.clusters[giver] == self.clusters[taker]:
                    self.income[taker] -= amount


def _in_batch(births: list[First], place: int) -> bool:
    """Whether a birth is one of BATCH of the same payTo within an hour; they are in order."""
    begins = range(max(0, place - BATCH + 1), min(place, len(births) - BATCH) + 1)
    return any(births[begin + BATCH - 1].at - births[begin].at < HOUR_MS for begin in begins)


def _seller(census: _Census, members: list[int]) -> Iterator[tuple[bytes, ChainSums]]:
    """The payTo addresses of one cluster, each with its sums."""
    cluster = census.clusters[members[0]]
    addresses = [census.addresses[number] for number in members]
    own = {census.payers[address] for address in addresses if address in census.payers}
    payers = own.union(*(census.customers[number] for number in members))
    outside = _outside(census, cluster, payers)
    elsewhere = len({census.clusters[pay_to] for pay_to in outside})
    givers = {*members, *census.takers.get(cluster, ())}
    for address, number in zip(addresses, members, strict=True):
        high: list[int] = []
        low: list[tuple[int, int]] = []
        for payer, gross in zip(census.customers[number], census.volumes[number], strict=True):
            volume = gross - _returned(census, payer, givers - {number})
            if payer in own or volume < LEAST_VOLUME:
                continue
            if not census.born[payer]:
                high.append(volume)
            if census.known[payer] and census.days[payer].bit_count() >= SEEN_DAYS:
                spent = _spent_outside(census, payer, outside)
                if weight := min(WHOLE_WEIGHT, WHOLE_WEIGHT * spent // WHOLE_OUTSIDE):
                    low.append((weight, min(volume, CREDIT * spent)))
        ends = replace(census.sums[number], high=payer_sums(high), low=_weighed(low))
        yield address, replace(ends, clusters=elsewhere)


def _outside(census: _Census, cluster: int, payers: Iterable[int]) -> Mapping[int, tuple[int, int]]:
    """For each payTo of other clusters, what these payers of a cluster spend there together, and
    how much of that counts: no more than others spend there.
    """
    together: dict[int, int] = defaultdict(int)
    for payer in payers:
        for paid, pay_to in census.spent[payer]:
            together[pay_to] += paid
    return {
        pay_to: (spent, min(spent, max(0, census.income[pay_to] - spent)))
        for pay_to, spent in together.items()
        if census.clusters[pay_to] != cluster
    }


def _returned(census: _Census, payer: int, givers: set[int]) -> int:
    """What some payTo addresses sent a payer, beyond what it paid each of them."""
    sent = census.returns.get(payer)
    if sent is None:
        return 0
    paid = {pay_to: amount for amount, pay_to in census.spent[payer]}
    return sum(
        max(0, amount - paid.get(giver, 0)) for giver, amount in sent.items() if giver in givers
    )


def _spent_outside(census: _Census, payer: int, outside: Mapping[int, tuple[int, int]]) -> int:
    """What a payer spends outside of a cluster, as far as it counts."""
    spent = 0
    for paid, pay_to in census.spent[payer]:
        if (there := outside.get(pay_to)) is not None:
            together, counts = there
            spent += paid * counts // together
    return max(0, spent - sum(census.returns.get(payer, {}).values()))


def _weighed(payers: list[tuple[int, int]]) -> PayerSums:
    """The sums of payers by (weight, volume). Each counts as much as it weighs: the sums are Σwu
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
