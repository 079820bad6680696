"""The SDK's HTTP clients, synchronous and asynchronous, with a guard."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from x402 import x402Client, x402ClientSync
from x402.http.x402_http_client import x402HTTPClient, x402HTTPClientSync
from x402.http.x402_http_client_base import ProcessPaymentResult
from x402.schemas import (
    AbortResult,
    PaymentAbortedError,
    PaymentCreationContext,
    PaymentRequiredContext,
)

from tollgauge_guard.decision import Allow, Ask, Decision
from tollgauge_guard.guard import Guard
from tollgauge_guard.hooks import Hooks, Required, ask_queue, ask_service, current
from tollgauge_guard.payment import Payment
from tollgauge_guard.purchase import AskOwner, Judge, ReadChain, Sleep, Steps
from tollgauge_guard.receipt import read_answer
from tollgauge_guard.request import CURRENT, Attempt, apart
from tollgauge_guard.signed import Payload


class GuardedHTTPClient(x402HTTPClient):
    """The SDK's asynchronous HTTP client, with a guard.

    Its x402Client gets the guard's hooks; register your own before.
    """

    def __init__(self, guard: Guard, client: x402Client) -> None:
        super().__init__(client)
        self.hooks = Hooks(guard, client)
        self.on_payment_required(self._see_url)
        client.on_before_payment_creation(self._before)
        client.on_after_payment_creation(self.hooks.after)
        client.on_payment_creation_failure(self.hooks.failed)

    async def create_payment_payload(self, payment_required: Required) -> Payload:
        """Return a payload that may leave. Raises PaymentRefusedError, or what the SDK raises."""
        attempt = current()
        with self.hooks.tracing(attempt):
            return await self._create(attempt, payment_required)

    async def _create(self, attempt: Attempt, payment_required: Required) -> Payload:
        guard = self.hooks.guard
        try:
            await self._load_bundle(attempt)
            await asyncio.to_thread(self.hooks.check_offers, attempt, payment_required)
            while True:
                required, steps = self.hooks.begin(attempt, payment_required)
                if kept := await self._run(attempt, steps):
                    return guard.keep(attempt, kept)
                try:
                    payload = await super().create_payment_payload(required)
                except PaymentAbortedError:
                    if not attempt.is_behind:
                        raise
                    continue  # an identical call was faster: look at its payment
                guard.seal(attempt, payload)
                return payload
        except Exception as error:  # whatever fails is recorded and raised
            guard.give_up(attempt)
            raised = self.hooks.explain(attempt, error)
            if raised is error:
                raise
            raise raised from error
        except BaseException:
            guard.give_up(attempt)
            raise
        finally:
            self.hooks.leave(attempt)

    async def process_payment_result(
        self, payment_payload: Payload, get_header: Callable[[str], str | None], status: int
    ) -> ProcessPaymentResult:
        """Run the hooks of the answer. One that has recovered does not get a second payment."""
        if not _is_by_transport():
            self.hooks.guard.note_answer(payment_payload, read_answer(status, get_header))
        result = await super().process_payment_result(payment_payload, get_header, status)
        return replace(result, recovered=False)

    async def _load_bundle(self, attempt: Attempt) -> None:
        bundles = self.hooks.guard.bundles
        is_ready = bundles.is_ready()
        attempt.bundle = bundles.current() if is_ready else await asyncio.to_thread(bundles.current)

    async def _run(self, attempt: Attempt, steps: Steps) -> Payment | None:
        guard = self.hooks.guard
        answer: Any = None
        try:
            while True:
                command = steps.send(answer)
                answer = None
                match command:
                    case Sleep(seconds=seconds):
                        await asyncio.sleep(seconds)
                    case ReadChain(payment=payment):
                        answer = await asyncio.to_thread(guard.nodes.read, payment)
                    case Judge(offer=offer, payment=payment):
                        decision = guard.judge(attempt, offer, payment.payer, payment)
                        answer = await self._approve(attempt, decision)
                    case AskOwner(question=question):
                        answer = isinstance(await self._approve(attempt, question), Allow)
        except StopIteration as end:
            kept: Payment | None = end.value
            return kept

    async def _before(self, context: PaymentCreationContext) -> AbortResult | None:
        attempt = current()
        if not self.hooks.is_judged_here(attempt):
            return None
        decision = await self._approve(attempt, self.hooks.before(attempt, context))
        return self.hooks.conclude(attempt, decision)

    async def _approve(self, attempt: Attempt, decision: Decision) -> Decision:
        """Ask the approver, if there is one and something to ask."""
        guard = self.hooks.guard
        if isinstance(decision, Ask):
            decision = await asyncio.to_thread(ask_service, guard, attempt, decision)
        if not isinstance(decision, Ask):
            return decision
        if guard.ask is None:
            return ask_queue(guard, attempt, decision)
        with apart():
            answer = guard.ask(decision, attempt.url)
            answer = await answer if inspect.isawaitable(answer) else answer
        return Allow(decision.terms) if answer is True else decision

    def _see_url(self, context: PaymentRequiredContext) -> None:
        self.hooks.see_url(self, context.request_url)


class GuardedHTTPClientSync(x402HTTPClientSync):
    """The SDK's synchronous HTTP client, with a guard."""

    def __init__(self, guard: Guard, client: x402ClientSync) -> None:
        super().__init__(client)
        self.hooks = Hooks(guard, client)
        self.on_payment_required(self._see_url)
        client.on_before_payment_creation(self._before)
        client.on_after_payment_creation(self.hooks.after)
        client.on_payment_creation_failure(self.hooks.failed)

    def create_payment_payload(self, payment_required: Required) -> Payload:
        """Return a payload that may leave. Raises PaymentRefusedError, or what the SDK raises."""
        attempt = current()
        with self.hooks.tracing(attempt):
            return self._create(attempt, payment_required)

    def _create(self, attempt: Attempt, payment_required: Required) -> Payload:
        guard = self.hooks.guard
        try:
            attempt.bundle = guard.bundles.current()
            self.hooks.check_offers(attempt, payment_required)
            while True:
                required, steps = self.hooks.begin(attempt, payment_required)
                if kept := self._run(attempt, steps):
                    return guard.keep(attempt, kept)
                try:
                    payload = super().create_payment_payload(required)
                except PaymentAbortedError:
                    if not attempt.is_behind:
                        raise
                    continue  # an identical call was faster: look at its payment
                guard.seal(attempt, payload)
                return payload
        except Exception as error:  # whatever fails is recorded and raised
            guard.give_up(attempt)
            raised = self.hooks.explain(attempt, error)
            if raised is error:
                raise
            raise raised from error
        except BaseException:
            guard.give_up(attempt)
            raise
        finally:
            self.hooks.leave(attempt)

    def process_payment_result(
        self, payment_payload: Payload, get_header: Callable[[str], str | None], status: int
    ) -> ProcessPaymentResult:
        """Run the hooks of the answer. One that has recovered does not get a second payment."""
        if not _is_by_transport():
            self.hooks.guard.note_answer(payment_payload, read_answer(status, get_header))
        result = super().process_payment_result(payment_payload, get_header, status)
        return replace(result, recovered=False)

    def _run(self, attempt: Attempt, steps: Steps) -> Payment | None:
        guard = self.hooks.guard
        answer: Any = None
        try:
            while True:
                command = steps.send(answer)
                answer = None
                match command:
                    case Sleep(seconds=seconds):
                        time.sleep(seconds)
                    case ReadChain(payment=payment):
                        answer = guard.nodes.read(payment)
                    case Judge(offer=offer, payment=payment):
                        decision = guard.judge(attempt, offer, payment.payer, payment)
                        answer = self._approve(attempt, decision)
                    case AskOwner(question=question):
                        answer = isinstance(self._approve(attempt, question), Allow)
        except StopIteration as end:
            kept: Payment | None = end.value
            return kept

    def _before(self, context: PaymentCreationContext) -> AbortResult | None:
        attempt = current()
        if not self.hooks.is_judged_here(attempt):
            return None
        decision = self._approve(attempt, self.hooks.before(attempt, context))
        return self.hooks.conclude(attempt, decision)

    def _approve(self, attempt: Attempt, decision: Decision) -> Decision:
        """Ask the approver, if there is one and something to ask."""
        guard = self.hooks.guard
        if isinstance(decision, Ask):
            decision = ask_service(guard, attempt, decision)
        if not isinstance(decision, Ask):
            return decision
        if guard.ask is None:
            return ask_queue(guard, attempt, decision)
        with apart():
            answer = guard.ask(decision, attempt.url)
        if inspect.iscoroutine(answer):
            answer.close()
        return Allow(decision.terms) if answer is True else decision

    def _see_url(self, context: PaymentRequiredContext) -> None:
        self.hooks.see_url(self, context.request_url)


def _is_by_transport() -> bool:
    """Whether a transport of the guard sends the payment, and records its answer."""
    attempt = CURRENT.get()
    return attempt is not None and attempt.is_of_transport
