"""Crawls of one page, and the state of the endpoints that they listed."""

from __future__ import annotations

from dataclasses import replace

from sqlalchemy import Connection

from tollgauge.core.directory.listing import ListedItem
from tollgauge.core.endpoint.identity import Endpoint, parse_resource
from tollgauge.core.endpoint.terms import Quote
from tollgauge.core.score.evidence import TermChange
from tollgauge.db.engine import Store
from tollgauge.monitor import discovery, terms
from tollgauge.monitor.discovery import PageTally
from tollgauge.store.endpoints import crawls, endpoints, listings
from tollgauge.store.endpoints.crawls import Crawl

NOW = 1_760_000_000_000
CENT = Quote(network="eip155:8453", asset="0xaa", amount=10_000, pay_to="0xbb")
TWO = replace(CENT, amount=20_000)


def item(path: str = "/", *, host: str = "a.com", **values: object) -> ListedItem:
    base = ListedItem(resource=parse_resource(f"https://{host}{path}"), quote=CENT)
    return replace(base, **values)  # type: ignore[arg-type]


async def crawl(
    store: Store,
    source: str,
    *items: ListedItem,
    now: int = NOW,
    complete: bool = True,
    spread_ms: int = 0,
) -> tuple[PageTally, int]:
    """Record a crawl of one page; return its tally and the number of delisted endpoints."""
    begun = await store.writing(crawls.begin_crawl, source, now=now)
    tally = await store.writing(
        discovery.record_page, begun, items, next_offset=len(items), now=now, spread_ms=spread_ms
    )
    gone = await store.writing(finish_crawl, begun, complete=complete, now=now)
    return tally, gone


def finish_crawl(tx: Connection, crawl: Crawl, *, complete: bool, now: int) -> int:
    """End a crawl, even one without entries, in one transaction; a complete one removes the
    listings of its source that it did not see. Return the number of delisted endpoints.
    """
    unseen = listings.unseen(tx, crawl, since=crawl.at(now)) if complete else ()
    delisted = discovery.remove_unseen(tx, crawl, unseen, now=now)
    crawls.end_crawl(tx, crawl, complete=complete, suspicious=False, now=now)
    return delisted


async def load_endpoint(store: Store, one: ListedItem) -> Endpoint:
    row = await store.reading(endpoints.get, one.resource.id)
    assert row is not None
    return row


async def events(store: Store, one: ListedItem) -> list[tuple[str, str, str, str]]:
    events = await store.reading(listings.events, one.resource.id, since=0, until=NOW + 10**12)
    return [(event.kind, event.source, event.before, event.after) for event in events]


async def term_changes(
    store: Store, endpoint_id: str, *, since: int, until: int
) -> tuple[TermChange, ...]:
    """Return the changes of an endpoint's terms with `since < at <= until`."""
    return terms.changes_among(
        await store.reading(listings.events, endpoint_id, since=since, until=until)
    )
