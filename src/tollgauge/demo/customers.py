"""The purchases of customers in the demo market.

Purchases are pseudorandom functions of seller, slot and number, so that overlapping spans agree.
Amount and payee are those of the seller's offer at that time. The market contains the cases that an
indexer must distinguish: sellers with many payers, with few, with one who gets the money back, with
a wallet that several hosts share, with no payers, and with separate payers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Final

from tollgauge.core.base.signature import derive_address
from tollgauge.core.base.units import DAY_MS, HOUR_MS
from tollgauge.demo.chain import TestAccount
from tollgauge.demo.envelopes import BASE, SOLANA
from tollgauge.demo.pseudorandom import chance, roll
from tollgauge.demo.seller import Seller, is_listed, offer_at
from tollgauge.demo.sellers import SELLERS

SLOT_MS: Final = 12 * HOUR_MS
"""Purchases are made at the ends of slots: a block of the history contains those of one slot."""
CROWD: Final = 60
_SLOTS: Final = 30 * DAY_MS // SLOT_MS


class Buyers(StrEnum):
    """The kind of a seller's customers.

    Customers of several sellers; a friend, who gets the money back; wallets that buy only from this
    seller; the same with a seller that forwards the money to a hub; or the other members of a ring,
    who pay from the wallets that receive their sales.
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

    `number` distinguishes purchases; `returned_to` receives the money from the payee, if set;
    `network` is the chain on which it is paid.
    """

    seller: Seller
    payer: TestAccount
    pay_to: str
    amount: int
    at: int
    number: int
    returned_to: str = ""
    network: str = BASE


RING: Final = tuple(f"carousel-{number}" for number in range(1, 7))
"""The labels of sellers who buy from each other."""
ANCHORS: Final = ("research", "ocr", "translate")
"""The labels of established sellers with different owners. All members of the crowd buy from them,
for about $3 each in 30 days, which proves that they are real customers.
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
    "soltx": Demand(customers=5, monthly=20),
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
"""Demand by the seller's label; sellers that are not listed have no customers. `anything` and `seo`
share a wallet with a third host; `soltx` is paid on Solana. `whisper` buys from itself through a
friend; the sellers after it use other methods.
"""


def purchases(start: int, end: int, *, present: int) -> Iterator[DemoPurchase]:
    """Yield the purchases after `start` and up to `end` (ms UTC), oldest first.

    `present` is the end of the history. Sellers without a listing have no customers yet.
    """
    for slot in range(start // SLOT_MS, end // SLOT_MS + 1):
        at = slot * SLOT_MS
        if not start < at <= end:
            continue
        for seller in _SOLD:
            if is_listed(seller, at, present=present):
                yield from _of_slot(seller, DEMAND[seller.label], slot, at)


def first_sales(at: int) -> Iterator[DemoPurchase]:
    """Yield the first purchases of a market that opens at `at`, from the sellers with most
    demand.
    """
    for seller in _SOLD[:_OPENING]:
        for which in range(min(DEMAND[seller.label].customers, _EARLY)):
            yield _purchase(seller, DEMAND[seller.label], which, at, number=which)


def sale_at(at: int) -> DemoPurchase:
    """Return the purchase at `at`. Sellers are drawn in proportion to their demand."""
    weighted = [seller for seller in _SOLD for _ in range(DEMAND[seller.label].monthly)]
    seller = weighted[roll("sale", at) % len(weighted)]
    which = roll("customer", at) % DEMAND[seller.label].customers
    return _purchase(seller, DEMAND[seller.label], which, at, number=roll("number", at))


_OPENING: Final = 6
"""Number of sellers with customers at the opening."""
_EARLY: Final = 6
"""Number of their first customers."""
_SOLD: Final = tuple(
    seller
    for label in DEMAND
    for seller in SELLERS
    if seller.label == label and seller.network in (BASE, SOLANA)
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
        network=_draw_network(seller, at, number),
    )


def _draw_network(seller: Seller, at: int, number: int) -> str:
    """Return the chain on which a purchase is paid: one of those that the seller offers."""
    networks = (seller.network, *seller.also_on)
    return networks[roll("network", seller.label, at, number) % len(networks)]


def _parties(label: str, buyers: Buyers, which: int) -> tuple[TestAccount, str]:
    """Return the payer of a purchase, and the final recipient if the seller passes it on."""
    if buyers is Buyers.CROWD:
        # The seller's customers are consecutive members of the crowd.
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
    """Return an account that only the demo uses. Its key is derived from its name."""
    key = hashlib.sha256(f"tollgauge demo {name}".encode()).digest()
    return TestAccount(address=derive_address(key), key="0x" + key.hex())
