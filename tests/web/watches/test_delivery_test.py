"""Destinations are tested before a watch is sold."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
from standardwebhooks import Webhook
from tests.support.receivers import ALERTS, DISCORD, OTHER, SLACK
from tests.support.watch_shop import (
    CREATE,
    ID,
    QUOTE,
    RESOURCE,
    WatchService,
    opened,
)

from tollgauge.store.endpoints import endpoints
from tollgauge.store.ledger import payer_limit
from tollgauge.store.watches import watches


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
