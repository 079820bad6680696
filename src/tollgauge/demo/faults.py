"""Faults that a person can switch on and off at a seller of the running demo.

A fault of the terms (price, payTo) replaces the seller by one with other terms, so that its 402 and
its directory entry agree. Other faults modify the response. Faults last until they are switched
off, and a seller can have several faults.
"""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from functools import lru_cache
from typing import Final

from tollgauge.core.base.errors import TollgaugeError
from tollgauge.core.probe.exchange import Answer
from tollgauge.demo.behaviours import problem
from tollgauge.demo.envelopes import SOLANA
from tollgauge.demo.seller import Reply, Seller, payee
from tollgauge.demo.sellers import SELLERS

SLOW_MS: Final = 4_000
"""Additional latency of a slow seller. A prober's timeout is ten seconds."""
PRICE_FACTOR: Final = 3
"""Factor between the changed and the usual price."""
_ANOTHER_ON_SOLANA: Final = "DKBPQxde6b2835w9qJh3i2VjciE7LHQME1NS5wxvrQyz"


class Kind(StrEnum):
    """A fault of a seller."""

    DOWN = "down"
    SLOW = "slow"
    PRICE = "price"
    PAYTO = "payto"
    BROKEN = "broken"
    DELISTED = "delisted"

    @property
    def meaning(self) -> str:
        """A description of the fault."""
        return _MEANINGS[self]


_MEANINGS: Final = {
    Kind.DOWN: "returns 503 for every request",
    Kind.SLOW: f"responds {SLOW_MS // 1000} seconds later than usual",
    Kind.PRICE: f"charges {PRICE_FACTOR} times its usual price",
    Kind.PAYTO: "requests payment to another address",
    Kind.BROKEN: "returns a 402 with an envelope that clients cannot parse",
    Kind.DELISTED: "is missing from the directory (detected at the next crawl)",
}


class FaultError(TollgaugeError):
    """The seller or the fault does not exist."""


class Faults:
    """The active faults by the seller's label."""

    def __init__(self) -> None:
        self._on: dict[str, frozenset[Kind]] = {}

    def switch(self, label: str, kind: str, *, on: bool) -> None:
        """Switch a fault of a seller. Raises FaultError, whose hint lists the valid names."""
        fault = _kind(kind)
        seller = next((seller for seller in SELLERS if seller.label == label), None)
        if seller is None:
            labels = ", ".join(sorted(seller.label for seller in SELLERS))
            raise FaultError(f"There is no seller named {label}.", hint=f"There are: {labels}.")
        before = self.of(seller)
        self._on[label] = before | {fault} if on else before - {fault}

    def of(self, seller: Seller) -> frozenset[Kind]:
        """Return the active faults of a seller."""
        return self._on.get(seller.label, frozenset())

    def on(self) -> dict[str, list[str]]:
        """Return the active faults by the seller's label."""
        return {label: sorted(kinds) for label, kinds in sorted(self._on.items()) if kinds}

    def present(self, seller: Seller) -> Seller:
        """Return the seller with its current terms."""
        return _with_terms(seller, self.of(seller) & _OF_TERMS)

    def list_sellers(self) -> tuple[Seller, ...]:
        """Return the sellers that the directory lists, with their current terms."""
        return tuple(
            self.present(seller) for seller in SELLERS if Kind.DELISTED not in self.of(seller)
        )

    def apply(self, seller: Seller, reply: Reply) -> Reply:
        """Apply the seller's faults to its reply."""
        kinds = self.of(seller)
        if Kind.DOWN in kinds:
            reply = problem(503, "switched off manually")
        elif Kind.BROKEN in kinds and reply.answer.status == 402:
            reply = replace(reply, answer=_unreadable(reply.answer))
        if Kind.SLOW in kinds:
            reply = replace(reply, delay_ms=reply.delay_ms + SLOW_MS)
        return reply


_OF_TERMS: Final = frozenset({Kind.PRICE, Kind.PAYTO})


def _kind(name: str) -> Kind:
    try:
        return Kind(name)
    except ValueError:
        kinds = ", ".join(Kind)
        raise FaultError(f"There is no fault named {name}.", hint=f"There are: {kinds}.") from None


@lru_cache(maxsize=256)
def _with_terms(seller: Seller, kinds: frozenset[Kind]) -> Seller:
    # Returns the same object for the same arguments: behaviours.py caches responses by seller.
    if Kind.PRICE in kinds:
        seller = replace(seller, amounts=tuple(PRICE_FACTOR * amount for amount in seller.amounts))
        if seller.listed_amount is not None:
            seller = replace(seller, listed_amount=PRICE_FACTOR * seller.listed_amount)
    if Kind.PAYTO in kinds:
        another = payee(f"{seller.label}, another owner")
        seller = replace(
            seller, payees=(_ANOTHER_ON_SOLANA if seller.network == SOLANA else another,)
        )
    return seller


def _unreadable(answer: Answer) -> Answer:
    """Truncate the header and the body of a 402."""
    headers = tuple(
        (name, value[: len(value) // 2 + 1] if name == "payment-required" else value)
        for name, value in answer.headers
    )
    return replace(answer, headers=headers, body=answer.body[: len(answer.body) // 2])
