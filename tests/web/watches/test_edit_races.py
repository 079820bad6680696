"""Concurrent changes of a watch: edits, cancels and renewals during deliveries, the end of its
period, foreign cursors. On both databases.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from tests.support.http_service import NOW
from tests.support.receivers import ALERTS, OTHER, SLACK
from tests.support.statements import execute
from tests.support.watch_service import QUOTE, RESOURCE, WatchService, open_watch_service, path

from tollgauge.core.base.units import DAY_MS, MINUTE_MS, SECOND_MS
from tollgauge.core.sale.payment_state import State as PaymentState
from tollgauge.core.watch.watch_rules import (
    PERIOD_MS,
    READABLE_MS,
    DestinationKind,
    Target,
    WatchState,
)
from tollgauge.jobs import alert
from tollgauge.store.ledger import payments
from tollgauge.store.watches import outbox, watch_payments, watches
from tollgauge.store.watches.watches import destination
from tollgauge.web.edge.problem import Problem
from tollgauge.web.paid.delivery_test import DeliveryTester

ON_SQLITE = pytest.mark.parametrize("database", ["sqlite"], indirect=True)
"""For tests in which nothing happens concurrently."""
A, B = f"https://{ALERTS}/a", f"https://{OTHER}/b"


@pytest.fixture
async def watch_service(database: str, tmp_path: Path) -> AsyncIterator[WatchService]:
    async with open_watch_service(database, tmp_path, deadline_ms=20_000) as service:
        yield service


async def insert_payment(
    watch_service: WatchService, payment_id: str, state: PaymentState = PaymentState.SETTLED
) -> None:
    """A row of the ledger, as the gate would have left it."""
    values = {
        column.name: None if column.nullable else 0 if isinstance(column.type, sa.Integer) else ""
        for column in payments.payment.c
    } | {"id": payment_id, "state": state.value}
    await execute(watch_service.store, payments.payment.insert().values(**values))


async def depth(watch_service: WatchService) -> outbox.Depth:
    depth: outbox.Depth = await watch_service.store.reading(outbox.depth)
    return depth


async def happens(watch_service: WatchService, amount: int) -> None:
    """A change of the price, decided but not sent."""
    await watch_service.probe(quote=replace(QUOTE, amount=amount))
    await alert.queue_alerts(watch_service.running.service.alerts())


@ON_SQLITE
async def test_deliveries_to_a_removed_destination_are_dropped(
    watch_service: WatchService,
) -> None:
    bought = await watch_service.buy(delivery={"webhook_url": [A, B]})
    await happens(watch_service, 1)
    assert (await depth(watch_service)).queued == 2
    assert (await watch_service.patch(bought, {"delivery": {"webhook_url": B}})).status_code == 200
    assert (await depth(watch_service)).queued == 1
    await watch_service.alert()
    assert watch_service.receivers.events(ALERTS) == []
    assert len(watch_service.receivers.events(OTHER)) == 1
    assert (await depth(watch_service)).queued == 0


async def test_delivery_in_flight_to_a_removed_destination_is_not_retried(
    watch_service: WatchService,
) -> None:
    bought = await watch_service.buy(delivery={"webhook_url": A})
    await happens(watch_service, 1)
    watch_service.receivers.stuck.add(ALERTS)
    sending = asyncio.create_task(watch_service.alert())
    while not watch_service.receivers.events():  # noqa: ASYNC110 - a receiver has no event
        await asyncio.sleep(0.01)
    await watch_service.patch(bought, {"delivery": {"webhook_url": []}})
    watch_service.receivers.answers[ALERTS] = [500]
    watch_service.receivers.stuck.clear()
    watch_service.receivers.released.set()
    await sending
    watch_service.clock.now += DAY_MS
    await watch_service.alert()
    assert len(watch_service.receivers.events()) == 1
    assert (await depth(watch_service)) == outbox.Depth(queued=0, oldest_due=None, dead=0)


async def test_deliveries_queued_during_a_cancel_are_dropped(
    watch_service: WatchService,
) -> None:
    bought = await watch_service.buy(delivery={"webhook_url": A})
    await happens(watch_service, 1)
    await watch_service.cancel(bought)
    await execute(
        watch_service.store, outbox.delivery.update().values(state=outbox.QUEUED, done_at=None)
    )
    await watch_service.alert()
    assert watch_service.receivers.events() == []
    assert (await depth(watch_service)).queued == 0


@ON_SQLITE
async def test_deliveries_to_a_disabled_destination_fail(
    watch_service: WatchService,
) -> None:
    await watch_service.buy(delivery={"webhook_url": A})
    await happens(watch_service, 1)
    gone = {"disabled_at": watch_service.clock(), "disabled_reason": "http-410"}
    await execute(watch_service.store, destination.update().values(**gone))
    await watch_service.alert()
    assert watch_service.receivers.events() == []
    assert (await depth(watch_service)).dead == 1


@ON_SQLITE
async def test_operator_cannot_resend_removed_deliveries(watch_service: WatchService) -> None:
    bought = await watch_service.buy(delivery={"webhook_url": A})
    await happens(watch_service, 1)
    watch_service.receivers.answers[ALERTS] = [410]
    await watch_service.alert()
    await watch_service.patch(bought, {"delivery": {"webhook_url": []}})
    (letter,) = await watch_service.store.writing(outbox.dead, limit=9)
    assert (
        await watch_service.store.writing(
            outbox.resend, [letter.alert.id], now=watch_service.clock()
        )
        == 0
    )
    assert (await depth(watch_service)).queued == 0


async def test_two_workers_deliver_each_alert_once(watch_service: WatchService) -> None:
    bought = await watch_service.buy(delivery={"webhook_url": [A, B]}, digest=True)
    for amount in range(1, 3):
        await happens(watch_service, amount)
    watch_service.clock.now = NOW + 27 * DAY_MS
    service = watch_service.running.service
    workers = [replace(service.alerts(), owner=f"worker-{n}") for n in range(3)]
    await asyncio.gather(*(alert.run(worker) for worker in workers))
    watch_service.clock.now = NOW + PERIOD_MS
    await asyncio.gather(*(alert.run(worker) for worker in workers))
    await asyncio.gather(*(alert.run(worker) for worker in workers))
    for host in (ALERTS, OTHER):
        ids = [event["event_id"] for event in watch_service.receivers.events(host)]
        types = sorted(event["type"] for event in watch_service.receivers.events(host))
        assert len(ids) == len(set(ids))
        assert types == ["daily_digest", "expired", "expiring", "price_change", "price_change"]
    polled = await watch_service.poll(bought)
    assert [event["type"] for event in polled["watch_events"]] == ["created", "expiring", "expired"]
    assert polled["state"] == "expired"


@ON_SQLITE
async def test_lifecycle_event_has_one_id_in_polls_and_deliveries(
    watch_service: WatchService,
) -> None:
    bought = await watch_service.buy(delivery={"webhook_url": A})
    for days in (27, 30):
        watch_service.clock.now = NOW + days * DAY_MS
        await watch_service.alert()
    id_by_type = {event["type"]: event["event_id"] for event in watch_service.receivers.events()}
    polled = (await watch_service.poll(bought))["watch_events"]
    own = {event["type"]: event["event_id"] for event in polled}
    assert id_by_type == {name: own[name] for name in ("expiring", "expired")}
    (expiring,) = (event for event in polled if event["type"] == "expiring")
    assert expiring["detail"] == {"expiresAt": bought["expires_at"]}


@ON_SQLITE
async def test_events_before_the_end_are_delivered(
    watch_service: WatchService,
) -> None:
    bought = await watch_service.buy(delivery={"webhook_url": A})
    watch_service.clock.now = NOW + PERIOD_MS - 6 * MINUTE_MS
    await watch_service.probe(quote=replace(QUOTE, amount=1))
    watch_service.clock.now = NOW + PERIOD_MS + SECOND_MS
    await watch_service.alert()
    types = [event["type"] for event in watch_service.receivers.events()]
    assert sorted(types) == ["expired", "expiring", "price_change"] or sorted(types) == [
        "expired",
        "price_change",
    ]
    assert [event["type"] for event in (await watch_service.poll(bought))["events"]] == [
        "price_change"
    ]


async def test_renewal_settled_after_a_cancel_does_not_restart_the_watch(
    watch_service: WatchService,
) -> None:
    bought = await watch_service.buy(delivery={"webhook_url": A})
    await watch_service.store.writing(
        watch_payments.renew, bought["watch_id"], payment_id="pay_late", now=watch_service.clock()
    )
    await watch_service.cancel(bought)
    await insert_payment(watch_service, "pay_late")
    await watch_service.probe(quote=replace(QUOTE, amount=1))
    await watch_service.alert()
    polled = await watch_service.poll(bought)
    assert polled["state"] == "cancelled"
    assert [event["type"] for event in polled["watch_events"]] == [
        "created",
        "cancelled",
        "renewed",
    ]
    assert polled["events"] == watch_service.receivers.events() == []
    assert (await watch_service.endpoint()).watched_until == 0


async def test_renewal_at_the_end_extends_the_period(watch_service: WatchService) -> None:
    """Asked for before the end, settled after the loop had ended the watch."""
    bought = await watch_service.buy(delivery={"webhook_url": A})
    watch_service.clock.now = NOW + PERIOD_MS - SECOND_MS
    await watch_service.store.writing(
        watch_payments.renew, bought["watch_id"], payment_id="pay_late", now=watch_service.clock()
    )
    watch_service.clock.now = NOW + PERIOD_MS + SECOND_MS
    await watch_service.alert()
    assert (await watch_service.poll(bought))["state"] == "expired"
    await insert_payment(watch_service, "pay_late")
    await watch_service.alert()
    polled = await watch_service.poll(bought)
    assert polled["state"] == "active"
    stored = await watch_service.store.reading(watches.get, bought["watch_id"])
    assert stored is not None
    assert stored.expires_at == NOW + 2 * PERIOD_MS
    assert (await watch_service.endpoint()).watched_until == NOW + 2 * PERIOD_MS


async def test_watch_with_a_pending_renewal_is_not_deleted(
    watch_service: WatchService,
) -> None:
    bought = await watch_service.buy()
    watch_service.clock.now = NOW + PERIOD_MS
    await watch_service.alert()
    await watch_service.store.writing(
        watch_payments.renew, bought["watch_id"], payment_id="pay_late", now=watch_service.clock()
    )
    assert (
        await watch_service.store.writing(
            watch_payments.forget, now=NOW + PERIOD_MS + READABLE_MS + 1, limit=10
        )
        == 0
    )
    await insert_payment(watch_service, "pay_late")
    assert (await watch_service.poll(bought))["state"] == "active"


async def test_unknown_payments_do_not_block_others(watch_service: WatchService) -> None:
    bought = await watch_service.buy()
    ids = [f"pay_{number}" for number in range(520)]
    row = {"watch_id": bought["watch_id"], "kind": watch_payments.RENEW, "at": 1, "applied": False}
    await execute(
        watch_service.store,
        watch_payments.watch_payment.insert(),
        [{**row, "payment_id": id_} for id_ in ids],
    )
    await insert_payment(watch_service, ids[0], PaymentState.UNKNOWN)
    two = await watch_service.buy()
    await watch_service.store.writing(watch_payments.apply, now=watch_service.clock())
    assert (
        await watch_service.store.writing(watches.get, two["watch_id"])
    ).state is WatchState.ACTIVE
    assert not await watch_service.store.writing(watch_payments.ready)
    assert not await watch_service.store.writing(watches.is_any_due, now=watch_service.clock())


@ON_SQLITE
async def test_edit_keeps_earlier_events_readable(
    watch_service: WatchService,
) -> None:
    bought = await watch_service.buy(liveness_sensitivity_n=3)
    first = await watch_service.poll(bought)
    await watch_service.probe()
    await watch_service.probe(quote=replace(QUOTE, amount=1))
    for _ in range(3):
        await watch_service.probe(up=False)
    await watch_service.patch(bought, {"events": ["payto_change"], "liveness_sensitivity_n": 2})
    await watch_service.probe(quote=replace(QUOTE, amount=2))
    await watch_service.probe(quote=replace(QUOTE, pay_to="0x" + "dd" * 20))
    whole = await watch_service.poll(bought)
    assert [event["type"] for event in whole["events"]] == [
        "price_change",
        "liveness_down",
        "payto_change",
    ]
    assert whole["events"][1]["evidence"]["misses"] == 3
    later = await watch_service.poll(bought, since=first["next_cursor"])
    assert later["events"] == whole["events"]


@ON_SQLITE
async def test_edit_applies_to_deliveries_from_its_time(
    watch_service: WatchService,
) -> None:
    bought = await watch_service.buy(delivery={"webhook_url": A})
    await watch_service.probe(quote=replace(QUOTE, amount=1))
    watch_service.clock.now += SECOND_MS
    await watch_service.patch(bought, {"events": ["payto_change"]})
    await watch_service.alert()
    assert [event["type"] for event in watch_service.receivers.events()] == ["price_change"]
    assert watch_service.receivers.events() == (await watch_service.poll(bought))["events"]


async def test_concurrent_edits_are_both_applied(watch_service: WatchService) -> None:
    bought = await watch_service.buy(delivery={"webhook_url": A})
    watch_service.receivers.delay = 0.2
    both = {"webhook_url": [A, B]}
    answers = await asyncio.gather(
        watch_service.patch(bought, {"delivery": both}),
        watch_service.patch(bought, {"delivery": both, "digest": True}),
        watch_service.patch(bought, {"liveness_sensitivity_n": 7}),
    )
    assert [answer.status_code for answer in answers] == [200] * 3
    state = (await watch_service.patch(bought, {"digest": True})).json()
    assert (state["digest"], state["liveness_sensitivity_n"]) == (True, 7)
    assert len(state["destinations"]) == 2


async def test_concurrent_requests_after_the_sale_find_the_watch(
    watch_service: WatchService,
) -> None:
    bought = await watch_service.buy()
    await asyncio.gather(*(watch_service.poll(bought) for _ in range(12)))


async def test_edit_after_a_concurrent_cancel_changes_nothing(watch_service: WatchService) -> None:
    bought = await watch_service.buy()
    watch_service.receivers.stuck.add(ALERTS)
    editing = asyncio.create_task(watch_service.patch(bought, {"delivery": {"webhook_url": A}}))
    while not watch_service.receivers.got:  # noqa: ASYNC110 - a receiver has no event
        await asyncio.sleep(0.01)
    await watch_service.cancel(bought)
    watch_service.receivers.stuck.clear()
    watch_service.receivers.released.set()
    assert (await editing).json()["code"] == "watch-ended"
    polled = await watch_service.poll(bought)
    assert [event["type"] for event in polled["watch_events"]] == ["created", "cancelled"]


async def test_edit_is_refused_if_another_one_removed_a_destination_that_it_keeps(
    watch_service: WatchService,
) -> None:
    bought = await watch_service.buy(delivery={"webhook_url": A})
    watch_service.receivers.stuck.add(OTHER)
    keeping = asyncio.create_task(
        watch_service.patch(bought, {"delivery": {"webhook_url": [A, B]}})
    )
    while not watch_service.receivers.of(OTHER):  # noqa: ASYNC110 - a receiver has no event
        await asyncio.sleep(0.01)
    replaced = await watch_service.patch(
        bought, {"delivery": {"webhook_url": f"https://{SLACK}/c"}}
    )
    watch_service.receivers.stuck.clear()
    watch_service.receivers.released.set()
    answer = await keeping
    assert (replaced.status_code, answer.status_code) == (200, 409)
    assert answer.json()["code"] == "watch-changed"
    assert {host for host, _ in await places(watch_service, bought)} == {SLACK}


@ON_SQLITE
async def test_destination_can_change_its_format(watch_service: WatchService) -> None:
    bought = await watch_service.buy(delivery={"webhook_url": A})
    edited = await watch_service.patch(bought, {"delivery": {"slack_url": A}})
    assert [destination["kind"] for destination in edited.json()["destinations"]] == ["slack"]
    await happens(watch_service, 1)
    await watch_service.alert()
    assert watch_service.receivers.of(ALERTS)[-1].json["blocks"]
    assert len(watch_service.receivers.of(ALERTS)) == 3


@ON_SQLITE
async def test_edit_of_one_delivery_field_keeps_the_other(
    watch_service: WatchService,
) -> None:
    """As published clients promise (a merge patch, RFC 7396): no alert is lost silently."""
    slack = f"https://{SLACK}/services/T/B/X"
    bought = await watch_service.buy(delivery={"webhook_url": A, "slack_url": slack})
    await watch_service.patch(bought, {"delivery": {"webhook_url": B}})
    assert await places(watch_service, bought) == {(OTHER, "webhook"), (SLACK, "slack")}
    await watch_service.patch(bought, {"delivery": {"slack_url": None}})
    assert await places(watch_service, bought) == {(OTHER, "webhook")}
    await watch_service.patch(bought, {"delivery": {}})
    assert await places(watch_service, bought) == {(OTHER, "webhook")}
    await watch_service.patch(bought, {"delivery": None})
    assert await places(watch_service, bought) == set()


@ON_SQLITE
async def test_edits_cannot_exceed_the_number_of_destinations(
    watch_service: WatchService,
) -> None:
    """Of ten Slack URLs five were named as webhooks."""
    hooks = [f"https://{SLACK}/services/{number}" for number in range(10)]
    bought = await watch_service.buy(delivery={"webhook_url": hooks[:5], "slack_url": hooks[5:]})
    more = [f"https://{ALERTS}/{number}" for number in range(5)]
    refused = await watch_service.patch(bought, {"delivery": {"webhook_url": more}})
    assert (refused.status_code, refused.json()["errors"][0]["path"]) == (422, "delivery")
    assert await places(watch_service, bought) == {(SLACK, "slack")}
    swapped = await watch_service.patch(
        bought, {"delivery": {"webhook_url": more, "slack_url": hooks[0]}}
    )
    assert len(swapped.json()["destinations"]) == 6


@ON_SQLITE
async def test_slow_destination_is_not_retried(
    watch_service: WatchService,
) -> None:
    """Published clients give up after 20 seconds, and would not see the secret."""
    target = Target(url=A, kind=DestinationKind.JSON, field="delivery.webhook_url")
    impatient = replace(DeliveryTester(watch_service.running.service.server()), retry_within_s=0)
    watch_service.receivers.answers[ALERTS] = [500] * 3
    with pytest.raises(Problem) as refused:
        await impatient.test([target], watch_id="wat_0", resource=RESOURCE, key=bytes(32))
    assert refused.value.code == "destination-failed"
    assert len(watch_service.receivers.of(ALERTS)) == 1


async def places(watch_service: WatchService, bought: Any) -> set[tuple[str, str]]:
    """The hosts and formats of a watch's destinations."""
    state = (await watch_service.patch(bought, {"digest": False})).json()
    return {
        (destination["destination"].split("/")[2], destination["kind"])
        for destination in state["destinations"]
    }


