"""Buys the response of a paid route over x402 v2 with the official client.

A payment is saved before it is sent, and sent again until its outcome is known: the same payment
for the same request is charged at most once and returns the same response (docs/payments.md).
"""

from __future__ import annotations

import asyncio
import hashlib
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import httpx
from x402.http.utils import (
    decode_payment_required_header,
    decode_payment_response_header,
    encode_payment_signature_header,
)
from x402.schemas import PaymentRequired

from tollgauge.clients.spending import (
    KeptPayment,
    Limits,
    PurchaseError,
    check_limits,
    payable,
)
from tollgauge.core.base.signature import derive_address
from tollgauge.core.base.strictjson import RECURSION_LIMIT
from tollgauge.core.base.units import dollars
from tollgauge.core.sale.payment import SETTLED_UNKNOWN, Payment, canonical_body, decode
from tollgauge.core.sale.payment_state import EXPIRY_GRACE_S
from tollgauge.core.sale.signature import SIGNATURE_HEADER

# EVM libraries raise the limit, and deeply nested JSON could then crash the process.
sys.setrecursionlimit(min(sys.getrecursionlimit(), RECURSION_LIMIT))

LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1"})
MAX_ATTEMPTS: Final = 6
"""Number of times that a payment is sent before its outcome is reported as unknown."""
PAUSE_S: Final = 2.0
PAUSE_MAX_S: Final = 15.0  # a longer Retry-After is shortened to this
_TIMEOUT_S: Final = 60.0
_TEXT_MAX: Final = 300


class RefusedError(PurchaseError):
    """The service refused a payment with a 4xx.

    `is_unpaid`: the status is 402, so nothing was charged and the payment may still become valid;
    any other status rejects the request. `is_first`: this is the first response to the payment.
    """

    def __init__(self, message: str, *, hint: str, is_unpaid: bool, is_first: bool) -> None:
        super().__init__(message, hint=hint)
        self.is_unpaid = is_unpaid
        self.is_first = is_first


class PendingError(PurchaseError):
    """It is unknown whether a payment was charged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """One request to a paid route: the route's URL and the JSON body."""

    url: str
    body: Mapping[str, Any]

    def kept_payment(self, folder: Path, payer: str) -> KeptPayment:
        """Return the file in which a payer's payment for this order is saved."""
        parts = (self.url.encode(), canonical_body(dict(self.body)), payer.lower().encode())
        digest = hashlib.sha256(b"\n".join(parts)).hexdigest()
        return KeptPayment(folder / f"tollgauge-{digest[:16]}.payment")


@dataclass(frozen=True, slots=True, kw_only=True)
class Purchase:
    """A paid response: its body, its payment, the transaction ("" if the service sent no receipt),
    and the signature ("" if unsigned).
    """

    body: bytes
    payment: Payment
    transaction: str
    signature: str = ""


def derive_payer(key: str) -> str:
    """Return the address of a private key. Raises ValueError for an invalid key."""
    return derive_address(bytes.fromhex(key.removeprefix("0x")))


async def buy(
    order: Order,
    *,
    key: str,
    limits: Limits,
    kept: KeptPayment | None = None,
    now_s: int = 0,
    report: Callable[[str], None] = lambda _words: None,
) -> Purchase:
    """Buy a response with the key of an account.

    A saved payment is sent again; a new one is saved before it is sent. The caller deletes it once
    the response is stored.

    Args:
        order: The request to the paid route.
        key: The buyer's private key.
        limits: What may be signed.
        kept: The file for the payment; None saves nothing.
        now_s: Current time (Unix seconds), to detect an expired saved payment.
        report: Receives progress messages.

    Raises:
        RefusedError: The service refused the payment.
        PendingError: The outcome is unknown.
        PurchaseError: Nothing was paid.
        KeptPaymentError: The payment cannot be saved or read.
    """
    is_local = urlsplit(order.url).hostname in LOOPBACK
    async with httpx.AsyncClient(timeout=_TIMEOUT_S, trust_env=not is_local) as http:
        payment = kept.read() if kept else None
        if payment is not None:
            check_limits(payment, limits)
            report("sending the saved payment again")
            try:
                return await send(http, order, payment.header, report=report)
            except RefusedError as error:
                # A saved payment is replaced only if it was refused with 402 and can no longer be
                # charged. Otherwise both payments could be charged for one request.
                if not error.is_unpaid or not _is_expired(payment, now_s):
                    raise
        if kept and payment:
            kept.remove(payment)
        report("requesting the price")
        header = await sign(http, order, key=key, limits=limits)
        report("paying")
        if kept is None:
            return await send(http, order, header, report=report)
        return await _keep_and_send(http, order, header, kept, report)


