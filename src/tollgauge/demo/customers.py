"""Customers: the purchases of the demo market.

Pure: a purchase is a roll of its seller, its slot and its number, so overlapping spans agree. What
a customer pays, and its payee, are those of the seller's offer at that time. The variety is what an
indexer has to tell apart: sellers with many payers, with few, with one who gets the money back,
with a wallet that several hosts share, with none at all, and with payers of their own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Final

from eth_account import Account

from tollgauge.core.base.units import DAY_MS, HOUR_MS
from tollgauge.demo.chain import TestAccount
from tollgauge.demo.envelopes import BASE
from tollgauge.demo.pseudorandom import chance, roll
from tollgauge.demo.seller import Seller, listed, offer_at
from tollgauge.demo.sellers import SELLERS

SLOT_MS: Final = 12 * HOUR_MS
"""Purchases happen at the ends of slots: a block of the past holds those of one slot."""
CROWD: Final = 60
_SLOTS: Final = 30 * DAY_MS // SLOT_MS


class Buyers(StrEnum):
    """Who buys from a seller: customers of several sellers; a friend, who gets it back; wallets
    that buy from nobody else; the same, where the seller passes the money on to a hub; or the
    other members of a ring, from wallets that their own sales fill.
    """

    CROWD = "crowd"
    FRIEND = "friend"
    SYBILS = "sybils"
    HUB = "hub"
    RING = "ring"


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """A seller's sales: number of customers, purchases in 30 days, and kind of customer."""

    customers: int
    monthly: int
    buyers: Buyers = Buyers.CROWD


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoPurchase:
    """One payment by authorization: atomic USDC from a payer to a seller's payee, at ms UTC.

    `number` distinguishes purchases; `returned_to` receives the money from the payee, if set.
    """

    seller: Seller
    payer: TestAccount
    pay_to: str
    amount: int
    at: int
    number: int
    returned_to: str = ""


RING: Final = tuple(f"carousel-{number}" for number in range(1, 7))
"""The labels of sellers who buy from each other."""
ANCHORS: Final = ("research", "ocr", "translate")
"""The labels of established sellers, each of another owner: the whole crowd buys from them, for
some $3 in 30 days each, which proves that its members are real customers.
"""
DEMAND: Final[Mapping[str, Demand]] = {
    "weather": Demand(customers=44, monthly=110),
    "coinmark": Demand(customers=36, monthly=80),
    "searchlight": Demand(customers=30, monthly=60),
    "embed": Demand(customers=22, monthly=50),
    "quotes": Demand(customers=16, monthly=30),
    "tokenrisk": Demand(customers=14, monthly=26),
    "easel": Demand(customers=14, monthly=26),
    "gas": Demand(customers=12, monthly=24),
    "cloudline": Demand(customers=9, monthly=18),
    "scraper": Demand(customers=8, monthly=14),
    "pricefeed": Demand(customers=7, monthly=14),
    "contracts": Demand(customers=5, monthly=8),
    "lingua": Demand(customers=5, monthly=9),
    "headlines": Demand(customers=4, monthly=8),
    "surge": Demand(customers=4, monthly=8),
    "mixpay": Demand(customers=4, monthly=9),
    "needle": Demand(customers=3, monthly=5),
    "chess": Demand(customers=2, monthly=3),
    "geocode": Demand(customers=1, monthly=6),
    "barometer": Demand(customers=1, monthly=24),
    "anything": Demand(customers=2, monthly=14),
    "seo": Demand(customers=3, monthly=8),
    "research": Demand(customers=CROWD, monthly=240),
    "ocr": Demand(customers=CROWD, monthly=240),
    "translate": Demand(customers=CROWD, monthly=240),
    "whisper": Demand(customers=1, monthly=40, buyers=Buyers.FRIEND),
    "moneybags": Demand(customers=60, monthly=60, buyers=Buyers.SYBILS),
    "roundabout": Demand(customers=30, monthly=40, buyers=Buyers.HUB),
    **{label: Demand(customers=5, monthly=24, buyers=Buyers.RING) for label in RING},
}
"""By the seller's label: many customers, few, one; whoever is not named sells nothing. `anything`
and `seo` share a wallet with a third host; `whisper` buys from itself through a friend, and who
follows by other ways.
"""


