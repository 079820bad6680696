"""Edits and cancellations of a watch, over the whole gate, with receivers on real TLS."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from typing import Any

from standardwebhooks import Webhook
from tests.support.http_service import NOW
from tests.support.receivers import ALERTS, OTHER, SLACK
from tests.support.watch_shop import (
    QUOTE,
    WatchService,
    path,
)

from tollgauge.core.units import DAY_MS


def stamp(headers: dict[str, str]) -> Any:
    return dt.datetime.fromtimestamp(int(headers["webhook-timestamp"]), dt.UTC)


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
    state = (await till.patch(bought, {"digest": False})).json()
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
