"""Edits and cancellations of a watch, over the whole gate, with receivers on real TLS."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from typing import Any

import pytest
from standardwebhooks import Webhook
from tests.support.http_service import NOW
from tests.support.receivers import ALERTS, OTHER, SLACK
from tests.support.watch_service import (
    QUOTE,
    WatchService,
    bearer,
    path,
)

from tollgauge.core.base.units import DAY_MS


def stamp(headers: dict[str, str]) -> Any:
    return dt.datetime.fromtimestamp(int(headers["webhook-timestamp"]), dt.UTC)


async def test_edit_changes_events_and_destinations(
    watch_service_on_each_database: WatchService,
) -> None:
    watch_service = watch_service_on_each_database
    bought = await watch_service.buy(delivery={"webhook_url": f"https://{ALERTS}/a"})
    edited = await watch_service.patch(
        bought,
        {
            "events": ["liveness_down"],
            "liveness_sensitivity_n": 3,
            "delivery": {"webhook_url": [f"https://{OTHER}/b", f"https://{SLACK}/services/a/b"]},
        },
    )
    assert edited.status_code == 200, edited.text
    assert [destination["kind"] for destination in edited.json()["destinations"]] == [
        "webhook",
        "slack",
    ]
    await watch_service.probe()
    await watch_service.probe(quote=replace(QUOTE, amount=1))
    for _ in range(3):
        await watch_service.probe(up=False)
    await watch_service.alert()
    assert watch_service.receivers.events(ALERTS) == []
    assert [event["type"] for event in watch_service.receivers.events(OTHER)] == ["liveness_down"]
    polled = await watch_service.poll(bought)
    assert [event["evidence"]["misses"] for event in polled["events"]] == [3]
    assert [event["type"] for event in polled["watch_events"]] == ["created", "edited"]
    kept = await watch_service.patch(bought, {"digest": True})
    assert len(kept.json()["destinations"]) == 2


async def test_edit_with_an_invalid_destination_changes_nothing(
    watch_service: WatchService,
) -> None:
    bought = await watch_service.buy()
    watch_service.receivers.answers[ALERTS] = [500] * 3
    body = {"events": ["delisting"], "delivery": {"webhook_url": f"https://{ALERTS}/a"}}
    refused = await watch_service.patch(bought, body)
    assert (refused.status_code, refused.json()["code"]) == (422, "destination-failed")
    state = (await watch_service.patch(bought, {"digest": False})).json()
    assert len(state["events"]) == 11
    assert state["destinations"] == []


async def test_signed_destination_can_be_added_later(
    watch_service: WatchService,
) -> None:
    bought = await watch_service.buy()
    await watch_service.patch(bought, {"delivery": {"webhook_url": f"https://{ALERTS}/a"}})
    test = watch_service.receivers.got[-1]
    assert test.headers["webhook-signature"] == Webhook(bought["secret"]).sign(
        test.headers["webhook-id"], stamp(test.headers), test.body.decode()
    )
    await watch_service.probe()
    await watch_service.probe(quote=replace(QUOTE, amount=1))
    await watch_service.alert()
    assert len(watch_service.receivers.events()) == 1


async def test_canceled_watch_sends_no_alerts_and_stays_readable(
    watch_service_on_each_database: WatchService,
) -> None:
    watch_service = watch_service_on_each_database
    bought = await watch_service.buy(delivery={"webhook_url": f"https://{ALERTS}/a"})
    await watch_service.probe()
    await watch_service.probe(quote=replace(QUOTE, amount=1))
    assert (await watch_service.cancel(bought)).json()["state"] == "cancelled"
    await watch_service.probe(quote=replace(QUOTE, amount=2))
    await watch_service.alert()
    assert watch_service.receivers.events() == []
    polled = await watch_service.poll(bought)
    assert [event["type"] for event in polled["events"]] == ["price_change"]
    assert [event["type"] for event in polled["watch_events"]] == ["created", "cancelled"]
    assert (await watch_service.endpoint()).watched_until == 0
    assert (await watch_service.cancel(bought)).status_code == 200
    assert (await watch_service.patch(bought, {})).json()["code"] == "watch-ended"
    renewed = await watch_service.ask(path(bought, "/renew"), {})
    assert (renewed.status_code, renewed.json()["code"]) == (422, "watch-cancelled")


async def test_endpoint_is_probed_normally_after_its_last_watch(
    watch_service: WatchService,
) -> None:
    one, two = await watch_service.buy(), await watch_service.buy()
    await watch_service.alert()
    await watch_service.cancel(one)
    assert (await watch_service.endpoint()).watched_until == NOW + 30 * DAY_MS
    await watch_service.cancel(two)
    assert (await watch_service.endpoint()).watched_until == 0


async def test_misspelled_edit_is_rejected(
    watch_service: WatchService,
) -> None:
    bought = await watch_service.buy()
    for body, name in (
        ({"webhook_url": f"https://{ALERTS}/a"}, "webhook_url"),
        ({"liveness_sensitivity": 3}, "liveness_sensitivity"),
    ):
        answer = await watch_service.patch(bought, body)
        assert (answer.status_code, answer.json()["code"]) == (422, "unknown-field")
        assert answer.json()["errors"][0]["path"] == name
    assert (
        await watch_service.patch(bought, {"salt": "ignored", "digest": True})
    ).status_code == 200


@pytest.mark.parametrize("body", [b"", b"{}", b'{"salt": "ignored"}'])
async def test_empty_edit_is_rejected_with_the_editable_fields(
    watch_service: WatchService, body: bytes
) -> None:
    bought = await watch_service.buy()
    answer = await watch_service.running.http.patch(
        path(bought), content=body, headers=bearer(bought["secret"])
    )
    assert (answer.status_code, answer.json()["code"]) == (422, "nothing-to-change")
    for name in ("events", "liveness_sensitivity_n", "digest", "delivery"):
        assert name in answer.json()["detail"]
    polled = await watch_service.poll(bought)
    assert [event["type"] for event in polled["watch_events"]] == ["created"]
