"""Markets of payments, and attacks on the activity of a seller, as pure data.

A `Trade` is one transfer of USDC. From trades, `market_of` builds the records of an indexer:
signed payments to indexed addresses, and all transfers from these. Transfers between other wallets
are not indexed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from tollgauge.core.base.units import DAY_MS, HOUR_MS, WINDOW_MS, day_of
from tollgauge.core.chain.settlement import MIN_PAYMENT
from tollgauge.core.probe.probe import Spans
from tollgauge.core.probe.rollup import Rollup, encode_histogram
from tollgauge.core.score.demand import Measurement, measure_demand
from tollgauge.core.score.evidence import (
    Anchor,
    ChainEvidence,
    DemandEvidence,
    Evidence,
    LastProbe,
    LatestState,
)
from tollgauge.core.score.income import Flow
from tollgauge.core.score.scoring import score

USD: Final = 1_000_000
CENT: Final = 10_000
AS_OF: Final = 20_700 * DAY_MS + 12 * HOUR_MS


class Trade(NamedTuple):
    """A transfer of `value` atomic USDC `days` days before AS_OF; `signed` if the payer signed it,
    as payments are.
    """

    sender: bytes
    receiver: bytes
    value: int
    days: float = 10
    signed: bool = True


def address(kind: str, number: int = 0) -> bytes:
    """Return a new wallet."""
    return f"{kind}-{number}".encode().ljust(20, b".")


SELLER: Final = address("seller")
ANCHORS: Final = {address("anchor", number): f"anchor-{number}.example" for number in range(3)}
SITES: Final = {
    SELLER: "seller.example",
    address("seller", 1): "seller.example",
    **{address("shop", number): f"shop-{number}.example" for number in range(6)},
}
"""The site of each indexed payTo."""


def flows_of(trades: Iterable[Trade], indexed: Iterable[bytes]) -> dict[bytes, dict[bytes, Flow]]:
    """Return the flows of indexed wallets by counterparty."""
    flows: dict[bytes, dict[bytes, Flow]] = {wallet: {} for wallet in indexed}
    for trade in trades:
        if trade.receiver in flows and trade.signed and trade.value >= MIN_PAYMENT:
            flow = flows[trade.receiver].get(trade.sender, Flow())
            more = flow._replace(transfers=flow.transfers + 1, paid=flow.paid + trade.value)
            flows[trade.receiver][trade.sender] = more
        if trade.sender in flows and trade.sender != trade.receiver:
            flow = flows[trade.sender].get(trade.receiver, Flow())
            flows[trade.sender][trade.receiver] = flow._replace(
                returned=flow.returned + trade.value
            )
    return flows


def market_of(
    trades: Iterable[Trade],
    *,
    sites: Mapping[bytes, str] = SITES,
    anchors: Mapping[bytes, str] = ANCHORS,
) -> Measurement:
    """Return the demand of all wallets after these trades."""
    flows = flows_of(trades, {*sites, *anchors})
    return measure_demand(
        flows.items(),
        sellers={**sites, **anchors},
        anchors=anchors,
        at_anchors=[(wallet, flows[wallet]) for wallet in anchors],
    )


def demand_of(
    trades: Iterable[Trade],
    wallet: bytes = SELLER,
    *,
    sites: Mapping[bytes, str] = SITES,
    anchors: Mapping[bytes, str] = ANCHORS,
) -> DemandEvidence:
    """Return the demand of one wallet after these trades."""
    return dict(market_of(trades, sites=sites, anchors=anchors).demands)[wallet]


def score_tenths(demand: DemandEvidence, *, shares: int = 1, owners: Iterable[str] = ()) -> int:
    """Return the score of an endpoint that is always payable, with this demand."""
    names = sorted(set(owners) or set(ANCHORS.values()))
    chain = ChainEvidence(
        network="eip155:8453",
        pay_to="0x" + 40 * "5",
        indexed_ms=WINDOW_MS,
        shares=shares,
        demand=demand,
    )
    anchors = tuple(Anchor(owner=name, since=0, addresses=()) for name in names)
    tenths = score(replace(ALWAYS_PAYABLE, chain=chain, anchors=anchors)).score_tenths
    assert tenths is not None
    return tenths


_TODAY: Final = day_of(AS_OF)
ALWAYS_PAYABLE: Final = Evidence(
    resource="https://seller.dev/pay",
    as_of=AS_OF,
    first_seen=AS_OF - 90 * DAY_MS,
    days=tuple(
        Rollup(
            day=day,
            probes=48,
            scored=48,
            up=48,
            compliant=48,
            payable=48,
            compliance=4_800,
            slots=2**48 - 1,
            latency_sum=48 * 100,
            latency=encode_histogram([(100, 48)]),
            spans=Spans(up=DAY_MS, payable=DAY_MS, compliance=100 * DAY_MS),
        )
        for day in range(_TODAY - 30, _TODAY)
    ),
    last=LastProbe(
        at=AS_OF - 60_000,
        outcome="payment-required",
        up=True,
        payable=True,
        accepts=1,
        tls_not_after=None,
    ),
    state=LatestState(
        at=AS_OF - 60_000,
        outcome="payment-required",
        up=True,
        payable=True,
        payable_since=AS_OF - 90 * DAY_MS,
    ),
)


def payments_of(
    payers: Iterable[bytes], value: int, *, to: bytes = SELLER, back: bytes | None = None
) -> list[Trade]:
    """Payments of each payer; the seller sends them on to `back` with plain transfers."""
    trades = []
    for payer in payers:
        trades.append(Trade(payer, to, value))
        if back is not None:
            trades.append(Trade(to, back, value, signed=False))
    return trades


def wallets(kind: str, count: int) -> list[bytes]:
    """Wallets of one kind."""
    return [address(kind, number) for number in range(count)]


def ring(sellers: list[bytes], value: int, *, step: int = 1) -> list[Trade]:
    """Sellers in a circle: each pays the one `step` positions ahead from its own wallet."""
    return [
        Trade(sender, sellers[(place + step) % len(sellers)], value)
        for place, sender in enumerate(sellers)
    ]
