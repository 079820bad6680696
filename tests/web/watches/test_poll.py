"""Events that the owner of a watch reads, and authentication."""

from __future__ import annotations

import base64
from dataclasses import replace

from tests.support.http_service import NOW
from tests.support.receivers import ALERTS
from tests.support.watch_service import (
    QUOTE,
    RESOURCE,
    WatchService,
    bearer,
    path,
)

from tollgauge.core.base.units import DAY_MS, MINUTE_MS


async def test_watched_endpoint_is_probed_every_five_minutes_on_average(
    watch_service_on_each_database: WatchService,
) -> None:
    watch_service = watch_service_on_each_database
    bought = await watch_service.buy()
    assert bought["resource"] == RESOURCE
    assert bought["poll_url"].endswith(path(bought, "/events"))
    assert bought["renew_url"].endswith(path(bought, "/renew"))
    assert bought["liveness_sensitivity_n"] == 2
    assert len(bought["events"]) == 11
    assert len(base64.b64decode(bought["secret"].removeprefix("whsec_"))) == 32
    polled = await watch_service.poll(bought)
    assert polled["state"] == "active"
    assert [event["type"] for event in polled["watch_events"]] == ["created"]
    endpoint = await watch_service.endpoint()
    assert endpoint.watched_until == NOW + 30 * DAY_MS
    assert endpoint.next_due <= watch_service.clock()
    await watch_service.probe()
    # Gaps are drawn between 1/6 and 11/6 of the interval of five minutes.
    gap = (await watch_service.endpoint()).next_due - watch_service.clock()
    assert 5 * MINUTE_MS // 6 <= gap <= 11 * 5 * MINUTE_MS // 6


async def test_changes_are_polled_once_with_their_evidence(
    watch_service_on_each_database: WatchService,
) -> None:
    watch_service = watch_service_on_each_database
    bought = await watch_service.buy()
    await watch_service.probe()
    first = await watch_service.poll(bought)
    assert first["events"] == []
    await watch_service.probe(quote=replace(QUOTE, pay_to="0x" + "dd" * 20))
    await watch_service.probe(up=False)
    await watch_service.probe(up=False)
    polled = await watch_service.poll(bought, since=first["next_cursor"])
    assert [event["type"] for event in polled["events"]] == ["payto_change", "liveness_down"]
    changed, down = polled["events"]
    assert changed["before"] == {"payTo": QUOTE.pay_to}
    assert changed["after"] == {"payTo": "0x" + "dd" * 20}
    assert changed["severity"] == "error"
    assert down["after"]["since"] < down["observed_at_iso"]
    again = await watch_service.poll(bought, since=polled["next_cursor"])
    assert again["events"] == []
    everything = await watch_service.poll(bought)
    assert everything["events"] == polled["events"]


async def test_poll_without_events_counts_checks(
    watch_service_on_each_database: WatchService,
) -> None:
    watch_service = watch_service_on_each_database
    bought = await watch_service.buy()
    for _ in range(3):
        await watch_service.probe()
    await watch_service.probe(up=False, ours=True)
    first = await watch_service.poll(bought)
    assert (first["checkedTimes"], first["excludedTimes"]) == (3, 1)
    assert first["probesSinceCursor"] == 4
    watch_service.clock.now += DAY_MS
    await watch_service.probe()
    await watch_service.probe()
    second = await watch_service.poll(bought, since=first["next_cursor"])
    assert second["probesSinceCursor"] == 2
    assert second["checkedTimes"] == 5
    assert second["nextCheckBy"] > second["lastCheckedAt"]


async def test_faults_of_this_service_raise_no_events(watch_service: WatchService) -> None:
    bought = await watch_service.buy(delivery={"webhook_url": f"https://{ALERTS}/a"})
    await watch_service.probe()
    for _ in range(10):
        await watch_service.probe(up=False, ours=True)
    await watch_service.probe(up=False)
    await watch_service.probe(up=False, ours=True)
    await watch_service.probe()
    await watch_service.alert()
    assert (await watch_service.poll(bought))["events"] == []
    assert watch_service.receivers.events() == []


async def test_secret_opens_only_its_watch(
    watch_service_on_each_database: WatchService,
) -> None:
    watch_service = watch_service_on_each_database
    one, two = await watch_service.buy(), await watch_service.buy()
    get = watch_service.running.http.get
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
            answer = await watch_service.running.http.request(
                method, path(one), json={}, headers=header
            )
            assert answer.status_code == status
    assert (await watch_service.poll(one))["state"] == "active"


async def test_invalid_cursors_return_422(watch_service: WatchService) -> None:
    bought = await watch_service.buy()
    for query in ({"since": "x"}, {"watch_since": "-1"}, {"since": "1.2.3"}, {"since": ""}):
        await watch_service.poll(bought, status=422, **query)
    assert (await watch_service.poll(bought, since="0"))["state"] == "active"


async def test_answers_to_owners_are_not_stored_and_preflights_allow_them(
    watch_service: WatchService,
) -> None:
    bought = await watch_service.buy()
    answer = await watch_service.running.http.get(
        path(bought, "/events"), headers=bearer(bought["secret"])
    )
    assert "no-store" in answer.headers["cache-control"]
    preflight = await watch_service.running.http.options(path(bought))
    assert "PATCH" in preflight.headers["access-control-allow-methods"]
