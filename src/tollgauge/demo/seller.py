"""Seller: one endpoint of the demo market, and its price and payee at a time.

A seller is data. How it answers is its `behave` function (behaviours.py), pure in (seller,
request, now): a live request and a simulated past run the same code. Prices and payees that
change do so by the calendar, so both agree on when.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Final

from eth_utils.address import to_checksum_address

from tollgauge.core.base.units import DAY_MS, HOUR_MS
from tollgauge.core.probe.exchange import Answer
from tollgauge.demo.pseudorandom import roll, skewed

DOMAIN: Final = "example"
"""A reserved domain (RFC 2606). Each seller has a host name and so a site of its own below it
(core/endpoint/identity).
"""

PROBER: Final = "tollgauge"
"""Prefix of a prober's User-Agent."""

_DIURNAL: Final = (
    *(0, 0, 0, 0, 1, 2, 4, 7, 10, 12, 14, 15),
    *(16, 18, 20, 18, 16, 13, 10, 7, 5, 3, 2, 1),
)
"""By how many per cent the day's load raises latency, by the UTC hour."""


class Wire(StrEnum):
    """Faults below HTTP."""

    OPEN = "open"
    CLOSED = "closed"
    EXPIRED = "expired-certificate"
    WRONG_NAME = "certificate-of-another-name"


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoRequest:
    """The part of a request that a seller looks at. `path` is percent-decoded, `agent` the
    User-Agent.
    """

    method: str
    path: str
    query: str = ""
    body: bytes = b""
    agent: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """An answer and the time that the seller takes over it, beyond its usual latency."""

    answer: Answer
    delay_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOffer:
    """A seller's offer at a time: atomic USDC and the payee."""

    amount: int
    pay_to: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Seller:
    """One endpoint; equal to itself only.

    `kind` names the behaviour for tables and tests. `beside` is the label of the seller whose host
    it shares, empty where it has its own. `amounts` (atomic USDC) and `payees` hold one
    entry, or several that take turns every `turn_ms`; without payees the seller has an address
    of its own. `listed_amount` is what the directory says where it
    is out of date. `query` and `body` are the example input, declared in the listing where
    `declares` says so. `latency_ms` is the median, `trouble` the permille of days with an outage.
    `age_days` dates a listing younger than the simulated past; `hidden` is (every, days): the
    directory forgets the seller for some days of every so many. `version` is the form in which
    the directory lists it. `owners` are names of the payees' owners where the seller announces his
    changes (announcing.py), else empty.
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
    wire: Wire = Wire.OPEN
    latency_ms: int = 180
    trouble: int = 4
    turn_ms: int = 9 * DAY_MS
    listed_amount: int | None = None
    listed_http: bool = False
    every_path: bool = False
    age_days: int | None = None
    hidden: tuple[int, int] | None = None
    beside: str = ""

    @property
    def host(self) -> str:
        """The seller's host name."""
        return f"{self.beside or self.label}.{DOMAIN}"

    @property
    def url(self) -> str:
        """The resource as the seller itself writes it."""
        return f"https://{self.host}{self.path}"

    @property
    def templated(self) -> bool:
        """Whether the path holds a placeholder."""
        return "{" in self.path


Behaviour = Callable[[Seller, DemoRequest, int], Reply]


@cache
def payee(owner: str) -> str:
    """A stable checksummed address for an invented owner, without a known key."""
    return to_checksum_address(hashlib.sha256(owner.encode()).digest()[-20:])


def offer_at(seller: Seller, now: int) -> DemoOffer:
    """Return the seller's offer at `now`."""
    turn = now // seller.turn_ms
    payees = seller.payees or (payee(seller.label),)
    return DemoOffer(
        amount=seller.amounts[turn % len(seller.amounts)],
        pay_to=payees[turn % len(payees)],
    )


def latency_at(seller: Seller, now: int, *, seed: int = 0) -> int:
    """How many milliseconds the seller takes at `now`: skewed noise on its median, and the day."""
    hour = now // HOUR_MS % 24
    return skewed(seller.latency_ms, seed, seller.host, now) * (100 + _DIURNAL[hour]) // 100


def listed(seller: Seller, at: int, *, present: int) -> bool:
    """Whether the directory lists the seller at `at`, in a past that ends at `present`."""
    if seller.age_days is not None and at < present - seller.age_days * DAY_MS:
        return False
    if seller.hidden is None:
        return True
    every, days = seller.hidden
    return (at // DAY_MS + roll(seller.host) % every) % every >= days


def on_route(seller: Seller, path: str) -> bool:
    """Whether a path reaches the seller's paid route."""
    if seller.every_path:
        return True
    if not seller.templated:
        return path == seller.path
    pieces = re.split(r"\{[^/{}]+\}", seller.path)
    return re.fullmatch("[^/]+".join(map(re.escape, pieces)), path) is not None
