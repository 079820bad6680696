"""Crawls: what was read of a source and when, how far, and how much it listed.

Rules:
- at most one crawl of a source is open; one that was broken off is resumed within a day, a file is
  always read from its start;
- counts are of endpoints; what they mean is core/discovery's decision.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

import sqlalchemy as sa
from sqlalchemy import Connection

from tollgauge.core.discovery import Census
from tollgauge.core.units import DAY_MS
from tollgauge.db import schema, upsert
from tollgauge.db.transaction import step
from tollgauge.store.endpoints import endpoints

_RESUME_MS: Final = DAY_MS
_L: Final = schema.listing
_C: Final = schema.crawl


@dataclass(frozen=True, slots=True, kw_only=True)
class Crawl:
    """A crawl of a source under way: `offset` is where its next page starts, `taken_at` the instant
    that a file names for what it holds, None for a directory that is read as it is now.
    """

    id: int
    source: str
    offset: int
    started: int
    taken_at: int | None = None

    def at(self, now: int) -> int:
        """The instant to date what the crawl finds with."""
        return now if self.taken_at is None else self.taken_at


@step
def begin_crawl(tx: Connection, source: str, *, now: int) -> Crawl:
    """Start a crawl of a source, or go on with one that was broken off within a day."""
    _end_open(tx, source, until=now - _RESUME_MS, now=now)
    row = upsert.insert(tx, _C).values(source=source, started=now, taken_at=now, offset=0)
    tx.execute(row.on_conflict_do_nothing())
    return _open_crawl(tx, source)


@step
def begin_file(tx: Connection, source: str, *, taken_at: int | None, now: int) -> Crawl:
    """Start a crawl of a file, which is always read from its start. `taken_at` is the instant that
    it names for itself, None if it does not.
    """
    _end_open(tx, source, until=now, now=now)
    at = now if taken_at is None else min(taken_at, now)
    tx.execute(_C.insert().values(source=source, started=now, taken_at=at, offset=0))
    return replace(_open_crawl(tx, source), taken_at=None if taken_at is None else at)


def set_offset(tx: Connection, crawl: Crawl, offset: int) -> None:
    """Remember where the next page of a crawl starts."""
    row = schema.crawl.update().where(schema.crawl.c.id == crawl.id)
    tx.execute(row.values(offset=offset))


def end_crawl(tx: Connection, crawl: Crawl, *, complete: bool, suspicious: bool, now: int) -> None:
    """Close a crawl and keep how many listings it saw."""
    row = schema.crawl.update().where(schema.crawl.c.id == crawl.id)
    listed = seen_by(tx, crawl.source, crawl.id)
    tx.execute(row.values(finished_at=now, complete=complete, suspicious=suspicious, listed=listed))


def _end_open(tx: Connection, source: str, *, until: int, now: int) -> None:
    stale = (_C.c.source == source, _C.c.finished_at.is_(None), _C.c.started <= until)
    tx.execute(_C.update().where(*stale).values(finished_at=now, complete=False))


def _open_crawl(tx: Connection, source: str) -> Crawl:
    query = sa.select(_C.c.id, _C.c.source, _C.c.offset, _C.c.started).where(
        _C.c.source == source, _C.c.finished_at.is_(None)
    )
    return Crawl(**tx.execute(query).mappings().one())


@step
def last_taken(tx: Connection, source: str) -> int | None:
    """When the newest listing of a source was taken that was read before, None for a new source."""
    query = sa.select(sa.func.max(_C.c.taken_at)).where(_C.c.source == source)
    taken: int | None = tx.execute(query).scalar_one()
    return taken


@step
def listed_by(tx: Connection) -> dict[str, int]:
    """How many endpoints each source lists now."""
    query = sa.select(_L.c.source, sa.func.count()).where(_L.c.gone_at.is_(None))
    return dict(tx.execute(query.group_by(_L.c.source)).all())


@step
def shared_with(tx: Connection, ids: Iterable[str]) -> dict[str, int]:
    """How many of some endpoints each source lists now; a source that lists none is left out."""
    found: Counter[str] = Counter()
    for chunk in endpoints.chunks(ids):
        query = sa.select(_L.c.source, sa.func.count()).where(
            _L.c.endpoint_id.in_(chunk), _L.c.gone_at.is_(None)
        )
        found.update(dict(tx.execute(query.group_by(_L.c.source)).all()))
    return dict(found)


@step
def census(tx: Connection, crawl: Crawl) -> Census:
    """How much a crawl listed so far, beside the crawls of its source before."""
    ended = sa.select(_C.c.id, _C.c.listed, _C.c.complete).where(
        _C.c.source == crawl.source,
        _C.c.id < crawl.id,
        _C.c.complete.is_(True) | _C.c.suspicious.is_(True),
    )
    rows = tx.execute(ended.order_by(_C.c.id.desc()).limit(1)).mappings().all()
    doubted = rows[0] if rows and not rows[0]["complete"] else None
    whole = tx.execute(
        ended.where(_C.c.complete.is_(True)).order_by(_C.c.id.desc()).limit(1)
    ).mappings()
    return Census(
        listed=seen_by(tx, crawl.source, crawl.id),
        complete=next((row["listed"] for row in whole), None),
        suspicious=doubted["listed"] if doubted else None,
        repeated=doubted["listed"] - seen_by(tx, crawl.source, doubted["id"]) if doubted else 0,
    )


def seen_by(tx: Connection, source: str, crawl_id: int) -> int:
    """How many listings of a source were seen by a crawl, and by none after it."""
    query = sa.select(sa.func.count()).where(_L.c.source == source, _L.c.crawl_id == crawl_id)
    return int(tx.execute(query).scalar_one())


@step
def last_complete(tx: Connection, source: str) -> int | None:
    """When the last complete crawl of a source ended, None before the first."""
    query = sa.select(sa.func.max(_C.c.finished_at)).where(
        _C.c.source == source, _C.c.complete.is_(True)
    )
    ended: int | None = tx.execute(query).scalar_one()
    return ended
