"""Endpoints before a watch is sold: probed, adopted, or rejected without a charge."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import Response
from tests.support.crawls import finish_crawl
from tests.support.receivers import SELLER
from tests.support.watch_service import (
    CREATE,
    ID,
    QUOTE,
    RESOURCE,
    WatchService,
    open_watch_service,
)

from tollgauge.core.base.units import MINUTE_MS
from tollgauge.monitor import discovery
from tollgauge.store.endpoints import crawls, endpoints
from tollgauge.store.probes import probes
from tollgauge.store.watches import watches


@pytest.fixture
async def watch_service(tmp_path: Path, empty_sqlite: Path) -> AsyncIterator[WatchService]:
    database = shutil.copy(empty_sqlite, tmp_path / "watch_service.db")
    async with open_watch_service(f"sqlite:///{database}", tmp_path) as service:
        yield service


def answer_with(status: int) -> Callable[[Request], Response]:
    return lambda _: Response(b"{}", status_code=status, media_type="application/json")


async def is_known(watch_service: WatchService) -> bool:
    return await watch_service.store.reading(endpoints.get, ID) is not None


async def count_sold(watch_service: WatchService) -> int:
    return len(await watch_service.store.reading(watches.latest, limit=9))


async def test_unknown_endpoint_is_probed_and_adopted_before_the_charge(
    watch_service: WatchService,
) -> None:
    bought = await watch_service.buy()
    assert watch_service.receivers.visits[0] == "/v1/weather"
    (first,) = await watch_service.store.reading(
        probes.history, ID, since=watch_service.clock() - 1, until=watch_service.clock()
    )
    assert first.quote == QUOTE
    assert bought["next_steps"][0].startswith("Store the secret")
    visits = len(watch_service.receivers.visits)
    await watch_service.buy()
    assert len(watch_service.receivers.visits) == visits  # known by now


async def test_first_change_after_the_sale_is_reported(watch_service: WatchService) -> None:
    bought = await watch_service.buy()
    await watch_service.probe(quote=replace(QUOTE, amount=20_000))
    (event,) = (await watch_service.poll(bought))["events"]
    assert (event["before"]["amount"], event["after"]["amount"]) == ("10000", "20000")


@pytest.mark.parametrize("status", [200, 204, 301, 404, 405, 410])
async def test_endpoint_without_a_payment_challenge_is_rejected_without_charge(
    watch_service: WatchService, status: int
) -> None:
    watch_service.receivers.seller = answer_with(status)
    signed = watch_service.payment()
    answer = await watch_service.ask(CREATE, {"endpoint": RESOURCE}, payment=signed)
    problem = answer.json()
    assert (answer.status_code, problem["code"]) == (422, "nothing-to-watch")
    assert problem["notCharged"] is True
    assert problem["errors"][0]["path"] == "endpoint"
    assert f"HTTP {status}" in problem["detail"]
    assert watch_service.asked == {"/verify": 1}
    assert not await is_known(watch_service)
    assert not await count_sold(watch_service)
    watch_service.receivers.seller = type(watch_service.receivers).seller
    watch_service.clock.now += MINUTE_MS
    assert (
        await watch_service.ask(CREATE, {"endpoint": RESOURCE}, payment=signed)
    ).status_code == 200
    assert watch_service.asked["/settle"] == 1


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (503, "HTTP 503"),
        (400, "readable payment terms"),
        (401, "currently failing (HTTP 401)"),
        (402, "readable payment terms"),
    ],
)
async def test_watch_of_a_failing_endpoint_is_sold_with_a_warning(
    watch_service: WatchService, status: int, words: str
) -> None:
    watch_service.receivers.seller = answer_with(status)
    bought = await watch_service.buy()
    assert words in bought["next_steps"][0]
    assert f"HTTP {status}" in bought["next_steps"][0]
    assert await is_known(watch_service)


async def test_watch_of_a_failing_endpoint_reports_its_recovery(
    watch_service: WatchService,
) -> None:
    watch_service.receivers.seller = answer_with(502)
    bought = await watch_service.buy()
    await watch_service.probe(up=False)
    await watch_service.probe(up=False)
    assert (await watch_service.poll(bought))["events"] == []
    await watch_service.probe()
    await watch_service.probe()
    assert [event["type"] for event in (await watch_service.poll(bought))["events"]] == [
        "liveness_recovered"
    ]


async def test_listed_endpoint_can_be_watched_with_any_response(
    watch_service: WatchService,
) -> None:
    await list_endpoint(watch_service)
    watch_service.receivers.seller = answer_with(404)
    bought = await watch_service.buy()
    assert "HTTP 404" in bought["next_steps"][0]


async def list_endpoint(watch_service: WatchService) -> None:
    from tollgauge.core.directory.listing import ListedItem, read_item

    item = read_item({"resource": RESOURCE})
    assert isinstance(item, ListedItem)
    crawl = await watch_service.store.writing(crawls.begin_crawl, "cdp", now=watch_service.clock())
    await watch_service.store.writing(
        discovery.record_page, crawl, [item], next_offset=1, now=watch_service.clock()
    )
    await watch_service.store.writing(finish_crawl, crawl, complete=True, now=watch_service.clock())


async def test_watch_of_a_known_failing_endpoint_is_sold_with_a_warning(
    watch_service: WatchService,
) -> None:
    await watch_service.buy()
    await watch_service.probe()
    await watch_service.probe(up=False)
    visits = len(watch_service.receivers.visits)
    bought = await watch_service.buy()
    assert "is currently failing" in bought["next_steps"][0]
    assert len(watch_service.receivers.visits) == visits


async def test_failed_probe_is_not_charged_and_creates_no_watch(
    watch_service: WatchService,
) -> None:
    """No name server responds here, so the cause is unknown."""
    resource = "https://unreachable.example.com/v1/x"
    answer = await watch_service.ask(CREATE, {"endpoint": resource})
    assert (answer.status_code, answer.json()["code"]) == (503, "probe-failed-here")
    assert int(answer.headers["retry-after"]) > 0
    assert watch_service.asked == {"/verify": 1}
    assert not await count_sold(watch_service)


async def test_destinations_are_tested_before_the_endpoint_is_adopted(
    watch_service: WatchService,
) -> None:
    body: Any = {"endpoint": RESOURCE, "delivery": {"webhook_url": "https://10.1.2.3/x"}}
    assert (await watch_service.ask(CREATE, body)).status_code == 422
    watch_service.receivers.answers["alerts.receivers.example"] = [500] * 3
    body["delivery"]["webhook_url"] = "https://alerts.receivers.example/x"
    answer: httpx.Response = await watch_service.ask(CREATE, body)
    assert answer.json()["code"] == "destination-failed"
    assert SELLER not in watch_service.receivers.visits
    assert not await is_known(watch_service)
    assert watch_service.receivers.visits == []
