"""httpx: an asynchronous client that pays, with a guard around and inside of the SDK's transport.

Each request passes `GuardedTransport`, the SDK's `x402AsyncTransport` and `_HttpxGate`. The outer
one remembers the request; the gate lets no payment leave that was not sealed for it, and records
the answer. A redirect is a separate request and passes all of it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any, Final
from urllib.request import getproxies

import httpx
from x402 import x402Client
from x402.http.clients.httpx import PaymentError, x402AsyncTransport

from tollgauge_guard.decision import Refuse
from tollgauge_guard.guard import HANDLE, Guard
from tollgauge_guard.headers import drop_credentials
from tollgauge_guard.http_clients import GuardedHTTPClient
from tollgauge_guard.payment import Event
from tollgauge_guard.receipt import (
    classify_answer,
    find_payments,
    has_conditions,
    is_redirect,
    judge_answer,
    read_answer,
)
from tollgauge_guard.refusal import PaymentRefusedError, PaymentUnresolved, Unresolved
from tollgauge_guard.request import (
    CURRENT,
    MAX_REDIRECTS,
    Attempt,
    Call,
    Stage,
    set_current,
    start_attempt,
)
from tollgauge_guard.sign_in import SIGN_IN, find_sign_in

_OF_CONNECTIONS: Final = ("verify", "cert", "http1", "http2", "limits", "proxy")
"""Options of an httpx client that it passes to its own transport only."""
_CALL: Final = "tollgauge_guard.call"


class HttpxPaymentRefusedError(PaymentRefusedError, PaymentError):
    """A refusal that `except PaymentError` catches as well."""


class HttpxPaymentUnresolved(PaymentUnresolved, PaymentError):  # noqa: N818  # as its base
    """An unresolved payment that `except PaymentError` catches as well."""


class GuardedClient(httpx.AsyncClient):
    """An httpx client that pays, guarded.

    Args:
        guard: decides and records.
        client: the official x402 client.
        transport: what requests leave by. Default: httpx's own, with the `options` that concern
            connections and the proxies of the environment (`trust_env=False` ignores them).
        options: of `httpx.AsyncClient`.
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
        leaving = transport or _default_transport(trust_env=options.get("trust_env", True), **own)
        options.setdefault("max_redirects", MAX_REDIRECTS)
        super().__init__(transport=GuardedTransport(guard, client, leaving), **options)
        self.guard = guard

    async def send(self, request: httpx.Request, **options: Any) -> httpx.Response:
        """Send a request and follow its redirects, as httpx does; it is paid once at most."""
        request.extensions[_CALL] = Call()
        return await super().send(request, **options)


def _to_error(refusal: Refuse) -> PaymentRefusedError:
    if isinstance(refusal, Unresolved):
        return HttpxPaymentUnresolved(refusal)
    return HttpxPaymentRefusedError(refusal)


def _default_transport(*, trust_env: bool, **options: Any) -> httpx.AsyncBaseTransport:
    """Return the transport for a caller that names none."""
    if trust_env and getproxies():
        return _ByEnvironment(trust_env=True, **options)
    return httpx.AsyncHTTPTransport(trust_env=trust_env, **options)


