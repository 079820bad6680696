"""A service that sells watches, with receivers on real TLS and a facilitator that can refuse."""

from __future__ import annotations

import contextlib
import itertools
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
from tests.support import http_service, paid_service
from tests.support.http_service import Running
from tests.support.receivers import Receivers, receivers

from tollgauge.clients.webhooks import WatchSettings
from tollgauge.core.base.units import MINUTE_MS
from tollgauge.core.directory.listing import ListedItem
from tollgauge.core.endpoint.identity import Endpoint, parse_resource
from tollgauge.core.endpoint.terms import Quote
from tollgauge.core.probe.exchange import Timings
from tollgauge.core.probe.outcome import Attribution, Outcome
from tollgauge.core.probe.probe import ProbeResult
from tollgauge.core.probe.schedule import Cadence
from tollgauge.jobs import alert
from tollgauge.monitor import discovery, recording
from tollgauge.monitor.probing import Observation
from tollgauge.store.endpoints import crawls, endpoints

RESOURCE = "https://api.example.com/v1/weather"
ID = parse_resource(RESOURCE).id
USDC = "0x833589fcd6edb6e08f4c7c32d4f71b54bda02913"
QUOTE = Quote(network="eip155:8453", asset=USDC, amount=10_000, pay_to="0x" + "cc" * 20)
CREATE = "/v1/watch-endpoint-30d"
KEY = "a key of at least thirty-two characters"


@dataclass
class WatchService:
    """A shop that sells watches, and the calls that its facilitator received."""

    running: Running
    receivers: Receivers
    asked: Counter[str] = field(default_factory=Counter)
    settles: list[bool] = field(default_factory=list)
    nonces: Any = field(default_factory=lambda: itertools.count(1))

    @property
    def store(self) -> Any:
        return self.running.service.store

    @property
    def clock(self) -> http_service.Clock:
        return self.running.clock

    def payment(
        self, *, payer: str = "0x" + "cd" * 20, ticket: str = "", value: int = 200_000
    ) -> str:
        more = {"extensions": {"tollgauge": {"info": {"ticket": ticket}}}} if ticket else {}
        document = paid_service.payment(
            next(self.nonces), value=value, now=self.clock(), payer=payer, **more
        )
        return paid_service.header(document)

    async def ask(self, path: str, body: Any, *, payment: str = "") -> httpx.Response:
        header = {"PAYMENT-SIGNATURE": payment or self.payment()}
        return await self.running.http.post(path, json=body, headers=header)

    async def buy(self, **more: Any) -> Any:
        answer = await self.ask(CREATE, {"endpoint": RESOURCE, **more})
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def poll(self, bought: Any, *, status: int = 200, **query: Any) -> Any:
        answer = await self.running.http.get(
            path(bought, "/events"), params=query, headers=bearer(bought["secret"])
        )
        assert answer.status_code == status, answer.text
        return answer.json()

    async def patch(self, bought: Any, body: Any) -> httpx.Response:
        return await self.running.http.patch(
            path(bought), json=body, headers=bearer(bought["secret"])
        )

    async def cancel(self, bought: Any) -> httpx.Response:
        return await self.running.http.delete(path(bought), headers=bearer(bought["secret"]))

    async def endpoint(self) -> Endpoint:
        stored: Endpoint | None = await self.store.reading(endpoints.get, ID)
        assert stored is not None
        return stored

    async def list_it(self, source: str = "bazaar") -> None:
        """Record a crawl that lists the endpoint, so that it is public."""
        item = ListedItem(resource=parse_resource(RESOURCE))
        crawl = await self.store.writing(crawls.begin_crawl, source, now=self.clock())
        await self.store.writing(
            discovery.record_page, crawl, [item], next_offset=1, now=self.clock()
        )

    async def probe(
        self, *, up: bool = True, ours: bool = False, minutes: int = 5, **more: Any
    ) -> None:
        """Record one check, several minutes after the last, as the probe loop does."""
        self.clock.now += minutes * MINUTE_MS
        probed = ProbeResult(
            at=self.clock(),
            outcome=Outcome.PAYMENT_REQUIRED if up else Outcome.TIMEOUT,
            attribution=Attribution.LOCAL if ours else Attribution.TARGET,
            up=up,
            status=402 if up else None,
            timings=Timings(total=100),
            payable=up,
            compliant=up,
            quote=QUOTE if up else None,
            reason="common-mode" if ours else "",
        )
        result = replace(probed, **more)
        seen = Observation(endpoint=await self.endpoint(), result=result, learned=None)
        await self.store.writing(
            recording.record, (seen,), cadence=Cadence(), owner="test", now=self.clock()
        )

    async def alert(self, **more: Any) -> dict[str, object]:
        """Run one round of the alert loop, as another process would; return its counts."""
        return await alert.run(replace(self.running.service.alerts(), **more))


def path(bought: Any, rest: str = "") -> str:
    return f"/v1/watch/{bought['watch_id']}{rest}"


def bearer(secret: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {secret}"}


@contextlib.asynccontextmanager
async def open_watch_service(
    url: str,
    folder: Path,
    *,
    key: str = KEY,
    deadline_ms: int = 20_000,
    sales_at_once: int = 256,
) -> AsyncIterator[WatchService]:
    asked: Counter[str] = Counter()
    settles: list[bool] = []

    async with (
        receivers(folder) as world,
        paid_service.facilitator(asked, settles) as facilitator,
    ):
        config = replace(
            http_service.configuration(store_url=url),
            facilitator=replace(facilitator, sales_at_once=sales_at_once),
            egress=world.egress(deadline_ms=deadline_ms),
            watch=WatchSettings(key=key),
        )
        async with http_service.open_service(config) as running:
            yield WatchService(running, world, asked, settles)
