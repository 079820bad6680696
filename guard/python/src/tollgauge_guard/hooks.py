"""Hooks of the guard in the official x402 client (Python SDK 2.25).

The SDK selects an offer, runs the hooks before signing, signs, runs the hooks after signing, lets
its extensions enrich the payload, and sends it. A later hook may change the offer in place, a hook
of a failure may return another payload, and an extension may change the payload. So the guard
filters the offers in the selection, decides before signing, compares after signing, and compares
again in `create_payment_payload`, through which every transport of the SDK gets its payload.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeGuard

from pydantic import BaseModel
from x402.schemas import (
    AbortResult,
    PaymentAbortedError,
    PaymentCreatedContext,
    PaymentCreationContext,
    PaymentCreationFailureContext,
    PaymentRequired,
)
from x402.schemas.v1 import PaymentRequiredV1

from tollgauge_guard.codes import Code
from tollgauge_guard.decision import Allow, Ask, Decision, Refuse
from tollgauge_guard.guard import Guard
from tollgauge_guard.offer import Offer, Terms, read_offer, signing_extensions
from tollgauge_guard.payment import Payment
from tollgauge_guard.purchase import Caller, RefusedStepError, resolve_earlier
from tollgauge_guard.purchase_key import request_key
from tollgauge_guard.refusal import PaymentRefusedError, to_error
from tollgauge_guard.request import CURRENT, Attempt
from tollgauge_guard.resource import ResourceError
from tollgauge_guard.signed_offers import (
    EXTENSION,
    fetch_document,
    find_contradicted,
    needs_document,
    read_terms,
)
from tollgauge_guard.telemetry import describe_payment, payment_span
from tollgauge_guard.wallets import AnyClient, can_sign_for, find_payer, find_scheme, list_wallets

Required = PaymentRequired | PaymentRequiredV1
_ORDER: Final = list(Code)
_BLIND: Final = Refuse(
    Code.RESOURCE_MISMATCH,
    "The guard cannot see which URL is being paid.",
    remedy="Pay through the client that the guard returned.",
)


class Hooks:
    """The hooks that the synchronous and the asynchronous client share."""

    def __init__(self, guard: Guard, client: AnyClient) -> None:
        self.guard, self.payer = guard, client
        guard.clients.append(client)
        client.register_policy(self._filter)

    def is_judged_here(self, attempt: Attempt) -> bool:
        """Whether this client pays the current request; otherwise another guard of the same x402
        client judges it.

        Raises PaymentRefusedError if an x402 client pays in the middle of the request of another
        one, which no guard would judge.
        """
        owner = attempt.owner
        owner = getattr(owner, "hooks", owner)
        if not isinstance(owner, Hooks) or owner.payer is not self.payer:
            raise PaymentRefusedError(_BLIND)
        return owner is self

    def begin(self, attempt: Attempt, required: Required) -> Required:
        """Start to pay; returns the 402 to sign for."""
        self.guard.begin(attempt)
        attempt.wallets = list_wallets(self.payer)
        try:
            purchase = attempt.purchase(self.guard.session)
        except ResourceError:
            return required  # the decision explains it
        return self._with_payment_id(attempt, required, purchase.key, purchase.account)

    async def resolve_earlier(
        self, attempt: Attempt, required: Required, caller: Caller
    ) -> Payment | None:
        """Resolve the earlier payment of the same purchase; return it if it is sent again."""
        try:
            purchase = attempt.purchase(self.guard.session)
        except ResourceError:
            return None

        def read_offers() -> list[Offer]:
            return [self.read(attempt, entry, required) for entry in required.accepts]

        return await resolve_earlier(self.guard, caller, purchase, read_offers)

    def read(self, attempt: Attempt, entry: BaseModel, required: Required) -> Offer:
        """Read an entry of a 402, which may call the request by its alias."""
        resource = None if isinstance(required, PaymentRequiredV1) else required.resource
        url: object = None if resource is None else resource.url
        if attempt.alias is not None and url == attempt.alias:
            url = attempt.url
        version = required.x402_version
        scheme = self._scheme(entry, version)
        names = signing_extensions(getattr(required, "extensions", None))
        names = tuple(name for name in names if can_sign_for(scheme, name))
        fields = entry.model_dump(by_alias=True)
        is_contradicted = read_terms(fields) in attempt.contradicted
        return read_offer(fields, url, version, names, is_contradicted=is_contradicted)

    def check_offers(self, attempt: Attempt, required: PaymentRequired) -> None:
        """Note which entries of a 402 a signed offer of the seller contradicts.

        Blocks for at most three seconds.
        """
        extensions = required.extensions or {}
        accepts = [entry.model_dump(by_alias=True) for entry in required.accepts]
        url = attempt.url
        document = fetch_document(url) if needs_document(extensions, url) else None
        attempt.contradicted = find_contradicted(extensions, accepts, url, document)

    def judge(self, attempt: Attempt, offer: Offer, entry: object, version: int) -> Decision:
        """Decide about an offer that this client would sign."""
        payer = find_payer(self._scheme(entry, version)) or ""
        return self.guard.judge(attempt, offer, payer)

    def conclude(self, attempt: Attempt, decision: Decision) -> AbortResult | None:
        """Reserve an allowed payment; otherwise abort."""
        refusal: Refuse | None = None
        match decision:
            case Allow(terms=Terms() as terms):
                refusal = self.guard.reserve(attempt, terms)
            case Ask(code=code, reason=reason):
                refusal = Refuse(code, f"{reason} It was not approved.")
            case Refuse():
                refusal = decision
        if refusal is None:
            return None
        attempt.refusal = refusal
        return AbortResult(f"{refusal.code}: {refusal.reason}")

    def before(self, attempt: Attempt, context: PaymentCreationContext) -> Decision:
        """Decide about the offer that the SDK selected."""
        selected, required = context.selected_requirements, context.payment_required
        attempt.payer = find_payer(self._scheme(selected, required.x402_version)) or ""
        return self.guard.judge(attempt, self.read(attempt, selected, required), attempt.payer)

    def after(self, context: PaymentCreatedContext) -> None:
        """Compare the signed payment with the allowed one."""
        if self.is_judged_here(attempt := current()):
            declared = getattr(context.payment_required, "extensions", None)
            self.guard.check_signed(attempt, context.payment_payload, declared)

    def release(self, _context: PaymentCreationFailureContext) -> None:
        """Release the reservation."""
        if self.is_judged_here(attempt := current()):
            self.guard.give_up(attempt)

    def explain(self, attempt: Attempt, error: Exception) -> Exception:
        """Record why nothing was signed, and return the error for the caller."""
        if isinstance(error, RefusedStepError):
            attempt.refusal = error.refusal
        if (
            attempt.refusal is None
            and attempt.dropped
            and not isinstance(error, PaymentAbortedError)
        ):
            # The refusal of the offer that came furthest says most.
            attempt.refusal = max(attempt.dropped, key=lambda found: _ORDER.index(found.code))
        if attempt.refusal is not None:
            self.guard.record(attempt, attempt.refusal)
            return to_error(attempt.refusal) if _is_own(error, attempt) else error
        if not isinstance(error, PaymentRefusedError):
            self.guard.record(attempt, Refuse(Code.SDK_REFUSED, str(error)[:500]))
        return error

    @contextmanager
    def trace(self, attempt: Attempt) -> Iterator[None]:
        """Describe the payment of an attempt in a span."""
        try:
            host = attempt.resource.host
        except ResourceError:
            host = ""
        with payment_span(host) as span:
            try:
                yield
            finally:
                terms, refusal = attempt.terms, attempt.refusal
                describe_payment(
                    span,
                    decision="allow" if refusal is None else "refuse",
                    code=None if refusal is None else str(refusal.code),
                    handle=attempt.handle,
                    network=None if terms is None else terms.network,
                    exposure=None if terms is None else terms.exposure,
                )

    def see_url(self, owner: object, url: str) -> None:
        """Remember which URL answered 402. It must be the one that the transport requested."""
        attempt = CURRENT.get()
        if attempt is None or not attempt.is_of_transport:
            key = request_key("", url, {}, b"")
            CURRENT.set(Attempt(owner=owner, url=url, key=key, is_of_transport=False))
        elif attempt.url != url:
            attempt.url = ""

    def end(self, attempt: Attempt) -> None:
        """End the creation of a payload; a URL that a hook saw is not that of the next payment."""
        self.guard.record_sent_elsewhere(attempt)
        if not attempt.is_of_transport:
            CURRENT.set(None)

    def _filter(self, version: int, entries: Sequence[Any]) -> list[Any]:
        """Remove the offers that would be refused; the order of the rest stays."""
        attempt = current()
        if not self.is_judged_here(attempt):
            return list(entries)
        kept = []
        for entry in entries:
            offer = attempt_offer(self, attempt, entry)
            decision = self.judge(attempt, offer, entry, version)
            if isinstance(decision, Refuse):
                attempt.dropped.append(decision)
            else:
                kept.append(entry)
        return kept

    def _scheme(self, entry: object, version: int) -> Any:
        network, scheme = getattr(entry, "network", ""), getattr(entry, "scheme", "")
        return find_scheme(self.payer, version, str(network), str(scheme))

    def _with_payment_id(
        self, attempt: Attempt, required: Required, purchase: str, account: str
    ) -> Required:
        """Name the purchase to a seller that declares `payment-identifier`."""
        attempt.required = required
        extensions = getattr(required, "extensions", None)
        if not extensions or "payment-identifier" not in extensions:
            return required
        # Imported here: it loads all extensions of the SDK, which takes 100 ms.
        from x402.extensions.payment_identifier import append_payment_identifier_to_extensions

        name = self.guard.journal.payment_id(purchase, account)
        named = append_payment_identifier_to_extensions(dict(extensions), name)
        copied = required.model_copy(update={"extensions": named})
        attempt.required = copied
        return copied


def ask_service(guard: Guard, attempt: Attempt, question: Ask) -> Decision:
    """Return the service's decision about a question, if the owner wants a second opinion."""
    if guard.preflight is None or not guard.policy.second_opinion:
        return question
    return guard.preflight.decide(question, attempt.resource.url)


