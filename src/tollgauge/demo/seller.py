"""A seller: one endpoint of the demo market, with its price and payee at a time.

A seller is data. Its `behave` function (behaviours.py) is a pure function of seller, request and
time, so that live requests and the simulated history run the same code. Prices and payees change at
fixed times, so both agree.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Final

from tollgauge.core.base.signature import add_checksum
from tollgauge.core.base.units import DAY_MS, HOUR_MS
from tollgauge.core.probe.exchange import Answer
from tollgauge.demo.pseudorandom import draw_log_normal, roll

DOMAIN: Final = "example"
"""A reserved domain (RFC 2606). Each seller's host name is a separate site
(core/endpoint/identity).
"""

PROBER: Final = "tollgauge"
"""Prefix of a prober's User-Agent."""

_DIURNAL: Final = (
    *(0, 0, 0, 0, 1, 2, 4, 7, 10, 12, 14, 15),
    *(16, 18, 20, 18, 16, 13, 10, 7, 5, 3, 2, 1),
)
"""Percentage by which load increases latency, by UTC hour."""


class Wire(StrEnum):
    """Faults below HTTP."""

    OPEN = "open"
    CLOSED = "closed"
    EXPIRED = "expired-certificate"
    WRONG_NAME = "certificate-of-another-name"


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoRequest:
    """The parts of a request that sellers use. `path` is percent-decoded; `agent` is the
    User-Agent.
    """

    method: str
    path: str
    query: str = ""
    body: bytes = b""
    agent: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A response and the delay in addition to the seller's usual latency."""

    answer: Answer
    delay_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOffer:
    """A seller's offer at a time: atomic USDC and the payee."""

    amount: int
    pay_to: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Seller:
    """One endpoint, compared by identity.

    Attributes:
        kind: name of the behaviour, for tables and tests.
        same_host_as: label of the seller whose host it shares; empty if it has its own.
        also_on: further networks of its offers.
        amounts: prices in atomic USDC, which change every `turn_ms` if there are several.
        payees: payees, which change every `turn_ms`; by default an address of the seller.
        listed_amount: the outdated price in the directory, if any.
        query, body: the example input, which the listing contains if `declares` is set.
        latency_ms: median latency.
        trouble: days with an outage per 1,000 days.
        age_days: age of a listing that is younger than the simulated history.
        hidden: (every, days): of `every` days, the seller is missing from the directory for `days`.
        version: x402 version of the directory entry.
        owners: names of the payees' owners if the seller announces its changes (announcing.py).
    """

    label: str
    path: str
    name: str
    description: str
    tags: tuple[str, ...]
    kind: str
    behave: Behaviour
    amounts: tuple[int, ...]
    payees: tuple[str, ...] = ()
    owners: tuple[str, ...] = ()
    method: str = "GET"
    query: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    example: str = '{"ok":true}'
    declares: bool = True
    version: int = 2
    network: str = "eip155:8453"
    also_on: tuple[str, ...] = ()
    wire: Wire = Wire.OPEN
    latency_ms: int = 180
    trouble: int = 4
    turn_ms: int = 9 * DAY_MS
    listed_amount: int | None = None
    listed_http: bool = False
    every_path: bool = False
    age_days: int | None = None
    hidden: tuple[int, int] | None = None
    same_host_as: str = ""

    @property
    def host(self) -> str:
        """The host name."""
        return f"{self.same_host_as or self.label}.{DOMAIN}"

    @property
    def url(self) -> str:
        """The resource as the seller writes it."""
        return f"https://{self.host}{self.path}"

    @property
    def templated(self) -> bool:
        """Whether the path contains a placeholder."""
        return "{" in self.path


Behaviour = Callable[[Seller, DemoRequest, int], Reply]


@cache
def payee(owner: str) -> str:
    """Return a stable checksummed address for an invented owner. Its key does not exist."""
    return add_checksum("0x" + hashlib.sha256(owner.encode()).hexdigest()[-40:])


def offer_at(seller: Seller, now: int) -> DemoOffer:
    """Return the seller's offer at `now`."""
    turn = now // seller.turn_ms
    payees = seller.payees or (payee(seller.label),)
    return DemoOffer(
        amount=seller.amounts[turn % len(seller.amounts)],
        pay_to=payees[turn % len(payees)],
    )


def latency_at(seller: Seller, now: int, *, seed: int = 0) -> int:
    """Return the seller's latency at `now` in ms: its median with skewed noise and the day's
    load.
    """
    hour = now // HOUR_MS % 24
    return (
        draw_log_normal(seller.latency_ms, seed, seller.host, now) * (100 + _DIURNAL[hour]) // 100
    )


def is_listed(seller: Seller, at: int, *, present: int) -> bool:
    """Return whether the directory lists the seller at `at`. `present` is the end of the
    history.
    """
    if seller.age_days is not None and at < present - seller.age_days * DAY_MS:
        return False
    if seller.hidden is None:
        return True
    every, days = seller.hidden
    return (at // DAY_MS + roll(seller.host) % every) % every >= days


def on_route(seller: Seller, path: str) -> bool:
    """Return whether a path leads to the seller's paid route."""
    if seller.every_path:
        return True
    if not seller.templated:
        return path == seller.path
    pieces = re.split(r"\{[^/{}]+\}", seller.path)
    return re.fullmatch("[^/]+".join(map(re.escape, pieces)), path) is not None
