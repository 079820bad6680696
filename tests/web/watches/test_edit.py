"""A watch from its payment to its end, over the whole gate, with receivers on real TLS."""

from __future__ import annotations

import asyncio
import base64
import datetime as dt
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import httpx
import pytest
import sqlalchemy as sa
from standardwebhooks import Webhook
from tests.support.http_service import NOW
from tests.support.receivers import ALERTS, DISCORD, OTHER, SLACK
from tests.support.watch_shop import (
    CREATE,
    ID,
    QUOTE,
    RESOURCE,
    WatchService,
    bearer,
    opened,
    path,
)

from tollgauge.core.units import DAY_MS, MINUTE_MS, SECOND_MS
from tollgauge.jobs import alert
from tollgauge.store.endpoints import endpoints
from tollgauge.store.ledger import payer_limit
from tollgauge.store.watches import delivery_queue, outbox, watches


async def test_a_watch_is_bought_and_probed_every_five_minutes(everywhere: WatchService) -> None:
    till = everywhere
    bought = await till.buy()
    assert bought["resource"] == RESOURCE
    assert bought["poll_url"].endswith(path(bought, "/events"))
    assert bought["renew_url"].endswith(path(bought, "/renew"))
    assert bought["liveness_sensitivity_n"] == 2
    assert len(bought["events"]) == 9
    assert len(base64.b64decode(bought["secret"].removeprefix("whsec_"))) == 32
    polled = await till.poll(bought)
    assert polled["state"] == "active"
    assert [each["type"] for each in polled["watch_events"]] == ["created"]
    endpoint = await till.endpoint()
    assert endpoint.watched_until == NOW + 30 * DAY_MS
    assert endpoint.next_due <= till.clock()
    await till.probe()
    assert (await till.endpoint()).next_due - till.clock() <= 5 * MINUTE_MS + 30 * SECOND_MS


async def test_changes_are_polled_once_with_their_evidence(everywhere: WatchService) -> None:
    till = everywhere
    bought = await till.buy()
    await till.probe()
    first = await till.poll(bought)
    assert first["events"] == []
    await till.probe(quote=replace(QUOTE, pay_to="0x" + "dd" * 20))
    await till.probe(up=False)
    await till.probe(up=False)
    polled = await till.poll(bought, since=first["next_cursor"])
    assert [each["type"] for each in polled["events"]] == ["payto_change", "liveness_down"]
    changed, down = polled["events"]
    assert changed["before"] == {"payTo": QUOTE.pay_to}
    assert changed["after"] == {"payTo": "0x" + "dd" * 20}
    assert changed["severity"] == "error"
    assert down["after"]["since"] < down["observed_at_iso"]
    again = await till.poll(bought, since=polled["next_cursor"])
    assert again["events"] == []
    everything = await till.poll(bought)
    assert everything["events"] == polled["events"]


async def test_silence_is_evidence(everywhere: WatchService) -> None:
    till = everywhere
    bought = await till.buy()
    for _ in range(3):
        await till.probe()
    await till.probe(up=False, ours=True)
    first = await till.poll(bought)
    assert (first["checkedTimes"], first["excludedTimes"]) == (3, 1)
    assert first["probesSinceCursor"] == 4
    till.clock.now += DAY_MS
    await till.probe()
    await till.probe()
    second = await till.poll(bought, since=first["next_cursor"])
    assert second["probesSinceCursor"] == 2
    assert second["checkedTimes"] == 5
    assert second["nextCheckBy"] > second["lastCheckedAt"]


async def test_our_own_faults_are_nobodys_news(till: WatchService) -> None:
    bought = await till.buy(delivery={"webhook_url": f"https://{ALERTS}/a"})
    await till.probe()
    for _ in range(10):
        await till.probe(up=False, ours=True)
    await till.probe(up=False)
    await till.probe(up=False, ours=True)
    await till.probe()
    await till.alert()
    assert (await till.poll(bought))["events"] == []
    assert till.receivers.events() == []


