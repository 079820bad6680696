"""Directories: an endpoint's entry in each, compared with its latest 402."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection

from tollgauge.core.directory.entry_record import (
    EVICTION_MS,
    DropReason,
    TermDifference,
    explain_drop,
    find_differences,
)
from tollgauge.core.endpoint.terms import Quote
from tollgauge.store.endpoints import listings, rated_endpoints
from tollgauge.store.endpoints.listings import ComparableListing, StoredListing


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryEntry:
    """An endpoint's entry in a directory, present or former.

    `drop_reason` is None if the directory lists the endpoint or its statement explains nothing.
    `differences` is None if nothing can be compared: the entry is a former one or has no terms, or
    no 402 with terms was seen.
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


def read_entries(tx: Connection, endpoint_id: str) -> tuple[DirectoryEntry, ...] | None:
    """Return an endpoint's entries, oldest first; None if it is unknown or not public."""
    entries = entries_of(tx, endpoint_id)
    known = entries or rated_endpoints.get_public(tx, endpoint_id)
    return None if known is None else entries


def entries_of(tx: Connection, endpoint_id: str) -> tuple[DirectoryEntry, ...]:
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
    if terms is None or all(offer.until is not None for offer in found.offers):
        return None
    varying = {"price": found.templated, "payTo": found.pay_to_varies}
    without = [name for name, varies in varying.items() if varies]
    return find_differences(terms, found.listing.scheme, found.offers, without=without)
