"""requests: a session that pays, with a guard around and inside of the SDK's adapter.

The SDK's adapter sends by `super().send`, so the gate is between it and `HTTPAdapter` in the
order of the classes: `GuardedAdapter`, the SDK's `x402HTTPAdapter`, `_RequestsGate`, `HTTPAdapter`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import requests
from requests.adapters import HTTPAdapter
from x402 import x402ClientSync
from x402.http.clients.requests import PaymentError, x402HTTPAdapter

from tollgauge_guard.decision import Refuse
from tollgauge_guard.guard import HANDLE, Guard
from tollgauge_guard.headers import drop_credentials
from tollgauge_guard.http_clients import GuardedHTTPClientSync
from tollgauge_guard.payment import Event
from tollgauge_guard.receipt import (
    Answer,
    classify_answer,
    find_payments,
    has_conditions,
    is_redirect,
    judge_answer,
    read_answer,
)
from tollgauge_guard.refusal import PaymentRefusedError, PaymentUnresolved, Unresolved
from tollgauge_guard.request import (
    CALL,
    CURRENT,
    MAX_REDIRECTS,
    Attempt,
    Stage,
    in_call,
    set_current,
    start_attempt,
)
from tollgauge_guard.sign_in import SIGN_IN, find_sign_in


class RequestsPaymentRefusedError(PaymentRefusedError, PaymentError):
    """A refusal that `except PaymentError` catches as well."""


class RequestsPaymentUnresolved(PaymentUnresolved, PaymentError):  # noqa: N818  # as its base
    """An unresolved payment that `except PaymentError` catches as well."""


class GuardedSession(requests.Session):
    """A session that pays, guarded. `guard` has the journal."""

    def __init__(self, guard: Guard, client: x402ClientSync, **options: Any) -> None:
        super().__init__()
        self.guard, self.max_redirects = guard, MAX_REDIRECTS
        self.mount("https://", adapter := GuardedAdapter(guard, client, **options))
        self.mount("http://", adapter)

    def send(self, request: requests.PreparedRequest, **options: Any) -> requests.Response:
        """Send a request and follow its redirects, as requests does; it is paid once at most."""
        if CALL.get() is not None:  # a redirect of a call that has begun
            return super().send(request, **options)
        with in_call():
            return super().send(request, **options)


class _RequestsGate(HTTPAdapter):
    """The last thing that a request passes: only the payment that was allowed leaves."""

    guard: Guard

    def send(self, request: requests.PreparedRequest, *args: Any, **kwargs: Any) -> Any:
        payments = find_payments(request.headers.items())
        if not payments:
            answer = super().send(request, *args, **kwargs)
            return self._sign_in(request, answer, *args, **kwargs) or answer
        attempt = self.guard.check_leaving(CURRENT.get(), request.url or "", payments)
        try:
            answer = super().send(request, *args, **kwargs)
        except BaseException as error:
            self.guard.record_silence(attempt, error)
            raise
        return self._watch(attempt, answer, is_conditional=has_conditions(request.headers))

    def _sign_in(
        self,
        request: requests.PreparedRequest,
        required: requests.Response,
        *args: Any,
        **kwargs: Any,
    ) -> requests.Response | None:
        """Ask for the answer to an earlier payment; None if the seller does not give it."""
        attempt = CURRENT.get()
        if attempt is None or required.status_code != requests.codes.payment_required:
            return None
        found = find_sign_in(self.guard, attempt, required.headers.get("payment-required"))
        if found is None:
            return None
        payment, header = found
        again = request.copy()
        again.headers[SIGN_IN] = header
        try:
            answer = HTTPAdapter.send(self, again, *args, **kwargs)
        except requests.RequestException:
            return None  # the purchase continues without signing in
        if answer.status_code // 100 != 2:
            answer.close()
            return None
        required.close()
        attempt.payment, attempt.handle = payment.id, payment.handle
        return self._watch(attempt, answer)

    def follow(
        self, request: requests.PreparedRequest, paid: Attempt, **kwargs: Any
    ) -> requests.Response:
        """Follow the redirect that answered a payment, without it: its answer is the payment's."""
        if find_payments(request.headers.items()):
            raise self.guard.refusal(None, "A payment was about to follow a redirect.")
        answer = HTTPAdapter.send(self, request, **kwargs)
        return answer if is_redirect(answer.status_code) else self._watch(paid, answer)

    def _watch(
        self, attempt: Attempt, answer: requests.Response, *, is_conditional: bool = False
    ) -> requests.Response:
        """Record the outcome of a payment when the body of the answer is complete."""
        setattr(answer, HANDLE, attempt.handle)
        read = read_answer(answer.status_code, answer.headers.get)
        event = classify_answer(read, is_conditional=is_conditional)
        if event is Event.ERROR_ANSWER:
            self.guard.record_answer(attempt, read, event)
            return answer
        self.guard.mark_sent(attempt)
        if self.guard.is_answer is None:
            _watch_body(answer.raw, lambda event: self.guard.record_answer(attempt, read, event))
            return answer
        return self._judge(attempt, answer, read)

    def _judge(
        self, attempt: Attempt, answer: requests.Response, read: Answer
    ) -> requests.Response:
        """Read the whole body, and let the owner judge it."""
        try:
            body = answer.content
        except BaseException:
            self.guard.record_answer(attempt, read, Event.CUT)
            raise
        event = Event.ANSWER
        if self.guard.is_answer is not None:
            event = judge_answer(self.guard.is_answer, answer.status_code, answer.headers, body)
        self.guard.record_answer(attempt, read, event)
        return answer


