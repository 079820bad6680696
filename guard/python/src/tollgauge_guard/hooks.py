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
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

from pydantic import BaseModel
from x402 import x402Client, x402ClientSync
from x402.http.x402_http_client import x402HTTPClient, x402HTTPClientSync
from x402.http.x402_http_client_base import ProcessPaymentResult
from x402.schemas import (
    AbortResult,
    PaymentAbortedError,
    PaymentCreatedContext,
    PaymentCreationContext,
    PaymentCreationFailureContext,
    PaymentRequired,
    PaymentRequiredContext,
)
from x402.schemas.v1 import PaymentRequiredV1

from tollgauge_guard.chain import Fate, find_fate
from tollgauge_guard.decision import Allow, Ask, Code, Decision, Refuse
from tollgauge_guard.entry import Entry
from tollgauge_guard.guard import Guard, Payload
from tollgauge_guard.offer import Offer, Terms, read_offer
from tollgauge_guard.purchase import AskChain, Judge, Sleep, Steps, find_kept
from tollgauge_guard.receipt import read_answer
from tollgauge_guard.request import (
    CURRENT,
    Attempt,
    PaymentRefusedError,
    apart,
    request_digest,
)
from tollgauge_guard.wallets import AnyClient, payer_of, payers_of

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
        guard.clients.append(client)
        self.on_payment_required(self._see_url)
        client.on_before_payment_creation(self._before)
        client.on_after_payment_creation(self._after)
        client.on_payment_creation_failure(self._failed)

    async def create_payment_payload(self, payment_required: Required) -> Payload:
        """A payload that may leave. Raises PaymentRefusedError, or what the SDK raises."""
        attempt = _current()
        try:
            while True:
                self._guard.begin(attempt)
                attempt.payers = payers_of(self.payer)
                if kept := await self._find_kept(attempt, payment_required):
                    return self._guard.keep(attempt, *kept)
                try:
                    payload = await super().create_payment_payload(payment_required)
                except PaymentAbortedError:
                    if not attempt.is_behind:
                        raise
                    attempt.refusal = None  # an identical call was faster: see what came of it
                    continue
                self._guard.seal(attempt, payload)
                return payload
        except BaseException:
            self._guard.give_up(attempt)
            raise
        finally:
            self._guard.leave(attempt)
            _leave(attempt)

    async def process_payment_result(
        self, payment_payload: Payload, get_header: Callable[[str], str | None], status: int
    ) -> ProcessPaymentResult:
        """Run the hooks of the answer. One that has recovered does not get a second payment."""
        if not _is_by_transport():
            self._guard.note_answer(payment_payload, read_answer(status, get_header))
        result = await super().process_payment_result(payment_payload, get_header, status)
        return replace(result, recovered=False)

    async def _find_kept(self, attempt: Attempt, required: Required) -> tuple[int, str] | None:
        steps = _steps(self._guard, attempt, required)
        answer: Fate | Decision | None = None
        try:
            while True:
                match steps.send(answer):
                    case Sleep(seconds=seconds):
                        answer = None
                        await asyncio.sleep(seconds)
                    case AskChain(node=node, entry=entry):
                        answer = await asyncio.to_thread(find_fate, node, entry)
                    case Judge(offer=offer, entry=entry):
                        answer = await self._decide(attempt, offer, again=entry)
        except StopIteration as end:
            kept: tuple[int, str] | None = end.value
            return kept

    async def _before(self, context: PaymentCreationContext) -> AbortResult | None:
        attempt = _current()
        if not _is_judged_by(self, attempt):
            return None
        attempt.payer = _payer(self.payer, context)
        decision = await self._decide(attempt, offer_of(attempt, context))
        return _conclude(self._guard, attempt, decision)

    async def _decide(self, attempt: Attempt, offer: Offer, again: Entry | None = None) -> Decision:
        """Decide about an offer, and ask whoever is to be asked."""
        bundles = self._guard.bundles
        is_ready = bundles.is_ready()
        bundle = bundles.current() if is_ready else await asyncio.to_thread(bundles.current)
        decision = self._guard.judge(attempt, offer, bundle, again=again)
        if isinstance(decision, Ask) and self._guard.ask is not None:
            with apart():
                answer = self._guard.ask(decision, attempt.url)
                answer = await answer if inspect.isawaitable(answer) else answer
            decision = agreed(decision, answer)
        return decision

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
        guard.clients.append(client)
        self.on_payment_required(self._see_url)
        client.on_before_payment_creation(self._before)
        client.on_after_payment_creation(self._after)
        client.on_payment_creation_failure(self._failed)

    def create_payment_payload(self, payment_required: Required) -> Payload:
        """A payload that may leave. Raises PaymentRefusedError, or what the SDK raises."""
        attempt = _current()
        try:
            while True:
                self._guard.begin(attempt)
                attempt.payers = payers_of(self.payer)
                if kept := self._find_kept(attempt, payment_required):
                    return self._guard.keep(attempt, *kept)
                try:
                    payload = super().create_payment_payload(payment_required)
                except PaymentAbortedError:
                    if not attempt.is_behind:
                        raise
                    attempt.refusal = None  # an identical call was faster: see what came of it
                    continue
                self._guard.seal(attempt, payload)
                return payload
        except BaseException:
            self._guard.give_up(attempt)
            raise
        finally:
            self._guard.leave(attempt)
            _leave(attempt)

    def process_payment_result(
        self, payment_payload: Payload, get_header: Callable[[str], str | None], status: int
    ) -> ProcessPaymentResult:
        """Run the hooks of the answer. One that has recovered does not get a second payment."""
        if not _is_by_transport():
            self._guard.note_answer(payment_payload, read_answer(status, get_header))
        result = super().process_payment_result(payment_payload, get_header, status)
        return replace(result, recovered=False)

    def _find_kept(self, attempt: Attempt, required: Required) -> tuple[int, str] | None:
        steps = _steps(self._guard, attempt, required)
        answer: Fate | Decision | None = None
        try:
            while True:
                match steps.send(answer):
                    case Sleep(seconds=seconds):
                        answer = None
                        time.sleep(seconds)
                    case AskChain(node=node, entry=entry):
                        answer = find_fate(node, entry)
                    case Judge(offer=offer, entry=entry):
                        answer = self._decide(attempt, offer, again=entry)
        except StopIteration as end:
            kept: tuple[int, str] | None = end.value
            return kept

    def _before(self, context: PaymentCreationContext) -> AbortResult | None:
        attempt = _current()
        if not _is_judged_by(self, attempt):
            return None
        attempt.payer = _payer(self.payer, context)
        return _conclude(self._guard, attempt, self._decide(attempt, offer_of(attempt, context)))

    def _decide(self, attempt: Attempt, offer: Offer, again: Entry | None = None) -> Decision:
        """Decide about an offer, and ask whoever is to be asked."""
        bundle = self._guard.bundles.current()
        decision = self._guard.judge(attempt, offer, bundle, again=again)
        if isinstance(decision, Ask) and self._guard.ask is not None:
            with apart():
                answer = self._guard.ask(decision, attempt.url)
            if inspect.iscoroutine(answer):
                answer.close()
            decision = agreed(decision, answer)
        return decision

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


def _steps(guard: Guard, attempt: Attempt, required: Required) -> Steps:
    offers = [named_as_asked(offer, attempt) for offer in offers_of(required)]
    return find_kept(guard.journal, guard.nodes, guard.clock, attempt, offers)


def _payer(client: AnyClient, context: PaymentCreationContext) -> str:
    """Who would sign the selected offer, empty where the client does not show it."""
    selected, version = context.selected_requirements, context.payment_required.x402_version
    return payer_of(client, version, str(selected.network), str(selected.scheme)) or ""


def _is_by_transport() -> bool:
    """Whether a transport of the guard sends the payment, and writes its answer down."""
    attempt = CURRENT.get()
    return attempt is not None and attempt.is_of_transport


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
