"""x402 in the messages of MCP (x402 specification, transport mcp).

A tool that wants to be paid answers with an error result that holds the 402; the payment goes in
`_meta["x402/payment"]` of the next call, the receipt comes in `_meta` of its result. Servers of
Cloudflare Agents have the 402 in `_meta["x402/error"]`, and read the payment as a base64 text.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from typing import Final
from urllib.parse import unquote

from pydantic import ValidationError
from x402.schemas import PaymentPayload, PaymentRequired, SettleResponse
from x402.schemas.v1 import PaymentPayloadV1, PaymentRequiredV1

from tollgauge_guard.errors import GuardError
from tollgauge_guard.purchase_key import request_key
from tollgauge_guard.receipt import Answer

PAYMENT: Final = "x402/payment"
RECEIPT: Final = "x402/payment-response"
_CLOUDFLARE_402: Final = "x402/error"
_V1: Final = 1
_OK: Final = 200
_PAYMENT_REQUIRED: Final = 402
_ERROR: Final = 500
_MAX_DEPTH: Final = 64
_MIN_PAYMENT: Final = 64  # characters; no payment is shorter
_MIN_QUOTES: Final = 8  # percent-encoded quotation marks; a payment has many more
_BASE64: Final = re.compile(r"[A-Za-z0-9+/_-]{64,}")
_SIGNATURE: Final = re.compile(r"0x[0-9a-fA-F]{130}")  # 65 bytes, or longer ones of contracts


class McpPaymentError(GuardError):
    """A payment in a message that cannot be read."""


def tool_url(name: str) -> str:
    """Return how the 402 of a tool names it."""
    return f"mcp://tool/{name}"


def call_key(url: str, name: str, arguments: object) -> str:
    """Return the purchase key of a call of a tool."""
    body = json.dumps([name, arguments or {}], sort_keys=True, default=str).encode()
    return request_key("tools/call", url, {}, body)


def payment_required(result: object) -> PaymentRequired | PaymentRequiredV1 | None:
    """Return the 402 in the result of a tool (JSON), None if it asks for no payment."""
    fields = result if isinstance(result, dict) else {}
    if fields.get("isError") is not True:
        return None
    content = fields.get("content")
    first = content[0] if isinstance(content, list) and content else None
    text = first.get("text") if isinstance(first, dict) else None
    documents = (_cloudflare_402(fields), fields.get("structuredContent"), _parse(text))
    for document in documents:
        if isinstance(document, dict) and isinstance(document.get("accepts"), list):
            model = PaymentRequiredV1 if document.get("x402Version") == _V1 else PaymentRequired
            try:
                return model.model_validate(document)
            except ValidationError:
                continue
    return None


def reads_text(result: object) -> bool:
    """Whether the server of a 402 reads the payment as a base64 text."""
    found = _cloudflare_402(result) if isinstance(result, dict) else None
    return payment_required({"isError": True, "structuredContent": found}) is not None


def _cloudflare_402(fields: dict[str, object]) -> object:
    meta = fields.get("_meta")
    return meta.get(_CLOUDFLARE_402) if isinstance(meta, dict) else None


def read_payment(meta: object) -> PaymentPayload | PaymentPayloadV1 | None:
    """Return the payment in the `_meta` of a call (JSON), None without one.

    Raises McpPaymentError if it cannot be read.
    """
    value = meta.get(PAYMENT) if isinstance(meta, dict) else None
    if value is None:
        return None
    document = _parse(value) if isinstance(value, str) else value
    is_v1 = isinstance(document, dict) and document.get("x402Version") == _V1
    try:
        return (PaymentPayloadV1 if is_v1 else PaymentPayload).model_validate(document)
    except ValidationError as error:
        raise McpPaymentError("The payment of the call cannot be read.") from error


def has_hidden_payment(value: object, depth: int = 0) -> bool:
    """Whether a part of a message contains a payment, as an object or encoded in a text."""
    if depth > _MAX_DEPTH:
        return True  # no honest call is nested that deep
    match value:
        case dict():
            return _is_payment(value) or any(
                has_hidden_payment(part, depth + 1) for pair in value.items() for part in pair
            )
        case list():
            return any(has_hidden_payment(part, depth + 1) for part in value)
        case str() if len(value) >= _MIN_PAYMENT:
            return _has_signed_payment(value) or any(
                has_hidden_payment(part, depth + 1) for part in _decode_texts(value)
            )
    return False


def _is_payment(fields: dict[str, object]) -> bool:
    """Whether an object is a payment, or the signed part of one."""
    match fields:
        case {"x402Version": _, "payload": _} | {"accepted": _, "payload": _}:
            return True
        case {"signature": str(), "authorization": dict()}:
            return True
        case {"signature": str(), "permit2Authorization": dict()}:
            return True
    return False


def _has_signed_payment(text: str) -> bool:
    """Whether a text that may be no JSON contains the parts of a signed payment."""
    if "x402Version" in text and "payload" in text and "transaction" in text:
        return _BASE64.search(text) is not None  # Solana: the transaction is encoded
    words = ("signature", "uthorization", "nonce")
    return all(word in text for word in words) and _SIGNATURE.search(text) is not None


def _decode_texts(text: str) -> Iterator[object]:
    """Yield the JSON in a text, and the texts in percent-encoding, base64 and base64url."""
    if (document := _parse(text)) is not None:
        yield document
    if text.count("%22") >= _MIN_QUOTES:
        yield unquote(text)
    for candidate in {text, "".join(text.split())}:
        for match in _BASE64.finditer(candidate):
            run = match.group().replace("-", "+").replace("_", "/")
            # Characters in front of an encoded text shift it: each of the four phases is read.
            for start in range(4):
                part = run[start:]
                yield base64.b64decode(part[: len(part) // 4 * 4]).decode("latin-1")


def read_result(result: object) -> Answer:
    """Read the result of a paid call.

    An error result does not answer the purchase: it may have been paid all the same.
    """
    fields = result if isinstance(result, dict) else {}
    if payment_required(fields) is not None:
        status = _PAYMENT_REQUIRED
    else:
        status = _OK if fields.get("isError") is not True else _ERROR
    meta = fields.get("_meta")
    value = meta.get(RECEIPT) if isinstance(meta, dict) else None
    try:
        receipt = SettleResponse.model_validate(_parse(value) if isinstance(value, str) else value)
    except ValidationError:
        return Answer(status)
    return Answer(status, receipt.transaction or None, bool(receipt.success))


def _parse(text: object) -> object:
    try:
        return json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        return None
