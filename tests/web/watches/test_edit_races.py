"""Where two things about a watch happen at once: edits, cancels and renewals against deliveries,
the edge of its period, cursors that are not its own. On both databases.
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
from tests.support.watch_shop import QUOTE, RESOURCE, WatchService, bearer, opened, path

from tollgauge.clients.webhooks import Signing
from tollgauge.core.payment import State as PaymentState
from tollgauge.core.units import DAY_MS, MINUTE_MS, SECOND_MS
from tollgauge.core.watch import PERIOD_MS, READABLE_MS, Kind, State, Target
from tollgauge.jobs import alert
from tollgauge.store.ledger import payments
from tollgauge.store.watches import outbox, watch_payments, watches
from tollgauge.store.watches.destinations import destination
from tollgauge.web.edge.problem import Problem
from tollgauge.web.watches.delivery_test import DeliveryTester

A, B = f"https://{ALERTS}/a", f"https://{OTHER}/b"


@pytest.fixture
async def till(database: str, tmp_path: Path) -> AsyncIterator[WatchService]:
    async with opened(database, tmp_path, deadline_ms=20_000) as found:
        yield found


async def paid(
    till: WatchService, payment_id: str, state: PaymentState = PaymentState.SETTLED
) -> None:
    """A row of the ledger, as the gate would have left it."""
    values = {
        column.name: None if column.nullable else 0 if isinstance(column.type, sa.Integer) else ""
        for column in payments.payment.c
    } | {"id": payment_id, "state": state.value}
    async with till.store.write() as tx:
        await tx.execute(payments.payment.insert().values(**values))


async def depth(till: WatchService) -> outbox.Depth:
    async with till.store.read() as tx:
        found: outbox.Depth = await outbox.depth(tx)
    return found


async def happens(till: WatchService, amount: int) -> None:
    """A change of the price, decided but not sent."""
    await till.probe(quote=replace(QUOTE, amount=amount))
    await alert.decide(till.running.service.alerts())


async def test_letters_to_a_removed_destination_are_not_sent_and_do_not_wait(
    till: WatchService,
) -> None:
    bought = await till.buy(delivery={"webhook_url": [A, B]})
    await happens(till, 1)
    assert (await depth(till)).queued == 2
    assert (await till.patch(bought, {"delivery": {"webhook_url": B}})).status_code == 200
    assert (await depth(till)).queued == 1
    await till.alert()
    assert till.receivers.events(ALERTS) == []
    assert len(till.receivers.events(OTHER)) == 1
    assert (await depth(till)).queued == 0


async def test_a_letter_on_its_way_to_a_removed_destination_is_not_tried_again(
    till: WatchService,
) -> None:
    bought = await till.buy(delivery={"webhook_url": A})
    await happens(till, 1)
    till.receivers.stuck.add(ALERTS)
    sending = asyncio.create_task(till.alert())
    while not till.receivers.events():  # noqa: ASYNC110 - a receiver has no event
        await asyncio.sleep(0.01)
    await till.patch(bought, {"delivery": {"webhook_url": []}})
    till.receivers.answers[ALERTS] = [500]
    till.receivers.stuck.clear()
    till.receivers.released.set()
    await sending
    till.clock.now += DAY_MS
    await till.alert()
    assert len(till.receivers.events()) == 1
    assert (await depth(till)) == outbox.Depth(queued=0, oldest_due=None, dead=0)


async def test_what_was_queued_while_a_watch_was_cancelled_is_dropped(till: WatchService) -> None:
    bought = await till.buy(delivery={"webhook_url": A})
    await happens(till, 1)
    await till.cancel(bought)
    async with till.store.write() as tx:  # as a decision that was made before and written after
        await tx.execute(outbox.delivery.update().values(state=outbox.QUEUED, done_at=None))
    await till.alert()
    assert till.receivers.events() == []
    assert (await depth(till)).queued == 0


async def test_what_was_queued_while_a_destination_was_disabled_is_a_dead_letter(
    till: WatchService,
) -> None:
    await till.buy(delivery={"webhook_url": A})
    await happens(till, 1)
    async with till.store.write() as tx:
        gone = {"disabled_at": till.clock(), "disabled_reason": "http-410"}
        await tx.execute(destination.update().values(**gone))
    await till.alert()
    assert till.receivers.events() == []
    assert (await depth(till)).dead == 1


async def test_the_operator_cannot_send_what_the_owner_removed(till: WatchService) -> None:
    bought = await till.buy(delivery={"webhook_url": A})
    await happens(till, 1)
    till.receivers.answers[ALERTS] = [410]
    await till.alert()
    await till.patch(bought, {"delivery": {"webhook_url": []}})
    async with till.store.write() as tx:
        (letter,) = await outbox.dead(tx, limit=9)
        assert await outbox.resend(tx, [letter.notice.id], now=till.clock()) == 0
    assert (await depth(till)).queued == 0


async def test_two_workers_tell_everything_once(till: WatchService) -> None:
    bought = await till.buy(delivery={"webhook_url": [A, B]}, digest=True)
    for amount in range(1, 3):
        await happens(till, amount)
    till.clock.now = NOW + 27 * DAY_MS
    service = till.running.service
    workers = [replace(service.alerts(), owner=f"worker-{n}") for n in range(3)]
    await asyncio.gather(*(alert.run(each) for each in workers))
    till.clock.now = NOW + PERIOD_MS
    await asyncio.gather(*(alert.run(each) for each in workers))
    await asyncio.gather(*(alert.run(each) for each in workers))
    for host in (ALERTS, OTHER):
        ids = [each["event_id"] for each in till.receivers.events(host)]
        types = sorted(each["type"] for each in till.receivers.events(host))
        assert len(ids) == len(set(ids))
        assert types == ["daily_digest", "expired", "expiring", "price_change", "price_change"]
    polled = await till.poll(bought)
    assert [each["type"] for each in polled["watch_events"]] == ["created", "expiring", "expired"]
    assert polled["state"] == "expired"


async def test_a_lifecycle_event_has_one_id_in_polls_and_deliveries(till: WatchService) -> None:
    bought = await till.buy(delivery={"webhook_url": A})
    for days in (27, 30):
        till.clock.now = NOW + days * DAY_MS
        await till.alert()
    told = {each["type"]: each["event_id"] for each in till.receivers.events()}
    polled = (await till.poll(bought))["watch_events"]
    own = {each["type"]: each["event_id"] for each in polled}
    assert told == {name: own[name] for name in ("expiring", "expired")}
    (expiring,) = (each for each in polled if each["type"] == "expiring")
    assert expiring["detail"] == {"expiresAt": bought["expires_at"]}


async def test_what_happened_just_before_the_end_is_still_delivered(till: WatchService) -> None:
    bought = await till.buy(delivery={"webhook_url": A})
    till.clock.now = NOW + PERIOD_MS - 6 * MINUTE_MS
    await till.probe(quote=replace(QUOTE, amount=1))
    till.clock.now = NOW + PERIOD_MS + SECOND_MS
    await till.alert()
    told = [each["type"] for each in till.receivers.events()]
    assert sorted(told) == ["expired", "expiring", "price_change"] or sorted(told) == [
        "expired",
        "price_change",
    ]
    assert [each["type"] for each in (await till.poll(bought))["events"]] == ["price_change"]


async def test_a_renewal_that_settles_after_a_cancel_does_not_start_the_watch_again(
    till: WatchService,
) -> None:
    bought = await till.buy(delivery={"webhook_url": A})
    async with till.store.write() as tx:
        await watch_payments.renew(tx, bought["watch_id"], payment_id="pay_late", now=till.clock())
    await till.cancel(bought)
    await paid(till, "pay_late")
    await till.probe(quote=replace(QUOTE, amount=1))
    await till.alert()
    polled = await till.poll(bought)
    assert polled["state"] == "cancelled"
    assert [each["type"] for each in polled["watch_events"]] == ["created", "cancelled", "renewed"]
    assert polled["events"] == till.receivers.events() == []
    assert (await till.endpoint()).watched_until == 0


async def test_a_renewal_at_the_very_end_goes_on_from_the_end(till: WatchService) -> None:
    """Asked for before the end, settled after the loop had ended the watch."""
    bought = await till.buy(delivery={"webhook_url": A})
    till.clock.now = NOW + PERIOD_MS - SECOND_MS
    async with till.store.write() as tx:
        await watch_payments.renew(tx, bought["watch_id"], payment_id="pay_late", now=till.clock())
    till.clock.now = NOW + PERIOD_MS + SECOND_MS
    await till.alert()
    assert (await till.poll(bought))["state"] == "expired"
    await paid(till, "pay_late")
    await till.alert()
    polled = await till.poll(bought)
    assert polled["state"] == "active"
    async with till.store.read() as tx:
        found = await watches.get(tx, bought["watch_id"])
    assert found is not None
    assert found.expires_at == NOW + 2 * PERIOD_MS
    assert (await till.endpoint()).watched_until == NOW + 2 * PERIOD_MS


async def test_a_watch_whose_renewal_is_in_flight_is_not_forgotten(till: WatchService) -> None:
    bought = await till.buy()
    till.clock.now = NOW + PERIOD_MS
    await till.alert()
    async with till.store.write() as tx:
        await watch_payments.renew(tx, bought["watch_id"], payment_id="pay_late", now=till.clock())
        assert await watch_payments.forget(tx, now=NOW + PERIOD_MS + READABLE_MS + 1) == 0
    await paid(till, "pay_late")
    assert (await till.poll(bought))["state"] == "active"


async def test_payments_that_nobody_knows_hold_up_no_other(till: WatchService) -> None:
    bought = await till.buy()
    ids = [f"pay_{number}" for number in range(520)]
    row = {"watch_id": bought["watch_id"], "kind": watch_payments.RENEW, "at": 1, "applied": False}
    async with till.store.write() as tx:
        await tx.execute(
            watch_payments.watch_payment.insert(), [{**row, "payment_id": each} for each in ids]
        )
    await paid(till, ids[0], PaymentState.UNKNOWN)
    two = await till.buy()
    async with till.store.write() as tx:
        await watch_payments.apply(tx, now=till.clock())
        assert (await watches.get(tx, two["watch_id"])).state is State.ACTIVE
        assert not await watch_payments.ready(tx)
        assert not await watches.any_due(tx, now=till.clock())


async def test_an_edit_takes_nothing_away_that_was_there_to_be_read(till: WatchService) -> None:
    bought = await till.buy(liveness_sensitivity_n=3)
    first = await till.poll(bought)
    await till.probe()
    await till.probe(quote=replace(QUOTE, amount=1))
    for _ in range(3):
        await till.probe(up=False)
    await till.patch(bought, {"events": ["payto_change"], "liveness_sensitivity_n": 2})
    await till.probe(quote=replace(QUOTE, amount=2))
    await till.probe(quote=replace(QUOTE, pay_to="0x" + "dd" * 20))
    whole = await till.poll(bought)
    assert [each["type"] for each in whole["events"]] == [
        "price_change",
        "liveness_down",
        "payto_change",
    ]
    assert whole["events"][1]["evidence"]["misses"] == 3
    later = await till.poll(bought, since=first["next_cursor"])
    assert later["events"] == whole["events"]


async def test_an_edit_counts_from_when_it_was_made_for_deliveries_too(till: WatchService) -> None:
    bought = await till.buy(delivery={"webhook_url": A})
    await till.probe(quote=replace(QUOTE, amount=1))
    till.clock.now += SECOND_MS
    await till.patch(bought, {"events": ["payto_change"]})
    await till.alert()
    assert [each["type"] for each in till.receivers.events()] == ["price_change"]
    assert till.receivers.events() == (await till.poll(bought))["events"]


async def test_of_two_edits_at_once_neither_is_lost(till: WatchService) -> None:
    bought = await till.buy(delivery={"webhook_url": A})
    till.receivers.delay = 0.2
    both = {"webhook_url": [A, B]}
    answers = await asyncio.gather(
        till.patch(bought, {"delivery": both}),
        till.patch(bought, {"delivery": both, "digest": True}),
        till.patch(bought, {"liveness_sensitivity_n": 7}),
    )
    assert [each.status_code for each in answers] == [200] * 3
    state = (await till.patch(bought, {"digest": True})).json()
    assert (state["digest"], state["liveness_sensitivity_n"]) == (True, 7)
    assert len(state["destinations"]) == 2


async def test_an_edit_that_meets_a_cancel_changes_nothing(till: WatchService) -> None:
    bought = await till.buy()
    till.receivers.stuck.add(ALERTS)
    editing = asyncio.create_task(till.patch(bought, {"delivery": {"webhook_url": A}}))
    while not till.receivers.got:  # noqa: ASYNC110 - a receiver has no event
        await asyncio.sleep(0.01)
    await till.cancel(bought)
    till.receivers.stuck.clear()
    till.receivers.released.set()
    assert (await editing).json()["code"] == "watch-ended"
    polled = await till.poll(bought)
    assert [each["type"] for each in polled["watch_events"]] == ["created", "cancelled"]


async def test_a_destination_can_change_its_format(till: WatchService) -> None:
    bought = await till.buy(delivery={"webhook_url": A})
    edited = await till.patch(bought, {"delivery": {"slack_url": A}})
    assert [each["kind"] for each in edited.json()["destinations"]] == ["slack"]
    await happens(till, 1)
    await till.alert()
    assert till.receivers.of(ALERTS)[-1].json["blocks"]
    assert len(till.receivers.of(ALERTS)) == 3


async def test_an_edit_of_one_field_of_delivery_keeps_the_other(till: WatchService) -> None:
    """As published clients promise (a merge patch, RFC 7396): no alert is lost silently."""
    slack = f"https://{SLACK}/services/T/B/X"
    bought = await till.buy(delivery={"webhook_url": A, "slack_url": slack})
    await till.patch(bought, {"delivery": {"webhook_url": B}})
    assert await places(till, bought) == {(OTHER, "webhook"), (SLACK, "slack")}
    await till.patch(bought, {"delivery": {"slack_url": None}})
    assert await places(till, bought) == {(OTHER, "webhook")}
    await till.patch(bought, {"delivery": {}})
    assert await places(till, bought) == {(OTHER, "webhook")}
    await till.patch(bought, {"delivery": None})
    assert await places(till, bought) == set()


async def test_edits_come_to_no_more_destinations_than_a_watch_may_have(till: WatchService) -> None:
    """Of ten Slack URLs five were named as webhooks."""
    hooks = [f"https://{SLACK}/services/{number}" for number in range(10)]
    bought = await till.buy(delivery={"webhook_url": hooks[:5], "slack_url": hooks[5:]})
    more = [f"https://{ALERTS}/{number}" for number in range(5)]
    refused = await till.patch(bought, {"delivery": {"webhook_url": more}})
    assert (refused.status_code, refused.json()["errors"][0]["path"]) == (422, "delivery")
    assert await places(till, bought) == {(SLACK, "slack")}
    swapped = await till.patch(bought, {"delivery": {"webhook_url": more, "slack_url": hooks[0]}})
    assert len(swapped.json()["destinations"]) == 6


async def test_a_destination_that_took_long_to_fail_is_not_tried_again(till: WatchService) -> None:
    """Published clients give up after 20 seconds, and would not see the secret."""
    target = Target(url=A, kind=Kind.JSON, field="delivery.webhook_url")
    signing = Signing(key=bytes(32), secret_hash="0" * 64)
    impatient = replace(DeliveryTester(till.running.service.server()), again_s=0)
    till.receivers.answers[ALERTS] = [500] * 3
    with pytest.raises(Problem) as refused:
        await impatient.test([target], watch_id="wat_0", resource=RESOURCE, signing=signing)
    assert refused.value.code == "destination-failed"
    assert len(till.receivers.of(ALERTS)) == 1


async def places(till: WatchService, bought: Any) -> set[tuple[str, str]]:
    """The hosts and formats of a watch's destinations."""
    state = (await till.patch(bought, {"digest": False})).json()
    return {(each["destination"].split("/")[2], each["kind"]) for each in state["destinations"]}


