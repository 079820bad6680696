"""Trust record: what is known of one endpoint, for a client that decides whether to pay it.

The bundle (core/guard/bundle) has one of each listed endpoint, and core/guard/preflight judges an
offer by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tollgauge.core.base.units import DAY_MS
from tollgauge.core.score.evidence import TermChange

ADDRESSES_MS: Final = 30 * DAY_MS
"""How long an address stays known after it was last advertised."""
DECIMALS: Final = 6
"""Of the dollar tokens whose amounts a record names: a client compares them with those of USDC."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PaidAddress:
    """An address that an endpoint asked to be paid at, hexadecimal in lower case, and since when
    (ms UTC): the instant of the change to it, or when the endpoint was first seen.
    """

    pay_to: str
    since: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustRecord:
    """What is known of an endpoint. `score_tenths` and `grade` are None while nothing was measured;
    `network` (CAIP-2) while no price is known. `amount` is the price in atomic units of a dollar
    token with DECIMALS, None also where it is in another token. `addresses` are those that it asked
    to be paid at in the last ADDRESSES_MS, newest first. `flags` are the codes of its score's
    flags. `as_of` is when the score was computed (ms UTC), or else when the record was read.
    """

    resource: str
    recommendation: str
    grade: str | None
    score_tenths: int | None
    addresses: tuple[PaidAddress, ...]
    network: str | None
    amount: int | None
    flags: tuple[str, ...]
    as_of: int

    @property
    def pay_to(self) -> tuple[str, ...]:
        """The addresses alone."""
        return tuple(address.pay_to for address in self.addresses)


def addresses_of(
    pay_to: str, changes: Sequence[TermChange], *, first_seen: int, now: int
) -> tuple[PaidAddress, ...]:
    """Every address that was advertised after `now - ADDRESSES_MS`, newest first, each once with
    the latest change to it. `pay_to` is advertised now; `changes` are those of payTo, oldest first.
    """
    first = changes[0].before if changes else pay_to
    periods = [(first, first_seen), *((change.after, change.at) for change in changes)]
    if periods[-1][0] != pay_to:  # the change to it was not seen, or is no longer kept
        periods.append((pay_to, periods[-1][1]))
    ends = [since for _, since in periods[1:]] + [now]
    since_by_address: dict[str, int] = {}
    for (address, since), end in reversed(list(zip(periods, ends, strict=True))):
        if end > now - ADDRESSES_MS:
            since_by_address.setdefault(address, since)
    return tuple(
        PaidAddress(pay_to=address, since=since) for address, since in since_by_address.items()
    )
