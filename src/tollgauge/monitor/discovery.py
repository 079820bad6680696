"""Apply directory crawls to the known endpoints.

Rules:
- An endpoint is listed while at least one source lists it. Only a complete crawl removes listings:
  those of its source that the crawl did not see.
- The first source that lists an endpoint is its main source: it sets the declared input, the texts
  and, until a probe sees one, the price. Other sources only fill in missing fields.
- The first listing of an endpoint is the event `listed`, the first one after a delisting
  `relisted`. Further sources cause no event.
- Terms are compared with the source's previous ones; monitor/terms compares those of probes.
- If a crawl lists a resource twice, the first entry is used. The entry is kept after its source
  dropped it. An endpoint adopted on request has none and is never delisted.
- Events are dated with the time of the listing (`at`); due times count from `now`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from sqlalchemy import Connection

from tollgauge.core.base.units import MINUTE_MS
from tollgauge.core.directory import discovery
from tollgauge.core.directory.discovery import DELISTED, LISTED, RELISTED, UNREAD_MS, carry_terms
from tollgauge.core.directory.listing import ListedItem
from tollgauge.core.endpoint.identity import Endpoint, Listing, Resource, Transport, transport_of
from tollgauge.core.endpoint.terms import Advertised, Quote
from tollgauge.core.probe.schedule import is_dead
from tollgauge.core.score.evidence import TermChange
from tollgauge.core.watch import changes as watch_changes
from tollgauge.core.watch.changes import Change, term_changes
from tollgauge.db import meta
from tollgauge.db.codec import clean_quote, clean_terms
from tollgauge.db.engine import Store
from tollgauge.db.schema import NEVER
from tollgauge.monitor.seller_files import is_announced
from tollgauge.monitor.terms import term_events
from tollgauge.store import rows
from tollgauge.store.endpoints import crawls, endpoints, listings
from tollgauge.store.endpoints.crawls import Crawl
from tollgauge.store.endpoints.listings import LockedEndpoint, StoredListing
from tollgauge.store.probes import change_rows
from tollgauge.store.probes.probes import PROBE

SPREAD_MS: Final = 30 * MINUTE_MS
"""First probes of new endpoints are spread over this time: one normal probe interval."""
REMOVAL_BATCH: Final = 1_000  # listings per transaction, so that other writers are not blocked
REQUESTED: Final = "request"  # source of an endpoint that was added at a caller's request
_EVENT_WHEN_LISTED: Final = {Listing.UNLISTED: LISTED, Listing.DELISTED: RELISTED}


@dataclass(frozen=True, slots=True, kw_only=True)
class PageTally:
    """Counts of a page of a crawl: distinct resources (`seen`), new endpoints, events by kind."""

    new: int
    seen: int
    kinds: Counter[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class CrawlEnding:
    """Result of a crawl. A `suspicious` crawl listed so few endpoints that it must be confirmed
    first. `problem` explains that, or why the crawl did not finish.
    """

    complete: bool = False
    suspicious: bool = False
    delisted: int = 0
    problem: str = ""


@dataclass(slots=True, kw_only=True)
class _Page:
    """A page of a crawl and the changes to write for it.

    Most entries are unchanged since the last crawl and need only new timestamps: endpoints in
    `known` were listed again, those in `named` also with a price, and listings in `seen` are
    unchanged. `changed` contains the known endpoints with other changes.
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
    events: list[tuple[str, TermChange]] = field(default_factory=list)
    reported: list[tuple[str, Change]] = field(default_factory=list)

    @property
    def at(self) -> int:
        """The time of the page's listings (ms UTC)."""
        return self.crawl.at(self.now)

    def merge(
        self, item: ListedItem, locked: LockedEndpoint | None, listing: StoredListing | None
    ) -> None:
        """Add the changes that an entry causes to its endpoint and listing."""
        id_, source, at = item.resource.id, self.crawl.source, self.at
        before = listing.terms if listing is not None else None
        # A listing without a price keeps its last one, to compare a later price with.
        terms = carry_terms(before, clean_terms(item.quote or item.unpriced))
        is_new_entry = listing is None or listing.delisted_at is not None
        if item.unpriced is not None and isinstance(terms, Quote):
            item = replace(item, quote=terms)
        announced = False
        if locked is None:
            new = new_endpoint(item.resource, now=self.now, spread_ms=self.spread_ms)
            self.new.append(_describe(replace(new, sources=(source,)), item, at=at)[0])
            events = [(LISTED, "", "")]
        else:
            event = _EVENT_WHEN_LISTED.get(locked.endpoint.status)
            events = [(event, "", "")] if event else []
            announced = is_announced(self.tx, locked.endpoint, before, terms, at=at, source=source)
            events += discovery.find_changes(before, terms)
            self._add_known(locked, item, news=bool(events))
            if before is not None and terms is not None and before != terms:
                self._add_term_changes(locked, before, terms, announced=announced)
            if is_new_entry and locked.endpoint.watched_until > at:
                self.reported.append((id_, watch_changes.directory_listing(at=at, source=source)))
        seen = term_events(events, source=source, at=at, announced=announced)
        self.events += [(id_, event) for event in seen]
        self._add_listing(item, listing, terms)

    def _add_listing(
        self, item: ListedItem, listing: StoredListing | None, terms: Advertised | None
    ) -> None:
        id_, at = item.resource.id, self.at
        entry = StoredListing(
            endpoint_id=id_,
            source=self.crawl.source,
            crawl_id=self.crawl.id,
            first_seen=at,
            last_seen=at,
            delisted_at=None,
            terms=terms,
            scheme=item.scheme or (listing.scheme if listing else ""),
            statement=item.statement,
        )
        if listing is not None and entry == replace(
            listing, crawl_id=entry.crawl_id, first_seen=at, last_seen=at
        ):
            self.seen.append(id_)
        else:
            self.listings.append(entry)

    def _add_known(self, locked: LockedEndpoint, item: ListedItem, *, news: bool) -> None:
        """Add the changes to a known endpoint; `news` marks it as due for a new score."""
        due = None
        if news:
            due = new_endpoint(item.resource, now=self.now, spread_ms=self.spread_ms).next_due
        listed, named = _list_known(locked, item, self.crawl.source, now=self.now, due=due)
        if due is not None:
            listed = _note_news(listed, now=self.now, due=due)
        if listed != locked:
            self.changed.append(listed)
        if listed.endpoint.next_due < locked.endpoint.next_due:
            self.earlier.append(listed.endpoint)
        (self.named if named else self.known).append(item.resource.id)

    def _add_term_changes(
        self, locked: LockedEndpoint, before: Advertised, after: Advertised, *, announced: bool
    ) -> None:
        """Report changed terms to watches.

        They are not reported if a probe saw the endpoint's terms or if another source is the main
        one.
        """
        source, endpoint = self.crawl.source, locked.endpoint
        if endpoint.sources[:1] == (source,) and locked.quote_source != PROBE:
            changes = term_changes(before, after, at=self.at, source=source, announced=announced)
            self.reported += [(endpoint.id, change) for change in changes]

    def write(self) -> None:
        """Write the page's changes."""
        tx, at = self.tx, self.at
        if self.earlier:
            # New and known endpoints in one call: hosts are always locked in the same order.
            endpoints.bring_forward(tx, [*self.new, *self.earlier])
        endpoints.insert(tx, *self.new)
        listings.save_listed(tx, self.changed)
        listings.save_last_seen(tx, self.known, now=self.now)
        listings.save_last_seen(tx, self.named, now=self.now, quote_at=at)
        listings.save(tx, self.listings)
        listings.save_seen(tx, self.crawl, self.seen, at=at)
        listings.add_events(tx, self.events)
        change_rows.add(tx, self.reported)


