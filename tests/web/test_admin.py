"""The admin port: metrics, including figures of the database."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import orjson
import pytest
from starlette.types import ASGIApp
from tests.support.bundles import add, priced_endpoint
from tests.support.http_service import Running, configuration, open_service

from tollgauge.db.engine import StoreUnavailable
from tollgauge.monitor.status import Status, document
from tollgauge.observe import REGISTRY
from tollgauge.service_status import read_status
from tollgauge.web import admin


@pytest.fixture
async def running() -> AsyncIterator[Running]:
    async with open_service(configuration()) as service:
        yield service


def client(app: ASGIApp) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1")


def figure(name: str, **labels: str) -> float | None:
    return REGISTRY.get_sample_value(name, labels)


async def test_readyz_equals_the_status_command_and_sets_the_gauges(running: Running) -> None:
    service = running.service
    printed: list[Status] = []
    await add(service.store, priced_endpoint("/1"))
    await service.round("bundle")

    async def look() -> Status:
        printed.append(await read_status(service.config, service.store, clock=service.clock))
        return printed[-1]

    async with client(admin.create(look)) as http:
        ready = await http.get("/readyz")
        metrics = await http.get("/metrics")
        assert (await http.get("/healthz")).json() == {"status": "ok"}
        assert (await http.get("/other")).status_code == 404
    assert ready.status_code == metrics.status_code == 200
    (status,) = printed
    assert ready.json() == orjson.loads(orjson.dumps(document(status)))
    assert figure("tollgauge_database_up") == 1
    assert figure("tollgauge_queue_due", queue="scores") == ready.json()["scores"]["due"]
    assert figure("tollgauge_bundle_bytes", variant="all") == ready.json()["bundles"][0]["bytes"]
    assert figure("tollgauge_bundle_age_seconds", variant="avoid") == 0
    assert figure("tollgauge_bundle_build_seconds", variant="all") == 0
    assert figure("tollgauge_problems") == len(ready.json()["problems"])


async def test_metrics_respond_without_the_database(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin, "EVERY_S", 0.0)
    down: list[bool] = []

    async def look() -> Status:
        if down:
            raise StoreUnavailable("it is gone")
        return await read_status(
            running.service.config, running.service.store, clock=running.service.clock
        )

    async with client(admin.create(look)) as http:
        await http.get("/metrics")
        assert figure("tollgauge_queue_due", queue="probes") is not None
        down.append(True)
        assert (await http.get("/readyz")).status_code == 503
        assert (await http.get("/metrics")).status_code == 200
    assert figure("tollgauge_database_up") == 0
    assert figure("tollgauge_queue_due", queue="probes") is None


async def test_concurrent_requests_read_the_database_once(running: Running) -> None:
    asked: list[int] = []

    async def look() -> Status:
        asked.append(1)
        return await read_status(
            running.service.config, running.service.store, clock=running.service.clock
        )

    async with client(admin.create(look)) as http:
        for _ in range(3):
            await http.get("/metrics")
    assert asked == [1]


@pytest.mark.parametrize(
    ("host", "status"),
    [
        *(("localhost:8403", 200), ("127.0.0.1:8403", 200), ("[::1]:8403", 200)),
        *(("LOCALHOST", 200), ("metrics.internal:8403", 200)),
        *(("rebound.example:8403", 400), ("localhost.rebound.example", 400), ("", 400)),
    ],
)
async def test_only_loopback_and_configured_hosts_are_answered(
    running: Running, host: str, status: int
) -> None:
    async def look() -> Status:
        return await read_status(
            running.service.config, running.service.store, clock=running.service.clock
        )

    async with client(admin.create(look, hosts=("metrics.internal",))) as http:
        for path in ("/metrics", "/readyz", "/healthz"):
            answer = await http.get(path, headers={"Host": host})
            assert answer.status_code == status
            assert ("tollgauge_" in answer.text) is (status == 200 and path == "/metrics")