async def test_cursors_of_another_place_are_refused_and_others_watches_stay_unread(
    till: WatchService,
) -> None:
    one, two = await till.buy(), await till.buy(events=["delisting"])
    await till.probe(quote=replace(QUOTE, amount=1))
    cursors = await till.poll(one)
    for query in (
        {"since": "999999"},
        {"since": "999999999999999.999999999999999"},
        {"watch_since": "999999"},
        {"watch_since": "999999999999999"},
    ):
        problem = await till.poll(one, status=422, **query)
        assert "Leave" in problem["errors"][0]["message"]
    assert (await till.poll(two, since="0"))["events"] == []
    other = await till.poll(
        two, since=cursors["next_cursor"], watch_since=cursors["watch_events_cursor"]
    )
    assert other["events"] == []
    assert {each["type"] for each in other["watch_events"]} <= {"created"}
    ahead = await till.poll(one, since=f"0.{NOW * 2}")
    assert ahead["probesSinceCursor"] == 0
    assert len(ahead["events"]) == 1


async def test_a_cancelled_watch_counts_no_later_checks(till: WatchService) -> None:
    bought = await till.buy()
    till.clock.now += 2 * DAY_MS
    for _ in range(3):
        await till.probe()
    await till.cancel(bought)
    counts = (await till.poll(bought))["checkedTimes"]
    for _ in range(3):
        await till.probe()
    assert counts == (await till.poll(bought))["checkedTimes"] == 3


