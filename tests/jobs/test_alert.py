"""Deliveries to receivers on real TLS: digests, retries, dead letters and slow destinations."""

from __future__ import annotations

import asyncio
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.databases import on_sqlite
from tests.support.http_service import NOW
from tests.support.receivers import ALERTS, DISCORD, OTHER, SLACK
from tests.support.watch_service import (
    QUOTE,
    WatchService,
    open_watch_service,
)

from tollgauge.core.base.units import DAY_MS, SECOND_MS
from tollgauge.jobs import alert
from tollgauge.store.watches import delivery_queue, outbox


async def test_daily_digest_counts_checks_and_events(watch_service: WatchService) -> None:
    await watch_service.buy(delivery={"webhook_url": f"https://{ALERTS}/a"}, digest=True)
    for _ in range(3):
        await watch_service.probe()
    await watch_service.probe(quote=replace(QUOTE, amount=1))
    watch_service.clock.now = NOW + DAY_MS
    await watch_service.alert()
    events = watch_service.receivers.events()
    assert sorted(event["type"] for event in events) == ["daily_digest", "price_change"]
    (digest,) = (event for event in events if event["type"] == "daily_digest")
    assert digest["evidence"] == {"checkedTimes": 4, "excludedTimes": 0, "events": 1}
    await watch_service.alert()
    assert [event["type"] for event in watch_service.receivers.events()].count("daily_digest") == 1
    watch_service.clock.now = NOW + 3 * DAY_MS
    await watch_service.alert()
    assert [event["type"] for event in watch_service.receivers.events()].count("daily_digest") == 2


@on_sqlite
async def test_directory_that_lists_the_endpoint_is_delivered_once(
    watch_service_on_each_database: WatchService,
) -> None:
    watch_service = watch_service_on_each_database
    bought = await watch_service.buy(
        delivery={"webhook_url": f"https://{ALERTS}/a"}, events=["listed"]
    )
    await watch_service.alert()  # starts the watch, whose payment has settled
    watch_service.clock.now += SECOND_MS
    for _ in range(2):
        await watch_service.list_it("cdp")
        await watch_service.alert()
        watch_service.clock.now += SECOND_MS
    (event,) = watch_service.receivers.events()
    assert event["type"] == "listed"
    assert event["reason"] == "The directory cdp lists this endpoint."
    assert event["evidence"] == {"source": "cdp"}
    (polled,) = (await watch_service.poll(bought))["events"]
    assert polled == event


@on_sqlite
async def test_failed_delivery_is_retried_with_the_same_id(
    watch_service_on_each_database: WatchService,
) -> None:
    watch_service = watch_service_on_each_database
    await watch_service.buy(delivery={"webhook_url": f"https://{ALERTS}/a"})
    await watch_service.probe()
    await watch_service.probe(quote=replace(QUOTE, amount=1))
    watch_service.receivers.answers[ALERTS] = [500, 503]
    watch_service.receivers.headers[ALERTS] = {"retry-after": "900"}
    await watch_service.alert()
    assert len(watch_service.receivers.events()) == 1
    watch_service.clock.now += 800 * SECOND_MS
    await watch_service.alert()
    assert len(watch_service.receivers.events()) == 1
    watch_service.clock.now += 200 * SECOND_MS
    await watch_service.alert()
    watch_service.clock.now += 1_000 * SECOND_MS
    await watch_service.alert()
    sent = watch_service.receivers.of(ALERTS)[1:]
    assert len(sent) == 3
    assert len({message.headers["webhook-id"] for message in sent}) == 1
    assert len({message.headers["webhook-timestamp"] for message in sent}) == 3
    assert len({message.body for message in sent}) == 1
    await watch_service.alert()
    assert len(watch_service.receivers.of(ALERTS)) == 4


async def test_dead_letter_is_listed_and_resent_by_the_operator(
    watch_service_on_each_database: WatchService,
) -> None:
    watch_service = watch_service_on_each_database
    bought = await watch_service.buy(delivery={"webhook_url": f"https://{ALERTS}/a"})
    await watch_service.probe()
    await watch_service.probe(quote=replace(QUOTE, amount=1))
    watch_service.receivers.answers[ALERTS] = [500] * 8
    for _ in range(10):
        await watch_service.alert()
        watch_service.clock.now += DAY_MS // 2
    assert len(watch_service.receivers.events()) == 8
    (letter,) = await watch_service.store.writing(outbox.dead, limit=10)
    assert (letter.attempts, letter.last_error) == (8, "http-500")
    assert (
        await watch_service.store.writing(
            outbox.resend, [letter.alert.id], now=watch_service.clock()
        )
        == 1
    )
    assert (
        await watch_service.store.writing(
            outbox.resend, [letter.alert.id], now=watch_service.clock()
        )
        == 0
    )
    await watch_service.alert()
    (event,) = (await watch_service.poll(bought))["events"]
    assert watch_service.receivers.events()[-1]["event_id"] == event["event_id"]
    assert len(watch_service.receivers.events()) == 9


