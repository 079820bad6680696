"""Volume: who paid a payTo, and how much of that is organic.

The rules are those of docs/methodology.md, *organic settlement*; `volume_of` states them.
Raw figures leave nothing out and divide by nothing. Hex addresses compare without case.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple, TypeVar

from tollgauge.core.base.rounding import Ratio, is_below, larger, smaller
from tollgauge.core.score.evidence import ChainEvidence, ChainSums, PayerSums
from tollgauge.core.score.policy import Policy, interpolate

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


class Volume(NamedTuple):
    """Settlements of the window: `sums` of the whole wallet, which `shared_hosts` share."""

    sums: ChainSums = NO_SUMS
    shared_hosts: int = 1

    @property
    def wallet_effective(self) -> Ratio:
        """Effective organic payers of the whole wallet."""
        return effective(self.sums.organic)


def activity_of(sums: PayerSums, payers: Ratio, hosts: int, policy: Policy) -> Ratio:
    """The subscore of one reading of who counts, for one of the hosts that share the payTo: min(P,
    (P + V) / 2), P from so many effective payers, V from the dollars that they paid; 0 without any.
    """
    if not sums.volume:
        return 0, 1
    part, whole = payers
    by_payers = p, of_p = interpolate(policy.payers, (part, whole * hosts))
    by_volume = v, of_v = interpolate(policy.volume, (sums.volume, 10**6 * hosts))
    return (p * of_v + v * of_p, 2 * of_p * of_v) if is_below(by_volume, by_payers) else by_payers


def ends_of(volume: Volume, policy: Policy) -> tuple[Ratio, Ratio]:
    """The subscores of the low and of the high end of the organic interval. At the low
    end payers are no more than their weights add up to. The high end is never below the low one,
    although leaving out a dominant payer can raise the number of effective ones.
    """
    sums, hosts = volume
    if not sums.low.volume and not sums.high.volume:
        return (0, 1), (0, 1)
    weighed = smaller(effective(sums.low), (sums.low.weight, WHOLE_WEIGHT))
    low = activity_of(sums.low, weighed, hosts, policy)
    return low, larger(low, activity_of(sums.high, effective(sums.high), hosts, policy))


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
    return Volume(chain.sums or NO_SUMS, max(chain.shared_hosts, 1))


def flow_sums(flows: Mapping[K, Flow], own: K) -> ChainSums:
    """What the flows of the payTo `own` by counterparty add up to, as far as they tell it alone:
    without the organic interval, which needs to know what the payers pay elsewhere
    (core/score/organic).
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


def effective(sums: PayerSums) -> Ratio:
    """How many effective payers there are."""
    return (sums.volume * sums.volume, sums.squares) if sums.squares else (0, 1)