class _ByEnvironment(httpx.AsyncBaseTransport):
    """Sends a request by the proxy that the environment names for its URL.

    httpx looks for one only in a client without a custom transport.
    """

    def __init__(self, **options: Any) -> None:
        self._client = httpx.AsyncClient(**options)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send the request as it is, without following redirects or adding credentials."""
        return await self._client.send(request, stream=True, auth=httpx.Auth())

    async def aclose(self) -> None:
        """Close its connections."""
        await self._client.aclose()


class GuardedTransport(httpx.AsyncBaseTransport):
    """A transport that pays, guarded. Requests leave by `transport`. Default: httpx's own."""

    def __init__(
        self, guard: Guard, client: x402Client, transport: httpx.AsyncBaseTransport | None = None
    ) -> None:
        self._guard = guard
        self._gate = _HttpxGate(guard, transport or httpx.AsyncHTTPTransport())
        self._payer = GuardedHTTPClient(guard, client)
        self._paying = x402AsyncTransport(self._payer, self._gate)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request, and pay for it if payment is requested and allowed.

        Redirects of the call after a payment are followed without it.

        Raises:
            HttpxPaymentRefusedError: the guard refuses.
            HttpxPaymentUnresolved: an earlier payment of the same purchase has no answer.
            PaymentError: the SDK fails.
            httpx.TransportError: the request failed; its `tollgauge_payment` names the payment.
        """
        # A redirect is a separate request, to which httpx copies the extensions of the first.
        call = request.extensions.setdefault(_CALL, Call())
        url, body = str(request.url), await request.aread()
        attempt = start_attempt(self._payer, call, request.method, url, request.headers, body)
        drop_credentials(attempt.hops, attempt.url, request.headers)
        if call.redirected is not None:
            return await self._gate.follow(request, call.redirected)
        with set_current(attempt):
            try:
                return await self._paying.handle_async_request(request)
            except (PaymentError, PaymentRefusedError) as error:
                if attempt.stage is Stage.CONCLUDED:
                    self._guard.record_silence(attempt)  # a hook may have lost the answer
                if isinstance(error.__cause__, httpx.TransportError):
                    raise error.__cause__ from None
                if attempt.refusal is None:
                    raise
                raise _to_error(attempt.refusal) from error
            finally:
                self._guard.give_up(attempt)

    async def aclose(self) -> None:
        """Close the transport that requests leave by."""
        await self._paying.aclose()


class _HttpxGate(httpx.AsyncBaseTransport):
    """The last thing that a request passes: only the payment that was allowed leaves."""

    def __init__(self, guard: Guard, transport: httpx.AsyncBaseTransport) -> None:
        self._guard, self._transport = guard, transport

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        payments = find_payments(request.headers.multi_items())
        if not payments:
            answer = await self._transport.handle_async_request(request)
            return await self._sign_in(request, answer) or answer
        attempt = self._guard.check_leaving(CURRENT.get(), str(request.url), payments)
        try:
            answer = await self._transport.handle_async_request(request)
        except BaseException as error:
            self._guard.record_silence(attempt, error)
            raise
        return await self._watch(attempt, answer, is_conditional=has_conditions(request.headers))

    async def _sign_in(
        self, request: httpx.Request, required: httpx.Response
    ) -> httpx.Response | None:
        """Ask for the answer to an earlier payment; None if the seller does not give it."""
        attempt = CURRENT.get()
        if attempt is None or required.status_code != httpx.codes.PAYMENT_REQUIRED:
            return None
        found = find_sign_in(self._guard, attempt, required.headers.get("payment-required"))
        if found is None:
            return None
        payment, header = found
        again = httpx.Request(
            request.method,
            request.url,
            headers=[*request.headers.raw, (SIGN_IN.encode(), header.encode())],
            content=request.content,
            extensions=request.extensions,
        )
        try:
            answer = await self._transport.handle_async_request(again)
        except httpx.TransportError:
            return None  # the purchase continues without signing in
        if not answer.is_success:
            await answer.aclose()
            return None
        await required.aclose()
        attempt.payment, attempt.handle = payment.id, payment.handle
        return await self._watch(attempt, answer, is_conditional=False)

    async def follow(self, request: httpx.Request, paid: Attempt) -> httpx.Response:
        """Follow the redirect that answered a payment, without it: its answer is the payment's."""
        if find_payments(request.headers.multi_items()):
            raise self._guard.refusal(None, "A payment was about to follow a redirect.")
        answer = await self._transport.handle_async_request(request)
        if is_redirect(answer.status_code):
            return answer
        return await self._watch(paid, answer, is_conditional=False)

    async def _watch(
        self,
        attempt: Attempt,
        answer: httpx.Response,
        *,
        is_conditional: bool,
    ) -> httpx.Response:
        """Record the outcome of a payment when the body of the answer is complete."""
        answer.extensions[HANDLE] = attempt.handle
        read = read_answer(answer.status_code, answer.headers.get)
        event = classify_answer(read, is_conditional=is_conditional)
        # A transport that has read the body closed its stream.
        stream = answer.stream
        is_whole = answer.is_closed or not isinstance(stream, httpx.AsyncByteStream)
        if event is Event.ERROR_ANSWER or (is_whole and self._guard.is_answer is None):
            self._guard.record_answer(attempt, read, event)
            return answer
        if is_whole or not isinstance(stream, httpx.AsyncByteStream):
            self._guard.record_answer(attempt, read, self._judge(answer, answer.content))
            return answer
        self._guard.mark_sent(attempt)

        def conclude(body: bytes | None) -> None:
            result = Event.CUT if body is None else self._judge(answer, body)
            self._guard.record_answer(attempt, read, result)

        keeps_body = self._guard.is_answer is not None
        answer.stream = _WatchedStream(
            stream, conclude, handle=attempt.handle, keeps_body=keeps_body
        )
        return answer

    def _judge(self, answer: httpx.Response, body: bytes) -> Event:
        """Let the owner judge a complete body; whatever the function raises is not an answer."""
        is_answer = self._guard.is_answer
        if is_answer is None:
            return Event.ANSWER
        read = httpx.Response(answer.status_code, headers=answer.headers, content=body)
        return judge_answer(is_answer, answer.status_code, answer.headers, read.content)

    async def aclose(self) -> None:
        await self._transport.aclose()


class _WatchedStream(httpx.AsyncByteStream):
    """A body that reports whether all of it came; `conclude` gets it, or None if it was cut."""

    def __init__(
        self,
        stream: httpx.AsyncByteStream,
        conclude: Callable[[bytes | None], None],
        *,
        handle: str | None,
        keeps_body: bool,
    ) -> None:
        self._stream, self._conclude = stream, conclude
        self._handle, self._keeps_body = handle, keeps_body
        self._chunks: list[bytes] = []
        self._is_concluded = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._stream:
                if self._keeps_body:
                    self._chunks.append(chunk)
                yield chunk
        except BaseException as error:
            setattr(error, HANDLE, self._handle)
            raise
        self._end(b"".join(self._chunks))

    async def aclose(self) -> None:
        self._end(None)
        await self._stream.aclose()

    def _end(self, body: bytes | None) -> None:
        if not self._is_concluded:
            self._is_concluded = True
            self._conclude(body)
