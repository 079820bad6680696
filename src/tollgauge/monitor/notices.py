"""Notices: which deliveries a recorded change, or a watch itself, gives rise to.

Rules (docs/watching.md):
- a change becomes deliveries in the transaction that also marks it dispatched;
- a watch tells of itself when it is about to end, when it ends, and once a day where its owner
  wants a digest;
- the id of a delivery follows from its event and its destination: deciding twice makes one.

Which changes there are is decided in monitor/changes; sending is jobs/alert.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable
from typing import Final

import orjson
from sqlalchemy import Connection

from tollgauge.core import notice
from tollgauge.core import watch as rules
from tollgauge.core.units import DAY_MS
from tollgauge.core.watch import State
from tollgauge.db.engine import Store
from tollgauge.store.endpoints import endpoints
from tollgauge.store.probes import changes
from tollgauge.store.probes.changes import StoredChange
from tollgauge.store.watches import destinations, outbox, watch_events, watch_payments, watches
from tollgauge.store.watches.destinations import Destination
from tollgauge.store.watches.outbox import Notice
from tollgauge.store.watches.watches import Watch

CHANGES_BATCH: Final = 200
NOTICES_BATCH: Final = 5_000
"""After so many deliveries a transaction of decisions ends; the rest is the next one's."""


async def decide(store: Store, *, base_url: str, now: int) -> Counter[str]:
    """Apply payments of watches, and make deliveries of new changes and of what watches have to
    say of themselves; how many changes of each type were dispatched. `base_url` is where the pages
    are.
    """
    changed, watches_due = await store.reading(_waiting, now=now)
    if watches_due:
        await store.writing(_tell_of_watches, base_url=base_url, now=now)
    if not changed:
        return Counter()
    return await store.writing(_dispatch_changes, base_url=base_url, now=now)


def _waiting(tx: Connection, *, now: int) -> tuple[bool, bool]:
    """Whether a change is to be dispatched, and whether a watch or its payment is due."""
    return changes.waiting(tx), watch_payments.ready(tx) or watches.any_due(tx, now=now)


def _dispatch_changes(tx: Connection, *, base_url: str, now: int) -> Counter[str]:
    undispatched = changes.undispatched(tx, limit=CHANGES_BATCH)
    if not undispatched:
        return Counter()
    ids = {stored.endpoint_id for stored in undispatched}
    oldest = min(stored.change.at for stored in undispatched)
    endpoints_by_id = endpoints.get_many(tx, ids)
    listeners = watches.listeners(tx, ids, since=oldest)
    targets = destinations.of_watches(tx, [watch.id for watch in listeners])
    edited = watch_events.edited_since(tx, targets, since=oldest)
    requests = watch_events.request_history(tx, edited)
    watches_by_endpoint: dict[str, list[Watch]] = {}
    for watch in listeners:
        watches_by_endpoint.setdefault(watch.endpoint_id, []).append(watch)
    dispatched: list[StoredChange] = []
    deliveries: list[Notice] = []
    for stored in undispatched:
        for watch in watches_by_endpoint.get(stored.endpoint_id, ()):
            if changes.hears(watch, stored, requests.get(watch.id, ())):
                event = notice.change_event(
                    stored.change,
                    event_id=rules.message_id(watch.id, f"flip:{stored.id}"),
                    watch_id=watch.id,
                    resource=endpoints_by_id[stored.endpoint_id].resource,
                    page=notice.page(base_url, stored.endpoint_id),
                )
                deliveries += _deliveries(event, targets[watch.id], now=now)
        dispatched.append(stored)
        if len(deliveries) >= NOTICES_BATCH:
            break
    outbox.put(tx, deliveries, now=now)
    changes.dispatched(tx, [stored.id for stored in dispatched], now=now)
    return Counter(stored.change.type for stored in dispatched)


def _tell_of_watches(tx: Connection, *, base_url: str, now: int) -> None:
    """Payments of watches, then what is due about watches themselves: they end soon, they end, a
    day has passed.
    """
    watch_payments.apply(tx, now=now)
    due = watches.due(tx, now=now)
    endpoints_by_id = endpoints.get_many(tx, {watch.endpoint_id for watch in due})
    targets = destinations.of_watches(tx, [watch.id for watch in due])
    for watch in due:
        resource = endpoints_by_id[watch.endpoint_id].resource
        for event in _events_of_watch(tx, watch, resource, base_url=base_url, now=now):
            outbox.put(tx, _deliveries(event, targets[watch.id], now=now), now=now)


def _events_of_watch(
    tx: Connection, watch: Watch, resource: str, *, base_url: str, now: int
) -> list[dict[str, object]]:
    """What a watch has to say of itself now; writes that it was said."""
    shared = {
        "watch_id": watch.id,
        "resource": resource,
        "page": notice.page(base_url, watch.endpoint_id),
        "at": now,
    }

    def event(type_: str, reason: str, mark: str, **more: object) -> dict[str, object]:
        id_ = rules.message_id(watch.id, mark)
        return notice.event(type_=type_, reason=reason, event_id=id_, **shared, **more)  # type: ignore[arg-type]

    if watch.expires_at <= now:
        ended = watches.end(tx, watch, State.EXPIRED, now=now)
        words = "This watch has ended: nothing more is told. Renewing starts it again."
        return [] if ended is None else [event(rules.EXPIRED, words, rules.own_event(ended))]
    events: list[dict[str, object]] = []
    expiring_told, digest_at = watch.expiring_told, watch.digest_at
    if not expiring_told and watch.expires_at - rules.EXPIRING_MS <= now:
        expiring_told = True
        until = {"expiresAt": watch.expires_at}
        noted = watches.note(tx, watch.id, rules.EXPIRING, until, now=now)
        words = f"This watch ends at {notice.iso(watch.expires_at)} unless it is renewed."
        events.append(event(rules.EXPIRING, words, rules.own_event(noted), after=until))
    if watch.watch_request.digest and digest_at <= now:
        probes, scored = changes.checks(tx, watch.endpoint_id, since=now - DAY_MS, until=now)
        count = changes.count_of_watch(tx, watch, since=now - DAY_MS)
        words = f"{scored} checks in the last day, {count} event{'s' if count != 1 else ''}."
        evidence = {"checkedTimes": scored, "excludedTimes": probes - scored, "events": count}
        events.append(event(rules.DIGEST, words, f"{rules.DIGEST}:{digest_at}", evidence=evidence))
        digest_at += (now - digest_at) // DAY_MS * DAY_MS + DAY_MS
    watches.reschedule(tx, watch, expiring_told=expiring_told, digest_at=digest_at)
    return events


def _deliveries(
    event: dict[str, object], targets: Iterable[Destination], *, now: int
) -> list[Notice]:
    """One delivery of an event for each destination that takes any."""
    event_id, body = str(event["event_id"]), orjson.dumps(event).decode()
    return [
        Notice(
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