def record_page(
    tx: Connection,
    crawl: Crawl,
    items: Sequence[ListedItem],
    *,
    next_offset: int,
    now: int,
    spread_ms: int = SPREAD_MS,
    skipped: Sequence[str] = (),
) -> PageTally:
    """Apply a page of a crawl to endpoints and listings and advance the crawl's offset to
    `next_offset`, the position of the next page. `skipped` are the reasons of skipped entries.

    First probes of new endpoints are spread over `spread_ms` by endpoint ID; 0 makes them due now.
    Recording a page twice adds only to the counts of skipped entries.
    """
    # Crawls and adoptions write one after another: two of them could insert the same endpoint.
    meta.take_turn(tx, listings.LISTINGS_TURN)
    by_id: dict[str, ListedItem] = {}
    for item in items:
        by_id.setdefault(item.resource.id, item)
    locked = listings.lock(tx, by_id)
    listed = listings.of_source(tx, crawl.source, by_id)
    page = _Page(crawl=crawl, now=now, spread_ms=spread_ms, tx=tx)
    for id_, item in sorted(by_id.items()):
        listing = listed.get(id_)
        if listing is None or listing.delisted_at is not None or listing.crawl_id < crawl.id:
            page.merge(item, locked.get(id_), listing)
    page.write()
    crawls.record_progress(tx, crawl, next_offset, skipped)
    kinds = Counter(event.kind for _, event in page.events)
    return PageTally(new=len(page.new), seen=len(by_id), kinds=kinds)


