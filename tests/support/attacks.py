"""Markets of payments, and attacks on the activity of a seller, as pure data.

A `Trade` is one transfer of USDC. Of a list of trades and the addresses that are sold at,
`market_of` makes what core/score/organic reads, as the indexer would have it: payments by
authorization to indexed addresses, and everything that leaves them. What passes between other
wallets is not there, as it is not in the index.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from tollgauge.core.base.units import DAY_MS, HOUR_MS, WINDOW_MS, day_of
from tollgauge.core.probe.rollup import Rollup
from tollgauge.core.probe.spans import Spans
from tollgauge.core.score.evidence import ChainEvidence, ChainSums, Evidence, LastProbe, LatestState
from tollgauge.core.score.organic import First, Market, intervals
from tollgauge.core.score.policy import POLICY
from tollgauge.core.score.scoring import score
from tollgauge.core.score.signals.volume import Flow

USD: Final = 1_000_000
CENT: Final = 10_000
AS_OF: Final = 20_700 * DAY_MS + 12 * HOUR_MS


class Trade(NamedTuple):
    """A transfer of `value` atomic USDC `days` days before AS_OF; `authorized` if it was made by
    an authorization, as payments are.
    """

    sender: bytes
    receiver: bytes
    value: int
    days: float = 10
    authorized: bool = True


def address(kind: str, number: int = 0) -> bytes:
    """A wallet of its own."""
    return f"{kind}-{number}".encode().ljust(20, b".")


def market_of(
    trades: Iterable[Trade],
    sold_at: Collection[bytes],
    *,
    indexed_from: int = 0,
    first: Iterable[Trade] = (),
) -> Market:
    """What the indexer has of these trades. `first` are payments from before the window."""
    flows: dict[bytes, dict[bytes, list[int]]] = {}
    births: dict[bytes, First] = {}
    trades = list(trades)
    for trade in [*first, *trades]:
        at = AS_OF - round(trade.days * DAY_MS)
        if trade.receiver in sold_at and trade.authorized:
            birth = First(trade.sender, trade.receiver, at)
            births[trade.sender] = min(
                births.get(trade.sender, birth), birth, key=lambda known: (known.at, known.pay_to)
            )
    for trade in trades:
        at = AS_OF - round(trade.days * DAY_MS)
        if trade.receiver in sold_at and trade.authorized:
            row = flows.setdefault(trade.receiver, {}).setdefault(trade.sender, [0, 0, 0, 0])
            row[0] += 1
            row[1] += trade.value
            row[3] |= 1 << day_of(at) % 32
        if trade.sender in sold_at and trade.sender != trade.receiver:
            row = flows.setdefault(trade.sender, {}).setdefault(trade.receiver, [0, 0, 0, 0])
            row[2] += trade.value
    frozen = [
        (pay_to, {other: Flow(*row) for other, row in sorted(flows[pay_to].items())})
        for pay_to in sorted(flows)
    ]
    return Market(
        as_of=AS_OF,
        flows=frozen,
        firsts=sorted(births.values(), key=lambda birth: (birth.pay_to, birth.at)),
        indexed_from=dict.fromkeys(sold_at, indexed_from),
    )


def sums_at(trades: Iterable[Trade], sold_at: Collection[bytes], pay_to: bytes) -> ChainSums:
    """The sums of one seller."""
    return dict(intervals(market_of(trades, sold_at))).get(pay_to, ChainSums())


def score_tenths(sums: ChainSums, hosts: int = 1) -> int:
    """The score under policy 2 of an endpoint that is always payable, with these settlements."""
    chain = ChainEvidence(
        network="eip155:8453",
        pay_to="0x" + 40 * "5",
        indexed_ms=WINDOW_MS,
        shared_hosts=hosts,
        sums=sums,
    )
    tenths = score(replace(ALWAYS_PAYABLE, chain=chain), POLICY).score_tenths
    assert tenths is not None
    return tenths


def gain_tenths(
    attack: Sequence[Trade], honest: Sequence[Trade], sold_at: Collection[bytes]
) -> int:
    """By how many tenths of a point an attack raises the score of `SELLER`."""
    before = score_tenths(sums_at(honest, sold_at, SELLER))
    return score_tenths(sums_at([*honest, *attack], sold_at, SELLER)) - before


SELLER: Final = address("seller")
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
            latency=((100, 48),),
            spans=Spans(up=DAY_MS, payable=DAY_MS, compliance=100 * DAY_MS),
        )
        for day in range(_TODAY - 30, _TODAY)
    ),
    recent=(6, 6),
    last=LastProbe(
        at=AS_OF - 60_000,
        outcome="payment-required",
        up=True,
        payable=True,
        accepts=1,
        tls_not_after=None,
    ),
    state=LatestState(at=AS_OF - 60_000, outcome="payment-required", up=True, payable=True),
)


def sybils(
    count: int, value: int, *, days: Sequence[float] = (20, 10), gap: float = 0.0001
) -> list[Trade]:
    """Wallets that pay the seller, each on some days, `value` in all, one `gap` days before the
    other.
    """
    return [
        Trade(address("sybil", number), SELLER, value // len(days), day + gap * number)
        for number in range(count)
        for day in days
    ]


def recirculated(count: int, value: int) -> list[Trade]:
    """One note that goes round: a wallet pays it, the seller sends it to a hub that nobody sells
    at, and the hub gives it to the next wallet.
    """
    hub = address("hub")
    return [
        trade
        for payment in sybils(count, value)
        for trade in (
            payment,
            Trade(SELLER, hub, payment.value, payment.days, authorized=False),
            Trade(hub, payment.sender, payment.value, payment.days, authorized=False),
        )
    ]


def ring(sellers: Sequence[bytes], value: int, *, chain: bool = False) -> list[Trade]:
    """Sellers that pay each other, or, as a `chain`, each the next one."""
    count = len(sellers)
    return [
        Trade(sender, receiver, value, day)
        for place, sender in enumerate(sellers)
        for receiver in ([sellers[(place + 1) % count]] if chain else sellers)
        for day in (20, 10)
        if sender != receiver
    ]


def spending(
    wallets: Iterable[bytes], shops: Sequence[bytes], value: int, *, days: float = 15
) -> list[Trade]:
    """Each wallet spends `value` in all, in equal parts at each of these shops."""
    return [
        Trade(wallet, shop, value // len(shops), days + 0.1 * place)
        for wallet in wallets
        for place, shop in enumerate(shops)
    ]
