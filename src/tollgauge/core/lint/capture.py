"""Captured exchanges: the JSON in which people hand an answer to the linter, and its report.

The forms are those of `tollgauge lint`: `{status, headers, body, url?, method?}` in,
`{payable, compliant, version, findings, terms}` out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import orjson

from tollgauge.core.errors import TollgaugeError
from tollgauge.core.exchange import Answer, Exchange
from tollgauge.core.finding import Lint
from tollgauge.core.terms import Terms

_FORM: Final = (
    'Write {"status": 402, "headers": {"name": "value"}, "body": "text", "url": "https://…",'
    ' "method": "GET"}; only status is required.'
)


class CaptureError(TollgaugeError):
    """A captured exchange of the wrong form."""

    def __init__(self, message: str) -> None:
        super().__init__(message, hint=_FORM)


def exchange_from_capture(obj: object) -> Exchange:
    """The exchange that a capture describes; `at` is 0, for a capture has no clock.

    `headers` is a mapping or a list of pairs, names in any case; `body` a text, or JSON that is
    serialised, or null. A missing `url` or `method` leaves out the rules that compare them.
    Raises CaptureError for anything else.
    """
    if not isinstance(obj, dict):
        raise CaptureError("The captured exchange is not an object.")
    status = obj.get("status")
    if isinstance(status, bool) or not isinstance(status, int) or not 100 <= status <= 999:
        raise CaptureError("The captured exchange has no HTTP status.")
    answer = Answer(
        status=status, headers=tuple(_headers(obj.get("headers"))), body=_body(obj.get("body"))
    )
    return Exchange(url=_text(obj, "url"), method=_text(obj, "method").upper(), at=0, result=answer)


def lint_json(lint: Lint) -> dict[str, object]:
    """A lint as the JSON that `tollgauge lint` prints; amounts are texts."""
    return {
        "payable": lint.payable,
        "compliant": lint.compliant,
        "version": lint.version,
        "findings": [
            {
                "rule": finding.rule,
                "severity": finding.severity.value,
                "message": finding.message,
                "where": finding.where,
            }
            for finding in lint.findings
        ],
        "terms": [_terms_json(terms) for terms in lint.terms],
    }


def _terms_json(terms: Terms) -> dict[str, object]:
    document: dict[str, object] = {
        "version": terms.version,
        "scheme": terms.scheme,
        "network": terms.network,
        "asset": terms.asset,
        "amount": str(terms.amount),
        "payTo": terms.pay_to,
    }
    if terms.timeout_seconds is not None:
        document["maxTimeoutSeconds"] = terms.timeout_seconds
    return document


def _headers(headers: object) -> Iterator[tuple[str, str]]:
    if headers is None:
        return
    if not isinstance(headers, (dict, list)):
        raise CaptureError("The headers are neither an object nor a list of pairs.")
    pairs = headers.items() if isinstance(headers, dict) else headers
    for pair in pairs:
        name, values = pair if isinstance(pair, (list, tuple)) and len(pair) == 2 else (None, None)
        if not isinstance(name, str):
            raise CaptureError("A header is not a pair of name and value.")
        for value in values if isinstance(values, list) else [values]:
            if not isinstance(value, str):
                raise CaptureError("A header's value is not a text.")
            yield name.strip().lower(), value


def _body(body: object) -> bytes:
    if body is None:
        return b""
    if isinstance(body, str):
        return body.encode("utf-8", "replace")
    if not isinstance(body, (dict, list)):
        raise CaptureError("The body is neither a text nor JSON nor null.")
    try:
        return orjson.dumps(body)
    except (orjson.JSONEncodeError, RecursionError) as error:
        raise CaptureError("The body is not JSON that can be written.") from error


def _text(obj: dict[str, object], key: str) -> str:
    value = obj.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise CaptureError(f"The {key} is not a text.")
    return value
