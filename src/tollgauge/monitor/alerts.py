"""Queue alert deliveries for changes of endpoints and for events of watches.

Deliveries of a change are queued in the transaction that marks the change as dispatched. Delivery
IDs are derived from event and destination, so that repeating the decision does not queue a second
delivery.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable
from functools import partial
from typing import Final

import orjson
from sqlalchemy import Connection

from tollgauge.core.base.units import DAY_MS, iso_seconds
from tollgauge.core.endpoint.identity import page_url
from tollgauge.core.probe.exchange import Severity
from tollgauge.core.watch import alert_text
from tollgauge.core.watch import watch_rules as rules
from tollgauge.core.watch.changes import Change
from tollgauge.core.watch.watch_rules import WatchState
from tollgauge.db.engine import Store
from tollgauge.monitor import watched_changes
from tollgauge.store import rows
from tollgauge.store.endpoints import endpoints
from tollgauge.store.probes import change_rows as changes
from tollgauge.store.probes.change_rows import StoredChange
from tollgauge.store.watches import outbox, watch_events, watch_payments, watches
from tollgauge.store.watches.outbox import Alert
from tollgauge.store.watches.watches import Destination, Watch

CHANGES_BATCH: Final = 200
DELIVERIES_BATCH: Final = 5_000  # a transaction stops after the change that reaches this number


async def queue_due_alerts(store: Store, *, base_url: str, now: int) -> Counter[str]:
    """Apply payments of watches, then queue deliveries of new changes and of events of watches.

    `base_url`: base URL of the endpoint pages that events link to.

    Returns:
        Number of dispatched changes by type.
    """
    changed, watches_due = await store.reading(_find_waiting, now=now)
    if watches_due:
        await store.writing(_dispatch_watch_events, base_url=base_url, now=now)
    if not changed:
        return Counter()
    return await store.writing(_dispatch_changes, base_url=base_url, now=now)


def _find_waiting(tx: Connection, *, now: int) -> tuple[bool, bool]:
    """Return whether a change is undispatched, and whether a watch or a payment of one is due."""
    return changes.has_undispatched(tx), watch_payments.ready(tx) or watches.is_any_due(tx, now=now)


def _dispatch_changes(tx: Connection, *, base_url: str, now: int) -> Counter[str]:
    undispatched = changes.lock_undispatched(tx, limit=CHANGES_BATCH)
    if not undispatched:
        return Counter()
    ids = {stored.endpoint_id for stored in undispatched}
    oldest = min(stored.change.at for stored in undispatched)
    endpoints_by_id = endpoints.get_many(tx, ids)
    listeners = watches.listeners(tx, ids, since=oldest)
    targets = watches.load_destinations(tx, [watch.id for watch in listeners])
    edited = watch_events.find_edited_since(tx, targets, since=oldest)
    requests = watch_events.request_history(tx, edited)
    watches_by_endpoint = rows.group((watch.endpoint_id, watch) for watch in listeners)
    dispatched: list[StoredChange] = []
    deliveries: list[Alert] = []
    for stored in undispatched:
        for watch in watches_by_endpoint.get(stored.endpoint_id, ()):
            if watched_changes.is_about(watch, stored, requests.get(watch.id, ())):
                resource = endpoints_by_id[stored.endpoint_id].resource
                mark = rules.change_event(stored.id)
                event = _event(watch, resource, base_url, stored.change, mark)
                deliveries += _deliveries(event, targets[watch.id], now=now)
        dispatched.append(stored)
        if len(deliveries) >= DELIVERIES_BATCH:
            break
    outbox.put(tx, deliveries, now=now)
    changes.mark_dispatched(tx, [stored.id for stored in dispatched], now=now)
    return Counter(stored.change.type for stored in dispatched)


def _dispatch_watch_events(tx: Connection, *, base_url: str, now: int) -> None:
    """Apply payments of watches, then queue the expiry warnings, expiry events and digests due
    now.
    """
    watch_payments.apply(tx, now=now)
    due = watches.due(tx, now=now)
    endpoints_by_id = endpoints.get_many(tx, {watch.endpoint_id for watch in due})
    targets = watches.load_destinations(tx, [watch.id for watch in due])
    for watch in due:
        resource = endpoints_by_id[watch.endpoint_id].resource
        for event in _events_of_watch(tx, watch, resource, base_url=base_url, now=now):
            outbox.put(tx, _deliveries(event, targets[watch.id], now=now), now=now)


def _events_of_watch(
    tx: Connection, watch: Watch, resource: str, *, base_url: str, now: int
) -> list[dict[str, object]]:
    """Return the events of a watch that are due now and record them as sent."""
    event = partial(_event, watch, resource, base_url)
    if watch.expires_at <= now:
        ended = watches.end(tx, watch, WatchState.EXPIRED, now=now)
        return [] if ended is None else [event(_expiry_change(now), rules.own_event(ended))]
    events: list[dict[str, object]] = []
    expiring_told, digest_at = watch.expiring_told, watch.digest_at
    if not expiring_told and watch.expires_at - rules.EXPIRING_MS <= now:
        expiring_told = True
        expiring = _build_expiry(watch, now)
        noted = watches.note(tx, watch.id, rules.EXPIRING, expiring.after, now=now)
        events.append(event(expiring, rules.own_event(noted)))
    if watch.watch_request.digest and digest_at <= now:
        events.append(event(_digest(tx, watch, now), f"{rules.DIGEST}:{digest_at}"))
        digest_at += (now - digest_at) // DAY_MS * DAY_MS + DAY_MS
    watches.reschedule(tx, watch, expiring_told=expiring_told, digest_at=digest_at)
    return events


def _event(
    watch: Watch, resource: str, base_url: str, change: Change, mark: str
) -> dict[str, object]:
    """Return a change as an event of a watch; the `mark` tells the watch's events apart."""
    return alert_text.build_event(
        change,
        event_id=rules.message_id(watch.id, mark),
        watch_id=watch.id,
        resource=resource,
        page=page_url(base_url, watch.endpoint_id),
    )