async def test_bearers_open_their_own_watch_only(everywhere: WatchService) -> None:
    till = everywhere
    one, two = await till.buy(), await till.buy()
    get = till.running.http.get
    none = await get(path(one, "/events"))
    assert (none.status_code, none.json()["code"]) == (401, "unauthorized")
    assert none.headers["www-authenticate"] == "Bearer"
    wrong = f"whsec_{base64.b64encode(bytes(32)).decode()}"
    for header in (bearer(wrong), bearer(one["secret"][:-1]), {"Authorization": one["secret"]}):
        assert (await get(path(one, "/events"), headers=header)).status_code == 401
    other = bearer(two["secret"])
    unknown = "/v1/watch/wat_" + "0" * 24
    for url in (path(one, "/events"), unknown + "/events"):
        assert (await get(url, headers=other)).status_code == 404
    for method in ("PATCH", "DELETE"):
        for header, status in ((other, 404), ({}, 401), (bearer(wrong), 401)):
            answer = await till.running.http.request(method, path(one), json={}, headers=header)
            assert answer.status_code == status
    assert (await till.poll(one))["state"] == "active"


async def test_every_destination_is_tested_and_told_in_its_own_format(
    everywhere: WatchService,
) -> None:
    till = everywhere
    bought = await till.buy(
        delivery={
            "webhook_url": [f"https://{ALERTS}/a?token=q", f"https://{DISCORD}/api/webhooks/1/x"],
            "slack_url": f"https://{SLACK}/services/T/B/secretsecret",
        }
    )
    tested = bought["delivery"]["connection_test"]
    assert [each["kind"] for each in tested] == ["webhook", "discord", "slack"]
    assert all(each["ok"] for each in tested)
    assert "secretsecret" not in json.dumps(bought)
    assert len(till.receivers.got) == 3
    await till.probe()
    await till.probe(quote=replace(QUOTE, amount=1))
    await till.alert()
    assert len(till.receivers.got) == 6
    (event,) = till.receivers.events()
    (polled,) = (await till.poll(bought))["events"]
    assert event == polled
    delivered = till.receivers.of(ALERTS)[-1]
    assert delivered.headers["webhook-id"] == polled["event_id"]
    key = Webhook(bought["secret"])
    assert (
        key.sign(polled["event_id"], stamp(delivered.headers), delivered.body.decode())
        == delivered.headers["webhook-signature"]
    )
    assert till.receivers.of(SLACK)[-1].json["blocks"]
    assert till.receivers.of(DISCORD)[-1].json["embeds"]
    await till.alert()
    assert len(till.receivers.got) == 6


def stamp(headers: dict[str, str]) -> Any:
    return dt.datetime.fromtimestamp(int(headers["webhook-timestamp"]), dt.UTC)


async def test_a_destination_that_fails_its_test_costs_nothing(till: WatchService) -> None:
    till.receivers.answers[ALERTS] = [500, 404, 302]
    body = {"endpoint": RESOURCE, "delivery": {"webhook_url": f"https://{ALERTS}/a"}}
    signed = till.payment()
    answer = await till.ask(CREATE, body, payment=signed)
    problem = answer.json()
    assert (answer.status_code, problem["code"]) == (422, "destination-failed")
    assert problem["notCharged"] is True
    assert problem["errors"][0]["path"] == "delivery.webhook_url"
    assert len(till.receivers.got) == 3
    assert till.asked == {"/verify": 1}
    async with till.store.read() as tx:
        assert not await watches.latest(tx, limit=10)
        assert await endpoints.get(tx, ID) is None
    again = await till.ask(CREATE, body, payment=signed)
    assert again.status_code == 200
    assert till.asked["/settle"] == 1


