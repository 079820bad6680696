"""Simulated payments among wallets and sellers, and the demand that the indexer would measure.

The index has payments to the sellers that the payer signed, and everything that leaves the sellers.
What passes between other wallets is not in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Final, NamedTuple

from tollgauge.core.chain.settlement import MIN_PAYMENT
from tollgauge.core.score.demand import Flow, measure_demand
from tollgauge.core.score.evidence import Anchor, DemandEvidence

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
    """Addresses of an owner."""
    return tuple(f"{owner} {number}".encode() for number in range(count))


def paid(
    payers: Sequence[bytes], dollars: Fraction | int, *, to: bytes, bought: bool = True
) -> list[Payment]:
    """What each payer pays."""
    value = int(dollars * 10**6)
    return [Payment(payer, to, value, bought) for payer in payers]


def spent_at(
    payers: Sequence[bytes], dollars: Fraction | int, anchors: Sequence[bytes]
) -> list[Payment]:
    """What each payer spends at each of some anchors."""
    return [payment for anchor in anchors for payment in paid(payers, dollars, to=anchor)]


def circle(sellers: Sequence[bytes], dollars: int) -> list[Payment]:
    """Sellers each of which pays the next one."""
    following = (*sellers[1:], sellers[0])
    return [
        payment
        for seller, other in zip(sellers, following, strict=True)
        for payment in paid([seller], dollars, to=other)
    ]


def demand_of(
    payments: Iterable[Payment], sites: Mapping[bytes, str], pay_to: bytes
) -> DemandEvidence:
    """The demand of one of the addresses that sites advertise."""
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
