"""Watch events: what happened to a watch itself, in the order in which it became visible.

A watch is made, edited, renewed, about to end, ended: each appends one event, and none is ever
changed. A reader goes on from the id of the last event that it has seen. What a watch listened to
at any time is read from here too, since an edit says what it changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson
import sqlalchemy as sa
from sqlalchemy import Connection

from tollgauge.core import watch as rules
from tollgauge.core.watch import WatchRequest
from tollgauge.db.schema import Serial, metadata
from tollgauge.db.transaction import step
from tollgauge.store.endpoints.endpoints import chunks

watch_event = sa.Table(
    "watch_event",
    metadata,
    sa.Column("id", Serial, primary_key=True),
    sa.Column("watch_id", sa.Text, nullable=False),
    sa.Column("at", sa.BigInteger, nullable=False),
    sa.Column("type", sa.Text, nullable=False),
    sa.Column("detail", sa.Text, nullable=False),
    sa.Index("ix_watch_event_watch_id", "watch_id", "id"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchEvent:
    """Something that happened to a watch itself."""

    id: int
    watch_id: str
    at: int
    type: str
    detail: Mapping[str, Any]


def append(
    tx: Connection, watch_id: str, type_: str, detail: Mapping[str, Any], *, now: int
) -> int:
    """Append an event of a watch whose row the caller has locked: without the lock a later id
    could be seen before an earlier one, and a reader would miss that. The event's id.
    """
    text = orjson.dumps(detail).decode()
    row = watch_event.insert().values(watch_id=watch_id, at=now, type=type_, detail=text)
    done = tx.execute(row.returning(watch_event.c.id))
    return int(done.scalar_one())


@step
def newest(tx: Connection) -> int:
    """The id of the newest event of any watch, 0 without any: no cursor is ahead of it."""
    return tx.execute(sa.select(sa.func.max(watch_event.c.id))).scalar_one() or 0


@step
def of_watch(tx: Connection, watch_id: str, *, after: int, limit: int) -> tuple[WatchEvent, ...]:
    """What happened to a watch after an event id, oldest first."""
    query = (
        sa.select(watch_event)
        .where(watch_event.c.watch_id == watch_id, watch_event.c.id > after)
        .order_by(watch_event.c.id)
        .limit(limit)
    )
    return tuple(
        WatchEvent(**{**row, "detail": orjson.loads(row["detail"])})
        for row in tx.execute(query).mappings()
    )


@step
def wishes(
    tx: Connection, watch_ids: Iterable[str]
) -> dict[str, tuple[tuple[int, WatchRequest], ...]]:
    """What some watches listened to, each with the instant from which on, oldest first."""
    found: dict[str, list[tuple[int, WatchRequest]]] = {}
    for chunk in chunks(watch_ids):
        query = (
            sa.select(watch_event)
            .where(watch_event.c.watch_id.in_(chunk))
            .where(watch_event.c.type.in_((rules.CREATED, rules.EDITED)))
            .order_by(watch_event.c.id)
        )
        for row in tx.execute(query).mappings():
            known = found.setdefault(row["watch_id"], [])
            last = known[-1][1] if known else WatchRequest()
            watch_request = _wish_after(last, orjson.loads(row["detail"]))
            if not known or watch_request != last:
                known.append((row["at"], watch_request))
    return {watch_id: tuple(known) for watch_id, known in found.items()}


@step
def edited_since(tx: Connection, watch_ids: Iterable[str], *, since: int) -> set[str]:
    """Those of some watches that were edited at `since` or later."""
    found: set[str] = set()
    for chunk in chunks(watch_ids):
        query = sa.select(watch_event.c.watch_id).where(
            watch_event.c.watch_id.in_(chunk),
            watch_event.c.type == rules.EDITED,
            watch_event.c.at >= since,
        )
        found.update(tx.execute(query).scalars())
    return found


def request_json(watch_request: WatchRequest) -> dict[str, Any]:
    """A wish in the words of the request."""
    return {
        "events": list(watch_request.events),
        "liveness_sensitivity_n": watch_request.sensitivity,
        "digest": watch_request.digest,
    }


def _wish_after(watch_request: WatchRequest, detail: Mapping[str, Any]) -> WatchRequest:
    """The inverse: a wish after what an event says of it."""
    return WatchRequest(
        events=tuple(detail.get("events", watch_request.events)),
        sensitivity=detail.get("liveness_sensitivity_n", watch_request.sensitivity),
        digest=detail.get("digest", watch_request.digest),
    )
