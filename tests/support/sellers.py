"""Sellers for paying clients: their records, offers and actions after a payment.

Data only; tests/support/seller_world.py serves it. `GOOD` sellers deserve to be paid. `BAD` ones
must never get a signature from a guarded client. `TAKERS` look good until they are paid, so a guard
cannot detect them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from tollgauge.demo.envelopes import BASE, BASE_SEPOLIA, USDC
from tollgauge.demo.seller import payee

Json = dict[str, Any]

KNOWN_PRICE: Final = 10_000
"""Atomic USDC, one cent: the price in records, and a guard's limit for sellers without a record."""
OTHER_TOKEN: Final = "0x00000000000000000000000000000000000070c3"
"""The address of a worthless token that calls itself USD Coin."""
PATH: Final = "/v1/data"
PYTHON: Final = frozenset({"httpx", "requests"})
TYPESCRIPT: Final = frozenset({"fetch", "axios"})
NOBODY: Final[frozenset[str]] = frozenset()


class After(StrEnum):
    """The action of a seller once it has a payment."""

    DELIVER = "deliver"
    ERROR = "error"
    HANG = "hang"
    DROP = "drop"
    ASK_AGAIN = "ask-again"
    DRIP = "drip"
    MOVE = "move"
    CIRCLE = "circle"
    """Redirects the paid request to itself, with another query each time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A seller's record in the bundle. `pay_to` is newest first."""

    pay_to: tuple[str, ...]
    recommendation: str = "proceed"
    grade: str = "A"
    score: float = 95.0
    amount: int = KNOWN_PRICE


@dataclass(frozen=True, slots=True, kw_only=True)
class Seller:
    """One seller, on its own host.

    `entries` are the `accepts` of its 402, in x402 `version`, and `body` the response body if it
    differs. `claims` is the label of the seller whose URL it presents as its own. `moved_to` is the
    label of the seller, or the path on its own host, to which it redirects. `refusals` are the
    codes with which a guard may refuse it, empty for a good seller. `signed_by` names the clients
    that sign its offer without a guard; `payable` states whether money then moves.
    """

    label: str
    entries: tuple[Json, ...] = ()
    record: Record | None = None
    refusals: frozenset[str] = frozenset()
    path: str = PATH
    route: str = ""
    body: Json | None = None
    claims: str = ""
    moved_to: str = ""
    version: int = 2
    drips: bool = False
    signed_by: frozenset[str] = PYTHON | TYPESCRIPT
    payable: bool = True
    after: After = After.DELIVER

    @property
    def listed_path(self) -> str:
        """Return the path of its record, with placeholders if it has some."""
        return self.route or self.path


def entry(owner: str, amount: object = KNOWN_PRICE, **changes: object) -> Json:
    """Return an `accepts` entry of x402 v2: atomic USDC to the address of an owner."""
    right = {
        "scheme": "exact",
        "network": BASE,
        "amount": str(amount) if isinstance(amount, int) else amount,
        "asset": USDC,
        "payTo": payee(owner),
        "maxTimeoutSeconds": 60,
        "extra": {"name": "USD Coin", "version": "2"},
    }
    return right | changes


def _old_entry(owner: str) -> Json:
    """Return an `accepts` entry of x402 v1."""
    new = entry(owner)
    amount = new.pop("amount")
    more = {"resource": "", "description": "", "mimeType": "application/json"}
    return new | {"network": "base", "maxAmountRequired": amount} | more


def _make_known(label: str, **changes: Any) -> Record:
    return Record(pay_to=(payee(label),), **changes)


def _good(label: str, **changes: Any) -> Seller:
    """Return a correct seller and its record, with changes."""
    fields: dict[str, Any] = {
        "label": label,
        "entries": (entry(label),),
        "record": _make_known(label),
    }
    return Seller(**(fields | changes))


def _bad(label: str, *codes: str, **changes: Any) -> Seller:
    """The same, which a guard must refuse with one of the codes."""
    return _good(label, refusals=frozenset(codes), **changes)


GOOD: Final = (
    _good("known"),
    _good("stranger-cheap", entries=(entry("stranger-cheap", 5_000),), record=None),
    _good("templated", path="/v1/items/23", route="/v1/items/{id}"),
    _good("price-a-little-up", entries=(entry("price-a-little-up", 15_000),)),
    _good("older-payto", record=Record(pay_to=(payee("newer"), payee("older-payto")))),
    _good("moved-within", path="/old", moved_to=PATH),
    _good("two-offers", entries=(entry("two-offers"), entry("thief", 20_000))),
    _good("version-1", version=1, entries=(_old_entry("version-1"),)),
)