async def end_crawl(
    store: Store, crawl: Crawl, *, whole: bool, accept_shrink: bool = False, now: int
) -> CrawlEnding:
    """End a crawl and decide whether it is complete.

    A crawl without entries removes nothing. Nor does a suspiciously small one, and one with entries
    that could not be read removes only those not seen for UNREAD_MS, unless the operator confirmed
    with `accept_shrink` that the directory shrank. Listings are removed in batches and the crawl is
    ended last, so that an interrupted removal continues when the crawl is resumed.

    `whole`: the crawl read its source to the end.
    """
    census = await store.reading(crawls.census, crawl)
    whole = whole and census.listed > 0
    suspicious = whole and census.is_suspicious and not accept_shrink
    complete = whole and not suspicious
    # An unreadable entry may list any of the unseen endpoints.
    pause_ms = UNREAD_MS if census.unreadable and not accept_shrink else 0
    since = crawl.at(now) - pause_ms
    unseen = await store.reading(listings.unseen, crawl, since=since) if complete else ()
    delisted = 0
    for ids in rows.chunks(unseen, REMOVAL_BATCH):
        delisted += await store.writing(remove_unseen, crawl, ids, now=now)
    await store.writing(crawls.end_crawl, crawl, complete=complete, suspicious=suspicious, now=now)
    problem = ""
    if suspicious:
        problem = (
            f"Suspicious crawl: it lists {census.listed} endpoints, the last complete crawl listed "
            f"{census.complete}. Nothing is delisted until a second crawl agrees or you confirm "
            "the result with `tollgauge discover --accept-shrink`."
        )
    return CrawlEnding(complete=complete, suspicious=suspicious, delisted=delisted, problem=problem)


def adopt(tx: Connection, resource: Resource, *, source: str, now: int) -> Endpoint:
    """Return the endpoint of a resource. An unknown one is added, due within one probe interval."""
    meta.take_turn(tx, listings.LISTINGS_TURN)
    known = endpoints.get(tx, resource.id)
    if known is not None:
        return known
    new = new_endpoint(resource, now=now, spread_ms=SPREAD_MS)
    endpoint = replace(new, sources=(source,), status=Listing.UNLISTED)
    endpoints.insert(tx, endpoint, adopted=True)
    return endpoint


def new_endpoint(resource: Resource, *, now: int, spread_ms: int) -> Endpoint:
    """Return a new endpoint whose ID decides when it is due within the next `spread_ms`."""
    id_ = resource.id
    is_agent = transport_of(resource.url) is Transport.A2A  # never probed
    return Endpoint(
        id=id_,
        resource=resource.url,
        host=resource.host,
        query=resource.query,
        first_seen=now,
        last_seen=now,
        next_due=NEVER if is_agent else now + (int(id_[:8], 16) * spread_ms >> 32),
        templated=resource.templated,
    )


