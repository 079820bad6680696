"""Statement of a directory about an entry, and differences between the entry and the live 402.

A directory can state quality figures and the status of an entry in its catalogue: the value that
facilitators send in the header `EXTENSION-RESPONSES`. Most directories state neither. Parsing never
raises.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import msgspec

from tollgauge.core.base.text import clean_text
from tollgauge.core.base.units import DAY_MS, dollars
from tollgauge.core.directory.page import read_count, read_time
from tollgauge.core.endpoint.terms import Advertised, KnownOffer, Quote
from tollgauge.core.lint.parsing import members

REASON_MAX: Final = 200
EVICTION_MS: Final = 30 * DAY_MS
"""Directories drop an entry about this long after the last call to it that they recorded."""
_EVICTION_TOLERANCE_MS: Final = 2 * DAY_MS
_COUNT_MAX: Final = 2**53
DIFFERENCES: Final = ("network", "scheme", "payTo", "price")
"""The terms of an entry that are compared with the live 402, in this order."""


class CatalogueStatus(StrEnum):
    """Status of an entry in a directory's catalogue, as in `EXTENSION-RESPONSES`."""

    SUCCESS = "success"
    PROCESSING = "processing"
    REJECTED = "rejected"


class DropReason(StrEnum):
    """Why a directory no longer lists an entry."""

    REJECTED = "rejected"
    NO_RECENT_CALL = "no-recent-call"


DROP_TEXTS: Final[Mapping[DropReason, str]] = {
    DropReason.REJECTED: "Its last status there was `rejected`.",
    DropReason.NO_RECENT_CALL: "The last call that the directory knew of was about 30 days before "
    "or earlier.",
}


class EntryStatement(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Values that a directory states about an entry. Times are milliseconds UTC.

    `calls` and `payers` are those of the last 30 days. `reason` explains a rejection.
    """

    status: CatalogueStatus | None = None
    reason: str = ""
    calls: int | None = None
    payers: int | None = None
    last_called_at: int | None = None
    updated_at: int | None = None


def read_statement(item: Mapping[str, object]) -> EntryStatement | None:
    """Return the statement in a raw entry, or None if the entry has none."""
    quality = members(item.get("quality"))
    status, reason = _read_status(item)
    statement = EntryStatement(
        status=status,
        reason=reason,
        calls=read_count(quality.get("l30DaysTotalCalls"), _COUNT_MAX),
        payers=read_count(quality.get("l30DaysUniquePayers"), _COUNT_MAX),
        last_called_at=read_time(quality.get("lastCalledAt")),
        updated_at=read_time(item.get("lastUpdated")),
    )
    return None if statement == EntryStatement() else statement


def _read_status(item: Mapping[str, object]) -> tuple[CatalogueStatus | None, str]:
    for key in ("extensionResponses", "extensions"):
        bazaar = members(members(item.get(key)).get("bazaar"))
        for status in CatalogueStatus:
            if status.value == bazaar.get("status"):
                reason = bazaar.get("rejectedReason") or bazaar.get("reason")
                return status, clean_text(reason, REASON_MAX)
    return None, ""


def explain_drop(statement: EntryStatement | None, dropped_at: int) -> DropReason | None:
    """Return why an entry was dropped at `dropped_at` (ms UTC), by the directory's last statement
    about it; None if that does not explain it.
    """
    if statement is None:
        return None
    if statement.status is CatalogueStatus.REJECTED:
        return DropReason.REJECTED
    called = statement.last_called_at
    if called is not None and dropped_at - called >= EVICTION_MS - _EVICTION_TOLERANCE_MS:
        return DropReason.NO_RECENT_CALL
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class TermDifference:
    """A term of an entry that differs from the live 402 (`field` is one of DIFFERENCES). Prices are
    in dollars, or empty if they are not in a known dollar token.
    """

    field: str
    listed: str
    live: str


def find_differences(
    terms: Advertised, scheme: str, offers: Iterable[KnownOffer], *, without: Collection[str] = ()
) -> tuple[TermDifference, ...]:
    """Compare the terms of an entry with the offers of the latest envelope.

    Each term is compared with the offers that agree in the terms before it. Terms that the entry
    lacks are not compared.

    Args:
        terms: The listed terms.
        scheme: The listed scheme; empty if the entry has none.
        offers: The offers of the endpoint; ended ones are ignored.
        without: Fields that are not compared.
    """
    live = [offer for offer in offers if offer.until is None]
    price = terms.micro_usd if isinstance(terms, Quote) else None
    differences: list[TermDifference] = []
    for field, name, value in (
        ("network", "network", terms.network),
        ("scheme", "scheme", scheme),
        ("payTo", "pay_to", terms.pay_to),
        ("price", "amount", price),
    ):
        if not live or value in (None, "") or field in without:
            continue
        same = [offer for offer in live if getattr(offer, name) == value]
        if not same:
            other = getattr(live[0], name)
            differences.append(
                TermDifference(field=field, listed=_format(value), live=_format(other))
            )
        live = same or live
    return tuple(differences)


def _format(value: str | int | None) -> str:
    return dollars(value) if isinstance(value, int) else value or ""