async def _keep_and_send(
    http: httpx.AsyncClient,
    order: Order,
    header: str,
    kept: KeptPayment,
    report: Callable[[str], None],
) -> Purchase:
    """Send a new payment, and forget it if its first response rejects the request."""
    first = kept.keep(header)
    try:
        return await send(http, order, first, report=report)
    except RefusedError as error:
        # Only a first response proves that no earlier attempt was charged: a 4xx may come from a
        # proxy. If another process saved its payment first, that one may have been sent already.
        if first == header and error.is_first and not error.is_unpaid:
            kept.remove(decode(header))
        raise


async def sign(http: httpx.AsyncClient, order: Order, *, key: str, limits: Limits) -> str:
    """Sign a payment of the route's current price; returns the PAYMENT-SIGNATURE header.

    Raises:
        PurchaseError: The price is outside of the limits.
    """
    try:
        answer = await http.post(order.url, json=order.body)
    except (httpx.RequestError, httpx.InvalidURL) as error:
        raise PurchaseError(
            f"No service responds at {order.url} ({type(error).__name__}).",
            hint="Nothing was paid. Start the demo with `make demo`, or name a running service "
            "with --service or TOLLGAUGE_URL.",
        ) from error
    if answer.status_code != httpx.codes.PAYMENT_REQUIRED:
        raise PurchaseError(
            f"The service returned {answer.status_code} instead of its price{_why(answer)}",
            hint=f"Nothing was paid.{_when(answer)}",
        )
    terms = _terms(answer)
    entry = payable(terms.accepts, limits)
    # Imported here: this takes a second of processor time, which only signing needs.
    from eth_account import Account
    from x402 import x402Client
    from x402.mechanisms.evm.exact.register import register_exact_evm_client
    from x402.mechanisms.evm.signers import EthAccountSigner

    client = x402Client()
    client.set_spend_controls(False)  # the limits are narrower than the client's own
    signer = EthAccountSigner(Account.from_key(key))
    register_exact_evm_client(client, signer, networks=limits.network)
    payload = await client.create_payment_payload(terms.model_copy(update={"accepts": [entry]}))
    header = str(encode_payment_signature_header(payload))
    check_limits(decode(header), limits)
    return header


async def send(
    http: httpx.AsyncClient,
    order: Order,
    header: str,
    *,
    report: Callable[[str], None] = lambda _words: None,
) -> Purchase:
    """Send a signed payment until its outcome is known.

    Raises:
        RefusedError: The service refused the payment.
        PendingError: The outcome is unknown after MAX_ATTEMPTS.
    """
    payment = decode(header)
    why = ""
    for attempt in range(MAX_ATTEMPTS):
        pause = PAUSE_S
        try:
            answer = await http.post(
                order.url, json=order.body, headers={"PAYMENT-SIGNATURE": header}
            )
        except httpx.RequestError as error:
            why = f": no complete response arrived ({type(error).__name__})."
        else:
            if answer.is_success:
                return Purchase(
                    body=answer.content,
                    payment=payment,
                    transaction=_transaction(answer),
                    signature=answer.headers.get(SIGNATURE_HEADER, ""),
                )
            # 429 and 5xx do not prove that nothing was charged: send the same payment again.
            if answer.status_code != httpx.codes.TOO_MANY_REQUESTS and answer.status_code < 500:
                raise _explain_refusal(answer, payment, is_first=not attempt)
            why, pause = _why(answer), _retry_after(answer)
        if attempt + 1 < MAX_ATTEMPTS:
            report(f"no response yet; sending the same payment again in {pause:g} s")
            await asyncio.sleep(pause)
    raise PendingError(
        f"The outcome of the payment is not known yet{why}",
        hint="Do not pay again: run the same command again. It sends the same payment (nonce "
        f"{payment.nonce}), which is charged at most once and answered for 30 days.",
    )


