"""Reports on hosts on hold and on slow hosts: waits are short, and other sales continue."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from typing import Any

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import Response
from tests.support.receivers import NAMES, SELLER, challenge
from tests.support.statements import fetch
from tests.support.watch_service import WatchService

from tollgauge.core.base.units import HOUR_MS, MINUTE_MS, SECOND_MS
from tollgauge.store.ledger import attempts, payer_limit
from tollgauge.web.paid import live_probe

TRUST = "/v1/x402-trust"
HOLD_S = 21_600


def silence(_request: Request) -> Response:
    return Response(status_code=429, headers={"Retry-After": str(HOLD_S)})


async def report(watch_service: WatchService, url: str, *, payer: int = 1) -> httpx.Response:
    header = watch_service.payment(payer=f"0x{payer:040x}", value=5_000)
    return await watch_service.ask(TRUST, {"resource": url}, payment=header)


async def test_endpoint_on_hold_is_rejected_with_its_retry_after(
    watch_service_on_each_database: WatchService,
) -> None:
    watch_service = watch_service_on_each_database
    watch_service.receivers.seller = silence
    assert (await report(watch_service, f"https://{SELLER}/a")).status_code == 200
    verified, visits = watch_service.asked["/verify"], len(watch_service.receivers.visits)
    other_path = await report(watch_service, f"https://{SELLER}/b")
    assert (other_path.status_code, other_path.json()["code"]) == (503, "host-busy")
    assert 590 <= int(other_path.headers["Retry-After"]) <= 600, "its host rests for ten minutes"
    watch_service.clock.now += HOUR_MS
    refused = await report(watch_service, f"https://{SELLER}/a")
    assert (refused.status_code, refused.json()["code"]) == (503, "host-busy")
    assert HOLD_S - 3600 - 10 <= int(refused.headers["Retry-After"]) <= HOLD_S - 3600
    assert watch_service.asked["/verify"] == verified, "nothing was asked of the facilitator"
    assert len(watch_service.receivers.visits) == visits
    assert (await report(watch_service, f"https://{SELLER}/b")).status_code == 200
    watch_service.clock.now += HOLD_S * SECOND_MS
    watch_service.receivers.seller = challenge
    assert (await report(watch_service, f"https://{SELLER}/a")).status_code == 200


async def test_result_of_ten_minutes_replaces_a_probe_of_a_host_on_hold(
    watch_service: WatchService,
) -> None:
    watch_service.receivers.seller = silence
    first = (await report(watch_service, f"https://{SELLER}/a")).json()
    watch_service.clock.now += 9 * MINUTE_MS
    again = await report(watch_service, f"https://{SELLER}/a", payer=2)
    assert again.status_code == 200
    assert again.json()["liveProbe"]["at"] == first["liveProbe"]["at"]
    assert len(watch_service.receivers.visits) == 1


async def test_requests_for_a_host_on_hold_do_not_block_others(watch_service: WatchService) -> None:
    """One payer repeats a request that cannot be served."""
    watch_service.receivers.seller = silence
    await report(watch_service, f"https://{SELLER}/a")
    watch_service.clock.now += HOUR_MS
    others = [name for name in NAMES if name != SELLER]
    loops = [asyncio.create_task(report(watch_service, f"https://{SELLER}/a")) for _ in range(150)]
    honest = [
        asyncio.create_task(report(watch_service, f"https://{host}/paid", payer=100 + number))
        for number, host in enumerate(others)
    ]
    assert [answer.status_code for answer in await asyncio.gather(*honest)] == [200] * len(others)
    answers = await asyncio.gather(*loops)
    assert {answer.json()["code"] for answer in answers} <= {"host-busy", "payer-busy"}


async def test_callers_of_one_resource_share_one_probe(
    watch_service: WatchService,
) -> None:
    many = 3 * live_probe.WAITING_MAX
    answers = await asyncio.gather(
        *(report(watch_service, f"https://{SELLER}/a", payer=1 + number) for number in range(many))
    )
    assert [answer.status_code for answer in answers] == [200] * many
    assert watch_service.receivers.visits.count("/a") == 1


async def test_number_of_resources_that_wait_for_a_host_is_limited(
    watch_service: WatchService,
) -> None:
    """Each holds a sale that others need."""
    slow = asyncio.Event()

    async def slowly(request: Request) -> Response:
        await slow.wait()
        return challenge(request)

    watch_service.receivers.slow_seller = slowly
    many = 2 * live_probe.WAITING_MAX
    asked = [
        asyncio.create_task(report(watch_service, f"https://{SELLER}/{number}", payer=1 + number))
        for number in range(many)
    ]
    refused = many - 1 - live_probe.WAITING_MAX
    for answer in itertools.islice(asyncio.as_completed(asked, timeout=30), refused):
        assert (await answer).json()["code"] == "host-busy"
    done, waiting = await asyncio.wait(asked, timeout=0.2)
    assert len(done) == refused
    slow.set()
    counted: Counter[Any] = Counter(
        task.result().status_code for task in await list_finished(waiting)
    )
    assert counted[200] >= 1
    assert counted.keys() <= {200, 503}


async def list_finished(
    tasks: set[asyncio.Task[httpx.Response]],
) -> set[asyncio.Task[httpx.Response]]:
    done, _ = await asyncio.wait(tasks)
    return done


async def test_hold_found_after_the_claim_counts_against_payer_and_host(
    watch_service: WatchService,
) -> None:
    """It began while the sale waited for its turn: work was done for it, and none can be sold."""
    watch_service.receivers.seller = silence
    slow = asyncio.Event()

    async def slowly(request: Request) -> Response:
        await slow.wait()
        return silence(request)

    watch_service.receivers.slow_seller = slowly
    first = asyncio.create_task(report(watch_service, f"https://{SELLER}/first"))
    while not watch_service.receivers.visits:  # noqa: ASYNC110 - the seller has no event
        await asyncio.sleep(0.01)
    second = asyncio.create_task(report(watch_service, f"https://{SELLER}/second", payer=2))
    while watch_service.asked["/verify"] < 2:  # noqa: ASYNC110 - the facilitator has none either
        await asyncio.sleep(0.01)
    slow.set()
    assert (await first).status_code == 200
    refused = await second
    assert (refused.status_code, refused.json()["code"]) == (503, "host-busy")
    rows = await fetch(watch_service.store, attempts.payment_attempt.select())
    wasted = [row for row in rows.mappings() if row["kind"] == "answer"]
    assert [(row["outcome"], row["host"]) for row in wasted] == [("host-busy", f"probe:{SELLER}")]


async def test_silent_name_server_counts_against_the_payer(
    watch_service: WatchService,
) -> None:
    """The cause is unknown, so nothing is charged; the number of attempts is limited."""
    codes = Counter(
        [
            (await report(watch_service, f"https://h{number}.example.com/x")).json()["code"]
            for number in range(payer_limit.MAX_UNPAID + 2)
        ]
    )
    assert codes == {"probe-failed-here": payer_limit.MAX_UNPAID, "payer-unpaid": 2}


@pytest.mark.parametrize("depth", ["/api/this-seller-steals", "/api/this-seller-steals/weather"])
async def test_path_of_a_wildcard_host_is_not_public(
    watch_service: WatchService, depth: str
) -> None:
    def below_api(request: Request) -> Response:
        sells = request.url.path.startswith("/api/")
        return challenge(request) if sells else Response(status_code=404)

    watch_service.receivers.seller = below_api
    assert (await report(watch_service, f"https://{SELLER}{depth}")).status_code == 200
    page = await watch_service.running.http.get(f"/provider/{SELLER}")
    assert "steals" not in page.text
    snapshot = await watch_service.running.http.get(
        "/trust/snapshot", params={"resource": f"https://{SELLER}{depth}"}
    )
    assert snapshot.status_code == 404
