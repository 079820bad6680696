"""Destinations: the URLs that a watch's notices are sent to.

Rules:
- a URL is stored encrypted, as the caller sealed it; only `masked` may be shown;
- a removed destination gets nothing more, and keeps its row until its watch is removed;
- a destination gets one delivery at a time, from the worker that has its lease.

What is sent is store/watches/outbox's, how each attempt ends store/watches/delivery_queue's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

import sqlalchemy as sa
from sqlalchemy import Connection

from tollgauge.core.watch.watch_rules import DestinationKind
from tollgauge.db.schema import metadata
from tollgauge.store import rows

_FAILING: Final = sa.text("failures > 0")

destination = sa.Table(
    "destination",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("watch_id", sa.Text, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("sealed_url", sa.LargeBinary, nullable=False),
    sa.Column("masked", sa.Text, nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("removed_at", sa.BigInteger),
    sa.Column("disabled_at", sa.BigInteger),
    sa.Column("disabled_reason", sa.Text, nullable=False),
    # Failures in a row; a healthy destination is served before one that fails.
    sa.Column("failures", sa.Integer, nullable=False),
    # One delivery at a time to a destination: who makes it, and until when.
    sa.Column("lease_owner", sa.Text),
    sa.Column("lease_until", sa.BigInteger, nullable=False),
    sa.Index("ix_destination_watch_id", "watch_id"),
    sa.Index("ix_destination_failing", "id", sqlite_where=_FAILING, postgresql_where=_FAILING),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """Where a watch's notices are sent. `masked` may be shown, the URL in `sealed_url` never is.
    Instants are ms UTC.
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


def add(tx: Connection, destinations: Sequence[Destination]) -> None:
    """Add destinations to their watches."""
    if destinations:
        columns = [
            rows.to_columns(added, kind=added.kind.value, lease_until=0) for added in destinations
        ]
        tx.execute(destination.insert(), columns)


def remove(tx: Connection, ids: Sequence[str], *, now: int) -> None:
    """Send nothing more to some destinations."""
    if ids:
        tx.execute(destination.update().where(destination.c.id.in_(ids)).values(removed_at=now))


def of_watches(tx: Connection, watch_ids: Iterable[str]) -> dict[str, tuple[Destination, ...]]:
    """The destinations of some watches by watch id, oldest first, without removed ones."""
    ids = list(watch_ids)
    by_watch: dict[str, list[Destination]] = {watch_id: [] for watch_id in ids}
    query = (
        sa.select(destination)
        .where(destination.c.removed_at.is_(None))
        .order_by(destination.c.created_at, destination.c.id)
    )
    for row in rows.with_any(tx, query, destination.c.watch_id, ids):
        stored = rows.from_columns(Destination, row, kind=DestinationKind(row.kind))
        by_watch[row.watch_id].append(stored)
    return {watch_id: tuple(destinations) for watch_id, destinations in by_watch.items()}
