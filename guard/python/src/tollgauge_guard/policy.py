"""Policy: the payments that the owner of a wallet allows its software."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from tollgauge_guard.address import parse_account
from tollgauge_guard.errors import GuardError
from tollgauge_guard.payment import PayAgain
from tollgauge_guard.resource import ResourceError, parse
from tollgauge_guard.units import Asset

CENT: Final = 10_000
"""A cent in micro-dollars."""
DOLLAR: Final = 100 * CENT
GRADES: Final = "ABCDF"
"""The grades, best first."""
_NETWORK: Final = re.compile(r"(eip155:[1-9][0-9]*|solana:[1-9A-HJ-NP-Za-km-z]{32})", re.ASCII)
_MAX_DECIMALS: Final = 255


class Unknown(StrEnum):
    """What to do about an endpoint that the bundle does not know."""

    ALLOW_UP_TO = "allow-up-to"
    """Pay up to `Policy.unknown_max`, ask above it."""
    ASK = "ask"
    REFUSE = "refuse"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """A host that the owner trusts: with these `pay_to` addresses (any if empty), up to `max`
    micro-dollars per payment, and, if given, only with this `facilitator` in the offer.
    """

    pay_to: tuple[str, ...] = ()
    max: int | None = None
    facilitator: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The owner's rules. Money is in micro-dollars; a payment of exactly a limit is allowed.

    Attributes:
        max_call: limit of one payment.
        max_host_day: limit per host within 24 hours.
        max_day: limit within 24 hours.
        max_session: limit of one guard object; None: no limit.
        max_lifetime: limit of the account; None: no limit.
        max_validity: seconds that an authorization may stay valid.
        unknown: what to do about an endpoint that is not in the bundle.
        unknown_max: limit for unknown endpoints, and while the bundle is older than 7 days.
        price_factor: a price above this factor times the usual one asks.
        min_grade: a lower grade asks.
        assets: dollar tokens to pay with in addition to USDC.
        trust: hosts that the owner trusts, by name.
        deny: hosts and payTo addresses that are never paid.
        allow_extensions: extensions whose additional signatures are allowed.
        loss_budget, loss_count: limits of a host's unanswered payments within 24 hours, as a sum
            and as a number; above them, payments to the host ask.
        pay_again: whether a purchase whose payment got no answer may be paid again.
        pay_again_max: limit of `PayAgain.AUTO_UP_TO`.
        fail_open: without any bundle, treat every endpoint as unknown instead of refusing.
        second_opinion: ask the service's preflight about unknown endpoints; reveals the host.
        is_contract_wallet: the payer is a contract (EIP-1271); its signatures are not checked here.

    Raises:
        GuardError: a value is not valid.
    """

    max_call: int = DOLLAR
    max_host_day: int = 5 * DOLLAR
    max_day: int = 20 * DOLLAR
    max_session: int | None = None
    max_lifetime: int | None = None
    max_validity: int = 600
    unknown: Unknown = Unknown.ALLOW_UP_TO
    unknown_max: int = CENT
    price_factor: int = 2
    min_grade: str = "C"
    assets: tuple[Asset, ...] = ()
    trust: Mapping[str, Trust] = field(default_factory=dict)
    deny: Collection[str] = frozenset()
    allow_extensions: tuple[str, ...] = ()
    loss_budget: int = 10 * CENT
    loss_count: int = 3
    pay_again: PayAgain = PayAgain.ASK
    pay_again_max: int = 0
    fail_open: bool = False
    second_opinion: bool = False
    is_contract_wallet: bool = False

    def __post_init__(self) -> None:
        """Raises GuardError for a value that is not valid."""
        limits = [self.max_call, self.max_host_day, self.max_day, self.max_validity]
        limits += [self.unknown_max, self.price_factor, self.loss_budget, self.loss_count]
        limits += [self.pay_again_max, self.max_session or 0, self.max_lifetime or 0]
        for limit in limits:
            if type(limit) is not int or limit < 0:
                raise GuardError(
                    f"{limit!r} is not a limit.",
                    hint="Limits are whole numbers; money is in micro-dollars: 10_000 is a cent.",
                )
        if self.min_grade not in tuple(GRADES):
            raise GuardError(
                f"{self.min_grade!r} is not a grade.", hint="Grades are A, B, C, D and F."
            )
        flags = (self.fail_open, self.second_opinion, self.is_contract_wallet)
        if not all(type(flag) is bool for flag in flags):
            raise GuardError("fail_open, second_opinion and is_contract_wallet are True or False.")
        if not isinstance(self.assets, tuple) or not all(map(_is_asset, self.assets)):
            raise GuardError(
                "`assets` are not dollar tokens.",
                hint="Give a tuple of Asset: a CAIP-2 network, a contract, its decimals.",
            )
        if not all(map(_is_trust, self.trust.values())):
            raise GuardError(
                "`trust` of the policy is not valid.",
                hint="Give Trust(pay_to=(…), max=…) per host, with `max` in micro-dollars.",
            )
        for texts in (self.deny, self.allow_extensions):
            if isinstance(texts, str) or not all(isinstance(text, str) for text in texts):
                raise GuardError("`deny` and `allow_extensions` are collections of text.")
        # Requests are known by canonical hosts; a name in another form must not fail to match.
        trust = {normal_name(host): trust for host, trust in self.trust.items()}
        object.__setattr__(self, "trust", MappingProxyType(trust))
        object.__setattr__(self, "deny", frozenset(map(normal_name, self.deny)))
        object.__setattr__(self, "unknown", Unknown(self.unknown))
        object.__setattr__(self, "pay_again", PayAgain(self.pay_again))


def normal_name(name: str) -> str:
    """Return a host in canonical form, or an address: hex in lower case, base58 as it is."""
    if name.startswith("0x") or parse_account(name) is not None:
        return name.lower() if name.startswith("0x") else name
    try:
        return parse(f"https://{name}/").host
    except ResourceError:
        return name.lower()


def _is_trust(trust: object) -> bool:
    if not isinstance(trust, Trust) or not isinstance(trust.pay_to, tuple):
        return False
    is_limit = trust.max is None or (type(trust.max) is int and trust.max >= 0)
    addresses = (*trust.pay_to, *((trust.facilitator,) if trust.facilitator else ()))
    return is_limit and all(parse_account(address) is not None for address in addresses)


def _is_asset(asset: object) -> bool:
    if not isinstance(asset, Asset) or not _NETWORK.fullmatch(asset.network):
        return False
    is_count = type(asset.decimals) is int and 0 <= asset.decimals <= _MAX_DECIMALS
    return is_count and parse_account(asset.address, asset.network) is not None
