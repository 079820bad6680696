"""Attacks on demand: simulated payments, and the demand that the indexer would measure.

The index contains payments to sellers that the payer signed, and all transfers from sellers. It
does not contain transfers between other wallets.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Final, NamedTuple

from docs.gaming_attack import NOW, Attack, probe_payable
from tollgauge.core.base.units import WINDOW_MS
from tollgauge.core.chain.settlement import MIN_PAYMENT
from tollgauge.core.score.demand import measure_demand
from tollgauge.core.score.evidence import Anchor, ChainEvidence, DemandEvidence
from tollgauge.core.score.income import Flow
from tollgauge.core.score.score import Score

ANCHORS: Final[Mapping[bytes, str]] = {
    f"anchor {number}".encode(): f"anchor-{number}.example" for number in range(3)
}
EVIDENCE_ANCHORS: Final = tuple(
    Anchor(owner=owner, since=0, addresses=("0x" + address.hex(),))
    for address, owner in ANCHORS.items()
)


class Payment(NamedTuple):
    """A transfer of `value` atomic USDC; `signed` if the payer signed it, as purchases are."""

    sender: bytes
    receiver: bytes
    value: int
    signed: bool = True


def wallets(owner: str, count: int) -> tuple[bytes, ...]:
    """Return addresses of an owner."""
    return tuple(f"{owner} {number}".encode() for number in range(count))


def pay(
    payers: Sequence[bytes], dollars: Fraction | int, *, to: bytes, bought: bool = True
) -> list[Payment]:
    """Return one payment per payer."""
    value = int(dollars * 10**6)
    return [Payment(payer, to, value, bought) for payer in payers]


def spend_at(
    payers: Sequence[bytes], dollars: Fraction | int, anchors: Sequence[bytes]
) -> list[Payment]:
    """Return one payment per payer and anchor."""
    return [payment for anchor in anchors for payment in pay(payers, dollars, to=anchor)]


def circle(sellers: Sequence[bytes], dollars: int) -> list[Payment]:
    """Return a payment of each seller to the next one."""
    following = (*sellers[1:], sellers[0])
    return [
        payment
        for seller, other in zip(sellers, following, strict=True)
        for payment in pay([seller], dollars, to=other)
    ]


def demand_of(
    payments: Iterable[Payment], sites: Mapping[bytes, str], pay_to: bytes
) -> DemandEvidence:
    """Return the demand of one of the addresses that sites advertise."""
    flows: dict[bytes, dict[bytes, Flow]] = {wallet: {} for wallet in (*sites, *ANCHORS)}
    for sender, receiver, value, signed in payments:
        if receiver in flows and signed and value >= MIN_PAYMENT:
            known = flows[receiver].get(sender, Flow())
            flows[receiver][sender] = known._replace(
                transfers=known.transfers + 1, paid=known.paid + value
            )
        if sender in flows and sender != receiver:
            known = flows[sender].get(receiver, Flow())
            flows[sender][receiver] = known._replace(returned=known.returned + value)
    measured = measure_demand(
        flows.items(),
        sellers={**sites, **ANCHORS},
        anchors=ANCHORS,
        at_anchors=[(wallet, flows[wallet]) for wallet in ANCHORS],
    )
    return dict(measured.demands)[pay_to]


_SOLD_AT: Final = b"seller 0"
_SITES: Final = {
    _SOLD_AT: "seller.example",
    **{wallet: f"shop-{number}.example" for number, wallet in enumerate(wallets("shop", 20))},
}
_SHOPS: Final = tuple(wallet for wallet in _SITES if wallet != _SOLD_AT)
_ANCHORS: Final = tuple(ANCHORS)


def buy_demand() -> Iterator[Attack]:
    """Yield attacks by payments."""
    hundred, friend, nine = wallets("wallet", 100), wallets("friend", 1), wallets("nine", 9)
    nothing = "Only payers that spend at anchors have a weight"
    refund = pay([_SOLD_AT], 10_000, to=b"hub", bought=False)
    for trick, payments, cost in (
        ("the payTo pays itself $1,000", pay([_SOLD_AT], 1_000, to=_SOLD_AT), "gas"),
        ("100 wallets pay 1 cent each", _pay(hundred, Fraction(1, 100)), _spend(1)),
        ("100 wallets pay $1 each", _pay(hundred, 1), _spend(100)),
        ("100 wallets pay $100 each, one note through a hub", _pay(hundred, 100) + refund, "gas"),
        ("100,000 zero-value transfers in the name of customers of anchors", _zero_value(), "gas"),
        (
            "three shops of one owner and three groups of nine wallets",
            [
                payment
                for group in range(3)
                for shop in (_SOLD_AT, *_SHOPS[:2])
                for payment in _pay(wallets(f"group {group}", 9), 1, to=shop)
            ],
            _spend(81),
        ),
        ("a triangle of shops", circle((_SOLD_AT, *_SHOPS[:2]), 100), "gas"),
        ("a circle of 20 shops", circle((_SOLD_AT, *_SHOPS[:19]), 100), "gas"),
        (
            "a ring of wallets, prepared for 30 days, on a new free host",
            _pay(nine, 1) + _pay(nine, 1, to=_SHOPS[0]),
            "gas",
        ),
        (
            "one bought anchor: 100 wallets spend $500 there",
            _pay(hundred, 1) + spend_at(hundred, 500, _ANCHORS[:1]),
            "the anchor's silence",
        ),
        (
            "two anchors that send everything back",
            _pay(hundred, 1)
            + spend_at(hundred, 500, _ANCHORS[:2])
            + [
                payment._replace(sender=payment.receiver, receiver=payment.sender, signed=False)
                for payment in spend_at(hundred, 500, _ANCHORS[:2])
            ],
            "gas",
        ),
    ):
        yield _compare_payments(trick, payments, cost, nothing)
    yield Attack(
        trick="another seller's payTo on a new host",
        without=_score_payments([]),
        with_it=probe_payable().score(
            NOW,
            chain=replace(_UNPAID, owner="seller.example"),
            anchors=EVIDENCE_ANCHORS,
        ),
        bound="The demand of a payTo belongs to the site first seen to advertise it",
    )
    for dollars in (22, 100, 200):
        yield _buy(dollars, shops=1)
    yield _buy(200, shops=20)
    for trick, payments in (
        ("strangers pay an honest seller $0.20", pay(hundred, Fraction(1, 500), to=_SOLD_AT)),
        ("a stranger pays an honest seller $100,000", pay(friend, 100_000, to=_SOLD_AT)),
        ("10,000 wallets pay an honest seller 1 cent", _crowd(10_000)),
    ):
        honest = _honest()
        yield Attack(
            trick=f"griefing: {trick}",
            without=_score_payments(honest),
            with_it=_score_payments([*honest, *payments]),
            cost="the money",
            bound="Payments by strangers change no weight",
        )


def _buy(dollars: int, *, shops: int) -> Attack:
    """Let own wallets spend this at each of two anchors and pay one or more shops."""
    names = wallets("buyer", -(-dollars // 20))
    sold_at = (_SOLD_AT, *_SHOPS[: shops - 1])
    payments = [payment for shop in sold_at for payment in _pay(names, 1, to=shop)]
    payments += spend_at(names, Fraction(dollars, len(names)), _ANCHORS[:2])
    each = f", one ring for {shops} shops" if shops > 1 else ""
    return _compare_payments(
        f"own wallets spend ${dollars} at each of two anchors{each}",
        payments,
        f"${2 * dollars} a month to the anchors",
        "Real spending at independent sellers: $44 for 3 points and $333 for 10, for each seller",
        open_=_score_payments(payments).score_tenths != _score_payments([]).score_tenths,
    )


def _honest() -> list[Payment]:
    """Return payments of thirty customers who also buy at anchors."""
    customers = wallets("customer", 30)
    return _pay(customers, 2) + spend_at(customers, 15, _ANCHORS)


def _crowd(count: int) -> list[Payment]:
    return _pay(wallets("crowd", count), Fraction(1, 100))


def _zero_value() -> list[Payment]:
    known = wallets("customer", 30)
    zero = [Payment(payer, _SOLD_AT, 0, signed=False) for payer in known] * 3
    return spend_at(known, 50, _ANCHORS) + zero


def _compare_payments(
    trick: str, payments: Iterable[Payment], cost: str, bound: str, *, open_: bool = False
) -> Attack:
    """Compare an established endpoint with and without these payments."""
    return Attack(
        trick=trick,
        without=_score_payments([]),
        with_it=_score_payments(payments),
        cost=cost,
        bound=bound,
        open=open_,
    )


_UNPAID: Final = ChainEvidence(network="eip155:8453", pay_to="0x", indexed_ms=WINDOW_MS)


def _score_payments(payments: Iterable[Payment]) -> Score:
    """The score of an established endpoint after these payments."""
    demand = demand_of(payments, _SITES, _SOLD_AT)
    return probe_payable().score(
        NOW, chain=replace(_UNPAID, demand=demand), anchors=EVIDENCE_ANCHORS
    )


def _pay(
    payers: Sequence[bytes], dollars: Fraction | int, *, to: bytes = _SOLD_AT
) -> list[Payment]:
    return pay(payers, dollars, to=to)


def _spend(dollars: int) -> str:
    return f"${dollars} that comes back, and gas"
