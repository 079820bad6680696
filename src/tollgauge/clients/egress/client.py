"""Egress: the only way to connect to addresses that others choose.

Probes, live probes and webhook deliveries use `Egress.fetch`. A URL is parsed once by
core/endpoint/identity, and only its canonical form is used. Each attempt makes one resolution and
one fresh connection with verified TLS, without redirects, cookies, proxies or credentials. A failed
attempt is an Exchange with a Fault, never an exception.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

import certifi

from tollgauge.clients.egress.curl_loop import CurlLoop, LoopLateness
from tollgauge.clients.egress.request import FIELD_VALUE, EgressSettings, Request
from tollgauge.clients.egress.resolve import Resolver, system_texts
from tollgauge.clients.egress.transfer import CurlTransfer, Plan
from tollgauge.core.base.errors import TollgaugeError
from tollgauge.core.directory.declared import METHODS
from tollgauge.core.endpoint.identity import Resource, ResourceError, parse_resource
from tollgauge.core.probe.exchange import Exchange, Fault, FaultKind

_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", re.ASCII)
_CLOSE_S: Final = 0.9


class RequestError(TollgaugeError):
    """Egress refuses the request: its method, a header or its body is not allowed."""


Identify = Callable[[str, int], tuple[tuple[str, str], ...]]
"""Returns the headers that sign a request, by its authority and its start (ms UTC)."""


class Egress:
    """Makes HTTP exchanges. Call `start` before the first `fetch`, and `close` at the end. With
    `identify`, requests with a start are signed.
    """

    def __init__(self, settings: EgressSettings, *, identify: Identify | None = None) -> None:
        self._settings = settings
        self._identify = identify
        self._perimeter = settings.perimeter
        self._ca_file = settings.ca_file or certifi.where()
        self._slots = asyncio.Semaphore(settings.max_in_flight)
        self._resolver = Resolver(
            settings.resolver,
            threads=settings.dns_threads,
            timeout_ms=min(settings.dns_deadline_ms, settings.deadline_ms),
            texts=settings.texts,
        )
        self._curl_loop = CurlLoop()
        self._lateness = LoopLateness()

    def start(self) -> None:
        """Start the thread that runs the transfers."""
        self._curl_loop.start()

    async def close(self) -> None:
        """Abort transfers in flight and end the thread, within a second. Waiting fetches return
        `local-failure`.
        """
        await asyncio.to_thread(self._curl_loop.stop, _CLOSE_S)

    async def fetch(self, request: Request, *, at: int = 0) -> Exchange:
        """Make one attempt.

        A host that is not public results in the fault `address-not-public`. Waiting for a free
        slot (`max_in_flight`) counts neither towards the deadline nor towards the timings.
        Cancelling the task aborts the transfer.

        Args:
            request: The request to send.
            at: Start of the attempt (milliseconds UTC), recorded in the exchange.

        Raises:
            ResourceError: The URL is not an https URL.
            RequestError: The request is not allowed.
        """
        _check(request)
        try:
            resource = parse_resource(request.url, self._perimeter)
        except ResourceError as error:
            if error.code != "resource-not-public":
                raise
            fault = Fault(kind=FaultKind.NOT_PUBLIC, detail=str(error))
            return Exchange(url=request.url, method=request.method, at=at, result=fault)
        async with self._slots:
            with self._lateness.in_flight():
                return await self._attempt(request, resource, at=at)

    async def _attempt(self, request: Request, resource: Resource, *, at: int) -> Exchange:
        """Make one attempt; records its total time and the largest delay of this process."""
        if self._identify and at:
            signed = self._identify(resource.authority, at)
            request = replace(request, headers=(*request.headers, *signed))
        begin = time.monotonic()
        addresses, dial_port = await self._locate(resource)
        end = time.monotonic()
        dns = _milliseconds(begin, end)
        if isinstance(addresses, Fault):
            url = resource.probe_url
            exchange = Exchange(url=url, method=request.method, at=at, result=addresses)
        else:
            plan = Plan(
                request=request,
                resource=resource,
                addresses=addresses,
                dial_port=dial_port,
                timeout_ms=max(1, self._settings.deadline_ms - dns),
                settings=self._settings,
                ca_file=self._ca_file,
                at=at,
            )
            exchange, end = await self._transfer(plan)
        total = _milliseconds(begin, end)
        late = self._lateness.largest(begin, time.monotonic())
        timings = replace(
            exchange.timings,
            dns=dns,
            total=total,
            delay=max(exchange.timings.delay, _milliseconds(0, late)),
            overrun=max(0, total - self._settings.deadline_ms),
        )
        return replace(exchange, timings=timings)

    async def _locate(self, resource: Resource) -> tuple[tuple[str, ...] | Fault, int]:
        """Return the addresses and the port to connect to, or the fault."""
        if resource.host in self._settings.mapped:
            address, port = self._settings.mapped[resource.host]
            return (address,), port
        return await self._resolver.resolve(resource.host), resource.port

    async def read_texts(self, label: str, host: str) -> Sequence[str] | Fault:
        """Return the TXT records of a label below a host, empty if there are none, or a fault.

        The system's name servers do not know mapped hosts and are not asked about them.
        """
        if host in self._settings.mapped and self._settings.texts is system_texts:
            return ()
        return await self._resolver.resolve_texts(f"{label}.{host}")

    async def _transfer(self, plan: Plan) -> tuple[Exchange, float]:
        """Return the exchange and its end on the monotonic clock.

        The transfer thread takes the time: a busy event loop must not make sellers look slow.
        """
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[tuple[Exchange, float]] = loop.create_future()

        def set_result(exchange: Exchange, end: float) -> None:
            if not ended.done():
                ended.set_result((exchange, end))

        def on_end(exchange: Exchange) -> None:
            with contextlib.suppress(RuntimeError):  # the event loop may have ended already
                loop.call_soon_threadsafe(set_result, exchange, time.monotonic())

        transfer = CurlTransfer(plan)
        self._curl_loop.submit(transfer, on_end)
        try:
            return await ended
        except asyncio.CancelledError:
            self._curl_loop.cancel(transfer)
            raise


_OWN_HEADERS: Final = frozenset(
    {"user-agent", "host", "content-length", "transfer-encoding", "connection", "accept-encoding"}
    | {"expect", "cookie", "proxy-authorization", "te", "trailer", "upgrade"}
)


def _check(request: Request) -> None:
    """Reject requests that must not be sent, header injection in particular."""
    if request.method not in METHODS:
        raise RequestError(f"The method {request.method!r} is not allowed.")
    if request.method in ("GET", "HEAD") and request.body is not None:
        raise RequestError(f"A {request.method} request must not have a body.")
    for name, value in request.headers:
        if not _NAME.fullmatch(name) or not FIELD_VALUE.fullmatch(value):
            raise RequestError("A header's name or value contains characters that are not allowed.")
        if name.lower() in _OWN_HEADERS:
            raise RequestError(f"The header {name} is set by egress.")


def _milliseconds(begin: float, end: float) -> int:
    return int((end - begin) * 1_000 + 0.5)