def ask_queue(guard: Guard, attempt: Attempt, question: Ask) -> Decision:
    """Put a question into the queue, or return the approver's answer."""
    if guard.queue is None:
        return question
    purchase = attempt.purchase(guard.session)
    is_allowed = guard.queue.ask(question, purchase.host, purchase.account, guard.now)
    return Allow(question.terms) if is_allowed else question


def has_signed_offers(required: Required) -> TypeGuard[PaymentRequired]:
    """Return whether a 402 contains offers that the seller signed."""
    return EXTENSION in (getattr(required, "extensions", None) or {})


def attempt_offer(hooks: Hooks, attempt: Attempt, entry: BaseModel) -> Offer:
    """Read an entry of the 402 that the attempt is about."""
    if attempt.required is None:
        raise PaymentRefusedError(_BLIND)
    return hooks.read(attempt, entry, attempt.required)


def current() -> Attempt:
    """Return the request that is being paid. Raises PaymentRefusedError if it is not known."""
    attempt = CURRENT.get()
    if attempt is None:
        raise PaymentRefusedError(_BLIND)
    return attempt


def _is_own(error: Exception, attempt: Attempt) -> bool:
    """Whether an error means the guard's refusal, and not another failure after it."""
    is_filtered = type(error).__name__ == "NoMatchingRequirementsError" and bool(attempt.dropped)
    return is_filtered or isinstance(error, (RefusedStepError, PaymentAbortedError))
