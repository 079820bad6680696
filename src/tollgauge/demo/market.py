"""Serves the sellers and their directory over TLS on loopback, each with its own host name.

One listener serves all names and selects the certificate by name, including invalid ones. The dead
seller has a port that refuses connections. `DemoMarket.mapped` maps host names to loopback
addresses for the egress. A new authority signs the certificates of each run.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

import trustme

from tollgauge.core.base.units import Clock
from tollgauge.core.directory.seller_file import PATH
from tollgauge.core.probe.exchange import Answer
from tollgauge.demo.announcing import file_at
from tollgauge.demo.behaviours import play
from tollgauge.demo.directory import DIRECTORY_HOST, DIRECTORY_PATH, answer
from tollgauge.demo.faults import Faults
from tollgauge.demo.receiver import RECEIVER_HOST, Receiver
from tollgauge.demo.seller import DemoRequest, Seller, Wire, latency_at
from tollgauge.demo.sellers import SELLERS
from tollgauge.demo.serving import closed_port, serve
from tollgauge.web.settings import LOOPBACK

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

Latency = Callable[[Seller, int], int]
"""Return a seller's usual latency (ms) at a time."""

_BODY_MAX: Final = 64 * 1024
_JSON: Final = (("content-type", "application/json"),)
_SELLER_OF: Final = {seller.host: seller for seller in reversed(SELLERS)}
_SELLER_AT: Final = {(seller.host, seller.path): seller for seller in SELLERS}


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoMarket:
    """A running market.

    Attributes:
        mapped: address and port by host name.
        ca_file: PEM file of the authority to trust.
        receiver: the market's webhook.
    """

    mapped: dict[str, tuple[str, int]]
    ca_file: Path
    receiver: Receiver

    @property
    def directory_url(self) -> str:
        """The URL of the listing."""
        return f"https://{DIRECTORY_HOST}{DIRECTORY_PATH}"


@contextlib.asynccontextmanager
async def run_market(
    clock: Clock, folder: Path, *, latency: Latency = latency_at, faults: Faults | None = None
) -> AsyncIterator[DemoMarket]:
    """Run the market.

    Args:
        clock: time of the sellers.
        folder: folder for the authority's certificate (PEM).
        latency: usual latency of a seller, to which its behaviour can add.
        faults: faults that can be switched manually.
    """
    authority = trustme.CA()
    ca_file = folder / "ca.pem"
    authority.cert_pem.write_to_path(ca_file)
    with contextlib.closing(closed_port()) as unused:
        closed = (LOOPBACK, int(unused.getsockname()[1]))
        receiver = Receiver()
        server = _MarketServer(clock, latency, faults or Faults(), receiver)
        async with serve(server, tls=_tls(authority)) as port:
            mapped = {
                seller.host: closed if seller.wire is Wire.CLOSED else (LOOPBACK, port)
                for seller in SELLERS
            }
            others = dict.fromkeys((DIRECTORY_HOST, RECEIVER_HOST), (LOOPBACK, port))
            try:
                yield DemoMarket(mapped=mapped | others, ca_file=ca_file, receiver=receiver)
            finally:
                server.hurry.set()


class _MarketServer:
    """The ASGI application: finds the seller by host name and answers after its latency."""

    def __init__(self, clock: Clock, latency: Latency, faults: Faults, receiver: Receiver) -> None:
        self._clock = clock
        self._latency = latency
        self._faults = faults
        self._receiver = receiver
        self.hurry = asyncio.Event()
        """At the end, no client waits for a response."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        host = _host(scope)
        request = await _request(scope, receive)
        now = self._clock()
        reply, delay_ms = self._answer(host, request, now)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.hurry.wait(), delay_ms / 1000)
        headers = [(name.encode(), value.encode("latin-1")) for name, value in reply.headers]
        length = (b"content-length", str(len(reply.body)).encode())
        start = {"status": reply.status, "headers": [*headers, length]}
        await send({"type": "http.response.start", **start})
        await send({"type": "http.response.body", "body": reply.body})

    def _answer(self, host: str, request: DemoRequest, now: int) -> tuple[Answer, int]:
        """Return the response of a host and its latency in milliseconds."""
        if host == DIRECTORY_HOST:
            return answer(request, now, sellers=self._faults.list_sellers()), 0
        if host == RECEIVER_HOST:
            return self._receiver.answer(request, now), 0
        seller = _SELLER_AT.get((host, request.path)) or _SELLER_OF.get(host)
        if seller is None:
            return Answer(status=421), 0
        if request.path == PATH and (file := file_at(seller, now)) is not None:
            return Answer(status=200, headers=_JSON, body=file), 0
        reply = self._faults.apply(seller, play(self._faults.present(seller), request, now))
        return reply.answer, reply.delay_ms + self._latency(seller, now)


def _host(scope: Scope) -> str:
    header = _header(scope, b"host")
    return (header.rpartition(":")[0] or header).lower()


def _header(scope: Scope, name: bytes) -> str:
    values = (value.decode("latin-1") for key, value in scope["headers"] if key == name)
    return next(values, "")


async def _request(scope: Scope, receive: Receive) -> DemoRequest:
    body, more = b"", True
    while more and len(body) <= _BODY_MAX:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    return DemoRequest(
        method=scope["method"],
        path=scope["path"],
        query=scope["query_string"].decode("latin-1"),
        body=body,
        agent=_header(scope, b"user-agent"),
    )


def _tls(authority: trustme.CA) -> ssl.SSLContext:
    """Return the server's TLS context, which selects the certificate by host name."""
    contexts = {wire: _context(leaf) for wire, leaf in _certificates(authority).items()}

    def choose(connection: ssl.SSLObject, name: str | None, _first: ssl.SSLContext) -> None:
        seller = _SELLER_OF.get(name or "")
        connection.context = contexts[seller.wire if seller else Wire.OPEN]

    entry = contexts[Wire.OPEN]
    entry.sni_callback = choose
    return entry


def _certificates(authority: trustme.CA) -> dict[Wire, trustme.LeafCert]:
    """Issue a certificate for all correct names, an expired one, and one for another name."""
    today = datetime.now(UTC)
    names = (*_SELLER_OF, DIRECTORY_HOST, RECEIVER_HOST)
    return {
        Wire.OPEN: authority.issue_cert(*names, not_after=today + timedelta(days=60)),
        Wire.EXPIRED: authority.issue_cert(
            *names,
            not_before=today - timedelta(days=90),
            not_after=today - timedelta(days=2),
        ),
        Wire.WRONG_NAME: authority.issue_cert("parked.example"),
    }


def _context(certificate: trustme.LeafCert) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(context)
    return context