def _watch_body(raw: Any, conclude: Callable[[Event], None]) -> None:
    """Let the body of urllib3's response report whether all of it came."""
    stream, close, has_ended = raw.stream, raw.close, threading.Event()

    def end(event: Event) -> None:
        if not has_ended.is_set():
            has_ended.set()
            conclude(event)

    def stream_watched(*args: Any, **kwargs: Any) -> Iterator[bytes]:
        try:
            yield from stream(*args, **kwargs)
        except BaseException:
            end(Event.CUT)
            raise
        end(Event.ANSWER)

    def close_watched() -> None:
        end(Event.CUT)
        close()

    raw.stream, raw.close = stream_watched, close_watched


class GuardedAdapter(x402HTTPAdapter, _RequestsGate):
    """An adapter that pays, guarded. `options` are those of requests' `HTTPAdapter`."""

    def __init__(self, guard: Guard, client: x402ClientSync, **options: Any) -> None:
        self._payer = GuardedHTTPClientSync(guard, client)
        super().__init__(self._payer, **options)
        self.guard = guard

    def send(
        self, request: requests.PreparedRequest, *args: Any, **kwargs: Any
    ) -> requests.Response:
        """Send a request, and pay for it if payment is requested and allowed.

        Redirects of the call after a payment are followed without it.

        Raises:
            RequestsPaymentRefusedError: the guard refuses.
            RequestsPaymentUnresolved: an earlier payment of the same purchase has no answer.
            PaymentError: the SDK fails.
            requests.RequestException: the request failed; its `tollgauge_payment` names the
                payment.
        """
        url, method, call = request.url or "", request.method or "", CALL.get()
        body = _body(request)
        headers = {name: str(value) for name, value in request.headers.items()}
        attempt = start_attempt(self._payer, call, method, url, headers, body)
        drop_credentials(attempt.hops, attempt.url, request.headers)
        if call is not None and call.redirected is not None:
            return self.follow(request, call.redirected, **kwargs)
        with set_current(attempt):
            try:
                return super().send(request, *args, **kwargs)
            except (PaymentError, PaymentRefusedError) as error:
                if attempt.stage is Stage.CONCLUDED:
                    self.guard.record_silence(attempt)  # a hook may have lost the answer
                if isinstance(error.__cause__, requests.RequestException):
                    raise error.__cause__ from None
                if attempt.refusal is None:
                    raise
                raise _to_error(attempt.refusal) from error
            finally:
                self.guard.give_up(attempt)


def _to_error(refusal: Refuse) -> PaymentRefusedError:
    if isinstance(refusal, Unresolved):
        return RequestsPaymentUnresolved(refusal)
    return RequestsPaymentRefusedError(refusal)


def _body(request: requests.PreparedRequest) -> bytes:
    """Return the body of a request. A stream is read here, because it is sent twice."""
    body: Any = request.body
    if body is None or isinstance(body, bytes):
        return body or b""
    if isinstance(body, str):
        return body.encode()
    request.body = bytes(body.read()) if hasattr(body, "read") else b"".join(body)
    request.headers.pop("Transfer-Encoding", None)
    request.prepare_content_length(request.body)
    return request.body
