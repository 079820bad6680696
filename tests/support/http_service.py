"""The service over ASGI, with content from the real recording path.

Three days of the demo market's exchanges (tollgauge.demo.past) are crawled, evaluated, recorded and
scored with a simulated clock; the store is SQLite in memory. No socket is opened, except to the
closed port that represents the facilitator.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import httpx
from tests.support.signing import PRIVATE_JWK

from tollgauge import app as root
from tollgauge.clients.egress.request import EgressSettings
from tollgauge.clients.facilitator import FacilitatorSettings
from tollgauge.config import Config
from tollgauge.core.endpoint.identity import endpoint_id
from tollgauge.db.engine import StoreSettings
from tollgauge.demo.seed import load_past
from tollgauge.demo.sellers import SELLERS
from tollgauge.web import routes as web
from tollgauge.web.edge.cache import AnswerCache
from tollgauge.web.edge.health import CAUSES, EVERY_MS
from tollgauge.web.edge.middleware import Edge, EdgeSettings
from tollgauge.web.paid.sale import SaleSettings
from tollgauge.web.route import Route
from tollgauge.web.settings import ServerSettings
from tollgauge.web.signing import SigningSettings

NOW = 1_795_000_000_000
BASE = "http://trust.test"
PAY_TO = "0x" + "ab" * 20
WEATHER = "https://weather.example/v1/current"
WEATHER_ID = endpoint_id(WEATHER)


@dataclass
class Clock:
    """A clock that tests set."""

    now: int = NOW

    def __call__(self) -> int:
        return self.now


@dataclass
class Running:
    """The service, a client connected to it, and the clock of both."""

    service: root.Opened
    app: Edge
    http: httpx.AsyncClient
    clock: Clock = field(default_factory=Clock)

    async def get(self, path: str, **more: Any) -> httpx.Response:
        return await self.http.get(path, **more)

    async def buy(self, body: Any, header: str) -> httpx.Response:
        return await self.http.post(
            "/v1/x402-trust", json=body, headers={"PAYMENT-SIGNATURE": header}
        )


def configuration(*, store_url: str = "sqlite://", front: EdgeSettings | None = None) -> Config:
    return Config(
        server=ServerSettings(
            base_url=BASE, admin_port=0, front=front or EdgeSettings(free_per_minute=1_000_000)
        ),
        store=StoreSettings(url=store_url),
        sale=SaleSettings(pay_to=PAY_TO),
        facilitator=FacilitatorSettings(url="http://127.0.0.1:9", verify_timeout_s=1),
        egress=closed_market(),
        signing=SigningSettings(key=PRIVATE_JWK),
    )


@functools.cache
def closed_market() -> EgressSettings:
    """Map the sellers of the demo market to a closed port."""
    return EgressSettings(mapped={seller.host: ("127.0.0.1", 9) for seller in SELLERS})


@contextlib.asynccontextmanager
async def open_service(
    config: Config, *, clock: Clock | None = None, more: Iterable[Route] = ()
) -> AsyncIterator[Running]:
    """An empty service."""
    hand = clock or Clock()
    async with root.open_resources(config, clock=hand) as service:
        front = web.create(service.server(), more)
        async with client(front) as http:
            yield Running(service, front, http, hand)


def client(app: Edge) -> httpx.AsyncClient:
    """A client in front of a service's application."""
    transport = httpx.ASGITransport(app, raise_app_exceptions=True)
    return httpx.AsyncClient(transport=transport, base_url=BASE)


async def fill(running: Running, *, days: int = 3) -> None:
    """Let the market run for several days, score it, and build its bundle."""
    service = running.service
    await load_past(service.store, days=days, now=running.clock(), report=lambda *_: None)
    while await service.round("score"):
        pass
    await service.round("bundle")


def with_edge(config: Config, **limits: Any) -> Config:
    return replace(config, server=replace(config.server, front=EdgeSettings(**limits)))


FORBIDDEN = ("sqlite", "SQLSTATE", "asyncpg", "Error", "/tmp", "tollgauge.db", "Traceback")


async def ready(running: Running) -> str:
    """Return `ready`, or the reason why the service is not. Each call is five seconds after the
    last.
    """
    running.clock.now += EVERY_MS
    answer = await running.get("/readyz")
    body = answer.json()
    if answer.status_code == 200:
        return str(body["status"])
    assert (answer.status_code, body["code"]) == (503, "store-unavailable")
    assert int(answer.headers["retry-after"]) > 0
    assert body["detail"] in CAUSES.values()
    for word in FORBIDDEN:
        assert word not in answer.text, word
    return str(body["cause"])


def forget(edge: Edge) -> None:
    """Discard all cached responses."""
    edge.cache = AnswerCache()


def grow_old(edge: Edge, seconds: float) -> None:
    """Let this many seconds pass for every cached response."""
    answers = edge.cache.answers
    for key, answer in answers.items():
        answers[key] = replace(
            answer,
            fresh_until=answer.fresh_until - seconds,
            stale_until=answer.stale_until - seconds,
        )
