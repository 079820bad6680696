"""Policy: what the owner of a wallet lets its software pay."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from tollgauge_guard.address import parse_address
from tollgauge_guard.errors import GuardError
from tollgauge_guard.units import Asset

CENT: Final = 10_000
"""Micro-dollars of a cent."""
DOLLAR: Final = 100 * CENT
_NETWORK: Final = re.compile(r"eip155:[1-9][0-9]*", re.ASCII)
_DECIMALS_MAX: Final = 255
GRADES: Final = "ABCDF"
"""The grades, best first."""


class Unknown(StrEnum):
    """What to do about an endpoint that the bundle does not know."""

    ALLOW_UP_TO = "allow-up-to"
    """Pay up to `Policy.unknown_max`, ask above it."""
    ASK = "ask"
    REFUSE = "refuse"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """What an owner allows a host whose payee varies: at most `max_amount` micro-dollars for one
    payment, and, where it is given, only offers that name this `facilitator` address in `extra`.
    """

    max_amount: int
    facilitator: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Limits are micro-dollars (1,000,000 is a dollar); a payment of exactly a limit is allowed.

    `max_call` limits one payment, `max_host_day` all payments to a host on a day (UTC), `max_day`
    all payments on a day. The same request is paid at most `max_repeats` times in ten minutes.
    An authorization may stay valid for `max_timeout` seconds.

    `unknown` says what to do about an endpoint that is not in the bundle; `unknown_max` is its
    limit, and the limit while the bundle is stale. A price above `price_factor` times the known one
    is refused, and a grade below `min_grade` asks. `assets` are dollar tokens to pay with besides
    USDC. `pins` are what you allow hosts whose payee varies, by host name. `fail_open`: while no
    bundle could be had, treat every endpoint as unknown instead of refusing all.
    `is_contract_wallet`: the payer is a contract (EIP-1271), so that only the chain can check its
    signatures; otherwise the guard does.
    """

    max_call: int = DOLLAR
    max_host_day: int = 5 * DOLLAR
    max_day: int = 20 * DOLLAR
    max_repeats: int = 3
    max_timeout: int = 3_600
    unknown: Unknown = Unknown.ALLOW_UP_TO
    unknown_max: int = CENT
    price_factor: int = 2
    min_grade: str = "C"
    assets: tuple[Asset, ...] = field(default=())
    pins: Mapping[str, Pin] = field(default_factory=dict)
    fail_open: bool = False
    is_contract_wallet: bool = False

    def __post_init__(self) -> None:
        """Raises GuardError for a limit that is no whole number, and for an unknown word."""
        limits = (self.max_call, self.max_host_day, self.max_day, self.max_repeats)
        for limit in (*limits, self.max_timeout, self.unknown_max, self.price_factor):
            if type(limit) is not int or limit < 0:
                raise GuardError(
                    f"{limit!r} is no limit.",
                    hint="Limits are whole numbers; money is in micro-dollars: 10_000 is a cent.",
                )
        if self.min_grade not in tuple(GRADES):
            raise GuardError(
                f"{self.min_grade!r} is no grade.", hint="Grades are A, B, C, D and F."
            )
        if type(self.fail_open) is not bool or type(self.is_contract_wallet) is not bool:
            raise GuardError("fail_open and is_contract_wallet are True or False.")
        if not isinstance(self.assets, tuple) or not all(map(_is_asset, self.assets)):
            raise GuardError(
                "The assets are no dollar tokens.",
                hint="Give a tuple of Asset: a CAIP-2 network, a contract, its decimals.",
            )
        if not all(map(_is_pin, self.pins.values())):
            raise GuardError(
                "A pin of the policy is not valid.",
                hint="Give Pin(max_amount=…) in micro-dollars, and the facilitator's address.",
            )
        object.__setattr__(self, "unknown", Unknown(self.unknown))


def _is_pin(pin: object) -> bool:
    if not isinstance(pin, Pin) or type(pin.max_amount) is not int or pin.max_amount < 0:
        return False
    return pin.facilitator is None or parse_address(pin.facilitator) is not None


def _is_asset(asset: object) -> bool:
    if not isinstance(asset, Asset) or not _NETWORK.fullmatch(asset.network):
        return False
    is_count = type(asset.decimals) is int and 0 <= asset.decimals <= _DECIMALS_MAX
    return is_count and parse_address(asset.address) is not None
