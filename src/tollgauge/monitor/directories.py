"""Directories: their entries compared with the latest 402 of the endpoints, and figures of each.

For a large population a worker computes the figures (jobs/score) and requests read the stored
result. For a small one each request computes them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import Final

from pydantic import TypeAdapter
from sqlalchemy import Connection

from tollgauge.core.base.units import HOUR_MS
from tollgauge.core.directory.entry_record import (
    EVICTION_MS,
    DropReason,
    TermDifference,
    explain_drop,
    find_differences,
)
from tollgauge.core.endpoint.terms import MAX_OFFERS, Quote
from tollgauge.core.probe.schedule import DEAD_MS
from tollgauge.db.meta import CachedValue
from tollgauge.monitor.ranking import COUNTED_MAX
from tollgauge.store.endpoints import crawls, listings, rated_endpoints
from tollgauge.store.endpoints.listings import ComparableListing, StoredListing


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryEntry:
    """An endpoint's entry in a directory, present or former.

    `drop_reason` is None if the directory lists the endpoint or its statement explains nothing.
    `differences` is None if nothing can be compared: the entry is a former one or has no terms, or
    the latest 402 had no terms or at least MAX_OFFERS.
    """

    listing: StoredListing
    resource: str
    drop_reason: DropReason | None
    differences: tuple[TermDifference, ...] | None

    @property
    def price_micro_usd(self) -> int | None:
        """The listed price; None unless it is in a known dollar token."""
        terms = self.listing.terms
        return terms.micro_usd if isinstance(terms, Quote) else None

    @property
    def eviction_at(self) -> int | None:
        """When the directory drops the entry without another call (ms UTC); None if it states no
        last call, or has dropped the entry.
        """
        listing = self.listing
        if listing.delisted_at is not None or listing.statement is None:
            return None
        called = listing.statement.last_called_at
        return None if called is None else called + EVICTION_MS


DROPPED_MAX: Final = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryFigures:
    """The entries that a directory lists now. Times are milliseconds UTC.

    Attributes:
        dead: Endpoints that have been down for more than DEAD_MS.
        compared: Entries with terms whose endpoint sent a 402 with terms.
        wrong_price, wrong_pay_to: Of these, entries with a price or payTo that differs.
        median_age_ms: Time since the directory first listed an endpoint; None without entries.
        crawled_at: End of the last complete crawl; None before any.
        duplicates: Entries of that crawl whose endpoint another entry had listed.
    """

    source: str
    entries: int
    dead: int
    compared: int
    wrong_price: int
    wrong_pay_to: int
    median_age_ms: int | None
    crawled_at: int | None
    duplicates: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryReport:
    """The figures of all directories at `as_of` (ms UTC), the largest first."""

    as_of: int
    directories: tuple[DirectoryFigures, ...]


_CACHED: Final = CachedValue(
    key="directories",
    form=TypeAdapter(DirectoryReport),
    refresh_ms=HOUR_MS,
    use_ms=3 * HOUR_MS,
)
is_due: Final = _CACHED.is_due


def current(tx: Connection, *, now: int) -> DirectoryReport:
    """Return the stored figures if they are fresh enough, otherwise computed ones."""
    return _CACHED.usable(tx, now=now) or count(tx, now=now)


def count(tx: Connection, *, now: int) -> DirectoryReport:
    """Compute the figures in one pass over all listings."""
    ages: dict[str, list[int]] = defaultdict(list)
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for found in listings.all_listed(tx):
        source, differences = found.listing.source, _compare(found)
        ages[source].append(now - found.listing.first_seen)
        wrong = {one.field for one in differences or ()}
        counts[source].update(
            dead=found.down_since is not None and now - found.down_since > DEAD_MS,
            compared=differences is not None,
            wrong_price="price" in wrong,
            wrong_pay_to="payTo" in wrong,
        )
    complete = crawls.latest_complete(tx)
    figures = []
    for source in ages.keys() | complete.keys():
        known, counted, crawl = sorted(ages[source]), counts[source], complete.get(source)
        figures.append(
            DirectoryFigures(
                source=source,
                entries=len(known),
                dead=counted["dead"],
                compared=counted["compared"],
                wrong_price=counted["wrong_price"],
                wrong_pay_to=counted["wrong_pay_to"],
                median_age_ms=known[(len(known) - 1) // 2] if known else None,
                crawled_at=crawl.finished_at if crawl else None,
                duplicates=crawl.duplicates if crawl else None,
            )
        )
    figures.sort(key=lambda one: (-one.entries, one.source))
    return DirectoryReport(as_of=now, directories=tuple(figures))


def keep(tx: Connection, report: DirectoryReport) -> None:
    """Store the figures of a large population (monitor/ranking.COUNTED_MAX), otherwise remove
    them.
    """
    entries = sum(one.entries for one in report.directories)
    _CACHED.keep(tx, report, worthwhile=entries > COUNTED_MAX)


def read_directory(
    tx: Connection, source: str, *, now: int
) -> tuple[DirectoryFigures, tuple[DirectoryEntry, ...]] | None:
    """Return a directory's figures and the entries that it dropped last, or None if no directory
    has this name.
    """
    for figures in current(tx, now=now).directories:
        if figures.source == source:
            return figures, tuple(map(_judge, listings.dropped_last(tx, source, limit=DROPPED_MAX)))
    return None


def read_entries(tx: Connection, endpoint_id: str) -> tuple[DirectoryEntry, ...] | None:
    """Return an endpoint's entries, oldest first; None if it is unknown or not public."""
    entries = load_entries(tx, endpoint_id)
    known = entries or rated_endpoints.get_public(tx, endpoint_id)
    return None if known is None else entries


def load_entries(tx: Connection, endpoint_id: str) -> tuple[DirectoryEntry, ...]:
    """Return an endpoint's entries, oldest first; none if it is unknown or not public."""
    return tuple(map(_judge, listings.of_endpoint(tx, endpoint_id)))


def _judge(found: ComparableListing) -> DirectoryEntry:
    listing = found.listing
    dropped_at = listing.delisted_at
    return DirectoryEntry(
        listing=listing,
        resource=found.resource,
        drop_reason=None if dropped_at is None else explain_drop(listing.statement, dropped_at),
        differences=_compare(found) if dropped_at is None else None,
    )


def _compare(found: ComparableListing) -> tuple[TermDifference, ...] | None:
    """Compare a listing with the latest 402; None if either has no terms.

    The price of a templated endpoint may depend on the item, and a payTo can vary from offer to
    offer.
    """
    terms = found.listing.terms
    live = sum(offer.until is None for offer in found.offers)
    # Of an envelope with more offers, only the first MAX_OFFERS are known.
    if terms is None or not 0 < live < MAX_OFFERS:
        return None
    varying = {"price": found.templated, "payTo": found.pay_to_varies}
    without = [name for name, varies in varying.items() if varies]
    return find_differences(terms, found.listing.scheme, found.offers, without=without)
