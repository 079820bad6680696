"""Rows of crawls: when each source was read, how far, and how many endpoints it listed.

Rules:
- at most one crawl of a source is open; an interrupted one is resumed within a day, but a file is
  always read from its start;
- whether a crawl is complete or suspicious is decided in core/directory/discovery.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

import sqlalchemy as sa
from sqlalchemy import Connection

from tollgauge.core.base.units import DAY_MS
from tollgauge.core.directory.discovery import CrawlCount
from tollgauge.core.watch.watch_rules import CRAWLS_MS
from tollgauge.db.schema import crawl as crawl_table
from tollgauge.db.schema import listing as listing_table
from tollgauge.db.schema import upsert
from tollgauge.store import rows

_RESUME_MS: Final = DAY_MS
_LISTED: Final = (
    sa.select(listing_table.c.source, sa.func.count().label("listed"))
    .where(listing_table.c.gone_at.is_(None))
    .group_by(listing_table.c.source)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Crawl:
    """An open crawl of a source: `offset` is where its next page starts, `taken_at` the instant (ms
    UTC) that a file names for its content, None for a directory that is read as it is now.
    """

    id: int
    source: str
    offset: int
    started: int
    taken_at: int | None = None

    def at(self, now: int) -> int:
        """The instant of what the crawl reads."""
        return now if self.taken_at is None else self.taken_at


def begin_crawl(tx: Connection, source: str, *, now: int) -> Crawl:
    """Start a crawl of a source, or resume one that was interrupted within a day."""
    _end_open(tx, source, until=now - _RESUME_MS, now=now)
    row = upsert(crawl_table).values(source=source, started=now, taken_at=now, offset=0)
    tx.execute(row.on_conflict_do_nothing())
    return _open_crawl(tx, source)


def begin_file(tx: Connection, source: str, *, taken_at: int | None, now: int) -> Crawl:
    """Start a crawl of a file, from its start. `taken_at` is the instant that it names for its
    content, None if it names none.
    """
    _end_open(tx, source, until=now, now=now)
    at = now if taken_at is None else min(taken_at, now)
    tx.execute(crawl_table.insert().values(source=source, started=now, taken_at=at, offset=0))
    return replace(_open_crawl(tx, source), taken_at=None if taken_at is None else at)


def set_offset(tx: Connection, crawl: Crawl, offset: int) -> None:
    """Remember where the next page of a crawl starts."""
    row = crawl_table.update().where(crawl_table.c.id == crawl.id)
    tx.execute(row.values(offset=offset))


def end_crawl(tx: Connection, crawl: Crawl, *, complete: bool, suspicious: bool, now: int) -> None:
    """Close a crawl and keep how many listings it saw."""
    row = crawl_table.update().where(crawl_table.c.id == crawl.id)
    listed = _seen_by(tx, crawl.source, crawl.id)
    tx.execute(row.values(finished_at=now, complete=complete, suspicious=suspicious, listed=listed))


def _end_open(tx: Connection, source: str, *, until: int, now: int) -> None:
    stale = (
        crawl_table.c.source == source,
        crawl_table.c.finished_at.is_(None),
        crawl_table.c.started <= until,
    )
    tx.execute(crawl_table.update().where(*stale).values(finished_at=now, complete=False))


def _open_crawl(tx: Connection, source: str) -> Crawl:
    query = sa.select(
        crawl_table.c.id, crawl_table.c.source, crawl_table.c.offset, crawl_table.c.started
    ).where(crawl_table.c.source == source, crawl_table.c.finished_at.is_(None))
    return Crawl(**tx.execute(query).mappings().one())


def last_taken(tx: Connection, source: str) -> int | None:
    """The instant of the newest crawl of a source, None for a new source."""
    query = sa.select(sa.func.max(crawl_table.c.taken_at)).where(crawl_table.c.source == source)
    taken: int | None = tx.execute(query).scalar_one()
    return taken


def listed_by(tx: Connection) -> dict[str, int]:
    """How many endpoints each source lists now."""
    return {row.source: row.listed for row in tx.execute(_LISTED)}


def shared_with(tx: Connection, ids: Iterable[str]) -> dict[str, int]:
    """How many of some endpoints each source lists now; a source that lists none is left out."""
    by_source: Counter[str] = Counter()
    for row in rows.with_any(tx, _LISTED, listing_table.c.endpoint_id, ids):
        by_source[row.source] += row.listed
    return dict(by_source)


def census(tx: Connection, crawl: Crawl) -> CrawlCount:
    """How many endpoints a crawl has listed so far, beside the earlier crawls of its source."""
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
        listed=_seen_by(tx, crawl.source, crawl.id),
        complete=complete.listed if complete else None,
        suspicious=suspicious.listed if suspicious else None,
        repeated=(
            suspicious.listed - _seen_by(tx, crawl.source, suspicious.id) if suspicious else 0
        ),
    )


def forget(tx: Connection, *, now: int, limit: int) -> int:
    """Remove up to `limit` crawls that are too old, and return how many. A crawl is only removed
    once a later one of its source is complete and no older, with which the next can be compared.
    """
    later = crawl_table.alias()
    replaced = sa.exists().where(
        later.c.source == crawl_table.c.source,
        later.c.id > crawl_table.c.id,
        later.c.complete.is_(True),
        later.c.taken_at >= sa.func.coalesce(crawl_table.c.taken_at, 0),
    )
    old = (
        sa.select(crawl_table.c.id)
        .where(
            crawl_table.c.started < now - CRAWLS_MS,
            crawl_table.c.finished_at.is_not(None),
            replaced,
        )
        .order_by(crawl_table.c.started)
        .limit(limit)
    )
    return tx.execute(crawl_table.delete().where(crawl_table.c.id.in_(old))).rowcount


def _seen_by(tx: Connection, source: str, crawl_id: int) -> int:
    """How many listings of a source were seen by a crawl, and by none after it."""
    query = sa.select(sa.func.count()).where(
        listing_table.c.source == source, listing_table.c.crawl_id == crawl_id
    )
    return int(tx.execute(query).scalar_one())
