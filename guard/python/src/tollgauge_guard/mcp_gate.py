"""The decision about each message between an MCP client and its server.

The gate remembers which 402 a tool answered. A call with a payment is forwarded only if the payment
is for such a 402 and the decision allows it; otherwise the client gets an error result with the
reason. The client has signed by then, but a payment that does not reach the server cannot be taken.
"""

from __future__ import annotations

import json
import logging
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final, TypeVar

from tollgauge_guard.authorization import Authorization, Payload
from tollgauge_guard.codes import Code
from tollgauge_guard.decision import Ask, Decision, Refuse
from tollgauge_guard.errors import GuardError
from tollgauge_guard.guard import Guard
from tollgauge_guard.hooks import Required
from tollgauge_guard.mcp_messages import (
    PAYMENT,
    call_key,
    has_hidden_payment,
    payment_required,
    read_payment,
    read_result,
    tool_url,
)
from tollgauge_guard.nodes import Reading
from tollgauge_guard.offer import Offer, read_offer
from tollgauge_guard.payment import SETTLE_MARGIN_S, UNFINISHED, Event, Payment, State
from tollgauge_guard.purchase import (
    RefusedStepError,
    build_unresolved,
    resolve_earlier,
    run_blocking,
)
from tollgauge_guard.refusal import PaymentRefusedError, to_error
from tollgauge_guard.request import Attempt, Stage
from tollgauge_guard.signed import read_signed

_log = logging.getLogger("tollgauge_guard")
KEPT: Final = 1_000
"""Number of 402s and calls that are remembered."""
_CALL: Final = "tools/call"
_INVALID_REQUEST: Final = -32_600
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PendingCall:
    """A call of a tool that waits for its result, and the payment that it carries."""

    key: str
    attempt: Attempt | None


class ToolGate:
    """Decides about each message. `url` is the server's address in the bundle."""

    def __init__(self, guard: Guard, url: str | None = None) -> None:
        self._guard, self._url = guard, url
        self._offers: OrderedDict[str, Required] = OrderedDict()
        self._calls: OrderedDict[str, PendingCall] = OrderedDict()

    def to_server(self, message: object) -> object | None:
        """Return the answer to a message that must not be passed on, None if it may."""
        if not isinstance(message, dict):
            error = {"code": _INVALID_REQUEST, "message": "Send each message by itself."}
            return {"jsonrpc": "2.0", "id": None, "error": error}
        params = message.get("params")
        if not isinstance(params, dict):
            return None
        try:
            if message.get("method") != _CALL:
                _refuse_payment(params)
                return None
            call = self._call(params)
        except GuardError as error:
            return _build_refusal(message.get("id"), error)
        except Exception as error:  # noqa: BLE001  # whatever goes wrong, no payment passes
            return _build_refusal(message.get("id"), GuardError(f"The guard failed: {error!r}"))
        _remember(self._calls, _key(message.get("id")), call)
        return None

    def to_client(self, message: object) -> None:
        """Record the price of a tool and the outcome of a payment from a server's message."""
        if not isinstance(message, dict) or "method" in message:
            return
        call = self._calls.pop(_key(message.get("id")), None)
        if call is None:
            return
        result = message.get("result")
        required = payment_required(result)
        if required is not None:
            _remember(self._offers, call.key, required)
        if call.attempt is not None and "error" in message:
            self._guard.record_silence(call.attempt)
        elif call.attempt is not None:
            self._guard.record_answer(call.attempt, read_result(result))

    def close(self) -> None:
        """Record that the server ended without answering the open calls."""
        for call in self._calls.values():
            if call.attempt is not None:
                self._guard.record_silence(call.attempt)
        self._calls.clear()

    def _call(self, params: dict[str, object]) -> PendingCall:
        """Return a call that may be passed on. Raises PaymentRefusedError for its payment."""
        name, arguments = str(params.get("name")), params.get("arguments")
        url = self._url or tool_url(name)
        key = call_key(url, name, arguments)
        payment = read_payment(params.get("_meta"))
        _refuse_hidden_payment(params)
        if payment is None:
            return PendingCall(key, None)
        attempt = Attempt(owner=self, url=url, key=key, alias=tool_url(name), tool=name)
        try:
            self._admit(attempt, payment)
        except PaymentRefusedError as error:
            self._guard.give_up(attempt)
            self._guard.record(attempt, attempt.refusal or Refuse(error.code, error.reason))
            raise
        except BaseException:
            self._guard.give_up(attempt)
            raise
        return PendingCall(key, attempt)

    def _admit(self, attempt: Attempt, payment: Payload) -> None:
        """Record a payment that may be passed on."""
        guard, signed = self._guard, read_signed(payment)
        attempt.payer, attempt.wallets = signed.payer, (signed.payer,)
        attempt.bundle = guard.bundles.current()
        written = guard.journal.find_signed(signed)
        if written is not None:
            if not _is_same(written, signed) or written.purchase != attempt.key:
                raise guard.refusal(attempt, "Its nonce was used for another payment before.")
            if written.state not in UNFINISHED:
                raise guard.refusal(attempt, "This payment was answered or written off.")
        else:
            self._resolve_earlier(attempt)
        offer, declared = self._offer(attempt, payment)
        decision = guard.judge(attempt, offer, signed.payer, written)
        if isinstance(decision, Ask):
            decision = Refuse(decision.code, f"{decision.reason} A proxy has no approver.")
        if isinstance(decision, Refuse):
            raise PaymentRefusedError(decision)
        if written is not None:
            self._send_again(attempt, written, signed)
            return
        if (refusal := guard.reserve(attempt, decision.terms)) is not None:
            raise to_error(refusal)
        guard.check_signed(attempt, payment, declared)
        guard.seal(attempt, payment)
        guard.check_leaving(attempt, attempt.url, [str(attempt.header)])

    def _send_again(self, attempt: Attempt, written: Payment, signed: Authorization) -> None:
        """Put an open payment in flight again."""
        guard = self._guard
        if written.state is State.IN_FLIGHT and not guard.journal.processes.is_alive(written.owner):
            guard.change(written, Event.PROCESS_DIED)
            written = guard.journal.find_signed(signed) or written
        is_valid = written.valid_before - guard.now > SETTLE_MARGIN_S
        if not is_valid or not guard.change(written, Event.SEND):
            raise to_error(build_unresolved(guard.journal, written.resource, written))
        attempt.payment, attempt.handle = written.id, written.handle
        attempt.stage = Stage.KEPT

    def _resolve_earlier(self, attempt: Attempt) -> None:
        """Raise PaymentUnresolved if an earlier payment of the same call may still be taken.

        The proxy does not sign: the earlier payment is sent again if the client sends it again.
        """
        guard, purchase = self._guard, attempt.purchase(self._guard.session)
        try:
            run_blocking(
                resolve_earlier(guard, _ChainReader(guard, purchase.resource), purchase, tuple)
            )
        except RefusedStepError as error:
            attempt.refusal = error.refusal
            raise to_error(error.refusal) from error

    def _offer(self, attempt: Attempt, payment: Payload) -> tuple[Offer, object]:
        """Return the offer that is paid, an entry of the 402 that this call was answered with, and
        the extensions that the 402 declares.
        """
        required = self._offers.get(attempt.key)
        signed = read_signed(payment)
        offers = () if required is None else _offers_of(required, attempt)
        paid = [offer for offer in offers if _is_paid_by(offer, signed)]
        if not paid:
            reason = "The payment is for no offer of this call's 402."
            raise PaymentRefusedError(
                Refuse(Code.RESOURCE_MISMATCH, reason, remedy="Call without a payment first.")
            )
        # If it pays an account that none of them names, the check of the signed payment fails.
        of_payee = (offer for offer in paid if str(offer.pay_to).lower() == signed.pay_to)
        return next(of_payee, paid[0]), getattr(required, "extensions", None)


