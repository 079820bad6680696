"""Receivers of alerts: an HTTPS server on loopback under the names of Slack, Discord and others,
and a seller whose endpoint can be watched.

Tests set the response of each name and read the requests. The certificate is from an authority that
is created per run.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import ssl
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import trustme
from starlette.requests import Request
from starlette.responses import Response

from tollgauge.clients.egress.request import EgressSettings
from tollgauge.demo.serving import serve

ALERTS = "alerts.receivers.example"
OTHER = "other.receivers.example"
SLACK = "hooks.slack.com"
DISCORD = "discord.com"
SELLER = "api.example.com"
NAMES = (ALERTS, OTHER, SLACK, DISCORD, SELLER)


def challenge(request: Request) -> Response:
    """A 402 with the seller's terms, in the header of x402 v2."""
    terms = {
        "scheme": "exact",
        "network": "eip155:8453",
        "asset": "0x833589fcd6edb6e08f4c7c32d4f71b54bda02913",
        "amount": "10000",
        "payTo": "0x" + "cc" * 20,
        "maxTimeoutSeconds": 60,
        "extra": {"name": "USD Coin", "version": "2"},
    }
    document = {
        "x402Version": 2,
        "error": "PAYMENT-SIGNATURE header is required",
        "resource": {"url": f"https://{SELLER}{request.url.path}", "mimeType": "application/json"},
        "accepts": [terms],
    }
    body = json.dumps(document).encode()
    headers = {"payment-required": base64.b64encode(body).decode()}
    return Response(body, status_code=402, headers=headers, media_type="application/json")


@dataclass
class Received:
    """One received request."""

    host: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Receivers:
    """Settings and records of the receivers.

    `answers` are statuses by host, used in order, then 204; `seller` is the response of the
    endpoint (`slow_seller` delays it), and `visits` its requested paths.
    """

    port: int
    ca_file: str
    got: list[Received] = field(default_factory=list)
    answers: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    headers: dict[str, dict[str, str]] = field(default_factory=dict)
    stuck: set[str] = field(default_factory=set)
    delay: float = 0.0
    released: asyncio.Event = field(default_factory=asyncio.Event)
    seller: Callable[[Request], Response] = challenge
    slow_seller: Callable[[Request], Awaitable[Response]] | None = None
    visits: list[str] = field(default_factory=list)

    @property
    def mapped(self) -> dict[str, tuple[str, int]]:
        return dict.fromkeys(NAMES, ("127.0.0.1", self.port))

    def egress(self, **more: Any) -> EgressSettings:
        return EgressSettings(
            user_agent="tollgauge/test",
            mapped=self.mapped | more.pop("mapped", {}),
            ca_file=self.ca_file,
            **more,
        )

    def of(self, host: str) -> list[Received]:
        return [request for request in self.got if request.host == host]

    def events(self, host: str = ALERTS) -> list[Any]:
        """Return the alerts that a JSON receiver got, without tests."""
        return [
            delivery.json
            for delivery in self.of(host)
            if delivery.json["type"] != "connection_test"
        ]

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        request = Request(scope, receive)
        host = request.headers["host"].split(":")[0]
        if host == SELLER:
            self.visits.append(request.url.path)
            if self.slow_seller is not None:
                await (await self.slow_seller(request))(scope, receive, send)
            else:
                await self.seller(request)(scope, receive, send)
            return
        body = await request.body()
        headers = dict(request.headers)
        self.got.append(Received(host, request.url.path, headers, body))
        if host in self.stuck:
            await self.released.wait()
        await asyncio.sleep(self.delay)
        status = self.answers[host].pop(0) if self.answers[host] else 204
        await Response(status_code=status, headers=self.headers.get(host))(scope, receive, send)


@contextlib.asynccontextmanager
async def receivers(folder: Path) -> AsyncIterator[Receivers]:
    """Run the server on a free port."""
    authority = trustme.CA()
    ca_file = folder / "receivers.pem"
    authority.cert_pem.write_to_path(str(ca_file))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(*NAMES).configure_cert(context)
    receivers_at_work = Receivers(port=0, ca_file=str(ca_file))
    async with serve(receivers_at_work, tls=context) as port:
        receivers_at_work.port = port
        try:
            yield receivers_at_work
        finally:
            receivers_at_work.released.set()