async def test_a_destination_that_never_answers_is_left_alone_whoever_names_it(
    tmp_path: Path, empty_sqlite: Path
) -> None:
    database = shutil.copy(empty_sqlite, tmp_path / "till.db")
    async with opened(f"sqlite:///{database}", tmp_path, deadline_ms=50) as till:
        till.receivers.stuck.add(ALERTS)
        body = {"endpoint": RESOURCE, "delivery": {"webhook_url": f"https://{ALERTS}/a"}}

        async def ask(payer: int) -> httpx.Response:
            return await till.ask(CREATE, body, payment=till.payment(payer=f"0x{payer:040x}"))

        answers = await asyncio.gather(
            *(ask(1 + number) for number in range(payer_limit.HOST_MOST))
        )
        assert {answer.json()["code"] for answer in answers} == {"destination-failed"}
        verified = till.asked["/verify"]
        refused = await ask(900)
        assert (refused.status_code, refused.json()["code"]) == (503, "host-busy")
        assert till.asked["/verify"] == verified
        body["delivery"] = {"webhook_url": f"https://{OTHER}/a"}
        assert (await ask(901)).status_code == 200


async def test_nothing_is_sent_anywhere_before_a_payment_is_verified(till: WatchService) -> None:
    body = {"endpoint": RESOURCE, "delivery": {"webhook_url": f"https://{ALERTS}/a"}}
    payer_limit = await till.running.http.post(CREATE, json=body)
    assert payer_limit.status_code == 402
    assert till.receivers.got == []


WRONG: list[tuple[Any, str]] = [
    ({}, "resource"),
    ({"endpoint": "http://api.example.com/x"}, "resource"),
    ({"endpoint": RESOURCE, "resource": "https://api.example.com/y"}, "endpoint"),
    ({"endpoint": RESOURCE, "events": []}, "events"),
    ({"endpoint": RESOURCE, "events": ["rain"]}, "events[0]"),
    ({"endpoint": RESOURCE, "liveness_sensitivity_n": 0}, "liveness_sensitivity_n"),
    ({"endpoint": RESOURCE, "liveness_sensitivity_n": 11}, "liveness_sensitivity_n"),
    ({"endpoint": RESOURCE, "liveness_sensitivity_n": True}, "liveness_sensitivity_n"),
    ({"endpoint": RESOURCE, "digest": "daily"}, "digest"),
    ({"endpoint": RESOURCE, "delivery": []}, "delivery"),
    ({"endpoint": RESOURCE, "delivery": {"webhook": "x"}}, "delivery.webhook"),
    (
        {"endpoint": RESOURCE, "delivery": {"webhook_url": "http://a.example.com/"}},
        "delivery.webhook_url",
    ),
    (
        {"endpoint": RESOURCE, "delivery": {"webhook_url": ["https://10.0.0.1/x"]}},
        "delivery.webhook_url[0]",
    ),
    (
        {"endpoint": RESOURCE, "delivery": {"slack_url": ["https://a.example.com/"] * 6}},
        "delivery.slack_url",
    ),
]


async def test_invalid_wishes_are_422_before_any_charge(till: WatchService) -> None:
    for body, where in WRONG:
        answer = await till.ask(CREATE, body)
        assert answer.status_code == 422, body
        assert answer.json()["errors"][0]["path"] == where
    assert not till.asked


async def test_without_a_key_no_watch_is_sold_and_old_ones_go_on(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'till.db'}"
    async with opened(url, tmp_path) as till:
        bought = await till.buy()
    async with opened(url, tmp_path, key="") as till:
        for more in ({}, {"delivery": {"webhook_url": f"https://{ALERTS}/a"}}):
            refused = await till.ask(CREATE, {"endpoint": RESOURCE, **more})
            assert (refused.status_code, refused.json()["code"]) == (503, "watches-unavailable")
            assert refused.json()["notCharged"] is True
        assert not till.asked
        assert (await till.poll(bought))["state"] == "active"
        edited = await till.patch(bought, {"delivery": {"webhook_url": f"https://{ALERTS}/a"}})
        assert (edited.status_code, edited.json()["code"]) == (503, "destinations-unavailable")
        assert (await till.ask(path(bought, "/renew"), {})).status_code == 200