@pytest.mark.parametrize(("host", "status"), [(SLACK, 404), (DISCORD, 404), (ALERTS, 410)])
async def test_permanently_failing_destination_is_disabled_and_visible_to_the_owner(
    watch_service: WatchService, host: str, status: int
) -> None:
    url = {
        SLACK: f"https://{SLACK}/services/T/B/x",
        DISCORD: f"https://{DISCORD}/api/webhooks/1/x",
        ALERTS: f"https://{ALERTS}/a",
    }[host]
    bought = await watch_service.buy(delivery={"webhook_url": url})
    await watch_service.probe()
    await watch_service.probe(quote=replace(QUOTE, amount=1))
    watch_service.receivers.answers[host] = [status]
    await watch_service.alert()
    await watch_service.probe(quote=replace(QUOTE, amount=2))
    watch_service.clock.now += DAY_MS
    await watch_service.alert()
    assert len(watch_service.receivers.of(host)) == 2
    polled = await watch_service.poll(bought)
    assert len(polled["events"]) == 2
    note = polled["watch_events"][-1]
    assert note["type"] == "edited"
    assert note["detail"]["reason"] == f"http-{status}"
    state = (await watch_service.patch(bought, {"digest": False})).json()
    assert state["destinations"][0]["state"] == "disabled"
    again = await watch_service.patch(bought, {"delivery": {"webhook_url": url}})
    assert [destination["state"] for destination in again.json()["destinations"]] == ["active"]
    await watch_service.probe(quote=replace(QUOTE, amount=3))
    await watch_service.alert()
    assert len(watch_service.receivers.of(host)) == 4


async def test_slow_destination_does_not_delay_others(tmp_path: Path, empty_sqlite: Path) -> None:
    url = f"sqlite:///{shutil.copy(empty_sqlite, tmp_path / 'watch_service.db')}"
    async with open_watch_service(url, tmp_path, deadline_ms=20_000) as watch_service:
        slow = [f"https://{OTHER}/{number}" for number in range(5)]
        await watch_service.buy(delivery={"webhook_url": slow})
        await watch_service.buy(delivery={"webhook_url": f"https://{ALERTS}/a"})
        await watch_service.probe()
        watch_service.receivers.stuck.add(OTHER)
        await watch_service.probe(quote=replace(QUOTE, amount=1))
        sending = asyncio.create_task(watch_service.alert())
        while not watch_service.receivers.events(ALERTS):  # noqa: ASYNC110 - a receiver has no event
            await asyncio.sleep(0.01)
        assert not sending.done()
        assert (await watch_service.store.reading(outbox.depth)).queued >= 5
        watch_service.receivers.stuck.clear()
        watch_service.receivers.released.set()
        await sending
        assert len(watch_service.receivers.events(OTHER)) == 5


async def test_expired_lease_sends_once_more_with_the_same_id(
    watch_service: WatchService,
) -> None:
    bought = await watch_service.buy(delivery={"webhook_url": f"https://{ALERTS}/a"})
    await watch_service.probe()
    await watch_service.probe(quote=replace(QUOTE, amount=1))
    alerts = watch_service.running.service.alerts()
    await alert.queue_alerts(alerts)
    (claimed,) = await watch_service.store.writing(
        delivery_queue.claim,
        owner="dead",
        now=watch_service.clock(),
        limit=9,
        failing=9,
        lease_ms=60_000,
    )
    assert (await alert.attempt(alerts, claimed)).ok  # and dies before the result is written
    await watch_service.alert()
    assert len(watch_service.receivers.events()) == 1
    watch_service.clock.now += 61 * SECOND_MS
    await watch_service.alert()
    ids = [event["event_id"] for event in watch_service.receivers.events()]
    assert len(ids) == 2
    assert ids == [(await watch_service.poll(bought))["events"][0]["event_id"]] * 2
    late = delivery_queue.DeliveryResult(
        claimed=claimed, state=outbox.DEAD, at=watch_service.clock()
    )
    assert await watch_service.store.writing(delivery_queue.conclude, [late], owner="dead") == ()