BAD: Final = (
    _bad("avoided", "avoid", record=_make_known("avoided", recommendation="avoid", grade="F")),
    _bad(
        "not-payable",
        "not-payable",
        record=_make_known("not-payable", recommendation="not-payable"),
    ),
    _bad("caution", "caution", record=_make_known("caution", recommendation="caution", grade="C")),
    _bad("payto-changed", "payto-unknown", entries=(entry("thief"),)),
    _bad("price-raised", "price-jump", entries=(entry("price-raised", 30_000),)),
    _bad(
        "price-decoy",
        "price-jump",
        entries=(entry("price-decoy", 30_000),),
        body={"x402Version": 1, "accepts": [_old_entry("price-decoy")]},
    ),
    _bad("stranger-dear", "unknown-resource", entries=(entry("stranger", 50_000),), record=None),
    _bad("dear", "over-call-cap", "amount-over-cap", "price-jump", entries=(entry("dear", 10**9),)),
    _bad("poses-as-known", "resource-mismatch", claims="known", record=None),
    _bad("moved-to-stranger", "unknown-resource", "payto-unknown", moved_to="stranger-dear"),
    _bad("moved-to-avoided", "avoid", moved_to="avoided"),
    _bad("moved-to-poser", "resource-mismatch", moved_to="poses-as-known"),
    _bad("long-valid", "timeout-invalid", entries=(entry("long-valid", maxTimeoutSeconds=10**9),)),
    _bad("other-token", "asset-unknown", entries=(entry("other-token", asset=OTHER_TOKEN),)),
    _bad(
        "other-network",
        "asset-unknown",
        "network-unknown",
        entries=(entry("other-network", network="eip155:424242"),),
        payable=False,
    ),
    _bad(
        "asset-of-other-network",
        "asset-unknown",
        "network-unknown",
        entries=(entry("asset-of-other-network", network=BASE_SEPOLIA),),
        payable=False,
    ),
    _bad(
        "permit2",
        "asset-unknown",
        "signed-differs",
        entries=(
            entry(
                "permit2",
                extra={"name": "USD Coin", "version": "2", "assetTransferMethod": "permit2"},
            ),
        ),
        payable=False,
    ),
    _bad(
        "amounts-of-both-versions",
        "asset-unknown",
        "price-jump",
        "resource-mismatch",
        entries=(entry("amounts-of-both-versions", 10**6, maxAmountRequired="1"),),
    ),
    _bad("version-1-payto", "payto-unknown", version=1, entries=(_old_entry("thief"),)),
    _bad(
        "version-1-poser",
        "resource-mismatch",
        version=1,
        entries=(_old_entry("version-1-poser"),),
        claims="known",
        record=None,
    ),
    _bad(
        "payto-short",
        "payto-malformed",
        entries=(entry("payto-short", payTo="0x1234"),),
        signed_by=NOBODY,
    ),
    _bad(
        "amount-number",
        "amount-invalid",
        entries=(entry("amount-number") | {"amount": KNOWN_PRICE},),
        signed_by=TYPESCRIPT,
    ),
    _bad(
        "amount-exponent",
        "amount-invalid",
        entries=(entry("a", "1e4"),),
        signed_by=NOBODY,
    ),
    _bad(
        "amount-negative",
        "amount-invalid",
        entries=(entry("a", "-5"),),
        signed_by=NOBODY,
    ),
    _bad(
        "drips",
        "price-jump",
        entries=(entry("drips", 30_000),),
        drips=True,
        signed_by=frozenset({"fetch"}),
    ),
)

MOVES_TO: Final = "avoided"
"""Return the target to which a seller redirects the client that has just paid."""
TAKERS: Final = tuple(
    _good(f"takes-then-{after}", after=after) for after in After if after is not After.DELIVER
)

SELLERS: Final = (*GOOD, *BAD, *TAKERS)
BY_LABEL: Final = {seller.label: seller for seller in SELLERS}
HOSTS: Final = {seller.label: f"127.0.1.{place}" for place, seller in enumerate(SELLERS, start=1)}
"""Give each seller its own loopback address: a separate host for every client, without DNS."""
PAYEES: Final = frozenset(
    offer["payTo"] for seller in SELLERS for offer in seller.entries if len(offer["payTo"]) == 42
)
