"""Destinations: the URLs to which a watch's alerts are sent.

URLs are stored encrypted by the caller; only `masked` may be shown. A removed destination receives
nothing more and keeps its row until its watch is deleted. A destination receives one delivery at a
time, from the worker that holds its lease.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

import sqlalchemy as sa
from sqlalchemy import Connection

from tollgauge.core.watch.watch_rules import DestinationKind
from tollgauge.db.codec import columns_of
from tollgauge.db.schema import metadata, partial_index
from tollgauge.store import rows

_FAILING: Final = sa.text("failures > 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """A destination of a watch's alerts. `masked` may be shown; the URL in `sealed_url` must not.
    `failures` are consecutive: healthy destinations are served before failing ones. Times are ms
    UTC.
    """

    id: str
    watch_id: str
    kind: DestinationKind
    sealed_url: bytes
    masked: str
    created_at: int
    removed_at: int | None = None
    disabled_at: int | None = None
    disabled_reason: str = ""
    failures: int = 0

    @property
    def host(self) -> str:
        """The URL's host, the only part that is known without decrypting it."""
        return urlsplit(self.masked).hostname or ""


destination = sa.Table(
    "destination",
    metadata,
    *columns_of(Destination, key=("id",)),
    # Lease for one delivery at a time: worker and expiry.
    sa.Column("lease_owner", sa.Text),
    sa.Column("lease_until", sa.BigInteger, nullable=False),
    sa.Index("ix_destination_watch_id", "watch_id"),
    partial_index("ix_destination_failing", "id", where=_FAILING),
)


def add(tx: Connection, destinations: Sequence[Destination]) -> None:
    """Add destinations to their watches."""
    if destinations:
        columns = [rows.to_columns(added, lease_until=0) for added in destinations]
        tx.execute(destination.insert(), columns)


def remove(tx: Connection, ids: Sequence[str], *, now: int) -> None:
    """Remove destinations: nothing more is sent to them."""
    if ids:
        tx.execute(destination.update().where(destination.c.id.in_(ids)).values(removed_at=now))


def of_watches(tx: Connection, watch_ids: Iterable[str]) -> dict[str, tuple[Destination, ...]]:
    """Return the destinations of watches by watch ID, oldest first, without removed ones."""
    ids = list(watch_ids)
    query = (
        sa.select(destination)
        .where(rows.any_of(destination.c.watch_id), destination.c.removed_at.is_(None))
        .order_by(destination.c.created_at, destination.c.id)
    )
    known = rows.with_any(tx, query, ids)
    by_watch = rows.group((row.watch_id, rows.from_columns(Destination, row)) for row in known)
    return {watch_id: tuple(by_watch.get(watch_id, ())) for watch_id in ids}
