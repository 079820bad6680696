"""Discovery: what an entry of a directory, or its absence, means for the endpoints that are known.

Rules:
- an endpoint is listed while any source lists it; only a complete crawl takes listings away: those
  of its source that it did not see (whether a whole crawl is suspicious: core/directory/discovery);
- the first source that lists an endpoint speaks for it (its declared input, its texts, and its
  price until a probe saw one); the others fill in what it left out;
- the first directory to list an endpoint is the event `listed`, the first after it was delisted
  `relisted`; a further source is no news;
- terms are compared with what the same source said before (monitor/terms has those of probes);
- a resource that one crawl names twice counts once, as it was named first;
- an endpoint that was adopted on request has no listing and is never delisted;
- what happened is dated `at`, when the listing was taken; what is due counts from `now`.

Reading a directory is clients/directories', reading an entry core/directory/listing's, the rows are
store/endpoints/listings'.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

from sqlalchemy import Connection

from tollgauge.core.base.units import MINUTE_MS
from tollgauge.core.directory import discovery
from tollgauge.core.directory.discovery import DELISTED, LISTED, RELISTED, carried
from tollgauge.core.directory.listing import ListedItem
from tollgauge.core.endpoint.identity import Endpoint, Listing, Resource
from tollgauge.core.endpoint.terms import Advertised, Quote
from tollgauge.core.probe.schedule import is_dead
from tollgauge.core.watch.changes import Change, term_changes
from tollgauge.db import meta
from tollgauge.db.codec import clean_quote, clean_terms
from tollgauge.db.engine import Store
from tollgauge.monitor import watched_changes
from tollgauge.monitor.seller_files import is_announced
from tollgauge.monitor.terms import discovery_event
from tollgauge.store import rows
from tollgauge.store.endpoints import crawls, endpoints, listings
from tollgauge.store.endpoints.crawls import Crawl
from tollgauge.store.endpoints.listings import DiscoveryEvent, LockedEndpoint, StoredListing
from tollgauge.store.probes import change_rows
from tollgauge.store.probes.probes import PROBE

SPREAD_MS: Final = 30 * MINUTE_MS
"""Over how long the first probes of new endpoints are spread: the normal cadence."""
REMOVED_AT_ONCE: Final = 1_000
"""Listings that are taken away in one transaction: others write meanwhile."""
REQUESTED: Final = "request"
"""The source of an endpoint that is known because somebody asked for it."""
_NEWS: Final = {Listing.UNLISTED: LISTED, Listing.DELISTED: RELISTED}
"""The event of an endpoint's being listed, where that is news."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class PageTally:
    """What a page brought: distinct resources `seen`, endpoints that were `new`, and how many
    events there were of each kind.
    """

    new: int
    seen: int
    kinds: Counter[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class CrawlEnding:
    """How a crawl ended. `suspicious`: it listed so little that it is not believed yet; `problem`
    says so in a sentence, or why the crawl did not end.
    """

    complete: bool = False
    suspicious: bool = False
    delisted: int = 0
    problem: str = ""


@dataclass(slots=True, kw_only=True)
class _Page:
    """A page of a crawl, and what it changes, until that is written.

    Most of a crawl is as it was before. So `changed` are only those known endpoints that need more
    than the instants at which they were `known` to be listed or their price was `named`; `seen` are
    the listings that are as they were.
    """

    crawl: Crawl
    now: int
    spread_ms: int
    tx: Connection
    new: list[Endpoint] = field(default_factory=list)
    changed: list[LockedEndpoint] = field(default_factory=list)
    known: list[str] = field(default_factory=list)
    named: list[str] = field(default_factory=list)
    earlier: list[Endpoint] = field(default_factory=list)
    listings: list[StoredListing] = field(default_factory=list)
    seen: list[str] = field(default_factory=list)
    events: list[tuple[str, DiscoveryEvent]] = field(default_factory=list)
    term_changes: list[tuple[str, Change]] = field(default_factory=list)

    def merge(
        self, item: ListedItem, locked: LockedEndpoint | None, listing: StoredListing | None
    ) -> None:
        """Add what an entry means for the endpoint and the listing that are there."""
        id_, source, at = item.resource.id, self.crawl.source, self.crawl.at(self.now)
        before = listing.terms if listing is not None else None
        # A listing that names no price now keeps its last one: what comes back is compared with it.
        terms = carried(before, clean_terms(item.quote or item.unpriced))
        if item.unpriced is not None and isinstance(terms, Quote):
            item = replace(item, quote=terms)
        announced = False
        if locked is None:
            new = new_endpoint(item.resource, now=self.now, spread_ms=self.spread_ms)
            self.new.append(_described(new, item, sources=(source,), at=at)[0])
            events = [(LISTED, "", "")]
        else:
            news = _NEWS.get(locked.endpoint.status)
            events = [(news, "", "")] if news else []
            announced = is_announced(self.tx, locked.endpoint, before, terms, at=at, source=source)
            events += discovery.changes(before, terms)
            self._add_known(locked, item, news=bool(events))
            if before is not None and terms is not None and before != terms:
                self._add_term_changes(locked, before, terms, announced=announced)
        self.events += [
            (id_, discovery_event(kind, source, at, *texts, announced=announced))
            for kind, *texts in events
        ]
        if listing is not None and listing.gone_at is None and before == terms:
            self.seen.append(id_)
            return
        self.listings.append(
            StoredListing(
                endpoint_id=id_,
                source=source,
                crawl_id=self.crawl.id,
                first_seen=at,
                last_seen=at,
                gone_at=None,
                terms=terms,
            )
        )

    def _add_known(self, locked: LockedEndpoint, item: ListedItem, *, news: bool) -> None:
        """Add what an entry means for a known endpoint, which owes a score if that is `news`."""
        due = None
        if news:
            due = new_endpoint(item.resource, now=self.now, spread_ms=self.spread_ms).next_due
        listed, named = _listed(locked, item, self.crawl.source, now=self.now, due=due)
        if due is not None:
            listed = _with_news(listed, now=self.now, due=due)
        if listed != locked:
            self.changed.append(listed)
        if listed.endpoint.next_due < locked.endpoint.next_due:
            self.earlier.append(listed.endpoint)
        (self.named if named else self.known).append(item.resource.id)

    def _add_term_changes(
        self, locked: LockedEndpoint, before: Advertised, after: Advertised, *, announced: bool
    ) -> None:
        """Changed terms are news to watchers, unless a probe saw terms of its own or another source
        speaks for the endpoint.
        """
        source, endpoint = self.crawl.source, locked.endpoint
        if endpoint.sources[:1] == (source,) and locked.quote_source != PROBE:
            at = self.crawl.at(self.now)
            changes = term_changes(before, after, at=at, source=source, announced=announced)
            self.term_changes += [(endpoint.id, change) for change in changes]

    def write(self) -> None:
        """Write what the page changes."""
        tx, at = self.tx, self.crawl.at(self.now)
        if self.earlier:  # with the new ones, so that hosts are locked in one order
            endpoints.bring_forward(tx, [*self.new, *self.earlier])
        endpoints.insert(tx, *self.new)
        listings.save_listed(tx, self.changed)
        listings.save_last_seen(tx, self.known, now=self.now)
        listings.save_last_seen(tx, self.named, now=self.now, quote_at=at)
        listings.save(tx, self.listings)
        listings.save_seen(tx, self.crawl, self.seen, at=at)
        listings.add_events(tx, self.events)
        change_rows.add(tx, self.term_changes)


def record_page(
    tx: Connection,
    crawl: Crawl,
    items: Sequence[ListedItem],
    *,
    next_offset: int,
    now: int,
    spread_ms: int = SPREAD_MS,
) -> PageTally:
    """Merge a page of a crawl into endpoints and listings, and remember how far it came.

    First probes of new endpoints are spread over `spread_ms` by their ids; 0 makes them due now.
    Recording a page again changes nothing.
    """
    meta.take_turn(tx, listings.LISTINGS_TURN)
    by_id: dict[str, ListedItem] = {}
    for item in items:
        by_id.setdefault(item.resource.id, item)
    locked = listings.lock(tx, by_id)
    listed = listings.of_source(tx, crawl.source, by_id)
    page = _Page(crawl=crawl, now=now, spread_ms=spread_ms, tx=tx)
    for id_, item in sorted(by_id.items()):
        listing = listed.get(id_)
        if listing is None or listing.gone_at is not None or listing.crawl_id < crawl.id:
            page.merge(item, locked.get(id_), listing)
    page.write()
    crawls.set_offset(tx, crawl, next_offset)
    kinds = Counter(event.event for _, event in page.events)
    return PageTally(new=len(page.new), seen=len(by_id), kinds=kinds)


def finish_crawl(tx: Connection, crawl: Crawl, *, complete: bool, now: int) -> int:
    """End a crawl in one transaction. A complete one takes away the listings of its source that it
    did not see; returns how many endpoints no source lists any more.
    """
    delisted = 0
    for ids in rows.chunks(listings.unseen(tx, crawl) if complete else ()):
        delisted += _remove_unseen(tx, crawl, ids, now=now)
    crawls.end_crawl(tx, crawl, complete=complete, suspicious=False, now=now)
    return delisted


async def end_crawl(
    store: Store, crawl: Crawl, *, whole: bool, accept_shrink: bool = False, now: int
) -> CrawlEnding:
    """End a crawl, deciding whether it is complete: `whole` says that it read its listing to the
    end. One that listed nothing delists nothing. Neither does one that listed suspiciously little,
    unless `accept_shrink`: the operator confirms that the directory shrank.

    What it takes away is taken REMOVED_AT_ONCE at a time, and the crawl ends last: one that is
    interrupted takes away the rest when it is resumed.
    """
    census = await store.reading(crawls.census, crawl)
    whole = whole and census.listed > 0
    suspicious = whole and census.is_suspicious and not accept_shrink
    complete = whole and not suspicious
    unseen = await store.reading(listings.unseen, crawl) if complete else ()
    delisted = 0
    for ids in rows.chunks(unseen, REMOVED_AT_ONCE):
        delisted += await store.writing(_remove_unseen, crawl, ids, now=now)
    await store.writing(crawls.end_crawl, crawl, complete=complete, suspicious=suspicious, now=now)
    problem = ""
    if suspicious:
        problem = (
            f"Suspicious: it lists {census.listed} endpoints, and the last complete crawl listed "
            f"{census.complete}. Nothing is delisted until a second crawl agrees, or you confirm "
            "it with `tollgauge discover --accept-shrink`."
        )
    return CrawlEnding(complete=complete, suspicious=suspicious, delisted=delisted, problem=problem)


def adopt(tx: Connection, resource: Resource, *, source: str, now: int) -> Endpoint:
    """The endpoint of a resource; a new one, due within the normal cadence, if nobody listed it
    yet.
    """
    meta.take_turn(tx, listings.LISTINGS_TURN)
    known = endpoints.get(tx, resource.id)
    if known is not None:
        return known
    new = new_endpoint(resource, now=now, spread_ms=SPREAD_MS)
    endpoint = replace(new, sources=(source,), status=Listing.UNLISTED)
    endpoints.insert(tx, endpoint, adopted=True)
    return endpoint


def new_endpoint(resource: Resource, *, now: int, spread_ms: int) -> Endpoint:
    """An endpoint that nobody knew, due at an instant of the next `spread_ms` that its id picks."""
    id_ = resource.id
    return Endpoint(
        id=id_,
        resource=resource.url,
        host=resource.host,
        query=resource.query,
        first_seen=now,
        last_seen=now,
        next_due=now + (int(id_[:8], 16) * spread_ms >> 32),
        templated=resource.templated,
    )


def _listed(
    locked: LockedEndpoint, item: ListedItem, source: str, *, now: int, due: int | None
) -> tuple[LockedEndpoint, bool]:
    """A known endpoint as it is once a source lists it, but for the instants of that, and whether
    the listing names its price. `due` is when a new one would be, None where there is no news.
    """
    before = locked.endpoint
    sources = () if before.status is Listing.UNLISTED else before.sources
    if source not in sources:
        sources = (*sources, source)
    listed = before
    if sources != before.sources or before.status is not Listing.LISTED:
        back = due is not None and before.status is Listing.DELISTED
        next_due = min(before.next_due, due) if back and due is not None else before.next_due
        listed = replace(before, sources=sources, status=Listing.LISTED, next_due=next_due)
    described, named = _described(
        listed, item, speaks=sources[0] == source, priced=locked.quote_source != PROBE
    )
    if described is before:
        return locked, named
    if described.quote == before.quote:
        return replace(locked, endpoint=described), named
    return replace(locked, endpoint=described, quote_source=source).owing_score(now), named


def _with_news(locked: LockedEndpoint, *, now: int, due: int) -> LockedEndpoint:
    """An endpoint of which a directory says something new: it owes a score, and one that was dead
    is probed as soon as a new one, `due`.
    """
    endpoint = replace(locked.endpoint, listing_changed_at=now)
    if is_dead(locked.endpoint, now=now):
        endpoint = replace(endpoint, next_due=min(endpoint.next_due, due))
    return replace(locked, endpoint=endpoint).owing_score(now)


def _described(
    endpoint: Endpoint,
    item: ListedItem,
    *,
    speaks: bool = True,
    priced: bool = True,
    at: int | None = None,
    **changed: Any,
) -> tuple[Endpoint, bool]:
    """The endpoint with a listing's words: all of them if its source speaks for the endpoint,
    else those that are still missing; and whether the listing names its price. `priced`: a
    listing's price counts; `at` is when it was named, None to keep what is there; `changed` are
    other fields.
    """
    words: dict[str, Any] = {
        "service_name": item.service_name,
        "description": item.description,
        "tags": item.tags,
        "method": item.method,
        "body": item.body,
        "query": item.resource.query,
    }
    named = priced and item.quote is not None and (speaks or endpoint.quote is None)
    if named and item.quote is not None:
        words["quote"] = clean_quote(item.quote)
        words["quote_at"] = endpoint.quote_at if at is None else at
    for name, new in words.items():
        old = getattr(endpoint, name)
        value = _either(new, old, first=speaks)
        if value != old:
            changed[name] = value
    return (replace(endpoint, **changed) if changed else endpoint), named


def _either(new: T, old: T, *, first: bool) -> T:
    one, other = (new, old) if first else (old, new)
    return one or other


def _remove_unseen(tx: Connection, crawl: Crawl, ids: Sequence[str], *, now: int) -> int:
    """Take the source of a crawl from those of some endpoints that it did not see; how many have
    none left and are delisted now.
    """
    meta.take_turn(tx, listings.LISTINGS_TURN)
    source, at = crawl.source, crawl.at(now)
    gone = listings.remove_unseen(tx, crawl, ids, at=at)
    changed: list[LockedEndpoint] = []
    delisted: list[str] = []
    for id_, locked in listings.lock(tx, gone).items():
        sources = tuple(name for name in locked.endpoint.sources if name != source)
        status = Listing.LISTED if sources else Listing.DELISTED
        updated = replace(locked, endpoint=replace(locked.endpoint, sources=sources, status=status))
        if not sources and locked.endpoint.status is Listing.LISTED:
            updated = updated.owing_score(now)
            delisted.append(id_)
        changed.append(updated)
    listings.save_sources(tx, changed)
    listings.add_events(
        tx, [(id_, discovery_event(DELISTED, source, at, "", "")) for id_ in delisted]
    )
    watched_changes.delisted(tx, delisted, source=source, at=at)
    return len(delisted)