async def test_secrets_and_urls_lie_in_the_database_hashed_and_sealed(till: WatchService) -> None:
    url = f"https://{SLACK}/services/T/B/verysecretpath"
    signed = till.payment(ticket="of the 402")
    body = {
        "endpoint": RESOURCE,
        "delivery": {"slack_url": url, "webhook_url": f"https://{ALERTS}/otherpath1234567"},
    }
    answer = await till.ask(CREATE, body, payment=signed)
    bought = answer.json()
    key = base64.b64decode(bought["secret"].removeprefix("whsec_"))
    dump = []
    async with till.store.read() as tx:
        for table in ("watch", "destination", "delivery", "payment", "watch_event", "flip"):
            for row in (await tx.execute(sa.text(f"SELECT * FROM {table}"))).all():
                dump += [
                    value if isinstance(value, bytes) else str(value).encode() for value in row
                ]
    whole = b"\n".join(dump)
    secret = bought["secret"].encode()
    for hidden in (secret, key, key.hex().encode(), b"verysecretpath", b"otherpath"):
        assert hidden not in whole
    assert hashlib.sha256(secret).hexdigest().encode() in whole
    again = await till.ask(CREATE, body, payment=signed)
    assert again.json() == bought
    assert till.asked["/settle"] == 1


async def test_a_payment_that_does_not_settle_starts_no_watch(till: WatchService) -> None:
    till.settles.append(False)
    answer = await till.ask(CREATE, {"endpoint": RESOURCE})
    assert answer.status_code in (402, 503)
    await till.alert()
    async with till.store.read() as tx:
        found = await watches.latest(tx, limit=5)
    assert {each.state.value for each in found} <= {"pending"}
    assert (await till.endpoint()).watched_until == 0


async def test_an_edit_changes_what_is_told_and_where_to(everywhere: WatchService) -> None:
    till = everywhere
    bought = await till.buy(delivery={"webhook_url": f"https://{ALERTS}/a"})
    edited = await till.patch(
        bought,
        {
            "events": ["liveness_down"],
            "liveness_sensitivity_n": 3,
            "delivery": {"webhook_url": [f"https://{OTHER}/b", f"https://{SLACK}/services/a/b"]},
        },
    )
    assert edited.status_code == 200, edited.text
    assert [each["kind"] for each in edited.json()["destinations"]] == ["webhook", "slack"]
    await till.probe()
    await till.probe(quote=replace(QUOTE, amount=1))
    for _ in range(3):
        await till.probe(up=False)
    await till.alert()
    assert till.receivers.events(ALERTS) == []
    assert [each["type"] for each in till.receivers.events(OTHER)] == ["liveness_down"]
    polled = await till.poll(bought)
    assert [each["evidence"]["misses"] for each in polled["events"]] == [3]
    assert [each["type"] for each in polled["watch_events"]] == ["created", "edited"]
    kept = await till.patch(bought, {"digest": True})
    assert len(kept.json()["destinations"]) == 2


async def test_an_edit_with_a_bad_destination_changes_nothing(till: WatchService) -> None:
    bought = await till.buy()
    till.receivers.answers[ALERTS] = [500] * 3
    body = {"events": ["delisting"], "delivery": {"webhook_url": f"https://{ALERTS}/a"}}
    refused = await till.patch(bought, body)
    assert (refused.status_code, refused.json()["code"]) == (422, "destination-failed")
    state = (await till.patch(bought, {})).json()
    assert len(state["events"]) == 9
    assert state["destinations"] == []


