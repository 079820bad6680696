"""Answers to payments: their headers, their receipts, and which event they are."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from x402.http.utils import decode_payment_response_header

from tollgauge_guard.payment import Event

IsAnswer = Callable[[int, Mapping[str, str], bytes], bool]
"""Called with status, headers and body of a complete 2xx; False: it is not an answer."""
_log = logging.getLogger("tollgauge_guard")
PAYMENT_HEADERS: Final = frozenset({"payment-signature", "x-payment"})
RECEIPT_HEADERS: Final = ("PAYMENT-RESPONSE", "X-PAYMENT-RESPONSE")
_OK: Final = 200
_REDIRECT: Final = 300
_NOT_MODIFIED: Final = 304
_ERROR: Final = 400
_CONDITIONS: Final = frozenset({"if-none-match", "if-modified-since"})


def find_payments(headers: Iterable[tuple[str, str | bytes]]) -> list[str]:
    """Return the payments in the headers of a request, whatever the case of their names."""
    return [
        value if isinstance(value, str) else value.decode("latin-1")
        for name, value in headers
        if name.lower() in PAYMENT_HEADERS
    ]


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a payment before its body has come.

    `transaction` is the one that its receipt names, `is_settled` what its receipt states.
    """

    status: int
    transaction: str | None = None
    is_settled: bool = False


def read_answer(status: int, header: Callable[[str], str | None]) -> Answer:
    """Read the status and the headers of a response."""
    receipt = next((value for name in RECEIPT_HEADERS if (value := header(name))), None)
    if receipt is None:
        return Answer(status)
    try:
        settled = decode_payment_response_header(receipt)
    except (ValueError, RecursionError):
        return Answer(status)
    return Answer(status, settled.transaction or None, bool(settled.success))


def classify_answer(answer: Answer, *, is_conditional: bool = False) -> Event:
    """Return the event that a complete answer is for its payment.

    Only a 2xx answers a purchase, and a 304 if the request was conditional; the seller of any other
    answer may still take the payment.
    """
    is_unchanged = answer.status == _NOT_MODIFIED and is_conditional
    is_good = _OK <= answer.status < _REDIRECT or is_unchanged
    return Event.ANSWER if is_good else Event.ERROR_ANSWER


def judge_answer(
    is_answer: IsAnswer, status: int, headers: Mapping[str, str], body: bytes
) -> Event:
    """Apply the owner's function to a complete 2xx; if it raises, the payment stays open."""
    try:
        is_good = is_answer(status, dict(headers), body) is True
    except Exception:  # noqa: BLE001  # the answer was paid for, and is returned
        _log.exception("is_answer failed")
        is_good = False
    return Event.ANSWER if is_good else Event.ERROR_ANSWER


def is_redirect(status: int) -> bool:
    """Whether a client may follow an answer to another URL."""
    return _REDIRECT <= status < _ERROR and status != _NOT_MODIFIED


def has_conditions(headers: Iterable[str]) -> bool:
    """Whether a request with headers of these names may be answered by 304."""
    return any(name.lower() in _CONDITIONS for name in headers)
