"""Volume: who paid a payTo, and how much of it is organic.

The rules are those of docs/methodology.md, *organic settlement*; `volume_of` states them.
Raw figures leave nothing out and divide by nothing. Hex addresses compare without case.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from fractions import Fraction

from tollgauge.core.evidence import ChainEvidence


@dataclass(frozen=True, slots=True, kw_only=True)
class Volume:
    """Settlements of the window in atomic USDC (6 decimals).

    `payers` counts those with organic volume. `effective` and `organic_usd` are already divided
    by `shared_hosts`; `wallet_effective` is not. `top` is the largest organic volume of a payer.
    `own` is what the payTo paid itself, `returned` what round trips cancelled.
    """

    raw: int = 0
    organic: int = 0
    own: int = 0
    returned: int = 0
    transfers: int = 0
    payers: int = 0
    top: int = 0
    raw_effective: Fraction = Fraction(0)
    wallet_effective: Fraction = Fraction(0)
    shared_hosts: int = 1

    @property
    def effective(self) -> Fraction:
        """Effective organic payers of one of the hosts that share the payTo."""
        return self.wallet_effective / self.shared_hosts

    @property
    def organic_usd(self) -> Fraction:
        """Organic dollars of one of the hosts that share the payTo."""
        return Fraction(self.organic, 10**6 * self.shared_hosts)

    @property
    def raw_usd(self) -> Fraction:
        """All dollars that the payTo received."""
        return Fraction(self.raw, 10**6)


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
    pay_to = _key(chain.pay_to)
    paid: dict[str, int] = {}
    back: dict[str, int] = {}
    for row in chain.payers:
        payer = _key(row.payer)
        paid[payer] = paid.get(payer, 0) + row.paid
        back[payer] = back.get(payer, 0) + row.returned
    others = {payer: volume for payer, volume in paid.items() if payer != pay_to}
    organic = [left for payer, volume in others.items() if (left := volume - back[payer]) > 0]
    return Volume(
        raw=sum(paid.values()),
        organic=sum(organic),
        own=paid.get(pay_to, 0),
        returned=sum(min(volume, back[payer]) for payer, volume in others.items()),
        transfers=sum(row.transfers for row in chain.payers),
        payers=len(organic),
        top=max(organic, default=0),
        raw_effective=_effective(paid.values()),
        wallet_effective=_effective(organic),
        shared_hosts=max(chain.shared_hosts, 1),
    )


def _key(address: str) -> str:
    return address.lower() if address[:2] in ("0x", "0X") else address


def _effective(volumes: Collection[int]) -> Fraction:
    total = sum(volumes)
    return Fraction(total * total, sum(v * v for v in volumes)) if total else Fraction(0)
