"""Destinations are tested before a watch is sold."""

from __future__ import annotations

import asyncio
import datetime as dt
import itertools
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
from standardwebhooks import Webhook
from tests.support.databases import on_sqlite
from tests.support.receivers import ALERTS, DISCORD, OTHER, SLACK
from tests.support.watch_service import (
    CREATE,
    ID,
    QUOTE,
    RESOURCE,
    WatchService,
    open_watch_service,
)

from tollgauge.store.endpoints import endpoints
from tollgauge.store.ledger import payer_limit
from tollgauge.store.watches import watches


@on_sqlite
async def test_destinations_are_tested_in_their_formats(
    watch_service_on_each_database: WatchService,
) -> None:
    watch_service = watch_service_on_each_database
    bought = await watch_service.buy(
        delivery={
            "webhook_url": [f"https://{ALERTS}/a?token=q", f"https://{DISCORD}/api/webhooks/1/x"],
            "slack_url": f"https://{SLACK}/services/T/B/secretsecret",
        }
    )
    tested = bought["delivery"]["connection_test"]
    assert [result["kind"] for result in tested] == ["webhook", "discord", "slack"]
    assert all(result["ok"] for result in tested)
    assert "secretsecret" not in json.dumps(bought)
    assert len(watch_service.receivers.got) == 3
    await watch_service.probe()
    await watch_service.probe(quote=replace(QUOTE, amount=1))
    await watch_service.alert()
    assert len(watch_service.receivers.got) == 6
    (event,) = watch_service.receivers.events()
    (polled,) = (await watch_service.poll(bought))["events"]
    assert event == polled
    delivered = watch_service.receivers.of(ALERTS)[-1]
    assert delivered.headers["webhook-id"] == polled["event_id"]
    key = Webhook(bought["secret"])
    assert (
        key.sign(polled["event_id"], stamp(delivered.headers), delivered.body.decode())
        == delivered.headers["webhook-signature"]
    )
    assert watch_service.receivers.of(SLACK)[-1].json["blocks"]
    assert watch_service.receivers.of(DISCORD)[-1].json["embeds"]
    await watch_service.alert()
    assert len(watch_service.receivers.got) == 6


def stamp(headers: dict[str, str]) -> Any:
    return dt.datetime.fromtimestamp(int(headers["webhook-timestamp"]), dt.UTC)


async def test_failed_destination_test_is_not_charged(watch_service: WatchService) -> None:
    watch_service.receivers.answers[ALERTS] = [500, 404, 302]
    body = {"endpoint": RESOURCE, "delivery": {"webhook_url": f"https://{ALERTS}/a"}}
    signed = watch_service.payment()
    answer = await watch_service.ask(CREATE, body, payment=signed)
    problem = answer.json()
    assert (answer.status_code, problem["code"]) == (422, "destination-failed")
    assert problem["notCharged"] is True
    assert problem["errors"][0]["path"] == "delivery.webhook_url"
    assert len(watch_service.receivers.got) == 3
    assert watch_service.asked == {"/verify": 1}
    assert not await watch_service.store.reading(watches.latest, limit=10)
    assert await watch_service.store.reading(endpoints.get, ID) is None
    again = await watch_service.ask(CREATE, body, payment=signed)
    assert again.status_code == 200
    assert watch_service.asked["/settle"] == 1


async def test_silent_destination_host_is_paused_for_all_payers(
    tmp_path: Path, empty_sqlite: Path
) -> None:
    database = shutil.copy(empty_sqlite, tmp_path / "watch_service.db")
    async with open_watch_service(
        f"sqlite:///{database}", tmp_path, deadline_ms=2_000
    ) as watch_service:
        watch_service.receivers.stuck.add(ALERTS)
        body = {"endpoint": RESOURCE, "delivery": {"webhook_url": f"https://{ALERTS}/a"}}

        async def ask(payer: int) -> httpx.Response:
            return await watch_service.ask(
                CREATE, body, payment=watch_service.payment(payer=f"0x{payer:040x}")
            )

        payers = range(1, 1 + payer_limit.HOST_MAX_FAILED)
        for some in (
            payers[::2],
            payers[1::2],
        ):  # more concurrent ones are rejected before their tests
            answers = await asyncio.gather(*map(ask, some))
            assert {answer.json()["code"] for answer in answers} == {"destination-failed"}
        verified = watch_service.asked["/verify"]
        refused = await ask(900)
        assert (refused.status_code, refused.json()["code"]) == (503, "host-busy")
        assert watch_service.asked["/verify"] == verified
        body["delivery"] = {"webhook_url": f"https://{OTHER}/a"}
        assert (await ask(901)).json()["code"] == "host-busy", "a host of the same domain"
        body["delivery"] = {"webhook_url": f"https://{DISCORD}/api/webhooks/1/x"}
        assert (await ask(902)).status_code == 200


async def test_silent_destinations_do_not_block_other_sales(database: str, tmp_path: Path) -> None:
    """Many wallets, whose payments never settle, name hosts of one domain that never answer."""
    async with open_watch_service(
        database, tmp_path, sales_at_once=32, deadline_ms=4_000
    ) as service:
        service.receivers.stuck = {ALERTS, OTHER}
        attacks = [
            asyncio.create_task(
                service.ask(
                    CREATE,
                    {"endpoint": RESOURCE, "delivery": {"webhook_url": f"https://{host}/a"}},
                    payment=service.payment(payer=f"0x{number:040x}"),
                )
            )
            for number in range(1, 31)
            for host in (ALERTS, OTHER)[number % 2 :][:1]
        ]
        refused = [await answer for answer in itertools.islice(asyncio.as_completed(attacks), 28)]
        assert {answer.status_code for answer in refused} == {503}
        assert "host-busy" in {answer.json()["code"] for answer in refused}
        slack = {"endpoint": RESOURCE, "delivery": {"slack_url": f"https://{SLACK}/services/a"}}
        for route, body, price in (
            ("/v1/x402-trust", {"resource": RESOURCE}, 5_000),
            ("/v1/x402-history", {"resource": RESOURCE}, 20_000),
            (CREATE, slack, 200_000),
        ):
            sold = await service.ask(
                route, body, payment=service.payment(payer="0x" + "ee" * 20, value=price)
            )
            assert sold.status_code == 200, (route, sold.text)
        service.receivers.released.set()
        await asyncio.gather(*attacks)
