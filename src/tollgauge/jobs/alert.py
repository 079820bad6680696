"""The alert loop: queue deliveries for recorded changes and send them (docs/watching.md).

Deliveries are stored before they are sent and are retried until they are sent or dead. After a
crash, deliveries without a stored result are sent again with the same ID. Deliveries run
concurrently, at most one per destination, and the loop continues to queue and send while slow ones
are in flight.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import orjson
from sqlalchemy import Connection

from tollgauge.clients import webhooks
from tollgauge.clients.egress.client import Egress
from tollgauge.clients.webhooks import (
    Sealer,
    SealError,
    Sent,
    WatchSettings,
    destination_context,
    watch_context,
)
from tollgauge.core.base.units import SECOND_MS, Clock
from tollgauge.core.probe.exchange import FaultKind
from tollgauge.core.watch import watch_rules as rules
from tollgauge.core.watch.watch_rules import DestinationKind
from tollgauge.db.engine import Store
from tollgauge.monitor.alerts import queue_due_alerts
from tollgauge.observe import CHANGES, DELIVERIES, OUTBOX_AGE, OUTBOX_DEAD, OUTBOX_QUEUED, log
from tollgauge.store.watches import delivery_queue, outbox, watches
from tollgauge.store.watches.delivery_queue import ClaimedDelivery, DeliveryResult

ROUND_S: Final = 60.0  # a round stops claiming after this time; the next follows immediately
STEP_S: Final = 0.2  # maximum wait for a delivery before new changes and deliveries are read
GATHER_S: Final = 0.01  # results within this time are written in one transaction
REFILL_FRACTION: Final = 4  # claim more deliveries once a quarter of the slots is free
FAILING_FRACTION: Final = 4  # a quarter of the slots for destinations whose last delivery failed
HOST_FRACTION: Final = 2  # half of the slots for a single host
LOCAL_RETRY_MS: Final = 5 * SECOND_MS  # retry delay after a failure of this machine
_LOCAL_ERRORS: Final = frozenset({FaultKind.LOCAL.value, "sealed"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Alerts:
    """Dependencies of the loop. `base_url` is the base URL of the endpoint pages."""

    store: Store
    egress: Egress
    settings: WatchSettings
    sealer: Sealer
    base_url: str
    clock: Clock
    owner: str


async def run(alerts: Alerts) -> dict[str, object]:
    """Queue and send deliveries until nothing is due or the round's time is over."""
    began = decided_at = filled_at = time.monotonic()
    refill = freed = max(alerts.settings.in_flight // REFILL_FRACTION, 1)
    decided = await queue_alerts(alerts)
    in_flight: dict[asyncio.Task[Sent], ClaimedDelivery] = {}
    tally: Counter[str] = Counter()
    late = host_is_full = False
    try:
        while True:
            late = time.monotonic() - began > ROUND_S
            # While a host has all its slots, claiming is pointless until enough were freed.
            too_few_freed = host_is_full and freed < refill
            waits = too_few_freed and time.monotonic() - filled_at <= STEP_S
            if not late and not (in_flight and waits):
                host_is_full = await _start_deliveries(alerts, in_flight)
                freed, filled_at = 0, time.monotonic()
            if not in_flight:
                break
            await asyncio.wait(in_flight, timeout=STEP_S, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.sleep(GATHER_S)
            done = [task for task in in_flight if task.done()]
            freed += len(done)
            ended = [(in_flight.pop(task), task.result()) for task in done]
            await _write_results(alerts, ended, tally)
            if not late and time.monotonic() - decided_at > STEP_S:
                decided_at = time.monotonic()
                decided += await queue_alerts(alerts)
    finally:
        for task in in_flight:
            task.cancel()
    await _measure(alerts)
    return {"changes": decided, **tally, "busy": late}


async def queue_alerts(alerts: Alerts) -> int:
    """Queue the deliveries that are due (monitor/alerts); return the number of dispatched
    changes.
    """
    dispatched = await queue_due_alerts(alerts.store, base_url=alerts.base_url, now=alerts.clock())
    for type_, count in dispatched.items():
        CHANGES.labels(type_).inc(count)
    return dispatched.total()


async def _start_deliveries(
    alerts: Alerts, in_flight: dict[asyncio.Task[Sent], ClaimedDelivery]
) -> bool:
    """Start a delivery per free slot; return whether a host now has all slots it may use."""
    settings, now = alerts.settings, alerts.clock()
    free = settings.in_flight - len(in_flight)
    if in_flight and free < settings.in_flight // REFILL_FRACTION:
        return False
    failing = sum(claimed.destination.failures > 0 for claimed in in_flight.values())
    hosts = Counter(claimed.destination.host for claimed in in_flight.values())
    most = settings.in_flight // HOST_FRACTION
    if not await alerts.store.reading(outbox.is_any_due, now=now):
        return False

    def claim(tx: Connection) -> Sequence[ClaimedDelivery]:
        """Claim deliveries for the free slots; an idle worker repairs the outbox instead."""
        claimed = delivery_queue.claim(
            tx,
            owner=alerts.owner,
            now=now,
            limit=free,
            failing=max(settings.in_flight // FAILING_FRACTION - failing, 0),
            lease_ms=settings.lease_ms,
            in_flight=hosts,
            host_max=most,
        )
        if not in_flight and not claimed:
            outbox.sweep(tx, now=now)
        return claimed

    new = await alerts.store.writing(claim)
    for claimed in new:
        in_flight[asyncio.create_task(attempt(alerts, claimed))] = claimed
    hosts.update(claimed.destination.host for claimed in new)
    return any(count >= most for count in hosts.values())


async def attempt(alerts: Alerts, claimed: ClaimedDelivery) -> Sent:
    """Try one delivery. Never raises: failures are part of the result."""
    target = claimed.destination
    try:
        context = destination_context(target.id)
        url = alerts.sealer.open(target.sealed_url, context=context).decode()
        key = _open_key(alerts.sealer, claimed)
    except SealError:
        return Sent(error="sealed")
    return await webhooks.send(
        alerts.egress,
        url=url,
        kind=target.kind,
        event=orjson.loads(claimed.delivery.alert.body),
        key=key,
        now=alerts.clock(),
    )


def _open_key(sealer: Sealer, claimed: ClaimedDelivery) -> bytes | None:
    """Return the signing key of a watch; None for formats that are not signed."""
    if claimed.destination.kind is not DestinationKind.JSON:
        return None
    if claimed.sealed_key is None:
        raise SealError("This watch has no signing key.")
    return sealer.open(claimed.sealed_key, context=watch_context(claimed.destination.watch_id))


async def _write_results(
    alerts: Alerts, ended: Sequence[tuple[ClaimedDelivery, Sent]], tally: Counter[str]
) -> None:
    """Write the results of finished attempts in one transaction."""
    if not ended:
        return
    now = alerts.clock()
    results = [outcome(claimed, sent, now=now) for claimed, sent in ended]
    concluded = await alerts.store.writing(_conclude, results, owner=alerts.owner, now=now)
    for result in concluded:
        word = result.state if result.state != outbox.QUEUED else "retry"
        tally[word] += 1
        DELIVERIES.labels(result.claimed.destination.kind.value, word).inc()


def _conclude(
    tx: Connection, results: Sequence[DeliveryResult], *, owner: str, now: int
) -> tuple[DeliveryResult, ...]:
    """Write the results of deliveries that `owner` still holds and return them.

    A destination that the receiver disabled is recorded as an event of its watch.
    """
    concluded = delivery_queue.conclude(tx, results, owner=owner)
    for result in concluded:
        if result.disabled:
            target = result.claimed.destination
            detail = {"destination_disabled": target.masked, "reason": result.disabled}
            watches.note(tx, target.watch_id, rules.EDITED, detail, now=now)
    return tuple(concluded)


def outcome(claimed: ClaimedDelivery, sent: Sent, *, now: int) -> DeliveryResult:
    """Decide how a delivery continues after an attempt."""
    if sent.ok:
        return DeliveryResult(claimed=claimed, state=outbox.SENT, at=now, status=sent.status)
    if sent.error in _LOCAL_ERRORS:
        return DeliveryResult(
            claimed=claimed,
            state=outbox.QUEUED,
            at=now,
            due=now + LOCAL_RETRY_MS,
            error=sent.error,
            ours=True,  # not counted as an attempt
        )
    tried = claimed.delivery
    due = rules.retry_at(
        tried.alert.id, tried.attempts + 1, now=now, retry_after_ms=sent.retry_after_ms
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