async def test_a_watch_without_signed_destinations_can_get_one_later(till: WatchService) -> None:
    bought = await till.buy()
    await till.patch(bought, {"delivery": {"webhook_url": f"https://{ALERTS}/a"}})
    test = till.receivers.got[-1]
    assert test.headers["webhook-signature"] == Webhook(bought["secret"]).sign(
        test.headers["webhook-id"], stamp(test.headers), test.body.decode()
    )
    await till.probe()
    await till.probe(quote=replace(QUOTE, amount=1))
    await till.alert()
    assert len(till.receivers.events()) == 1


async def test_a_cancelled_watch_tells_nothing_more_and_stays_readable(
    everywhere: WatchService,
) -> None:
    till = everywhere
    bought = await till.buy(delivery={"webhook_url": f"https://{ALERTS}/a"})
    await till.probe()
    await till.probe(quote=replace(QUOTE, amount=1))
    assert (await till.cancel(bought)).json()["state"] == "cancelled"
    await till.probe(quote=replace(QUOTE, amount=2))
    await till.alert()
    assert till.receivers.events() == []
    polled = await till.poll(bought)
    assert [each["type"] for each in polled["events"]] == ["price_change"]
    assert [each["type"] for each in polled["watch_events"]] == ["created", "cancelled"]
    assert (await till.endpoint()).watched_until == 0
    assert (await till.cancel(bought)).status_code == 200
    assert (await till.patch(bought, {})).json()["code"] == "watch-ended"
    renewed = await till.ask(path(bought, "/renew"), {})
    assert (renewed.status_code, renewed.json()["code"]) == (422, "watch-cancelled")


async def test_an_endpoint_falls_back_when_its_last_watch_ends(till: WatchService) -> None:
    one, two = await till.buy(), await till.buy()
    await till.alert()
    await till.cancel(one)
    assert (await till.endpoint()).watched_until == NOW + 30 * DAY_MS
    await till.cancel(two)
    assert (await till.endpoint()).watched_until == 0


async def test_a_renewal_needs_no_body(till: WatchService) -> None:
    bought = await till.buy()
    payment = till.payment()
    first = await till.ask(path(bought, "/renew"), None, payment=payment)
    assert first.status_code == 200, first.text
    again = await till.ask(path(bought, "/renew"), {}, payment=payment)
    assert again.content == first.content


async def test_a_watch_says_when_it_ends_and_is_renewed_with_the_same_secret(
    everywhere: WatchService,
) -> None:
    till = everywhere
    bought = await till.buy(delivery={"webhook_url": f"https://{ALERTS}/a"})
    till.clock.now += 27 * DAY_MS
    await till.alert()
    await till.alert()
    assert [each["type"] for each in till.receivers.events()] == ["expiring"]
    payer_limit = await till.running.http.post(path(bought, "/renew"))
    assert payer_limit.status_code == 402
    assert payer_limit.json()["resource"]["url"].endswith(path(bought, "/renew"))
    assert payer_limit.json()["accepts"][0]["amount"] == "200000"
    renewed = await till.ask(path(bought, "/renew"), {})
    assert renewed.status_code == 200, renewed.text
    assert renewed.json()["expires_at"] == (await till.poll(bought))["expires_at"]
    assert (await till.endpoint()).watched_until == NOW + 60 * DAY_MS
    till.clock.now = NOW + 58 * DAY_MS
    await till.alert()
    till.clock.now = NOW + 60 * DAY_MS
    await till.alert()
    assert [each["type"] for each in till.receivers.events()] == [
        "expiring",
        "expiring",
        "expired",
    ]
    polled = await till.poll(bought)
    assert polled["state"] == "expired"
    assert [each["type"] for each in polled["watch_events"]] == [
        "created",
        "expiring",
        "renewed",
        "expiring",
        "expired",
    ]
    await till.ask(path(bought, "/renew"), {})
    assert (await till.poll(bought))["state"] == "active"


