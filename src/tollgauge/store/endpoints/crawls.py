"""Rows of crawls: time, progress and number of listed endpoints per source.

A source has at most one open crawl. An interrupted one is resumed within a day; a file is always
read from the start. core/directory/discovery decides whether a crawl is complete or suspicious.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import sqlalchemy as sa
from sqlalchemy import Connection

from tollgauge.core.base.units import DAY_MS
from tollgauge.core.directory.discovery import CrawlCount
from tollgauge.core.directory.listing import UNREADABLE
from tollgauge.core.watch.watch_rules import CRAWLS_MS
from tollgauge.db.schema import crawl as crawl_table
from tollgauge.db.schema import listing as listing_table
from tollgauge.db.schema import upsert
from tollgauge.store import rows

_RESUME_MS: Final = DAY_MS
_LISTED: Final = (
    sa.select(listing_table.c.source, sa.func.count().label("listed"))
    .where(listing_table.c.delisted_at.is_(None))
    .group_by(listing_table.c.source)
)
_LISTED_AMONG: Final = _LISTED.where(rows.any_of(listing_table.c.endpoint_id))


@dataclass(frozen=True, slots=True, kw_only=True)
class Crawl:
    """An open crawl of a source.

    `offset` is the position of the next page. `taken_at` is the time that a file states for its
    content (ms UTC), None for a directory that is fetched.
    """

    id: int
    source: str
    offset: int
    started: int
    taken_at: int | None = None

    def at(self, now: int) -> int:
        """Return the time of the crawl's content."""
        return now if self.taken_at is None else self.taken_at


def begin_crawl(tx: Connection, source: str, *, now: int) -> Crawl:
    """Start a crawl of a source, or resume one that was interrupted within a day."""
    _end_open(tx, source, until=now - _RESUME_MS, now=now)
    row = upsert(crawl_table).values(source=source, started=now, taken_at=now, offset=0)
    tx.execute(row.on_conflict_do_nothing())
    return _open_crawl(tx, source)


def begin_file(tx: Connection, source: str, *, taken_at: int | None, now: int) -> Crawl:
    """Start a crawl of a file. `taken_at` is the time that the file states for its content, if
    any.
    """
    _end_open(tx, source, until=now, now=now)
    at = now if taken_at is None else min(taken_at, now)
    tx.execute(crawl_table.insert().values(source=source, started=now, taken_at=at, offset=0))
    return replace(_open_crawl(tx, source), taken_at=None if taken_at is None else at)


def record_progress(tx: Connection, crawl: Crawl, offset: int, skipped: Sequence[str]) -> None:
    """Store the position of the next page of a crawl and count entries skipped for these
    reasons.
    """
    column, unreadable = crawl_table.c, sum(reason in UNREADABLE for reason in skipped)
    counts = {
        "skipped": column.skipped + len(skipped),
        "unreadable": column.unreadable + unreadable,
    }
    row = crawl_table.update().where(column.id == crawl.id)
    tx.execute(row.values(offset=offset, **counts))


def end_crawl(tx: Connection, crawl: Crawl, *, complete: bool, suspicious: bool, now: int) -> None:
    """Close a crawl and store the number of listings it saw."""
    row = crawl_table.update().where(crawl_table.c.id == crawl.id)
    listed = _count_seen(tx, crawl.source, crawl.id)
    tx.execute(row.values(finished_at=now, complete=complete, suspicious=suspicious, listed=listed))


def _end_open(tx: Connection, source: str, *, until: int, now: int) -> None:
    stale = (
        crawl_table.c.source == source,
        crawl_table.c.finished_at.is_(None),
        crawl_table.c.started <= until,
    )
    tx.execute(crawl_table.update().where(*stale).values(finished_at=now, complete=False))


def _open_crawl(tx: Connection, source: str) -> Crawl:
    query = sa.select(*crawl_table.c["id", "source", "offset", "started"]).where(
        crawl_table.c.source == source, crawl_table.c.finished_at.is_(None)
    )
    return Crawl(**tx.execute(query).mappings().one())


