"""The alert loop: from what flipped to the receiver's yes.

Rules (docs/watching.md):
- what is decided is written before anything is sent: a flip becomes deliveries in one
  transaction, which also marks it dispatched, and each delivery is tried until it is sent or dead;
- a crash loses nothing; what was sent and not yet written is sent once more under the same id;
- deliveries run side by side, at most one to a destination, and while slow ones are in flight the
  loop goes on deciding and sending: a slow destination delays no other.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import orjson
from sqlalchemy import Connection

from tollgauge.clients import webhooks
from tollgauge.clients.egress.client import Egress
from tollgauge.clients.seal import Sealer, SealError, destination_context, watch_context
from tollgauge.clients.webhooks import Sent, Signing, WatchSettings
from tollgauge.core import notice
from tollgauge.core import watch as rules
from tollgauge.core.exchange import FaultKind
from tollgauge.core.units import DAY_MS, SECOND_MS
from tollgauge.core.watch import Kind, State
from tollgauge.db.engine import Store
from tollgauge.observe import DELIVERIES, FLIPS, OUTBOX_AGE, OUTBOX_DEAD, OUTBOX_QUEUED, log
from tollgauge.store.endpoints import endpoints
from tollgauge.store.probes import changes
from tollgauge.store.watches import (
    delivery_queue,
    destinations,
    outbox,
    watch_events,
    watch_payments,
    watches,
)
from tollgauge.store.watches.delivery_queue import ClaimedDelivery, DeliveryResult
from tollgauge.store.watches.destinations import Destination
from tollgauge.store.watches.outbox import Notice
from tollgauge.store.watches.watches import Watch

FLIPS_BATCH: Final = 200
NOTICES_BATCH: Final = 5_000
"""After so many deliveries a transaction of decisions ends; the rest is the next one's."""
BUDGET_S: Final = 60.0
"""How long a round goes on claiming; the loop turns at once while there is more."""
STEP_S: Final = 0.2
GATHER_S: Final = 0.01
"""How long attempts that end at nearly the same time are gathered, to be written at once."""
REFILL: Final = 4
"""Slots are filled again when one in so many is free; while a host holds all that it may, when one
in so many was given back, or after a step.
"""
FAILING_SHARE: Final = 4
"""Of so many slots one is for destinations that failed last."""
HOST_SHARE: Final = 2
"""Of so many slots one is the most that a single host gets."""
OURS_AGAIN_MS: Final = 5 * SECOND_MS
_OURS: Final = frozenset({FaultKind.LOCAL.value, "sealed"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Alerts:
    """What the loop works with. `base_url` is where the pages of endpoints are."""

    store: Store
    egress: Egress
    settings: WatchSettings
    sealer: Sealer
    base_url: str
    clock: Callable[[], int]
    owner: str


async def run(alerts: Alerts) -> dict[str, object]:
    """Decide and deliver until nothing is due, or the round's time is over."""
    began = looked = filled = time.monotonic()
    enough = freed = max(alerts.settings.in_flight // REFILL, 1)
    decided = await decide(alerts)
    flying: dict[asyncio.Task[Sent], ClaimedDelivery] = {}
    tally: dict[str, int] = {}
    late = held = False
    try:
        while True:
            late = time.monotonic() - began > BUDGET_S
            waits = held and freed < enough and time.monotonic() - filled <= STEP_S
            if not late and not (flying and waits):
                held = await _take_off(alerts, flying)
                freed, filled = 0, time.monotonic()
            if not flying:
                break
            await asyncio.wait(flying, timeout=STEP_S, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.sleep(GATHER_S)
            done = [task for task in flying if task.done()]
            freed += len(done)
            await _land(alerts, [(flying.pop(task), task.result()) for task in done], tally)
            if not late and time.monotonic() - looked > STEP_S:
                looked = time.monotonic()
                decided += await decide(alerts)
    finally:
        for task in flying:
            task.cancel()
    await _measure(alerts)
    return {"flips": decided, **tally, "busy": late}


async def decide(alerts: Alerts) -> int:
    """Apply payments, make deliveries of what flipped and of what a watch itself has to say; how
    many flips were dispatched.
    """
    now = alerts.clock()
    async with alerts.store.read() as tx:
        flipped = await changes.waiting(tx)
        timed = await watch_payments.ready(tx) or await watches.any_due(tx, now=now)
    if timed:
        await alerts.store.writing(_tend, alerts, now=now)
    if not flipped:
        return 0
    return await alerts.store.writing(_dispatch, alerts, now=now)


def _dispatch(tx: Connection, alerts: Alerts, *, now: int) -> int:
    found = changes.undispatched(tx, limit=FLIPS_BATCH)
    if not found:
        return 0
    ids = {each.endpoint_id for each in found}
    oldest = min(each.change.at for each in found)
    known = endpoints.get_many(tx, ids)
    listening = watches.listeners(tx, ids, since=oldest)
    targets = destinations.of_watches(tx, [each.id for each in listening])
    edited = watch_events.edited_since(tx, targets, since=oldest)
    wishes = watch_events.wishes(tx, edited)
    by_endpoint: dict[str, list[Watch]] = {}
    for each in listening:
        by_endpoint.setdefault(each.endpoint_id, []).append(each)
    done: list[int] = []
    made: list[Notice] = []
    for stored in found:
        for each in by_endpoint.get(stored.endpoint_id, ()):
            if changes.hears(each, stored, wishes.get(each.id, ())):
                told = notice.change_event(
                    stored.change,
                    event_id=rules.message_id(each.id, f"flip:{stored.id}"),
                    watch_id=each.id,
                    resource=known[stored.endpoint_id].resource,
                    page=notice.page(alerts.base_url, stored.endpoint_id),
                )
                made += _notices(told, targets[each.id], now=now)
        done.append(stored.id)
        FLIPS.labels(stored.change.type).inc()
        if len(made) >= NOTICES_BATCH:
            break
    outbox.put(tx, made, now=now)
    changes.dispatched(tx, done, now=now)
    return len(done)


def _tend(tx: Connection, alerts: Alerts, *, now: int) -> None:
    """Payments of watches, then what is due about watches themselves: they end soon, they end, a
    day has passed.
    """
    watch_payments.apply(tx, now=now)
    found = watches.due(tx, now=now)
    known = endpoints.get_many(tx, {each.endpoint_id for each in found})
    targets = destinations.of_watches(tx, [each.id for each in found])
    for each in found:
        resource = known[each.endpoint_id].resource
        for told in _said(tx, alerts, each, resource, now=now):
            outbox.put(tx, _notices(told, targets[each.id], now=now), now=now)


def _said(
    tx: Connection, alerts: Alerts, watch: Watch, resource: str, *, now: int
) -> list[dict[str, object]]:
    """What a watch has to say of itself now; writes that it was said."""
    shared = {
        "watch_id": watch.id,
        "resource": resource,
        "page": notice.page(alerts.base_url, watch.endpoint_id),
        "at": now,
    }

    def say(type_: str, reason: str, mark: str, **more: object) -> dict[str, object]:
        id_ = rules.message_id(watch.id, mark)
        return notice.event(type_=type_, reason=reason, event_id=id_, **shared, **more)  # type: ignore[arg-type]

    if watch.expires_at <= now:
        event = watches.end(tx, watch, State.EXPIRED, now=now)
        words = "This watch has ended: nothing more is told. Renewing starts it again."
        return [] if event is None else [say(rules.EXPIRED, words, rules.own_event(event))]
    found: list[dict[str, object]] = []
    told, digest_at = watch.expiring_told, watch.digest_at
    if not told and watch.expires_at - rules.EXPIRING_MS <= now:
        told = True
        until = {"expiresAt": watch.expires_at}
        event = watches.note(tx, watch.id, rules.EXPIRING, until, now=now)
        words = f"This watch ends at {notice.iso(watch.expires_at)} unless it is renewed."
        found.append(say(rules.EXPIRING, words, rules.own_event(event), after=until))
    if watch.watch_request.digest and digest_at <= now:
        made, scored = changes.checks(tx, watch.endpoint_id, since=now - DAY_MS, until=now)
        events = changes.count_of_watch(tx, watch, since=now - DAY_MS)
        words = f"{scored} checks in the last day, {events} event{'s' if events != 1 else ''}."
        evidence = {"checkedTimes": scored, "excludedTimes": made - scored, "events": events}
        found.append(say(rules.DIGEST, words, f"{rules.DIGEST}:{digest_at}", evidence=evidence))
        digest_at += (now - digest_at) // DAY_MS * DAY_MS + DAY_MS
    watches.reschedule(tx, watch, expiring_told=told, digest_at=digest_at)
    return found


def _notices(told: dict[str, object], targets: Iterable[Destination], *, now: int) -> list[Notice]:
    """One delivery for each destination that takes any."""
    event_id, body = str(told["event_id"]), orjson.dumps(told).decode()
    return [
        Notice(
            id="dlv_" + hashlib.sha256(f"{target.id}:{event_id}".encode()).hexdigest()[:32],
            watch_id=str(told["watch_id"]),
            destination_id=target.id,
            event_id=event_id,
            type=str(told["type"]),
            body=body,
            created_at=now,
        )
        for target in targets
        if target.disabled_at is None
    ]


async def _take_off(alerts: Alerts, flying: dict[asyncio.Task[Sent], ClaimedDelivery]) -> bool:
    """Start as many deliveries as there are slots; whether a host now holds all that it may."""
    settings, now = alerts.settings, alerts.clock()
    free = settings.in_flight - len(flying)
    if flying and free < settings.in_flight // REFILL:
        return False
    failing = sum(each.destination.failures > 0 for each in flying.values())
    hosts = Counter(each.destination.host for each in flying.values())
    most = settings.in_flight // HOST_SHARE
    due = await alerts.store.reading(outbox.waiting, now=now)
    if not due:
        return False
    async with alerts.store.write() as tx:
        claimed = await delivery_queue.claim(
            tx,
            owner=alerts.owner,
            now=now,
            limit=free,
            failing=max(settings.in_flight // FAILING_SHARE - failing, 0),
            lease_ms=settings.lease_ms,
            flying=hosts,
            host_max=most,
        )
        if not claimed and not flying:
            await outbox.sweep(tx, now=now)
    for each in claimed:
        flying[asyncio.create_task(attempt(alerts, each))] = each
    hosts.update(each.destination.host for each in claimed)
    return any(count >= most for count in hosts.values())


async def attempt(alerts: Alerts, claimed: ClaimedDelivery) -> Sent:
    """One try of a delivery. Never raises."""
    target = claimed.destination
    try:
        url = opened_url(alerts.sealer, target)
        signing = _signing(alerts.sealer, claimed)
    except SealError:
        return Sent(error="sealed")
    return await webhooks.send(
        alerts.egress,
        url=url,
        kind=target.kind,
        told=orjson.loads(claimed.delivery.notice.body),
        signing=signing,
        now=alerts.clock(),
    )


def opened_url(sealer: Sealer, target: Destination) -> str:
    """A destination's URL. Raises SealError."""
    return sealer.open(target.sealed_url, context=destination_context(target.id)).decode()


def _signing(sealer: Sealer, claimed: ClaimedDelivery) -> Signing | None:
    if claimed.destination.kind is not Kind.JSON:
        return None
    if claimed.sealed_key is None:
        raise SealError("This watch has no signing key.")
    key = sealer.open(claimed.sealed_key, context=watch_context(claimed.destination.watch_id))
    return Signing(key=key, secret_hash=claimed.secret_hash)


async def _land(
    alerts: Alerts, done: Sequence[tuple[ClaimedDelivery, Sent]], tally: dict[str, int]
) -> None:
    """Write what attempts came to, all of them at once."""
    if not done:
        return
    now = alerts.clock()
    results = [outcome(claimed, sent, now=now) for claimed, sent in done]
    async with alerts.store.write() as tx:
        counted = await delivery_queue.conclude(tx, results, owner=alerts.owner)
        for result in counted:
            if result.disabled:
                target = result.claimed.destination
                detail = {"destination_disabled": target.masked, "reason": result.disabled}
                await watches.note(tx, target.watch_id, rules.EDITED, detail, now=now)
    for result in counted:
        word = result.state if result.state != outbox.QUEUED else "retry"
        tally[word] = tally.get(word, 0) + 1
        DELIVERIES.labels(result.claimed.destination.kind.value, word).inc()


def outcome(claimed: ClaimedDelivery, sent: Sent, *, now: int) -> DeliveryResult:
    """What an attempt means for its delivery."""
    if sent.ok:
        return DeliveryResult(claimed=claimed, state=outbox.SENT, at=now, status=sent.status)
    if sent.error in _OURS:
        return DeliveryResult(
            claimed=claimed,
            state=outbox.QUEUED,
            at=now,
            due=now + OURS_AGAIN_MS,
            error=sent.error,
            ours=True,
        )
    tried = claimed.delivery
    due = rules.retry_at(
        tried.notice.id, tried.attempts + 1, now=now, retry_after_ms=sent.retry_after_ms
    )
    ended = sent.gone or due is None
    return DeliveryResult(
        claimed=claimed,
        state=outbox.DEAD if ended else outbox.QUEUED,
        at=now,
        due=due or 0,
        status=sent.status,
        error=sent.error,
        disabled=sent.error if sent.gone else "",
    )


async def _measure(alerts: Alerts) -> None:
    depth = await alerts.store.reading(outbox.depth)
    OUTBOX_QUEUED.set(depth.queued)
    OUTBOX_DEAD.set(depth.dead)
    overdue = 0 if depth.oldest_due is None else max(alerts.clock() - depth.oldest_due, 0)
    OUTBOX_AGE.set(overdue / SECOND_MS)
    if overdue > 10 * rules.RETRIES_MS[0]:
        log().warning("outbox.late", queued=depth.queued, seconds=overdue // SECOND_MS)