@ON_SQLITE
async def test_foreign_cursors_are_rejected(
    watch_service: WatchService,
) -> None:
    one, two = await watch_service.buy(), await watch_service.buy(events=["delisting"])
    await watch_service.probe(quote=replace(QUOTE, amount=1))
    cursors = await watch_service.poll(one)
    for query in (
        {"since": "999999"},
        {"since": "999999999999999.999999999999999"},
        {"watch_since": "999999"},
        {"watch_since": "999999999999999"},
    ):
        problem = await watch_service.poll(one, status=422, **query)
        assert "Omit" in problem["errors"][0]["message"]
    assert (await watch_service.poll(two, since="0"))["events"] == []
    other = await watch_service.poll(
        two, since=cursors["next_cursor"], watch_since=cursors["watch_events_cursor"]
    )
    assert other["events"] == []
    assert {event["type"] for event in other["watch_events"]} <= {"created"}
    ahead = await watch_service.poll(one, since=f"0.{NOW * 2}")
    assert ahead["probesSinceCursor"] == 0
    assert len(ahead["events"]) == 1


@ON_SQLITE
async def test_canceled_watch_does_not_count_later_checks(watch_service: WatchService) -> None:
    bought = await watch_service.buy()
    watch_service.clock.now += 2 * DAY_MS
    for _ in range(3):
        await watch_service.probe()
    await watch_service.cancel(bought)
    counts = (await watch_service.poll(bought))["checkedTimes"]
    for _ in range(3):
        await watch_service.probe()
    assert counts == (await watch_service.poll(bought))["checkedTimes"] == 3


