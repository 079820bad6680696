"""requests: a session that pays, with a guard around and inside of the SDK's adapter.

The SDK's adapter sends by `super().send`, so the gate stands between it and `HTTPAdapter` in the
order of the classes: `GuardedAdapter`, the SDK's `x402HTTPAdapter`, `_Gate`, `HTTPAdapter`.
"""

from __future__ import annotations

from typing import Any

import requests
from requests.adapters import HTTPAdapter
from x402 import x402ClientSync
from x402.http.clients.requests import PaymentError, x402HTTPAdapter

from tollgauge_guard.guard import Guard
from tollgauge_guard.hooks import GuardedHTTPClientSync
from tollgauge_guard.receipt import payments_of, settlement
from tollgauge_guard.request import (
    CALL,
    CURRENT,
    PaymentRefusedError,
    asking,
    attempt_of,
    calling,
)


class RequestsPaymentRefusedError(PaymentRefusedError, PaymentError):
    """A refusal that `except PaymentError` catches as well."""


class GuardedSession(requests.Session):
    """A session that pays, guarded. `guard` has the journal."""

    def __init__(self, guard: Guard, client: x402ClientSync, **options: Any) -> None:
        super().__init__()
        self.guard = guard
        self.mount("https://", adapter := GuardedAdapter(guard, client, **options))
        self.mount("http://", adapter)

    def send(self, request: requests.PreparedRequest, **options: Any) -> requests.Response:
        """Send a request and follow its redirects, as requests does; it is paid once at most."""
        if CALL.get() is not None:  # a redirect of a call that has begun
            return super().send(request, **options)
        with calling():
            return super().send(request, **options)


class _Gate(HTTPAdapter):
    """The last thing that a request passes: no payment leaves but the one that was allowed."""

    guard: Guard

    def send(self, request: requests.PreparedRequest, *args: Any, **kwargs: Any) -> Any:
        payments = payments_of(request.headers.items())
        if not payments:
            return super().send(request, *args, **kwargs)
        attempt = self.guard.check_leaving(CURRENT.get(), request.url or "", payments)
        try:
            answer = super().send(request, *args, **kwargs)
        except BaseException:
            self.guard.unanswered(attempt)
            raise
        self.guard.answered(attempt, answer.status_code, settlement(answer.headers.get))
        return answer


class GuardedAdapter(x402HTTPAdapter, _Gate):
    """An adapter that pays, guarded. `options` are those of requests' `HTTPAdapter`."""

    def __init__(self, guard: Guard, client: x402ClientSync, **options: Any) -> None:
        self._payer = GuardedHTTPClientSync(guard, client)
        super().__init__(self._payer, **options)
        self.guard = guard

    def send(
        self, request: requests.PreparedRequest, *args: Any, **kwargs: Any
    ) -> requests.Response:
        """Send a request, and pay for it where that is asked and allowed.

        Raises RequestsPaymentRefusedError where the guard refuses, PaymentError where the SDK
        fails.
        """
        url = request.url or ""
        attempt = attempt_of(self._payer, request.method or "", url, _body(request))
        with asking(attempt):
            try:
                return super().send(request, *args, **kwargs)
            except (PaymentError, PaymentRefusedError) as error:
                if attempt.refusal is None:
                    raise
                raise RequestsPaymentRefusedError(attempt.refusal) from error
            finally:
                self.guard.give_up(attempt)


def _body(request: requests.PreparedRequest) -> bytes:
    """The body of a request. One that is a stream is read here, because it is sent twice."""
    body: Any = request.body
    if body is None or isinstance(body, bytes):
        return body or b""
    if isinstance(body, str):
        return body.encode()
    request.body = bytes(body.read()) if hasattr(body, "read") else b"".join(body)
    request.headers.pop("Transfer-Encoding", None)
    request.prepare_content_length(request.body)
    return request.body