async def test_a_renewal_is_bound_to_its_watch_and_unknown_ones_cost_nothing(
    till: WatchService,
) -> None:
    one, two = await till.buy(), await till.buy()
    unknown = await till.ask("/v1/watch/wat_" + "0" * 24 + "/renew", {})
    assert (unknown.status_code, unknown.json()["code"]) == (404, "unknown-watch")
    odd = await till.ask("/v1/watch/x/renew", {})
    assert odd.status_code == 404
    assert till.asked["/settle"] == 2
    signed = till.payment()
    first = await till.ask(path(one, "/renew"), {}, payment=signed)
    assert first.status_code == 200
    assert (await till.ask(path(two, "/renew"), {}, payment=signed)).status_code == 409
    again = await till.ask(path(one, "/renew"), {}, payment=signed)
    assert again.json() == first.json()
    assert (await till.poll(one))["expires_at"] == first.json()["expires_at"]


async def test_a_daily_digest_counts_checks_and_events(till: WatchService) -> None:
    await till.buy(delivery={"webhook_url": f"https://{ALERTS}/a"}, digest=True)
    for _ in range(3):
        await till.probe()
    await till.probe(quote=replace(QUOTE, amount=1))
    till.clock.now = NOW + DAY_MS
    await till.alert()
    told = till.receivers.events()
    assert sorted(each["type"] for each in told) == ["daily_digest", "price_change"]
    (digest,) = (each for each in told if each["type"] == "daily_digest")
    assert digest["evidence"] == {"checkedTimes": 4, "excludedTimes": 0, "events": 1}
    await till.alert()
    assert [each["type"] for each in till.receivers.events()].count("daily_digest") == 1
    till.clock.now = NOW + 3 * DAY_MS
    await till.alert()
    assert [each["type"] for each in till.receivers.events()].count("daily_digest") == 2


async def test_a_failed_delivery_is_tried_again_under_the_same_id(everywhere: WatchService) -> None:
    till = everywhere
    await till.buy(delivery={"webhook_url": f"https://{ALERTS}/a"})
    await till.probe()
    await till.probe(quote=replace(QUOTE, amount=1))
    till.receivers.answers[ALERTS] = [500, 503]
    till.receivers.headers[ALERTS] = {"retry-after": "900"}
    await till.alert()
    assert len(till.receivers.events()) == 1
    till.clock.now += 800 * SECOND_MS
    await till.alert()
    assert len(till.receivers.events()) == 1
    till.clock.now += 200 * SECOND_MS
    await till.alert()
    till.clock.now += 1_000 * SECOND_MS
    await till.alert()
    sent = till.receivers.of(ALERTS)[1:]
    assert len(sent) == 3
    assert len({each.headers["webhook-id"] for each in sent}) == 1
    assert len({each.headers["webhook-timestamp"] for each in sent}) == 3
    assert len({each.body for each in sent}) == 1
    await till.alert()
    assert len(till.receivers.of(ALERTS)) == 4


async def test_a_dead_letter_is_listed_and_sent_again_by_the_operator(
    everywhere: WatchService,
) -> None:
    till = everywhere
    bought = await till.buy(delivery={"webhook_url": f"https://{ALERTS}/a"})
    await till.probe()
    await till.probe(quote=replace(QUOTE, amount=1))
    till.receivers.answers[ALERTS] = [500] * 8
    for _ in range(10):
        await till.alert()
        till.clock.now += DAY_MS // 2
    assert len(till.receivers.events()) == 8
    async with till.store.write() as tx:
        (letter,) = await outbox.dead(tx, limit=10)
        assert (letter.attempts, letter.last_error) == (8, "http-500")
        assert await outbox.resend(tx, [letter.notice.id], now=till.clock()) == 1
        assert await outbox.resend(tx, [letter.notice.id], now=till.clock()) == 0
    await till.alert()
    (event,) = (await till.poll(bought))["events"]
    assert till.receivers.events()[-1]["event_id"] == event["event_id"]
    assert len(till.receivers.events()) == 9