def _terms(answer: httpx.Response) -> PaymentRequired:
    try:
        terms = decode_payment_required_header(answer.headers["PAYMENT-REQUIRED"])
    except (KeyError, ValueError):
        terms = None
    if not isinstance(terms, PaymentRequired):
        raise PurchaseError(
            "The service's 402 contains no price that an x402 version 2 client can read.",
            hint=f"Nothing was paid. `curl -si {answer.url} | tollgauge lint -` explains the "
            "problem.",
        )
    return terms


def _transaction(answer: httpx.Response) -> str:
    """Return the transaction in the receipt of a response, "" without a valid receipt.

    An invalid receipt must not lose the response that was paid for.
    """
    receipt = answer.headers.get("PAYMENT-RESPONSE")
    try:
        return decode_payment_response_header(receipt).transaction if receipt else ""
    except (ValueError, RecursionError):
        return ""


def _explain_refusal(answer: httpx.Response, payment: Payment, *, is_first: bool) -> RefusedError:
    """Explain a 4xx response to a payment."""
    message = f"The service returned {answer.status_code}{_why(answer)}"
    is_unpaid = False
    if _document(answer).get("code") == SETTLED_UNKNOWN:
        is_first = False
        hint = (
            f"The payment was charged before (nonce {payment.nonce}). No other payment is signed "
            "for this request while the saved payment exists."
        )
    elif answer.status_code != httpx.codes.PAYMENT_REQUIRED:
        hint = f"Nothing was charged now (payment nonce {payment.nonce})."
    else:
        is_unpaid = True
        ends = datetime.fromtimestamp(payment.valid_before + EXPIRY_GRACE_S, UTC)
        hint = (
            f"Nothing was charged. Until {ends:%H:%M} UTC, the same command sends the same payment "
            f"(nonce {payment.nonce}); after that, it signs a new one. Nothing is charged twice."
        )
        reason = str(_document(answer).get("error", "without a reason"))[:_TEXT_MAX]
        message = f"The service refused the payment: {reason}."
        if "insufficient" in reason:
            price = dollars(payment.value)
            message = f"{payment.payer} has too little USDC on {payment.network} to pay {price}."
            hint = f"Send USDC to it on that network, or pay with another key. {hint}"
    return RefusedError(message, hint=hint, is_unpaid=is_unpaid, is_first=is_first)


def _why(answer: httpx.Response) -> str:
    """Return the end of a sentence: the detail of a problem document (RFC 9457), or a period."""
    problem = _document(answer)
    errors = problem.get("errors")
    more = [
        f"{error.get('path')}: {error.get('message')}"
        for error in (errors if isinstance(errors, list) else [])
        if isinstance(error, dict)
    ]
    text = " ".join([str(problem.get("detail", "")), *more]).strip()[:_TEXT_MAX]
    return f": {text}" if text else "."


def _when(answer: httpx.Response) -> str:
    seconds = answer.headers.get("Retry-After", "")
    return f" Try again in {seconds} seconds." if seconds.isdecimal() else ""


def _document(answer: httpx.Response) -> dict[str, Any]:
    try:
        document = answer.json()
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def _retry_after(answer: httpx.Response) -> float:
    seconds = answer.headers.get("Retry-After", "")
    return min(float(seconds), PAUSE_MAX_S) if seconds.isdecimal() else PAUSE_S


def _is_expired(payment: Payment, now_s: int) -> bool:
    """Whether a payment can no longer be charged, even if the chain's clock is behind ours."""
    return payment.valid_before + EXPIRY_GRACE_S < now_s
