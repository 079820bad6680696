"""Volume: who paid a payTo, and how much of that is organic.

The rules are those of docs/methodology.md, *organic settlement*; `volume_of` states them.
Raw figures leave nothing out and divide by nothing. Hex addresses compare without case.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeVar

from tollgauge.core.evidence import ChainEvidence, ChainSums, PayerSums, PayerVolume
from tollgauge.core.policy import Policy, interpolate
from tollgauge.core.rounding import Ratio, is_below, smaller

WHOLE_WEIGHT: Final = 10**6
"""The weight of a payer who counts whole, in millionths."""

NO_SUMS: Final = ChainSums()

K = TypeVar("K", str, bytes)
"""An address: 0x-hex, or its bytes."""


class Flow(NamedTuple):
    """What passed in a window between a payTo and one counterparty: how many `transfers` it `paid`
    by authorization, what the payTo `returned` by any transfer (both atomic USDC), and the UTC
    `days` with a payment, as bits: day d is bit d % 32.
    """

    transfers: int = 0
    paid: int = 0
    returned: int = 0
    days: int = 0


class PayerVolumes(NamedTuple):
    """One reading of who counts, for one of the hosts that share the payTo: how many `effective`
    payers there are, and how many dollars (`usd`) they paid.
    """

    effective: Ratio
    usd: Ratio


@dataclass(frozen=True, slots=True, kw_only=True)
class Volume:
    """Settlements of the window: `sums` of the whole wallet, which `shared_hosts` share."""

    sums: ChainSums = NO_SUMS
    shared_hosts: int = 1

    @property
    def wallet_effective(self) -> Ratio:
        """Effective organic payers of the whole wallet."""
        return _effective(self.sums.organic)

    @property
    def raw(self) -> PayerVolumes:
        """Everybody and everything, of the whole wallet."""
        sums = self.sums.raw
        return PayerVolumes(_effective(sums), (sums.volume, 10**6))

    @property
    def organic(self) -> PayerVolumes:
        """Without the payTo itself and round trips (policy 1)."""
        return self._shared(self.sums.organic, _effective(self.sums.organic))

    @property
    def ends(self) -> tuple[PayerVolumes, PayerVolumes]:
        """The low and the high end of the organic interval (policy 2). At the low end payers are no
        more than their weights add up to.
        """
        low, high = self.sums.low, self.sums.high
        weighed = smaller(_effective(low), (low.weight, WHOLE_WEIGHT))
        return self._shared(low, weighed), self._shared(high, _effective(high))

    def _shared(self, sums: PayerSums, effective: Ratio) -> PayerVolumes:
        part, whole = effective
        hosts = self.shared_hosts
        return PayerVolumes((part, whole * hosts), (sums.volume, 10**6 * hosts))


def activity_of(volumes: PayerVolumes, policy: Policy) -> Ratio:
    """The subscore of one reading: min(P, (P + V) / 2), P from the payers, V from the dollars."""
    by_payers = interpolate(policy.payers, volumes.effective)
    by_volume = interpolate(policy.volume, volumes.usd)
    if not is_below(by_volume, by_payers):
        return by_payers
    (p, of_p), (v, of_v) = by_payers, by_volume
    return p * of_v + v * of_p, 2 * of_p * of_v


def volume_of(chain: ChainEvidence | None) -> Volume:
    """Only USDC that an EIP-3009 authorization moved to the payTo counts, and of that:

    - a payment of the payTo to itself is left out;
    - a transfer payTo to payer cancels the same amount of that payer's volume, and the payer
      counts with what is left;
    - effective payers are (Σv)² / Σv² over payers' organic volume v: n for n equal payers, close
      to 1 when one pays nearly everything;
    - a payTo that k monitored hosts share gives each of them one k-th.
    """
    if chain is None:
        return Volume()
    sums = sums_of(chain.payers, chain.pay_to) if chain.sums is None else chain.sums
    return Volume(sums=sums, shared_hosts=max(chain.shared_hosts, 1))


def sums_of(payers: Iterable[PayerVolume], pay_to: str) -> ChainSums:
    """What a list of the payers of a payTo adds up to (`flow_sums`). Hex addresses compare without
    case.
    """
    flows: dict[str, Flow] = {}
    for row in payers:
        before = flows.get(payer := _key(row.payer), Flow())
        flows[payer] = Flow(
            transfers=before.transfers + row.transfers,
            paid=before.paid + row.paid,
            returned=before.returned + row.returned,
        )
    return flow_sums(flows, _key(pay_to))


def flow_sums(flows: Mapping[K, Flow], own: K) -> ChainSums:
    """What the flows of the payTo `own` by counterparty add up to, as far as they tell it alone:
    without the organic interval, which needs to know what the payers pay elsewhere (core/organic).
    """
    paid = {payer: flow for payer, flow in flows.items() if flow.transfers or flow.paid}
    others = [flow for payer, flow in paid.items() if payer != own]
    return ChainSums(
        transfers=sum(flow.transfers for flow in paid.values()),
        own=paid[own].paid if own in paid else 0,
        returned=sum(min(flow.paid, flow.returned) for flow in others),
        raw=payer_sums([flow.paid for flow in paid.values()]),
        organic=payer_sums([left for flow in others if (left := flow.paid - flow.returned) > 0]),
    )


def payer_sums(volumes: Collection[int]) -> PayerSums:
    """The sums of the volumes of payers who count whole."""
    return PayerSums(
        payers=len(volumes),
        volume=sum(volumes),
        squares=sum(volume * volume for volume in volumes),
        top=max(volumes, default=0),
        weight=WHOLE_WEIGHT * len(volumes),
    )


def _key(address: str) -> str:
    return address.lower() if address[:2] in ("0x", "0X") else address


def _effective(sums: PayerSums) -> Ratio:
    return (sums.volume * sums.volume, sums.squares) if sums.squares else (0, 1)