def _list_known(
    locked: LockedEndpoint, item: ListedItem, source: str, *, now: int, due: int | None
) -> tuple[LockedEndpoint, bool]:
    """Return a known endpoint after a source listed it, and whether the listing sets its price.

    Timestamps are not updated here. `due` is the first due time of a new endpoint, or None if the
    listing causes no event.
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
    described, named = _describe(
        listed, item, is_main=sources[0] == source, priced=locked.quote_source != PROBE
    )
    if described is before:
        return locked, named
    if described.quote == before.quote:
        return replace(locked, endpoint=described), named
    return replace(locked, endpoint=described, quote_source=source).owing_score(now), named


def _note_news(locked: LockedEndpoint, *, now: int, due: int) -> LockedEndpoint:
    """Mark an endpoint with changed listings for scoring; a dead one is probed again at `due`."""
    endpoint = replace(locked.endpoint, listing_changed_at=now)
    if is_dead(locked.endpoint, now=now):
        endpoint = replace(endpoint, next_due=min(endpoint.next_due, due))
    return replace(locked, endpoint=endpoint).owing_score(now)


def _describe(
    endpoint: Endpoint,
    item: ListedItem,
    *,
    is_main: bool = True,
    priced: bool = True,
    at: int | None = None,
) -> tuple[Endpoint, bool]:
    """Return the endpoint with the values of a listing, and whether the listing sets its price.

    - `is_main`: the listing is from the endpoint's main source: its values replace existing ones
      instead of only filling in missing ones.
    - `priced`: the price may come from a listing.
    - `at`: time of the price, or None to keep the stored time.
    """
    listed: dict[str, Any] = {
        "service_name": item.service_name,
        "description": item.description,
        "tags": item.tags,
        "method": item.method,
        "body": item.body,
        "query": item.resource.query,
    }
    named = priced and item.quote is not None and (is_main or endpoint.quote is None)
    if named and item.quote is not None:
        listed["quote"] = clean_quote(item.quote)
        listed["quote_at"] = endpoint.quote_at if at is None else at
    changed = {}
    for name, new in listed.items():
        old = getattr(endpoint, name)
        value = (new or old) if is_main else (old or new)
        if value != old:
            changed[name] = value
    return (replace(endpoint, **changed) if changed else endpoint), named


def remove_unseen(tx: Connection, crawl: Crawl, ids: Sequence[str], *, now: int) -> int:
    """Remove the crawl's source from unseen endpoints; return how many are delisted."""
    meta.take_turn(tx, listings.LISTINGS_TURN)
    source, at = crawl.source, crawl.at(now)
    dropped = listings.remove_unseen(tx, crawl, ids, at=at)
    changed: list[LockedEndpoint] = []
    delisted: list[str] = []
    reported: list[tuple[str, Change]] = []
    for id_, locked in listings.lock(tx, dropped).items():
        sources = tuple(name for name in locked.endpoint.sources if name != source)
        status = Listing.LISTED if sources else Listing.DELISTED
        updated = replace(locked, endpoint=replace(locked.endpoint, sources=sources, status=status))
        if locked.endpoint.watched_until > at:
            change = watch_changes.directory_delisting(dropped[id_], at=at, source=source)
            reported.append((id_, change))
        if not sources and locked.endpoint.status is Listing.LISTED:
            updated = updated.owing_score(now)
            delisted.append(id_)
            reported.append((id_, watch_changes.delisting(at=at, source=source)))
        changed.append(updated)
    listings.save_sources(tx, changed)
    event = TermChange(at=at, kind=DELISTED, source=source, before="", after="")
    listings.add_events(tx, [(id_, event) for id_ in delisted])
    change_rows.add(tx, reported)
    return len(delisted)