@pytest.mark.parametrize(("host", "status"), [(SLACK, 404), (DISCORD, 404), (ALERTS, 410)])
async def test_a_destination_that_is_gone_is_disabled_and_the_owner_reads_it(
    till: WatchService, host: str, status: int
) -> None:
    url = {
        SLACK: f"https://{SLACK}/services/T/B/x",
        DISCORD: f"https://{DISCORD}/api/webhooks/1/x",
        ALERTS: f"https://{ALERTS}/a",
    }[host]
    bought = await till.buy(delivery={"webhook_url": url})
    await till.probe()
    await till.probe(quote=replace(QUOTE, amount=1))
    till.receivers.answers[host] = [status]
    await till.alert()
    await till.probe(quote=replace(QUOTE, amount=2))
    till.clock.now += DAY_MS
    await till.alert()
    assert len(till.receivers.of(host)) == 2
    polled = await till.poll(bought)
    assert len(polled["events"]) == 2
    note = polled["watch_events"][-1]
    assert note["type"] == "edited"
    assert note["detail"]["reason"] == f"http-{status}"
    state = (await till.patch(bought, {})).json()
    assert state["destinations"][0]["state"] == "disabled"
    await till.patch(bought, {"delivery": {"webhook_url": url}})
    await till.probe(quote=replace(QUOTE, amount=3))
    await till.alert()
    assert len(till.receivers.of(host)) == 4


async def test_a_slow_destination_delays_no_other(tmp_path: Path, empty_sqlite: Path) -> None:
    url = f"sqlite:///{shutil.copy(empty_sqlite, tmp_path / 'till.db')}"
    async with opened(url, tmp_path, deadline_ms=20_000) as till:
        slow = [f"https://{OTHER}/{number}" for number in range(5)]
        await till.buy(delivery={"webhook_url": slow})
        await till.buy(delivery={"webhook_url": f"https://{ALERTS}/a"})
        await till.probe()
        till.receivers.stuck.add(OTHER)
        await till.probe(quote=replace(QUOTE, amount=1))
        sending = asyncio.create_task(till.alert())
        while not till.receivers.events(ALERTS):  # noqa: ASYNC110 - a receiver has no event
            await asyncio.sleep(0.01)
        assert not sending.done()
        async with till.store.read() as tx:
            assert (await outbox.depth(tx)).queued >= 5
        till.receivers.stuck.clear()
        till.receivers.released.set()
        await sending
        assert len(till.receivers.events(OTHER)) == 5


async def test_a_lease_that_ran_out_sends_once_more_under_the_same_id(till: WatchService) -> None:
    bought = await till.buy(delivery={"webhook_url": f"https://{ALERTS}/a"})
    await till.probe()
    await till.probe(quote=replace(QUOTE, amount=1))
    alerts = till.running.service.alerts()
    await alert.decide(alerts)
    async with till.store.write() as tx:
        (claimed,) = await delivery_queue.claim(
            tx, owner="dead", now=till.clock(), limit=9, failing=9, lease_ms=60_000
        )
    assert (await alert.attempt(alerts, claimed)).ok  # and dies before it is written
    await till.alert()
    assert len(till.receivers.events()) == 1
    till.clock.now += 61 * SECOND_MS
    await till.alert()
    ids = [each["event_id"] for each in till.receivers.events()]
    assert len(ids) == 2
    assert ids == [(await till.poll(bought))["events"][0]["event_id"]] * 2
    async with till.store.write() as tx:
        late = delivery_queue.DeliveryResult(claimed=claimed, state=outbox.DEAD, at=till.clock())
        assert await delivery_queue.conclude(tx, [late], owner="dead") == ()


