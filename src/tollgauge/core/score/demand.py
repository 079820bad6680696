"""Demand: who pays the sellers of a chain, and which of these payers are proven.

Wallets cost nothing, so payers that are known only from payments to one seller prove nothing. A
payer is proven by money that it spends at anchors: addresses of owners that are independent of
each other and of every seller. `measure_demand` states the rules, store/chain/volumes has the rows.

The flows are read once, one wallet at a time; only payers with payments to an anchor are kept.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import lcm
from typing import Final, NamedTuple

from tollgauge.core.base.rounding import Ratio
from tollgauge.core.base.units import address_text, is_address, network_of
from tollgauge.core.chain.forms import CUSTODIANS
from tollgauge.core.score.evidence import DemandEvidence
from tollgauge.core.score.income import (
    DaySum,
    Flow,
    Income,
    Period,
    PeriodFigures,
    TopPayer,
    WalletIncome,
)

WHOLE_WEIGHT: Final = 10**6
"""The weight of a payer that counts fully, in millionths."""
WHOLE_SPENDING: Final = 20_000_000
"""Spending at anchors in a window (atomic USDC, $20) that makes a payer count fully.

The steepest part of the table of payers is 12.5 for one payer, 1.875 points of a score where
activity has weight 15, so that no point costs less than $20 / 1.875 = $10.67 of anchor spending.
The table makes the first points more expensive: 3 points need P = 20, which is 2.2 payers, and 10
points P = 66.7, which is 16.7. No single anchor is enough, because the smallest P counts.
"""
MIN_NET_SPENDING: Final = 10_000
"""A payer that spent less than this at a seller (atomic USDC, one cent) has no weight there."""
TOP_PAYERS: Final = 10
"""The payers of a wallet that are stored by name."""
MIN_OWNERS: Final = 2
"""With anchors of fewer owners, demand is not measured."""

Flows = Iterable[tuple[bytes, Mapping[bytes, Flow]]]
"""Each wallet with its flows by counterparty."""


class Measurement(NamedTuple):
    """The demand of every wallet, and the figures of the chain as a whole. `weights` has the
    weights of some payers by (payer, wallet), in millionths: for each, the smallest that any single
    anchor leaves.
    """

    demands: list[tuple[bytes, DemandEvidence]]
    figures: PeriodFigures
    weights: dict[tuple[bytes, bytes], int]


def measure_demand(
    flows: Flows,
    *,
    sellers: Mapping[bytes, str],
    anchors: Mapping[bytes, str],
    at_anchors: Flows,
    owners: Iterable[str] = (),
    weighed: Collection[bytes] = (),
) -> Measurement:
    """Measure the demand of every wallet of a chain; wallets of one seller share theirs.

    A **payment** is a transfer of at least $0.0001 that the payer signed. **Anchors** are addresses
    by owner; the addresses of one owner are one anchor. Spending at anchors counts without the
    anchors of the seller at hand, and less everything that the counted anchors sent to the payer.
    Net spending at a seller is the payer's payments to all its addresses, minus everything that
    these sent back, at least 0. Payments between addresses of one seller are left out.

    The **weight** of a payer at a seller is min(1, spending at anchors / $20) x net spending there
    / net spending at all sellers that are not anchors; 0 below one cent at the seller. So the
    weights of a payer over all sellers never exceed 1, and no wallet, circle or refund adds to
    them. A seller that is an anchor itself is added to the sellers that its payers are divided
    among.

    For each anchor the weights are added up as if it were not there, in millionths, each payer
    rounded down. A score uses the smallest sum, so no single anchor can raise it.

    Args:
        flows: all wallets with their flows.
        sellers: the seller (a site) that each wallet belongs to.
        anchors: the owner of each anchor address.
        at_anchors: the flows of the anchor addresses.
        owners: owners of anchors, including those without an address on this chain.
        weighed: the payers whose own weights are part of the result.
    """
    market = _Market(
        sellers=sellers,
        anchors=anchors,
        owners={*owners, *anchors.values()},
        weighed=frozenset(weighed),
    )
    for wallet, by_payer in at_anchors:
        market.add_anchor(wallet, by_payer)
    for wallet, by_payer in flows:
        market.add(wallet, by_payer)
    return market.measure()


class PeriodMeasurement(NamedTuple):
    """The market of each period, and the days and wallets of the first period."""

    markets: list[Measurement]
    by_day: list[DaySum]
    wallets: list[tuple[bytes, WalletIncome]]


DayFlows = Iterable[tuple[bytes, Iterable[tuple[int, bytes, Flow]]]]
"""Each wallet with its flows by UTC day and counterparty."""


def measure_periods(
    flows: DayFlows,
    periods: Sequence[Period],
    *,
    sellers: Mapping[bytes, str],
    anchors: Mapping[bytes, str],
    at_anchors: Mapping[int, Flows],
) -> PeriodMeasurement:
    """Measure several periods of a chain in one pass, and the days and wallets of the first one,
    which contains the others that end with it.

    The arguments are those of `measure_demand`, but `at_anchors` has the flows of the anchor
    addresses by the last day of the periods. They may cover more days than a period, so that short
    periods know the same proven payers.
    """
    owners = set(anchors.values())
    markets = [_Market(sellers=sellers, anchors=anchors, owners=owners) for _ in periods]
    for market, period in zip(markets, periods, strict=True):
        for wallet, by_payer in at_anchors[period.last]:
            market.add_anchor(wallet, by_payer)
    first, days = (
        markets[0],
        {day: [0, 0, 0] for day in range(periods[0].first, periods[0].last + 1)},
    )
    incomes: list[tuple[bytes, WalletIncome]] = []
    for wallet, of_days in flows:
        sums: list[dict[bytes, Flow]] = [{} for _ in periods]
        for day, payer, flow in of_days:
            for by_payer, period in zip(sums, periods, strict=True):
                if period.first <= day <= period.last:
                    known = by_payer.get(payer)
                    by_payer[payer] = flow if known is None else known.plus(flow)
            if day in days and flow.transfers and not first.is_own(wallet, payer):
                days[day][0] += flow.transfers
                days[day][1] += flow.paid
                if first.is_proven(payer, first.seller_of(wallet)):
                    days[day][2] += max(0, flow.paid - flow.returned)
        for market, by_payer in zip(markets, sums, strict=True):
            market.add(wallet, by_payer)
        last = [
            (period, by_payer)
            for by_payer, period in zip(sums, periods, strict=True)
            if period.last == periods[0].last
        ]
        if income := first.income(wallet, last):
            incomes.append((wallet, income))
    by_day = [DaySum(day, *counts) for day, counts in days.items()]
    return PeriodMeasurement([market.measure() for market in markets], by_day, incomes)


def addresses_on(chain: int, addresses: Iterable[str]) -> tuple[str, ...]:
    """Return the anchor addresses that count on a chain (its `chain_number`): plain ones of its
    kind, and those with its network before them, such as `eip155:ID:ADDRESS`. The owner of a
    contract on one chain may not own that address on another.
    """
    parts = (text.rpartition(":") for text in addresses)
    return tuple(
        address
        for network, _, address in parts
        if network in ("", network_of(chain)) and is_address(address, chain=chain)
    )


def sum_of_weights(
    of_chains: Sequence[tuple[Iterable[tuple[str, int]], int]], *, anchors: int
) -> Ratio:
    """Return the payers of a seller by weight: the smallest sum of weights over all anchors.

    Each chain has the sums without each anchor, and the number of sites that share the payTo, among
    which its sums are divided. A payer counts on each chain by its spending at anchors there, so
    that a payer on two chains costs as much as two payers.
    """
    if anchors < MIN_OWNERS:
        return 0, 1
    whole = lcm(*(shares for _, shares in of_chains))
    sums: Counter[str] = Counter()
    for weights, shares in of_chains:
        for owner, weight in weights:
            sums[owner] += weight * (whole // shares)
    return min(sums.values(), default=0), WHOLE_WEIGHT * whole


@dataclass(slots=True)
class _Buyer:
    """A payer with payments to an anchor: what it (paid, received back) by anchor owner and by
    seller.
    """

    at_owners: dict[str, list[int]] = field(default_factory=dict)
    at_sellers: dict[str, list[int]] = field(default_factory=dict)

    def spending(self, without: set[str]) -> int:
        """Net spending at the anchors of other owners."""
        kept = (sums for owner, sums in self.at_owners.items() if owner not in without)
        return max(0, sum(paid - returned for paid, returned in kept))

    def net(self, seller: str) -> int:
        """Net spending at a seller."""
        paid, returned = self.at_sellers[seller]
        return max(0, paid - returned)


@dataclass(slots=True)
class _Account:
    """Payments to a seller. `names` contains the payers of a seller with several wallets."""

    transfers: int = 0
    volume: int = 0
    own: int = 0
    returned: int = 0
    payers: int = 0
    names: set[bytes] = field(default_factory=set)
    proven: int = 0
    proven_volume: int = 0
    weights: dict[str, int] = field(default_factory=dict)

    def demand(self) -> DemandEvidence:
        return DemandEvidence(
            transfers=self.transfers,
            payers=self.payers + len(self.names),
            volume=self.volume,
            own=self.own,
            returned=self.returned,
            proven_payers=self.proven,
            proven_volume=self.proven_volume,
            weights=tuple(sorted(self.weights.items())) if any(self.weights.values()) else (),
        )


@dataclass(slots=True)
class _Market:
    """The wallets of a chain, their sellers, and the payers that anchors know. `own` has the owners
    of each seller's anchors; `owners` are all owners of anchors, on any chain. `weights` has those
    of the payers that are `weighed`, by seller.
    """

    sellers: Mapping[bytes, str]
    anchors: Mapping[bytes, str]
    owners: set[str]
    weighed: frozenset[bytes] = frozenset()
    weights: dict[str, dict[bytes, int]] = field(default_factory=dict)
    wallets: list[tuple[bytes, str]] = field(default_factory=list)
    accounts: dict[str, _Account] = field(default_factory=dict)
    buyers: dict[bytes, _Buyer] = field(default_factory=dict)
    payers: set[bytes] = field(default_factory=set)
    sizes: Counter[str] = field(default_factory=Counter)
    own: dict[str, set[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.sizes.update(self.sellers.values())
        for wallet, owner in self.anchors.items():
            self.own.setdefault(self.seller_of(wallet), set()).add(owner)

    def seller_of(self, wallet: bytes) -> str:
        """The seller of a wallet; one that no site is known to name is a seller of its own."""
        return self.sellers.get(wallet) or wallet.hex()

    def is_own(self, wallet: bytes, payer: bytes) -> bool:
        """Return whether a payment to a wallet comes from its own seller."""
        return payer == wallet or self.sellers.get(payer) == self.seller_of(wallet)

    def is_proven(self, payer: bytes, seller: str) -> bool:
        """Return whether a payer spends at anchors of others than the seller."""
        buyer = self.buyers.get(payer)
        return buyer is not None and buyer.spending(self.own.get(seller, set())) > 0

    def add_anchor(self, wallet: bytes, by_payer: Mapping[bytes, Flow]) -> None:
        """Add the payments to one anchor address."""
        owner = self.anchors[wallet]
        for payer, flow in by_payer.items():
            # A custodian is no payer: its payments at anchors are those of its customers.
            if payer not in CUSTODIANS and self.anchors.get(payer) != owner:
                sums = self.buyers.setdefault(payer, _Buyer()).at_owners.setdefault(owner, [0, 0])
                sums[0] += flow.paid
                sums[1] += flow.returned

    def add(self, wallet: bytes, by_payer: Mapping[bytes, Flow]) -> None:
        """Add the flows of one wallet."""
        seller = self.seller_of(wallet)
        account = self.accounts.setdefault(seller, _Account())
        self.wallets.append((wallet, seller))
        has_several = self.sizes[seller] > 1
        for payer, flow in by_payer.items():
            if self.is_own(wallet, payer):
                account.own += flow.paid
                continue
            if flow.transfers:
                self.payers.add(payer)
                account.transfers += flow.transfers
                account.volume += flow.paid
                account.returned += min(flow.paid, flow.returned)
                if has_several:
                    account.names.add(payer)
                else:
                    account.payers += 1
            if (buyer := self.buyers.get(payer)) is not None:
                sums = buyer.at_sellers.setdefault(seller, [0, 0])
                sums[0] += flow.paid
                sums[1] += flow.returned

    def income(
        self, wallet: bytes, by_period: Sequence[tuple[Period, Mapping[bytes, Flow]]]
    ) -> WalletIncome | None:
        """Return the income of a wallet in several periods, longest first; None without any."""
        seller = self.seller_of(wallet)
        incomes: list[tuple[int, Income]] = []
        top: list[tuple[bytes, Flow, bool]] = []
        for period, by_payer in by_period:
            paying = [
                (payer, flow, self.is_proven(payer, seller))
                for payer, flow in by_payer.items()
                if flow.transfers and not self.is_own(wallet, payer)
            ]
            spent = [flow.paid - flow.returned for _, flow, proven in paying if proven]
            proven = [net for net in spent if net > 0]
            income = Income(
                transfers=sum(flow.transfers for _, flow, _ in paying),
                volume=sum(flow.paid for _, flow, _ in paying),
                payers=len(paying),
                proven_payers=len(proven),
                proven_volume=sum(proven),
            )
            incomes.append((period.last - period.first + 1, income))
            if len(incomes) == 1:
                top = heapq.nsmallest(TOP_PAYERS, paying, key=lambda one: (-one[1].paid, one[0]))
        named = tuple(TopPayer(address_text(payer), *flow, known) for payer, flow, known in top)
        last_day = by_period[0][0].last
        return WalletIncome(last_day, tuple(incomes[::-1]), named) if named else None

    def weigh(self) -> int:
        """Add the weights of all payers to the accounts of the sellers that they pay; returns how
        many payers are proven at any of them.
        """
        proven: set[bytes] = set()
        for payer, buyer in self.buyers.items():
            nets = {seller: net for seller in buyer.at_sellers if (net := buyer.net(seller))}
            elsewhere = sum(net for seller, net in nets.items() if seller not in self.own)
            for seller, net in nets.items():
                if net < MIN_NET_SPENDING:
                    continue
                excluded = self.own.get(seller, set())
                whole = WHOLE_SPENDING * (elsewhere + (net if excluded else 0))
                account = self.accounts[seller]
                least = WHOLE_WEIGHT if len(self.owners) >= MIN_OWNERS else 0
                for owner in self.owners:
                    spent = min(buyer.spending({*excluded, owner}), WHOLE_SPENDING)
                    weight = WHOLE_WEIGHT * spent * net // whole
                    account.weights[owner] = account.weights.get(owner, 0) + weight
                    least = min(least, weight)
                if payer in self.weighed:
                    self.weights.setdefault(seller, {})[payer] = least
                if buyer.spending(excluded):
                    account.proven += 1
                    account.proven_volume += net
                    proven.add(payer)
        return len(proven)

    def measure(self) -> Measurement:
        """Weigh the payers and return the result."""
        proven = self.weigh()
        demands = {seller: account.demand() for seller, account in self.accounts.items()}
        return Measurement(
            demands=[(wallet, demands[seller]) for wallet, seller in self.wallets],
            figures=PeriodFigures(
                settlements=sum(demand.transfers for demand in demands.values()),
                volume=sum(demand.volume for demand in demands.values()),
                buyers=len(self.payers),
                sellers=sum(demand.payers > 0 for demand in demands.values()),
                proven_buyers=proven,
                proven_volume=sum(demand.proven_volume for demand in demands.values()),
            ),
            weights={
                (payer, wallet): weight
                for wallet, seller in self.wallets
                for payer, weight in self.weights.get(seller, {}).items()
            },
        )
