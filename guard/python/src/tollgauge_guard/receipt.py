"""Receipt: which headers carry a payment, and what an answer says about its settlement."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from x402.http.utils import decode_payment_response_header

PAYMENT_HEADERS: Final = frozenset({"payment-signature", "x-payment"})
RECEIPT_HEADERS: Final = ("PAYMENT-RESPONSE", "X-PAYMENT-RESPONSE")


def payments_of(headers: Iterable[tuple[str, str | bytes]]) -> list[str]:
    """The payments in the headers of a request, in any case of their names."""
    return [
        value if isinstance(value, str) else value.decode("latin-1")
        for name, value in headers
        if name.lower() in PAYMENT_HEADERS
    ]


def settlement(header: Callable[[str], str | None]) -> str | None:
    """The transaction that the receipt of a settled payment names, None without one."""
    receipt = next((value for name in RECEIPT_HEADERS if (value := header(name))), None)
    if receipt is None:
        return None
    try:
        answer = decode_payment_response_header(receipt)
    except (ValueError, RecursionError):
        return None
    return answer.transaction or None if answer.success else None
