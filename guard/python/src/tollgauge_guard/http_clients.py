"""The SDK's HTTP clients, synchronous and asynchronous, with a guard.

The steps of a payment are written once, as coroutines. In the synchronous client they wait by
blocking, so they run to their end without an event loop (`run_blocking`).
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, Protocol, TypeVar

from x402 import x402Client, x402ClientSync
from x402.http.x402_http_client import x402HTTPClient, x402HTTPClientSync
from x402.http.x402_http_client_base import ProcessPaymentResult
from x402.schemas import (
    AbortResult,
    PaymentAbortedError,
    PaymentCreationContext,
    PaymentRequiredContext,
)

from tollgauge_guard.authorization import Payload
from tollgauge_guard.decision import Allow, Ask, Decision
from tollgauge_guard.guard import Guard
from tollgauge_guard.hooks import (
    Hooks,
    Required,
    ask_queue,
    ask_service,
    current,
    has_signed_offers,
)
from tollgauge_guard.nodes import Reading
from tollgauge_guard.offer import Offer
from tollgauge_guard.payment import Payment
from tollgauge_guard.purchase import run_blocking
from tollgauge_guard.receipt import read_answer
from tollgauge_guard.request import CURRENT, Attempt, outside_call
from tollgauge_guard.wallets import AnyClient

_T = TypeVar("_T")
GetHeader = Callable[[str], str | None]
Consent = bool | Awaitable[bool]


class _Waiting(Protocol):
    """How a client waits."""

    async def sleep(self, seconds: float) -> None: ...
    async def call(self, function: Callable[..., _T], *arguments: object) -> _T: ...
    async def answer(self, given: Consent) -> bool: ...


class _Suspending:
    """Waits in an event loop."""

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def call(self, function: Callable[..., _T], *arguments: object) -> _T:
        return await asyncio.to_thread(function, *arguments)

    async def answer(self, given: Consent) -> bool:
        return (await given if inspect.isawaitable(given) else given) is True


class _Blocking:
    """Waits by blocking the thread."""

    async def sleep(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251  # no event loop runs it

    async def call(self, function: Callable[..., _T], *arguments: object) -> _T:
        return function(*arguments)

    async def answer(self, given: Consent) -> bool:
        if inspect.iscoroutine(given):
            given.close()
        return given is True


class _Steps:
    """The steps of a payment, for both clients."""

    def __init__(self, guard: Guard, client: AnyClient, waiting: _Waiting) -> None:
        self.hooks, self._waiting = Hooks(guard, client), waiting

    async def create(
        self, payment_required: Required, sign: Callable[[Required], Awaitable[Payload]]
    ) -> Payload:
        attempt = current()
        with self.hooks.trace(attempt):
            try:
                return await self._create(attempt, payment_required, sign)
            except BaseException as error:
                self.hooks.guard.give_up(attempt)
                if not isinstance(error, Exception):
                    raise
                raised = self.hooks.explain(attempt, error)  # whatever fails is recorded
                if raised is error:
                    raise
                raise raised from error
            finally:
                self.hooks.end(attempt)

    async def _create(
        self,
        attempt: Attempt,
        payment_required: Required,
        sign: Callable[[Required], Awaitable[Payload]],
    ) -> Payload:
        guard, bundles = self.hooks.guard, self.hooks.guard.bundles
        is_ready = bundles.is_ready()
        attempt.bundle = (
            bundles.current() if is_ready else await self._waiting.call(bundles.current)
        )
        if has_signed_offers(payment_required):
            await self._waiting.call(self.hooks.check_offers, attempt, payment_required)
        while True:
            required = self.hooks.begin(attempt, payment_required)
            if kept := await self.hooks.resolve_earlier(attempt, payment_required, self):
                return guard.resend(attempt, kept)
            try:
                payload = await sign(required)
            except PaymentAbortedError:
                if not attempt.is_behind:
                    raise
                continue  # an identical call was faster: look at its payment
            guard.seal(attempt, payload)
            return payload

    async def before(self, context: PaymentCreationContext) -> AbortResult | None:
        attempt = current()
        if not self.hooks.is_judged_here(attempt):
            return None
        decision = await self._approve(attempt, self.hooks.before(attempt, context))
        return self.hooks.conclude(attempt, decision)

    async def sleep(self, seconds: float) -> None:
        await self._waiting.sleep(seconds)

    async def read_chain(self, payment: Payment) -> Reading:
        return await self._waiting.call(self.hooks.guard.nodes.read, payment)

    async def judge_again(self, offer: Offer, payment: Payment) -> Decision:
        attempt = current()
        decision = self.hooks.guard.judge(attempt, offer, payment.payer, payment)
        return await self._approve(attempt, decision)

    async def ask_again(self, question: Ask) -> bool:
        return isinstance(await self._approve(current(), question), Allow)

    async def _approve(self, attempt: Attempt, decision: Decision) -> Decision:
        """Ask the approver, if there is one and something to ask."""
        guard = self.hooks.guard
        if isinstance(decision, Ask):
            decision = await self._waiting.call(ask_service, guard, attempt, decision)
        if not isinstance(decision, Ask):
            return decision
        if guard.ask is None:
            return ask_queue(guard, attempt, decision)
        with outside_call():
            is_allowed = await self._waiting.answer(guard.ask(decision, attempt.url))
        return Allow(decision.terms) if is_allowed else decision

    def note_answer(self, payload: Payload, get_header: GetHeader, status: int) -> None:
        """Record an answer, unless a transport of the guard sends the payment and records it."""
        attempt = CURRENT.get()
        if attempt is None or not attempt.is_of_transport:
            self.hooks.guard.note_answer(payload, read_answer(status, get_header))

    def add_hooks(self, client: Any, before: Callable[[PaymentCreationContext], Any]) -> None:
        client.on_before_payment_creation(before)
        client.on_after_payment_creation(self.hooks.after)
        client.on_payment_creation_failure(self.hooks.release)


class GuardedHTTPClient(x402HTTPClient):
    """The SDK's asynchronous HTTP client, with a guard.

    Its x402Client gets the guard's hooks; register your own before.
    """

    def __init__(self, guard: Guard, client: x402Client) -> None:
        super().__init__(client)
        self._steps = _Steps(guard, client, _Suspending())
        self.hooks = self._steps.hooks
        self.on_payment_required(self._see_url)
        self._steps.add_hooks(client, self._steps.before)

    async def create_payment_payload(self, payment_required: Required) -> Payload:
        """Return a checked payload. Raises PaymentRefusedError and the errors of the SDK."""
        return await self._steps.create(payment_required, super().create_payment_payload)

    async def process_payment_result(
        self, payment_payload: Payload, get_header: GetHeader, status: int
    ) -> ProcessPaymentResult:
        """Run the hooks of the answer. One that has recovered does not get a second payment."""
        self._steps.note_answer(payment_payload, get_header, status)
        result = await super().process_payment_result(payment_payload, get_header, status)
        return replace(result, recovered=False)

    def _see_url(self, context: PaymentRequiredContext) -> None:
        self.hooks.see_url(self, context.request_url)


class GuardedHTTPClientSync(x402HTTPClientSync):
    """The SDK's synchronous HTTP client, with a guard."""

    def __init__(self, guard: Guard, client: x402ClientSync) -> None:
        super().__init__(client)
        self._steps = _Steps(guard, client, _Blocking())
        self.hooks = self._steps.hooks
        self.on_payment_required(self._see_url)
        self._steps.add_hooks(client, lambda context: run_blocking(self._steps.before(context)))

    def create_payment_payload(self, payment_required: Required) -> Payload:
        """Return a checked payload. Raises PaymentRefusedError and the errors of the SDK."""
        create = super().create_payment_payload

        async def sign(required: Required) -> Payload:
            return create(required)

        return run_blocking(self._steps.create(payment_required, sign))

    def process_payment_result(
        self, payment_payload: Payload, get_header: GetHeader, status: int
    ) -> ProcessPaymentResult:
        """Run the hooks of the answer. One that has recovered does not get a second payment."""
        self._steps.note_answer(payment_payload, get_header, status)
        result = super().process_payment_result(payment_payload, get_header, status)
        return replace(result, recovered=False)

    def _see_url(self, context: PaymentRequiredContext) -> None:
        self.hooks.see_url(self, context.request_url)
