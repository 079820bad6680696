"""Events of watches: an append-only log of each watch's own history.

Creating, editing, renewing and ending a watch, and its expiry warning, append one event each
(`note` in store/watches/watches). Readers continue after the last event ID they have seen. The log
also provides a watch's settings at any time, because an edit's event contains the changed ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from tollgauge.core.watch import watch_rules as rules
from tollgauge.core.watch.watch_rules import WatchRequest
from tollgauge.db.codec import JsonObject, columns_of
from tollgauge.db.schema import Serial, metadata
from tollgauge.store import rows


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchEvent:
    """An event in a watch's history."""

    id: int
    watch_id: str
    at: int
    type: str
    detail: Mapping[str, Any]


watch_event = sa.Table(
    "watch_event",
    metadata,
    sa.Column("id", Serial, primary_key=True),
    *columns_of(WatchEvent, without=("id",), detail=JsonObject),
    sa.Index("ix_watch_event_watch_id", "watch_id", "id"),
)


def newest(tx: Connection) -> int:
    """Return the ID of the newest event of any watch, 0 without any."""
    return rows.highest(tx, watch_event.c.id) or 0


def of_watch(tx: Connection, watch_id: str, *, after: int, limit: int) -> tuple[WatchEvent, ...]:
    """Return the events of a watch after an event ID, oldest first."""
    query = (
        sa.select(watch_event)
        .where(watch_event.c.watch_id == watch_id, watch_event.c.id > after)
        .order_by(watch_event.c.id)
        .limit(limit)
    )
    return tuple(rows.from_columns(WatchEvent, row) for row in tx.execute(query))


def request_history(
    tx: Connection, watch_ids: Iterable[str]
) -> dict[str, tuple[tuple[int, WatchRequest], ...]]:
    """Return the settings history of watches by watch ID: (time from which they applied, settings),
    oldest first.
    """
    by_watch: dict[str, list[tuple[int, WatchRequest]]] = {}
    query = (
        sa.select(watch_event)
        .where(
            rows.any_of(watch_event.c.watch_id),
            watch_event.c.type.in_((rules.CREATED, rules.EDITED)),
        )
        .order_by(watch_event.c.id)
    )
    for row in rows.with_any(tx, query, watch_ids):
        requests = by_watch.setdefault(row.watch_id, [])
        last = requests[-1][1] if requests else WatchRequest()
        watch_request = _request_after(last, row.detail)
        if not requests or watch_request != last:
            requests.append((row.at, watch_request))
    return {watch_id: tuple(requests) for watch_id, requests in by_watch.items()}


def find_edited_since(tx: Connection, watch_ids: Iterable[str], *, since: int) -> set[str]:
    """Return the watches that were edited at `since` or later."""
    query = sa.select(watch_event.c.watch_id).where(
        rows.any_of(watch_event.c.watch_id),
        watch_event.c.type == rules.EDITED,
        watch_event.c.at >= since,
    )
    return {row.watch_id for row in rows.with_any(tx, query, watch_ids)}


def request_json(watch_request: WatchRequest) -> dict[str, Any]:
    """Return a watch's settings with the names of the HTTP request."""
    return {
        "events": list(watch_request.events),
        "liveness_sensitivity_n": watch_request.sensitivity,
        "digest": watch_request.digest,
    }


def _request_after(before: WatchRequest, detail: Mapping[str, Any]) -> WatchRequest:
    """Return a watch's settings after an event whose detail contains changes as in
    `request_json`.
    """
    return WatchRequest(
        events=tuple(detail.get("events", before.events)),
        sensitivity=detail.get("liveness_sensitivity_n", before.sensitivity),
        digest=detail.get("digest", before.digest),
    )