@ON_SQLITE
async def test_deleted_slack_channel_does_not_delay_other_destinations(
    watch_service: WatchService,
) -> None:
    bought = await watch_service.buy(
        delivery={"webhook_url": A, "slack_url": f"https://{SLACK}/services/T/B/x"}
    )
    watch_service.receivers.answers[SLACK] = [404]
    for amount in (1, 2):
        await happens(watch_service, amount)
    await watch_service.alert()
    await watch_service.alert()
    assert len(watch_service.receivers.of(SLACK)) == 2  # the test and the one that was refused
    assert len(watch_service.receivers.events()) == 2
    notes = [event["detail"] for event in (await watch_service.poll(bought))["watch_events"]]
    assert [note["reason"] for note in notes if "reason" in note] == ["http-404"]
    assert path(bought)


async def test_silent_host_does_not_delay_others(watch_service: WatchService) -> None:
    """Thirty destinations of one host fill no more than their half of the eight slots."""
    slow = [f"https://{OTHER}/{number}" for number in range(10)]
    for _ in range(3):
        await watch_service.buy(delivery={"webhook_url": slow[:5], "slack_url": slow[5:]})
    await watch_service.buy(delivery={"webhook_url": A})
    await happens(watch_service, 1)
    good = sa.select(destination.c.id).where(destination.c.masked.startswith(f"https://{ALERTS}/"))
    late = outbox.delivery.c.destination_id.in_(good)
    await execute(
        watch_service.store, outbox.delivery.update().where(late).values(due=watch_service.clock())
    )
    await execute(
        watch_service.store,
        outbox.delivery.update().where(~late).values(due=watch_service.clock() - 1),
    )
    before = len(watch_service.receivers.got)
    watch_service.receivers.stuck.add(OTHER)
    alerts = watch_service.running.service.alerts()
    few = replace(alerts.settings, in_flight=8)
    sending = asyncio.create_task(alert.run(replace(alerts, settings=few)))
    while not watch_service.receivers.events(ALERTS):
        assert not sending.done()
        await asyncio.sleep(0.01)
    assert [request.host for request in watch_service.receivers.got[before:]].count(OTHER) <= 4
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
