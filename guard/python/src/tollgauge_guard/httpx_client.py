"""httpx: an asynchronous client that pays, with a guard around and inside of the SDK's transport.

Each request passes `GuardedTransport`, then the SDK's `x402AsyncTransport`, then `_Gate`, then the
network. The outer one remembers the request; the gate lets no payment leave that was not sealed
for it, and writes down what was answered. A redirect is a request of its own and passes all of it.
"""

from __future__ import annotations

from typing import Any, Final
from urllib.request import getproxies

import httpx
from x402 import x402Client
from x402.http.clients.httpx import PaymentError, x402AsyncTransport

from tollgauge_guard.guard import Guard
from tollgauge_guard.hooks import GuardedHTTPClient
from tollgauge_guard.receipt import payments_of, settlement
from tollgauge_guard.request import CURRENT, PaymentRefusedError, asking, attempt_of, calling

_OF_CONNECTIONS: Final = ("verify", "cert", "http1", "http2", "limits", "proxy")
"""Options of an httpx client that it passes on to its own transport, and to no other."""


class HttpxPaymentRefusedError(PaymentRefusedError, PaymentError):
    """A refusal that `except PaymentError` catches as well."""


class GuardedClient(httpx.AsyncClient):
    """An httpx client that pays, guarded. `guard` has the journal. Requests leave by `transport`,
    or as those of httpx do, with the `options` that concern connections and by the proxies that
    the environment names (HTTPS_PROXY and so on; `trust_env=False` leaves them out).
    """

    def __init__(
        self,
        guard: Guard,
        client: x402Client,
        *,
        transport: httpx.AsyncBaseTransport | None = None,
        **options: Any,
    ) -> None:
        own = {name: options.pop(name) for name in _OF_CONNECTIONS if name in options}
        leaving = transport or _leaving(trust_env=options.get("trust_env", True), **own)
        super().__init__(transport=GuardedTransport(guard, client, leaving), **options)
        self.guard = guard

    async def send(self, request: httpx.Request, **options: Any) -> httpx.Response:
        """Send a request and follow its redirects, as httpx does; it is paid once at most."""
        with calling():
            return await super().send(request, **options)


def _leaving(*, trust_env: bool, **options: Any) -> httpx.AsyncBaseTransport:
    """What requests leave by, where the caller names no transport."""
    if trust_env and getproxies():
        return _ByEnvironment(trust_env=True, **options)
    return httpx.AsyncHTTPTransport(trust_env=trust_env, **options)


class _ByEnvironment(httpx.AsyncBaseTransport):
    """Sends a request by the proxy that the environment names for its URL. httpx looks for one only
    in a client without a transport of its own, which `GuardedClient` is not.
    """

    def __init__(self, **options: Any) -> None:
        self._client = httpx.AsyncClient(**options)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send the request as it is: its redirects and its credentials are the caller's."""
        return await self._client.send(request, stream=True, auth=httpx.Auth())

    async def aclose(self) -> None:
        """Close its connections."""
        await self._client.aclose()


class GuardedTransport(httpx.AsyncBaseTransport):
    """A transport that pays, guarded. Requests leave by `transport`, httpx's own where None."""

    def __init__(
        self, guard: Guard, client: x402Client, transport: httpx.AsyncBaseTransport | None = None
    ) -> None:
        self._guard = guard
        gate = _Gate(guard, transport or httpx.AsyncHTTPTransport())
        self._payer = GuardedHTTPClient(guard, client)
        self._paying = x402AsyncTransport(self._payer, gate)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request, and pay for it where that is asked and allowed.

        Raises HttpxPaymentRefusedError where the guard refuses, PaymentError where the SDK fails.
        """
        url, body = str(request.url), await request.aread()
        attempt = attempt_of(self._payer, request.method, url, body)
        with asking(attempt):
            try:
                return await self._paying.handle_async_request(request)
            except (PaymentError, PaymentRefusedError) as error:
                if attempt.refusal is None:
                    raise
                raise HttpxPaymentRefusedError(attempt.refusal) from error
            finally:
                self._guard.give_up(attempt)

    async def aclose(self) -> None:
        """Close the transport that requests leave by."""
        await self._paying.aclose()


class _Gate(httpx.AsyncBaseTransport):
    """The last thing that a request passes: no payment leaves but the one that was allowed."""

    def __init__(self, guard: Guard, transport: httpx.AsyncBaseTransport) -> None:
        self._guard, self._transport = guard, transport

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        payments = payments_of(request.headers.multi_items())
        if not payments:
            return await self._transport.handle_async_request(request)
        attempt = self._guard.check_leaving(CURRENT.get(), str(request.url), payments)
        try:
            answer = await self._transport.handle_async_request(request)
        except BaseException:
            self._guard.unanswered(attempt)
            raise
        self._guard.answered(attempt, answer.status_code, settlement(answer.headers.get))
        return answer

    async def aclose(self) -> None:
        await self._transport.aclose()
