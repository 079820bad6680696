"""What is known of an endpoint before its watch is sold: probed, adopted, or refused uncharged."""

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
from tests.support.receivers import SELLER
from tests.support.watch_shop import CREATE, ID, QUOTE, RESOURCE, WatchService, opened

from tollgauge.core.units import MINUTE_MS
from tollgauge.monitor import discovery
from tollgauge.store.endpoints import crawls, endpoints
from tollgauge.store.probes import probes
from tollgauge.store.watches import watches


@pytest.fixture
async def till(tmp_path: Path, empty_sqlite: Path) -> AsyncIterator[WatchService]:
    database = shutil.copy(empty_sqlite, tmp_path / "till.db")
    async with opened(f"sqlite:///{database}", tmp_path) as found:
        yield found


def answering(status: int) -> Callable[[Request], Response]:
    return lambda _: Response(b"{}", status_code=status, media_type="application/json")


async def known(till: WatchService) -> bool:
    async with till.store.read() as tx:
        return await endpoints.get(tx, ID) is not None


async def sold(till: WatchService) -> int:
    async with till.store.read() as tx:
        return len(await watches.latest(tx, limit=9))


async def test_an_endpoint_that_nobody_knew_is_probed_and_adopted_before_the_charge(
    till: WatchService,
) -> None:
    bought = await till.buy()
    assert till.receivers.visits[0] == "/v1/weather"
    async with till.store.read() as tx:
        (first,) = await probes.history(tx, ID, since=0, until=till.clock())
    assert first.quote == QUOTE
    assert bought["next_steps"][0].startswith("Keep the secret")
    visits = len(till.receivers.visits)
    await till.buy()
    assert len(till.receivers.visits) == visits  # known by now


async def test_the_first_change_after_the_sale_is_told(till: WatchService) -> None:
    bought = await till.buy()
    await till.probe(quote=replace(QUOTE, amount=20_000))
    (event,) = (await till.poll(bought))["events"]
    assert (event["before"]["amount"], event["after"]["amount"]) == ("10000", "20000")


@pytest.mark.parametrize("status", [200, 204, 301, 404, 405, 410])
async def test_what_answers_and_asks_for_no_payment_is_refused_uncharged(
    till: WatchService, status: int
) -> None:
    till.receivers.seller = answering(status)
    signed = till.payment()
    answer = await till.ask(CREATE, {"endpoint": RESOURCE}, payment=signed)
    problem = answer.json()
    assert (answer.status_code, problem["code"]) == (422, "nothing-to-watch")
    assert problem["notCharged"] is True
    assert problem["errors"][0]["path"] == "endpoint"
    assert f"HTTP {status}" in problem["detail"]
    assert till.asked == {"/verify": 1}
    assert not await known(till)
    assert not await sold(till)
    till.receivers.seller = type(till.receivers).seller
    till.clock.now += MINUTE_MS
    assert (await till.ask(CREATE, {"endpoint": RESOURCE}, payment=signed)).status_code == 200
    assert till.asked["/settle"] == 1


@pytest.mark.parametrize(
    ("status", "words"),
    [(503, "HTTP 503"), (400, "without terms"), (401, "without terms"), (402, "without terms")],
)
async def test_what_is_down_or_shows_no_terms_yet_is_sold_and_the_answer_says_so(
    till: WatchService, status: int, words: str
) -> None:
    till.receivers.seller = answering(status)
    bought = await till.buy()
    assert words in bought["next_steps"][0]
    assert f"HTTP {status}" in bought["next_steps"][0]
    assert await known(till)


async def test_a_watch_of_what_is_down_tells_when_it_is_up(till: WatchService) -> None:
    till.receivers.seller = answering(502)
    bought = await till.buy()
    await till.probe(up=False)
    await till.probe(up=False)
    assert (await till.poll(bought))["events"] == []
    await till.probe()
    await till.probe()
    assert [each["type"] for each in (await till.poll(bought))["events"]] == ["liveness_recovered"]


async def test_an_endpoint_of_a_directory_is_watched_whatever_it_answers(
    till: WatchService,
) -> None:
    await listed(till)
    till.receivers.seller = answering(404)
    bought = await till.buy()
    assert "HTTP 404" in bought["next_steps"][0]


async def listed(till: WatchService) -> None:
    from tollgauge.core.listing import ListedItem, read_item

    item = read_item({"resource": RESOURCE})
    assert isinstance(item, ListedItem)
    async with till.store.write() as tx:
        crawl = await crawls.begin_crawl(tx, "cdp", now=till.clock())
        await discovery.record_page(tx, crawl, [item], next_offset=1, now=till.clock())
        await discovery.finish_crawl(tx, crawl, complete=True, now=till.clock())


async def test_a_known_endpoint_that_fails_now_is_sold_with_a_note(till: WatchService) -> None:
    await till.buy()
    await till.probe()
    await till.probe(up=False)
    visits = len(till.receivers.visits)
    bought = await till.buy()
    assert "does not answer as it should now" in bought["next_steps"][0]
    assert len(till.receivers.visits) == visits


async def test_when_we_cannot_probe_nothing_is_charged_and_no_watch_is_made(
    till: WatchService,
) -> None:
    """No name server answers for it here: whose fault that is cannot be told."""
    resource = "https://unreachable.example.com/v1/x"
    answer = await till.ask(CREATE, {"endpoint": resource})
    assert (answer.status_code, answer.json()["code"]) == (503, "probe-failed-here")
    assert int(answer.headers["retry-after"]) > 0
    assert till.asked == {"/verify": 1}
    assert not await sold(till)


async def test_destinations_are_tested_before_the_endpoint_is_adopted(till: WatchService) -> None:
    body: Any = {"endpoint": RESOURCE, "delivery": {"webhook_url": "https://10.1.2.3/x"}}
    assert (await till.ask(CREATE, body)).status_code == 422
    till.receivers.answers["alerts.receivers.example"] = [500] * 3
    body["delivery"]["webhook_url"] = "https://alerts.receivers.example/x"
    answer: httpx.Response = await till.ask(CREATE, body)
    assert answer.json()["code"] == "destination-failed"
    assert SELLER not in till.receivers.visits
    assert not await known(till)
    assert till.receivers.visits == []