def _expiry_change(now: int) -> Change:
    reason = "This watch has ended. No further alerts are sent. Renew the watch to restart it."
    return Change(type=rules.EXPIRED, at=now, severity=Severity.INFO, reason=reason)


def _build_expiry(watch: Watch, now: int) -> Change:
    return Change(
        type=rules.EXPIRING,
        at=now,
        severity=Severity.INFO,
        reason=f"This watch ends at {iso_seconds(watch.expires_at)} unless it is renewed.",
        after={"expiresAt": watch.expires_at},
    )


def _digest(tx: Connection, watch: Watch, now: int) -> Change:
    """Count the checks and events of the last day."""
    since = now - DAY_MS
    probes, scored = changes.checks(tx, watch, since=since, until=now)
    count = watched_changes.count_of_watch(tx, watch, since=since)
    return Change(
        type=rules.DIGEST,
        at=now,
        severity=Severity.INFO,
        reason=f"{scored} checks in the last day, {count} event{'s' if count != 1 else ''}.",
        evidence={"checkedTimes": scored, "excludedTimes": probes - scored, "events": count},
    )


def _deliveries(
    event: dict[str, object], targets: Iterable[Destination], *, now: int
) -> list[Alert]:
    """Return one delivery of an event for each enabled destination."""
    event_id, body = str(event["event_id"]), orjson.dumps(event).decode()
    return [
        Alert(
            id="dlv_" + hashlib.sha256(f"{target.id}:{event_id}".encode()).hexdigest()[:32],
            watch_id=str(event["watch_id"]),
            destination_id=target.id,
            event_id=event_id,
            type=str(event["type"]),
            body=body,
            created_at=now,
        )
        for target in targets
        if target.disabled_at is None
    ]
