"""Hooks: how a guard stands inside the official x402 client (Python SDK 2.25).

The SDK selects an offer, runs the hooks before signing, signs, runs the hooks after signing, lets
its extensions enrich the payload, and sends it. A later hook may change the offer in place, a hook
of a failure may bring a payload of its own, and an extension may change the payload. So the guard
decides before signing, compares after signing, and compares once more in `create_payment_payload`,
through which every transport of the SDK gets its payload.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from pydantic import BaseModel
from x402 import x402Client, x402ClientSync
from x402.http.x402_http_client import x402HTTPClient, x402HTTPClientSync
from x402.schemas import (
    AbortResult,
    PaymentCreatedContext,
    PaymentCreationContext,
    PaymentCreationFailureContext,
    PaymentRequired,
    PaymentRequiredContext,
)
from x402.schemas.v1 import PaymentRequiredV1

from tollgauge_guard.decision import Allow, Ask, Code, Decision, Refuse
from tollgauge_guard.guard import Guard, Payload
from tollgauge_guard.offer import Offer, Terms, read_offer
from tollgauge_guard.request import (
    CURRENT,
    Attempt,
    PaymentRefusedError,
    apart,
    request_digest,
)

Required = PaymentRequired | PaymentRequiredV1
_BLIND: Final = Refuse(
    Code.RESOURCE_MISMATCH,
    "The guard cannot see which URL is being paid. Pay through the client that it returned.",
)


class GuardedHTTPClient(x402HTTPClient):
    """The SDK's asynchronous HTTP client, with a guard. Its x402Client gets the guard's hooks, so
    register your own before.
    """

    def __init__(self, guard: Guard, client: x402Client) -> None:
        super().__init__(client)
        self._guard, self.payer = guard, client
        self.on_payment_required(self._see_url)
        client.on_before_payment_creation(self._before)
        client.on_after_payment_creation(self._after)
        client.on_payment_creation_failure(self._failed)

    async def create_payment_payload(self, payment_required: Required) -> Payload:
        """A payload that may leave. Raises PaymentRefusedError, or what the SDK raises."""
        attempt = _current()
        try:
            if kept := self._guard.kept_payment(attempt, offers_of(payment_required)):
                return kept
            payload = await super().create_payment_payload(payment_required)
            self._guard.seal(attempt, payload)
        except BaseException:
            self._guard.give_up(attempt)
            raise
        finally:
            _leave(attempt)
        return payload

    async def _before(self, context: PaymentCreationContext) -> AbortResult | None:
        attempt = _current()
        if not _is_judged_by(self, attempt):
            return None
        bundles = self._guard.bundles
        is_ready = bundles.is_ready()
        bundle = bundles.current() if is_ready else await asyncio.to_thread(bundles.current)
        decision = self._guard.judge(attempt, offer_of(attempt, context), bundle)
        if isinstance(decision, Ask) and self._guard.ask is not None:
            with apart():
                answer = self._guard.ask(decision, attempt.url)
                answer = await answer if inspect.isawaitable(answer) else answer
            decision = agreed(decision, answer)
        return _conclude(self._guard, attempt, decision)

    def _after(self, context: PaymentCreatedContext) -> None:
        if _is_judged_by(self, attempt := _current()):
            self._guard.check_signed(attempt, context.payment_payload)

    def _failed(self, _context: PaymentCreationFailureContext) -> None:
        if _is_judged_by(self, attempt := _current()):
            self._guard.give_up(attempt)

    def _see_url(self, context: PaymentRequiredContext) -> None:
        _see_url(self, context.request_url)


class GuardedHTTPClientSync(x402HTTPClientSync):
    """The SDK's synchronous HTTP client, with a guard."""

    def __init__(self, guard: Guard, client: x402ClientSync) -> None:
        super().__init__(client)
        self._guard, self.payer = guard, client
        self.on_payment_required(self._see_url)
        client.on_before_payment_creation(self._before)
        client.on_after_payment_creation(self._after)
        client.on_payment_creation_failure(self._failed)

    def create_payment_payload(self, payment_required: Required) -> Payload:
        """A payload that may leave. Raises PaymentRefusedError, or what the SDK raises."""
        attempt = _current()
        try:
            if kept := self._guard.kept_payment(attempt, offers_of(payment_required)):
                return kept
            payload = super().create_payment_payload(payment_required)
            self._guard.seal(attempt, payload)
        except BaseException:
            self._guard.give_up(attempt)
            raise
        finally:
            _leave(attempt)
        return payload

    def _before(self, context: PaymentCreationContext) -> AbortResult | None:
        attempt = _current()
        if not _is_judged_by(self, attempt):
            return None
        bundle = self._guard.bundles.current()
        decision = self._guard.judge(attempt, offer_of(attempt, context), bundle)
        if isinstance(decision, Ask) and self._guard.ask is not None:
            with apart():
                answer = self._guard.ask(decision, attempt.url)
            if inspect.iscoroutine(answer):
                answer.close()
            decision = agreed(decision, answer)
        return _conclude(self._guard, attempt, decision)

    def _after(self, context: PaymentCreatedContext) -> None:
        if _is_judged_by(self, attempt := _current()):
            self._guard.check_signed(attempt, context.payment_payload)

    def _failed(self, _context: PaymentCreationFailureContext) -> None:
        if _is_judged_by(self, attempt := _current()):
            self._guard.give_up(attempt)

    def _see_url(self, context: PaymentRequiredContext) -> None:
        _see_url(self, context.request_url)


