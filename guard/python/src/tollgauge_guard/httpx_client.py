"""httpx: an asynchronous client that pays, with a guard around and inside of the SDK's transport.

Each request passes `GuardedTransport`, then the SDK's `x402AsyncTransport`, then `_Gate`, then the
network. The outer one remembers the request; the gate lets no payment leave that was not sealed
for it, and writes down what was answered. A redirect is a request of its own and passes all of it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any, Final
from urllib.request import getproxies

import httpx
from x402 import x402Client
from x402.http.clients.httpx import PaymentError, x402AsyncTransport

from tollgauge_guard.decision import Refuse
from tollgauge_guard.entry import Outcome
from tollgauge_guard.guard import Guard
from tollgauge_guard.hooks import GuardedHTTPClient
from tollgauge_guard.receipt import (
    is_conditional,
    is_redirect,
    outcome_of,
    payments_of,
    read_answer,
)
from tollgauge_guard.request import (
    CALL,
    CURRENT,
    Attempt,
    PaymentRefusedError,
    PaymentUnresolved,
    Unresolved,
    asking,
    attempt_of,
    calling,
    drop_credentials,
)

_OF_CONNECTIONS: Final = ("verify", "cert", "http1", "http2", "limits", "proxy")
"""Options of an httpx client that it passes on to its own transport, and to no other."""


class HttpxPaymentRefusedError(PaymentRefusedError, PaymentError):
    """A refusal that `except PaymentError` catches as well."""


class HttpxPaymentUnresolved(PaymentUnresolved, PaymentError):  # noqa: N818  # as its base
    """An unresolved payment that `except PaymentError` catches as well."""


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


def _error_of(refusal: Refuse) -> PaymentRefusedError:
    if isinstance(refusal, Unresolved):
        return HttpxPaymentUnresolved(refusal)
    return HttpxPaymentRefusedError(refusal)


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
        self._gate = _Gate(guard, transport or httpx.AsyncHTTPTransport())
        self._payer = GuardedHTTPClient(guard, client)
        self._paying = x402AsyncTransport(self._payer, self._gate)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request, and pay for it where that is asked and allowed. After a payment the
        redirects of the same call are followed unpaid.

        Raises HttpxPaymentRefusedError where the guard refuses, HttpxPaymentUnresolved where an
        earlier payment of the same purchase has no answer, PaymentError where the SDK fails.
        """
        url, body = str(request.url), await request.aread()
        attempt = attempt_of(self._payer, request.method, url, body)
        drop_credentials(attempt, request.headers)
        if (call := CALL.get()) is not None and call.redirected is not None:
            return await self._gate.follow(request, call.redirected)
        with asking(attempt):
            try:
                return await self._paying.handle_async_request(request)
            except (PaymentError, PaymentRefusedError) as error:
                if attempt.refusal is None:
                    raise
                raise _error_of(attempt.refusal) from error
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
        is_conditioned = is_conditional(request.headers)
        return self._watch(attempt, answer, is_conditional=is_conditioned)

    async def follow(self, request: httpx.Request, paid: Attempt) -> httpx.Response:
        """Follow the redirect that answered a payment, without it: its answer is the payment's."""
        if payments_of(request.headers.multi_items()):
            raise self._guard.refusal(None, "A payment was about to follow a redirect.")
        answer = await self._transport.handle_async_request(request)
        return answer if is_redirect(answer.status_code) else self._watch(paid, answer)

    def _watch(
        self, attempt: Attempt, answer: httpx.Response, *, is_conditional: bool = False
    ) -> httpx.Response:
        """Write down what became of a payment when the body of the answer has come."""
        read = read_answer(answer.status_code, answer.headers.get)
        outcome = outcome_of(read, is_conditional=is_conditional)
        is_whole = answer.is_closed  # its transport has read it: nobody will read its stream
        if (
            outcome is Outcome.OPEN
            or is_whole
            or not isinstance(answer.stream, httpx.AsyncByteStream)
        ):
            self._guard.answered(attempt, outcome, read)
            return answer
        self._guard.has_left(attempt)
        conclude = partial(self._guard.answered, attempt, answer=read)
        answer.stream = _WatchedStream(answer.stream, outcome, conclude)
        return answer

    async def aclose(self) -> None:
        await self._transport.aclose()


class _WatchedStream(httpx.AsyncByteStream):
    """A body that says whether all of it came."""

    def __init__(
        self,
        stream: httpx.AsyncByteStream,
        outcome: Outcome,
        conclude: Callable[..., None],
    ) -> None:
        self._stream, self._outcome, self._conclude = stream, outcome, conclude
        self._is_concluded = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._stream:
            yield chunk
        self._end(self._outcome)

    async def aclose(self) -> None:
        self._end(Outcome.OPEN)
        await self._stream.aclose()

    def _end(self, outcome: Outcome) -> None:
        if not self._is_concluded:
            self._is_concluded = True
            self._conclude(outcome=outcome)
