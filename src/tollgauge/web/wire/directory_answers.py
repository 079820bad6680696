"""JSON of directories: their figures, and the entries of an endpoint."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from tollgauge.core.base.units import DAY_MS
from tollgauge.core.directory.entry_record import DIFFERENCES, CatalogueStatus, DropReason
from tollgauge.monitor.directories import DirectoryEntry, DirectoryFigures, DirectoryReport
from tollgauge.web.wire.response_model import (
    NULL_IF_EMPTY,
    Dollars,
    OneOf,
    ResponseModel,
    Time,
    from_attribute,
)

_TextOrNull = Annotated[str | None, NULL_IF_EMPTY]


class StatementResponse(ResponseModel):
    """The directory's statement about the entry, null where it states nothing. `status` and
    `reason` are those of the header `EXTENSION-RESPONSES`; `calls30d` and `payers30d` count the
    last 30 days.
    """

    status: Annotated[str, OneOf(CatalogueStatus)] | None
    reason: _TextOrNull
    calls30d: int | None = from_attribute("calls")
    payers30d: int | None = from_attribute("payers")
    last_called_at: Time | None
    updated_at: Time | None


class TermDifferenceResponse(ResponseModel):
    """A listed term that differs from the latest 402. Prices are in dollars, and empty if they are
    not in a known dollar token.
    """

    field: Annotated[str, OneOf(DIFFERENCES)]
    listed: str
    live: str


class DirectoryEntryResponse(ResponseModel):
    """An endpoint's entry in a directory. `delistedAt` is null while it is listed; `dropReason` is
    null if the directory's statement does not explain the removal. `network`, `scheme`, `payTo` and
    `amountUsd` are as listed. `evictionAt` is 30 days after the last call that a listed entry
    states: directories drop an entry about then. `differences` is null if the entry cannot be
    compared, and empty if the latest 402 contains the listed terms.
    """

    directory: str = from_attribute("source")
    first_seen: Time
    last_seen: Time
    delisted_at: Time | None
    drop_reason: Annotated[str, OneOf(DropReason)] | None
    network: _TextOrNull
    scheme: _TextOrNull
    pay_to: _TextOrNull
    amount_usd: Dollars | None = from_attribute("price_micro_usd")
    statement: StatementResponse | None
    eviction_at: Time | None
    differences: list[TermDifferenceResponse] | None


class EntriesResponse(ResponseModel):
    """The endpoint's entries in all directories, oldest first. A former entry remains."""

    resource: str
    directories: list[DirectoryEntryResponse]


class DirectoryResponse(ResponseModel):
    """The `entries` that a directory lists now. `deadShare` of their endpoints have been down for
    more than 7 days. `compared` entries have terms, and so had the latest 402 of their endpoint;
    `wrongPriceShare` and `wrongPayToShare` of these differ from it. `medianAgeDays` is the time
    since the directory first listed an endpoint. `duplicates` of the last complete crawl, which
    ended at `crawledAt`, list an endpoint again. Figures without a base are null.
    """

    directory: str = from_attribute("source")
    entries: int
    dead_share: float | None
    compared: int
    wrong_price_share: float | None
    wrong_pay_to_share: float | None
    median_age_days: float | None
    crawled_at: Time | None
    duplicates: int | None


class DirectoriesResponse(ResponseModel):
    """All directories, the largest first, as counted at `asOf`."""

    as_of: Time
    directories: list[DirectoryResponse]


class DroppedEntryResponse(ResponseModel):
    """An endpoint that the directory no longer lists. `dropReason` is null if the directory's
    statement does not explain the removal.
    """

    resource: str
    delisted_at: Time
    drop_reason: Annotated[str, OneOf(DropReason)] | None


class DirectoryDetailResponse(DirectoryResponse):
    """A directory, and up to 50 entries that it dropped last, newest first."""

    dropped: list[DroppedEntryResponse]


def directories(report: DirectoryReport) -> DirectoriesResponse:
    """Build the JSON of all directories."""
    found = [DirectoryResponse.build(one, **_shares(one)) for one in report.directories]
    return DirectoriesResponse.build(report, directories=found)


def directory(
    figures: DirectoryFigures, dropped: Iterable[DirectoryEntry]
) -> DirectoryDetailResponse:
    """Build the JSON of one directory."""
    entries = [DroppedEntryResponse.build(one, one.listing) for one in dropped]
    return DirectoryDetailResponse.build(figures, dropped=entries, **_shares(figures))


def _shares(figures: DirectoryFigures) -> dict[str, float | None]:
    entries, compared, age = figures.entries, figures.compared, figures.median_age_ms
    return {
        "dead_share": figures.dead / entries if entries else None,
        "wrong_price_share": figures.wrong_price / compared if compared else None,
        "wrong_pay_to_share": figures.wrong_pay_to / compared if compared else None,
        "median_age_days": None if age is None else round(age / DAY_MS, 1),
    }


def entries(resource: str, found: Iterable[DirectoryEntry]) -> EntriesResponse:
    """Build the JSON of an endpoint's entries."""
    return EntriesResponse(resource=resource, directories=[build_entry(one) for one in found])


def build_entry(entry: DirectoryEntry) -> DirectoryEntryResponse:
    """Build the JSON of an entry."""
    terms = entry.listing.terms
    return DirectoryEntryResponse.build(
        entry, entry.listing, network=terms and terms.network, pay_to=terms and terms.pay_to
    )