def offers_of(required: Required) -> Iterator[Offer]:
    """The entries of a 402."""
    return (_read(entry, required) for entry in required.accepts)


def offer_of(attempt: Attempt, context: PaymentCreationContext) -> Offer:
    """The offer that the SDK selected."""
    return named_as_asked(_read(context.selected_requirements, context.payment_required), attempt)


def named_as_asked(offer: Offer, attempt: Attempt) -> Offer:
    """An offer whose 402 calls the request by its alias, with the URL that was asked instead."""
    is_alias = attempt.alias is not None and offer.resource_url == attempt.alias
    return replace(offer, resource_url=attempt.url) if is_alias else offer


def _read(entry: BaseModel, required: Required) -> Offer:
    resource = None if isinstance(required, PaymentRequiredV1) else required.resource
    url = None if resource is None else resource.url
    return read_offer(entry.model_dump(by_alias=True), url, required.x402_version)


def agreed(question: Ask, answer: object) -> Decision:
    """What an answer to a question decides: only True lets pay."""
    return Allow(question.terms) if answer is True else Refuse(question.code, question.reason)


def _see_url(owner: object, url: str) -> None:
    """Remember which URL answered 402. It must be the one that the transport asked."""
    attempt = CURRENT.get()
    if attempt is None or not attempt.is_of_transport:
        digest = request_digest("", url, b"")
        CURRENT.set(Attempt(owner=owner, url=url, digest=digest, is_of_transport=False))
    elif attempt.url != url:
        attempt.url = ""


def _current() -> Attempt:
    """The request that is being paid. Raises PaymentRefusedError where nobody knows it."""
    attempt = CURRENT.get()
    if attempt is None:
        raise PaymentRefusedError(_BLIND)
    return attempt


def _is_judged_by(client: GuardedHTTPClient | GuardedHTTPClientSync, attempt: Attempt) -> bool:
    """Whether this client pays the current request; where it does not, another guard of the same
    x402 client judges it. Raises PaymentRefusedError where an x402 client pays in the middle of the
    request of another one: nobody would judge that.
    """
    owner = attempt.owner
    kinds = (GuardedHTTPClient, GuardedHTTPClientSync)
    if not isinstance(owner, kinds) or owner.payer is not client.payer:
        raise PaymentRefusedError(_BLIND)
    return owner is client


def _leave(attempt: Attempt) -> None:
    """Forget a URL that a hook saw: the next payment of this task is for another request."""
    if not attempt.is_of_transport:
        CURRENT.set(None)


def _conclude(guard: Guard, attempt: Attempt, decision: Decision) -> AbortResult | None:
    """Reserve what is allowed; abort otherwise."""
    refusal = _refusal(guard, attempt, decision)
    if refusal is None:
        return None
    attempt.refusal = refusal
    return AbortResult(f"{refusal.code}: {refusal.reason}")


def _refusal(guard: Guard, attempt: Attempt, decision: Decision) -> Refuse | None:
    match decision:
        case Allow(terms=Terms() as terms):
            return guard.reserve(attempt, terms)
        case Ask(code=code, reason=reason):
            return Refuse(code, f"{reason} Nobody was asked.")
        case Refuse():
            return decision
