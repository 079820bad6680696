"""Renewals of a watch, over the whole gate."""

from __future__ import annotations

from tests.support.http_service import NOW
from tests.support.receivers import ALERTS
from tests.support.watch_shop import (
    WatchService,
    path,
)

from tollgauge.core.units import DAY_MS


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