def last_taken(tx: Connection, source: str) -> int | None:
    """Return the time of the newest crawl of a source, None for a new source."""
    return rows.highest(tx, crawl_table.c.taken_at, crawl_table.c.source == source)


@dataclass(frozen=True, slots=True, kw_only=True)
class CrawlSummary:
    """A complete crawl: `offset` entries were read, `skipped` of them could not be used; `listed`
    endpoints were found in the others.
    """

    source: str
    finished_at: int
    offset: int
    skipped: int
    listed: int

    @property
    def duplicates(self) -> int:
        """Entries of an endpoint that another entry of the crawl had listed."""
        return max(0, self.offset - self.skipped - self.listed)


def latest_complete(tx: Connection) -> dict[str, CrawlSummary]:
    """Return the latest complete crawl of each source."""
    newest = sa.select(sa.func.max(crawl_table.c.id)).where(crawl_table.c.complete.is_(True))
    newest = newest.group_by(crawl_table.c.source).correlate(None)
    query = sa.select(crawl_table).where(crawl_table.c.id.in_(newest))
    return {row.source: rows.from_columns(CrawlSummary, row) for row in tx.execute(query)}


def count_listed(tx: Connection) -> dict[str, int]:
    """Return the number of endpoints that each source lists now."""
    return {row.source: row.listed for row in tx.execute(_LISTED)}


def count_shared(tx: Connection, ids: Iterable[str]) -> dict[str, int]:
    """Return how many of the given endpoints each source lists; sources without any are left
    out.
    """
    by_source: Counter[str] = Counter()
    for row in rows.with_any(tx, _LISTED_AMONG, ids):
        by_source[row.source] += row.listed
    return dict(by_source)


def census(tx: Connection, crawl: Crawl) -> CrawlCount:
    """Count the endpoints of a crawl so far, and of the earlier crawls of its source."""
    ended = sa.select(crawl_table.c.id, crawl_table.c.listed, crawl_table.c.complete).where(
        crawl_table.c.source == crawl.source,
        crawl_table.c.id < crawl.id,
        crawl_table.c.complete.is_(True) | crawl_table.c.suspicious.is_(True),
    )
    ended = ended.order_by(crawl_table.c.id.desc()).limit(1)
    newest = tx.execute(ended).first()
    complete = tx.execute(ended.where(crawl_table.c.complete.is_(True))).first()
    suspicious = newest if newest and not newest.complete else None
    return CrawlCount(
        listed=_count_seen(tx, crawl.source, crawl.id),
        complete=complete.listed if complete else None,
        suspicious=suspicious.listed if suspicious else None,
        repeated=(
            suspicious.listed - _count_seen(tx, crawl.source, suspicious.id) if suspicious else 0
        ),
        unreadable=rows.highest(tx, crawl_table.c.unreadable, crawl_table.c.id == crawl.id) or 0,
    )


def forget(tx: Connection, *, now: int, limit: int) -> int:
    """Delete up to `limit` expired crawls; return their number.

    A crawl is deleted only if a later complete crawl of its source exists for the next comparison.
    """
    later = crawl_table.alias()
    replaced = sa.exists().where(
        later.c.source == crawl_table.c.source,
        later.c.id > crawl_table.c.id,
        later.c.complete.is_(True),
        later.c.taken_at >= sa.func.coalesce(crawl_table.c.taken_at, 0),
    )
    return rows.delete_batch(
        tx,
        crawl_table,
        crawl_table.c.started < now - CRAWLS_MS,
        crawl_table.c.finished_at.is_not(None),
        replaced,
        order_by=(crawl_table.c.started,),
        limit=limit,
    )


def _count_seen(tx: Connection, source: str, crawl_id: int) -> int:
    """Count the listings of a source that were last seen by this crawl."""
    listing = listing_table.c
    return rows.count(tx, listing.source == source, listing.crawl_id == crawl_id)