async def test_a_slack_channel_that_is_gone_does_not_hold_up_the_others(till: WatchService) -> None:
    bought = await till.buy(
        delivery={"webhook_url": A, "slack_url": f"https://{SLACK}/services/T/B/x"}
    )
    till.receivers.answers[SLACK] = [404]
    for amount in (1, 2):
        await happens(till, amount)
    await till.alert()
    await till.alert()
    assert len(till.receivers.of(SLACK)) == 2  # the test and the one that was refused
    assert len(till.receivers.events()) == 2
    notes = [each["detail"] for each in (await till.poll(bought))["watch_events"]]
    assert [note["reason"] for note in notes if "reason" in note] == ["http-404"]
    assert path(bought)


async def test_a_host_that_never_answers_delays_no_other(till: WatchService) -> None:
    """Thirty destinations of one host fill no more than their half of the eight slots."""
    slow = [f"https://{OTHER}/{number}" for number in range(10)]
    for _ in range(3):
        await till.buy(delivery={"webhook_url": slow[:5], "slack_url": slow[5:]})
    await till.buy(delivery={"webhook_url": A})
    await happens(till, 1)
    async with till.store.write() as tx:  # the one that is healthy comes last
        good = sa.select(destination.c.id).where(
            destination.c.masked.startswith(f"https://{ALERTS}/")
        )
        late = outbox.delivery.c.destination_id.in_(good)
        await tx.execute(outbox.delivery.update().where(late).values(due=till.clock()))
        await tx.execute(outbox.delivery.update().where(~late).values(due=till.clock() - 1))
    before = len(till.receivers.got)
    till.receivers.stuck.add(OTHER)
    alerts = till.running.service.alerts()
    few = replace(alerts.settings, in_flight=8)
    sending = asyncio.create_task(alert.run(replace(alerts, settings=few)))
    while not till.receivers.events(ALERTS):
        assert not sending.done()
        await asyncio.sleep(0.01)
    assert [each.host for each in till.receivers.got[before:]].count(OTHER) <= 4
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending


async def test_an_edit_that_is_misspelt_is_refused_instead_of_ignored(till: WatchService) -> None:
    bought = await till.buy()
    for body, name in (
        ({"webhook_url": A}, "webhook_url"),
        ({"liveness_sensitivity": 3}, "liveness_sensitivity"),
    ):
        answer = await till.patch(bought, body)
        assert (answer.status_code, answer.json()["code"]) == (422, "unknown-field")
        assert answer.json()["errors"][0]["path"] == name
    assert (await till.patch(bought, {"salt": "ignored", "digest": True})).status_code == 200


@pytest.mark.parametrize("body", [b"", b"{}", b'{"salt": "ignored"}'])
async def test_an_edit_that_changes_nothing_is_told_what_can_be_changed(
    till: WatchService, body: bytes
) -> None:
    bought = await till.buy()
    answer = await till.running.http.patch(
        path(bought), content=body, headers=bearer(bought["secret"])
    )
    assert (answer.status_code, answer.json()["code"]) == (422, "nothing-to-change")
    for name in ("events", "liveness_sensitivity_n", "digest", "delivery"):
        assert name in answer.json()["detail"]
    polled = await till.poll(bought)
    assert [each["type"] for each in polled["watch_events"]] == ["created"]