async def test_feeds_show_public_incidents(till: WatchService) -> None:
    bought = await till.buy()
    await till.list_it()
    await till.probe()
    await till.probe(quote=replace(QUOTE, pay_to="0x" + "dd" * 20))
    for _ in range(2):
        await till.probe(up=False)
    for url in (f"/endpoint/{ID}/feed.xml", "/provider/API.example.com/feed.xml"):
        answer = await till.running.get(url)
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "application/atom+xml"
        assert "etag" in answer.headers
        feed = ET.fromstring(answer.content)
        atom = "{http://www.w3.org/2005/Atom}"
        titles = [each.findtext(f"{atom}title") for each in feed.iter(f"{atom}entry")]
        assert titles == [f"liveness_down: {RESOURCE}", f"payto_change: {RESOURCE}"]
        ids = [each.text for each in feed.iter(f"{atom}id")]
        assert len(ids) == len(set(ids)) == 3
    assert bought["watch_id"] not in answer.text
    for url in ("/endpoint/0000000000000000/feed.xml", "/provider/none.example/feed.xml"):
        assert (await till.running.get(url)).status_code == 404


async def test_feeds_are_found_from_their_pages(till: WatchService) -> None:
    await till.buy()
    await till.list_it()
    for page in (f"/endpoint/{ID}", "/provider/api.example.com"):
        answer = await till.running.get(page, headers={"Accept": "text/html"})
        found = re.search(r'<link rel="alternate" type="application/atom\+xml"[^>]*>', answer.text)
        assert found is not None, page
        href = re.search(r'href="([^"]+)"', found.group())
        assert href is not None
        assert href.group(1).endswith(f"{page}/feed.xml")
        assert (await till.running.get(href.group(1))).status_code == 200
    board = await till.running.get("/leaderboard", headers={"Accept": "text/html"})
    assert "application/atom+xml" not in board.text


async def test_cursors_that_no_poll_gave_are_422(till: WatchService) -> None:
    bought = await till.buy()
    for query in ({"since": "x"}, {"watch_since": "-1"}, {"since": "1.2.3"}, {"since": ""}):
        await till.poll(bought, status=422, **query)
    assert (await till.poll(bought, since="0"))["state"] == "active"


async def test_answers_to_owners_are_not_stored_and_preflights_allow_them(
    till: WatchService,
) -> None:
    bought = await till.buy()
    answer = await till.running.http.get(path(bought, "/events"), headers=bearer(bought["secret"]))
    assert "no-store" in answer.headers["cache-control"]
    preflight = await till.running.http.options(path(bought))
    assert "PATCH" in preflight.headers["access-control-allow-methods"]


def command(url: str, *arguments: str) -> tuple[int, str]:
    done = subprocess.run(
        [str(Path(sys.executable).parent / "tollgauge"), "watch", *arguments],
        env={"DATABASE_URL": url, "PATH": os.environ["PATH"]},
        capture_output=True,
        check=False,
        text=True,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout


async def test_the_operator_lists_shows_and_resends(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'service.db'}"
    async with opened(url, tmp_path) as till:
        bought = await till.buy(delivery={"webhook_url": f"https://{ALERTS}/averysecretpath"})
        await till.probe()
        await till.probe(quote=replace(QUOTE, amount=1))
        till.receivers.answers[ALERTS] = [410]
        await till.alert()
        code, out = await asyncio.to_thread(command, url, "list", "--json")
        listed = json.loads(out)
        assert code == 1
        assert [each["watchId"] for each in listed["watches"]] == [bought["watch_id"]]
        (letter,) = listed["dead"]
        code, out = await asyncio.to_thread(command, url, "show", bought["watch_id"], "--json")
        shown = json.loads(out)
        assert code == 0
        assert shown["destinations"][0]["disabled"] == "http-410"
        assert "averysecret" not in out
        assert bought["secret"] not in out
        assert (await asyncio.to_thread(command, url, "resend", letter["id"]))[0] == 0
        async with till.store.read() as tx:
            depth = await outbox.depth(tx)
            (again,) = await outbox.of_watch(tx, bought["watch_id"], limit=9)
        assert (depth.queued, depth.dead) == (1, 0)
        assert (again.attempts, again.notice.event_id) == (0, letter["event"])
