"""Invented payments among wallets and sellers, and what the indexer's rows of them add up to.

As in the index there are payments by authorization to the sellers, and everything that leaves the
sellers; what passes between other wallets nobody sees.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from fractions import Fraction
from typing import NamedTuple

from tollgauge.core.base.units import DAY_MS, HOUR_MS, day_of
from tollgauge.core.score.evidence import ChainSums
from tollgauge.core.score.organic import First, Market, intervals
from tollgauge.core.score.signals.volume import Flow


class Payment(NamedTuple):
    """A transfer of `value` atomic USDC at an instant (ms UTC); `authorized` if an authorization
    made it, as purchases are.
    """

    sender: bytes
    receiver: bytes
    value: int
    at: int
    authorized: bool = True


def wallets(owner: str, count: int) -> tuple[bytes, ...]:
    """Addresses of an owner."""
    return tuple(f"{owner} {number}".encode() for number in range(count))


def paid(
    payers: Sequence[bytes], dollars: Fraction | int, *, to: bytes, now: int, bought: bool = True
) -> list[Payment]:
    """What each payer pays, half of it 20 and half 10 days ago, an hour after the one before."""
    value = int(dollars * 10**6 / 2)
    return [
        Payment(payer, to, value, now - days * DAY_MS + place * HOUR_MS, bought)
        for place, payer in enumerate(payers)
        for days in (20, 10)
    ]


def ring(sellers: Sequence[bytes], dollars: int, *, now: int) -> list[Payment]:
    """Sellers who each pay every other one from a wallet that their own income fills."""
    payments: list[Payment] = []
    for own, wallet in zip(sellers, wallets("ring", len(sellers)), strict=True):
        others = [seller for seller in sellers if seller != own]
        payments += paid([own], len(others) * dollars, to=wallet, now=now, bought=False)
        for seller in others:
            payments += paid([wallet], dollars, to=seller, now=now)
    return payments


def sums_of(
    payments: Iterable[Payment], sellers: Collection[bytes], pay_to: bytes, *, as_of: int
) -> ChainSums:
    """The sums of one of the sellers, all of whom have been indexed for long."""
    flows: dict[bytes, dict[bytes, Flow]] = {}
    firsts: dict[bytes, First] = {}
    for payment in sorted(payments, key=lambda payment: payment.at):
        if payment.authorized and payment.receiver in sellers:
            first = First(payment.sender, payment.receiver, payment.at)
            firsts.setdefault(payment.sender, first)
            day = 1 << day_of(payment.at) % 32
            _add(flows, payment.receiver, payment.sender, Flow(1, payment.value, 0, day))
        if payment.sender in sellers and payment.sender != payment.receiver:
            _add(flows, payment.sender, payment.receiver, Flow(returned=payment.value))
    market = Market(
        as_of=as_of,
        flows=sorted(flows.items()),
        firsts=sorted(firsts.values(), key=lambda first: (first.pay_to, first.at)),
        indexed_from=dict.fromkeys(sellers, 0),
    )
    return dict(intervals(market)).get(pay_to, ChainSums())


def _add(flows: dict[bytes, dict[bytes, Flow]], seller: bytes, other: bytes, more: Flow) -> None:
    of_seller = flows.setdefault(seller, {})
    known = of_seller.get(other, Flow())
    of_seller[other] = Flow(
        known.transfers + more.transfers,
        known.paid + more.paid,
        known.returned + more.returned,
        known.days | more.days,
    )