def purchases(start: int, end: int, *, present: int) -> Iterator[DemoPurchase]:
    """The purchases after `start` and up to `end` (ms UTC), oldest first, in a past that ends at
    `present`. Sellers without a listing have no customers yet.
    """
    for slot in range(start // SLOT_MS, end // SLOT_MS + 1):
        at = slot * SLOT_MS
        if not start < at <= end:
            continue
        for seller in _SOLD:
            if listed(seller, at, present=present):
                yield from _of_slot(seller, DEMAND[seller.label], slot, at)


def first_sales(at: int) -> Iterator[DemoPurchase]:
    """The purchases of a market that opens at `at`: the first customers of those who sell most."""
    for seller in _SOLD[:_OPENING]:
        for which in range(min(DEMAND[seller.label].customers, _EARLY)):
            yield _purchase(seller, DEMAND[seller.label], which, at, number=which)


def sale_at(at: int) -> DemoPurchase:
    """The purchase that is made at `at`: a seller as often as its demand says, and a customer."""
    weighted = [seller for seller in _SOLD for _ in range(DEMAND[seller.label].monthly)]
    seller = weighted[roll("sale", at) % len(weighted)]
    which = roll("customer", at) % DEMAND[seller.label].customers
    return _purchase(seller, DEMAND[seller.label], which, at, number=roll("number", at))


_OPENING: Final = 6
"""How many sellers have customers from the first moment."""
_EARLY: Final = 6
"""How many of its customers come then."""
_SOLD: Final = tuple(
    seller
    for label in DEMAND
    for seller in SELLERS
    if seller.label == label and seller.network == BASE
)


def _of_slot(seller: Seller, demand: Demand, slot: int, at: int) -> Iterator[DemoPurchase]:
    for number in range(-(-demand.monthly // _SLOTS)):
        if chance(demand.monthly * 1000 // _SLOTS, "buys", seller.label, slot, number):
            which = roll("which", seller.label, slot, number) % demand.customers
            yield _purchase(seller, demand, which, at, number=number)


def _purchase(seller: Seller, demand: Demand, which: int, at: int, *, number: int) -> DemoPurchase:
    offer = offer_at(seller, at)
    payer, returned_to = _parties(seller.label, demand.buyers, which)
    return DemoPurchase(
        seller=seller,
        payer=payer,
        pay_to=offer.pay_to,
        amount=offer.amount,
        at=at,
        number=number,
        returned_to=returned_to,
    )


def _parties(label: str, buyers: Buyers, which: int) -> tuple[TestAccount, str]:
    """Return the payer of a purchase, and the final recipient if the seller passes it on."""
    if buyers is Buyers.CROWD:
        # The seller's customers: neighbours in the crowd, beginning somewhere.
        return _account(f"customer {(roll('first', label) + which) % CROWD}"), ""
    if buyers is Buyers.FRIEND:
        friend = _account(f"friend of {label}")
        return friend, friend.address
    if buyers is Buyers.RING:
        others = [member for member in RING if member != label]
        return _account(f"wallet of {others[which]}"), _account(f"wallet of {label}").address
    hub = _account(f"hub of {label}").address if buyers is Buyers.HUB else ""
    return _account(f"wallet {which} of {label}"), hub


@cache
def _account(name: str) -> TestAccount:
    """An account that only the demo uses; its key follows from its name."""
    key = "0x" + hashlib.sha256(f"tollgauge demo {name}".encode()).hexdigest()
    return TestAccount(address=Account.from_key(key).address, key=key)
