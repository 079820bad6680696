"""Renewals of a watch, over the whole gate."""

from __future__ import annotations

from tests.support.http_service import NOW
from tests.support.receivers import ALERTS
from tests.support.watch_service import (
    WatchService,
    path,
)

from tollgauge.core.base.units import DAY_MS


async def test_renewal_needs_no_body(watch_service: WatchService) -> None:
    bought = await watch_service.buy()
    payment = watch_service.payment()
    first = await watch_service.ask(path(bought, "/renew"), None, payment=payment)
    assert first.status_code == 200, first.text
    again = await watch_service.ask(path(bought, "/renew"), {}, payment=payment)
    assert again.content == first.content


async def test_renewal_extends_the_watch_with_the_same_secret(
    watch_service_on_each_database: WatchService,
) -> None:
    watch_service = watch_service_on_each_database
    bought = await watch_service.buy(delivery={"webhook_url": f"https://{ALERTS}/a"})
    watch_service.clock.now += 27 * DAY_MS
    await watch_service.alert()
    await watch_service.alert()
    assert [event["type"] for event in watch_service.receivers.events()] == ["expiring"]
    payer_limit = await watch_service.running.http.post(path(bought, "/renew"))
    assert payer_limit.status_code == 402
    assert payer_limit.json()["resource"]["url"].endswith(path(bought, "/renew"))
    assert payer_limit.json()["accepts"][0]["amount"] == "200000"
    renewed = await watch_service.ask(path(bought, "/renew"), {})
    assert renewed.status_code == 200, renewed.text
    assert renewed.json()["expires_at"] == (await watch_service.poll(bought))["expires_at"]
    assert (await watch_service.endpoint()).watched_until == NOW + 60 * DAY_MS
    watch_service.clock.now = NOW + 58 * DAY_MS
    await watch_service.alert()
    watch_service.clock.now = NOW + 60 * DAY_MS
    await watch_service.alert()
    assert [event["type"] for event in watch_service.receivers.events()] == [
        "expiring",
        "expiring",
        "expired",
    ]
    polled = await watch_service.poll(bought)
    assert polled["state"] == "expired"
    assert [event["type"] for event in polled["watch_events"]] == [
        "created",
        "expiring",
        "renewed",
        "expiring",
        "expired",
    ]
    await watch_service.ask(path(bought, "/renew"), {})
    assert (await watch_service.poll(bought))["state"] == "active"


async def test_renewal_is_bound_to_its_watch(
    watch_service: WatchService,
) -> None:
    one, two = await watch_service.buy(), await watch_service.buy()
    unknown = await watch_service.ask("/v1/watch/wat_" + "0" * 24 + "/renew", {})
    assert (unknown.status_code, unknown.json()["code"]) == (404, "unknown-watch")
    odd = await watch_service.ask("/v1/watch/x/renew", {})
    assert odd.status_code == 404
    assert watch_service.asked["/settle"] == 2
    signed = watch_service.payment()
    first = await watch_service.ask(path(one, "/renew"), {}, payment=signed)
    assert first.status_code == 200
    assert (await watch_service.ask(path(two, "/renew"), {}, payment=signed)).status_code == 409
    again = await watch_service.ask(path(one, "/renew"), {}, payment=signed)
    assert again.json() == first.json()
    assert (await watch_service.poll(one))["expires_at"] == first.json()["expires_at"]