class _ChainReader:
    """A caller that only reads the chain: a proxy neither waits nor signs."""

    def __init__(self, guard: Guard, resource: str) -> None:
        self._guard, self._resource = guard, resource

    async def read_chain(self, payment: Payment) -> Reading:
        return self._guard.nodes.read(payment)

    async def sleep(self, _seconds: float) -> None:
        raise self._build_refusal()

    async def judge_again(self, _offer: Offer, _payment: Payment) -> Decision:
        raise self._build_refusal()

    async def ask_again(self, _question: Ask) -> bool:
        raise self._build_refusal()

    def _build_refusal(self) -> PaymentRefusedError:
        return to_error(build_unresolved(self._guard.journal, self._resource, None))


def _is_paid_by(offer: Offer, signed: Authorization) -> bool:
    """Whether a payment has the network, token and amount of this offer."""
    is_asset = signed.asset is None or str(offer.asset).lower() == signed.asset
    return is_asset and (offer.network, offer.amount) == (signed.network, str(signed.value))


def _offers_of(required: Required, attempt: Attempt) -> tuple[Offer, ...]:
    resource = getattr(required, "resource", None)
    url = None if resource is None else resource.url
    url = attempt.url if url == attempt.alias else url
    return tuple(
        read_offer(entry.model_dump(by_alias=True), url, required.x402_version)
        for entry in required.accepts
    )


def _is_same(written: Payment, signed: Authorization) -> bool:
    """Whether a payment is the recorded one, and not only one with the same nonce."""
    terms = (written.pay_to, written.amount, written.valid_before)
    return terms == (signed.pay_to, signed.value, signed.valid_before)


def _refuse_hidden_payment(params: dict[str, object]) -> None:
    """Raise PaymentRefusedError if a payment is outside its own member of `_meta`.

    The server, or another server behind it, could take such a payment without a decision.
    """
    meta = params.get("_meta")
    others = {name: value for name, value in params.items() if name != "_meta"}
    if isinstance(meta, dict):
        others["_meta"] = {name: value for name, value in meta.items() if name != PAYMENT}
    if has_hidden_payment(others):
        reason = "The message contains a payment outside of its place."
        raise PaymentRefusedError(Refuse(Code.SIGNED_DIFFERS, reason))


def _refuse_payment(params: dict[str, object]) -> None:
    """Raise GuardError if a message that is not a call of a tool contains a payment."""
    if read_payment(params.get("_meta")) is not None:
        raise GuardError("Only a call of a tool may carry a payment.")
    _refuse_hidden_payment(params)


def _build_refusal(number: object, error: GuardError) -> dict[str, object]:
    """Return the result of a call that was not passed on (MCP, tool errors)."""
    _log.warning("payment.refused %s", error)
    document: dict[str, object] = {"error": "payment-refused", "code": "failed"}
    if isinstance(error, PaymentRefusedError):
        document = error.for_model()
    text = f"Payment refused by tollgauge-guard: {document['code']}. Its owner can read why."
    result = {
        "resultType": "complete",  # which MCP asks for since 2026-07-28
        "isError": True,
        "content": [{"type": "text", "text": text}],
        "structuredContent": document,
    }
    return {"jsonrpc": "2.0", "id": number, "result": result}


def _key(number: object) -> str:
    """Return the ID of a message, which is a number or a text in JSON-RPC."""
    return json.dumps(number, default=str)


def _remember(kept: OrderedDict[str, T], key: str, value: T) -> None:
    kept[key] = value
    while len(kept) > KEPT:
        kept.popitem(last=False)
