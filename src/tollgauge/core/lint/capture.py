"""Captured responses in the forms that people paste into the linter.

These are the output of `curl -i`, `{status, headers, body, url?, method?}` as JSON, the value of a
PAYMENT-REQUIRED header, and an envelope as JSON. A capture that is only an envelope is read with
correct headers.
"""

from __future__ import annotations

import base64
import re
from typing import Annotated, Any, Final

import msgspec
import orjson

from tollgauge.core.base.errors import TollgaugeError
from tollgauge.core.lint.parsing import HEADER, HeaderFault, read_header
from tollgauge.core.probe.exchange import Answer, Exchange

_FORM: Final = (
    'Write {"status": 402, "headers": {"name": "value"}, "body": "text", "url": "https://…",'
    ' "method": "GET"}; only status is required. Or paste the output of curl -i, the value of the'
    " PAYMENT-REQUIRED header, or the envelope as JSON."
)
_STATUS_LINE: Final = re.compile(
    rb"HTTP/[0-9](?:\.[0-9])? ([1-9][0-9]{2})(?: [^\r\n]*)?(?:\r?\n|\r?\Z)"
)
"""RFC 9112, section 4. For HTTP/2 and HTTP/3 curl prints a status line without a reason."""
_NAMED_HEADER: Final = re.compile(rb"payment-required[ \t]*:", re.IGNORECASE)
_FURTHER_HEADERS: Final = re.compile(rb"\n[^\n:]*:.*", re.DOTALL)
_ENVELOPE_KEYS: Final = frozenset({"accepts", "x402Version"})
_NEUTRAL_HEADERS: Final = (
    ("cache-control", "no-store"),
    ("access-control-expose-headers", "PAYMENT-REQUIRED, PAYMENT-RESPONSE"),
)
"""Headers for an envelope without any: no rule finds anything in them."""
_STATUS_TEXT: Final = msgspec.Meta(pattern=r"^\s*[1-9][0-9]{2}(?:\s|$)")


class CaptureError(TollgaugeError):
    """A capture in an unknown form."""

    def __init__(self, message: str) -> None:
        super().__init__(message, hint=_FORM)


def read_capture(text: bytes) -> Exchange:
    """Read a captured response in any of the forms of this module. Raises CaptureError."""
    text = text.lstrip()
    if text.startswith(b"HTTP/"):
        return _parse_curl_output(text)
    named = _NAMED_HEADER.match(text)
    value = _FURTHER_HEADERS.sub(b"", text[named.end() :]) if named else text
    in_header = _build_402(header=value.strip().decode("latin-1"))
    if named or _contains_envelope(in_header):
        return Exchange(url="", method="", at=0, result=in_header)
    try:
        document = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise CaptureError(
            "This is neither JSON, nor a response that starts with HTTP/, nor a PAYMENT-REQUIRED"
            " header."
        ) from error
    if isinstance(document, dict) and _is_envelope(document):
        return Exchange(url="", method="", at=0, result=_build_answer(document))
    return exchange_from_capture(document)


class _Capture(msgspec.Struct):
    """A captured exchange as JSON."""

    status: Annotated[int, msgspec.Meta(ge=100, le=999)] | Annotated[str, _STATUS_TEXT]
    headers: dict[str, str | list[str]] | list[tuple[str, str | list[str]]] | None = None
    body: str | dict[str, Any] | list[Any] | None = None
    url: str | None = None
    method: str | None = None


def exchange_from_capture(obj: object) -> Exchange:
    """Return the exchange that a JSON capture describes; `at` is 0, because a capture has no time.

    `status` is a number or a string; `headers` a mapping or a list of pairs, names in any case;
    `body` a string, JSON that is serialised, or null. Without `url` or `method`, the rules that
    compare them do not fire. Raises CaptureError for anything else.
    """
    try:
        capture = msgspec.convert(obj, _Capture)
        body = b"" if capture.body is None else capture.body
        if isinstance(body, str):
            body = body.encode("utf-8", "replace")
        elif not isinstance(body, bytes):
            body = orjson.dumps(body)
    except (msgspec.ValidationError, orjson.JSONEncodeError, RecursionError) as error:
        raise CaptureError(f"The captured exchange is malformed: {error}.") from error
    headers = capture.headers or ()
    answer = Answer(
        status=int(str(capture.status).split()[0]),
        headers=tuple(
            (name.strip().lower(), value)
            for name, values in (headers.items() if isinstance(headers, dict) else headers)
            for value in (values if isinstance(values, list) else [values])
        ),
        body=body,
    )
    method = (capture.method or "").upper()
    return Exchange(url=capture.url or "", method=method, at=0, result=answer)


def _contains_envelope(answer: Answer) -> bool:
    """Return whether the header decodes to an object or an array."""
    header = read_header(answer)
    return header.document is not None or header.fault in (
        HeaderFault.OBJECT,
        HeaderFault.REQUIREMENTS,
    )


def _is_envelope(document: dict[str, object]) -> bool:
    """Return whether an object is an envelope or the requirements of one payment."""
    return bool(_ENVELOPE_KEYS & document.keys()) or {"scheme", "payTo"} <= document.keys()


def _build_answer(envelope: dict[str, object]) -> Answer:
    """Return a 402 with the envelope in the body for version 1, in the header otherwise."""
    text = orjson.dumps(envelope)
    if str(envelope.get("x402Version")).strip() == "1":
        return _build_402(body=text)
    return _build_402(header=base64.b64encode(text).decode())


def _build_402(*, header: str = "", body: bytes = b"") -> Answer:
    headers = (*_NEUTRAL_HEADERS, (HEADER, header)) if header else _NEUTRAL_HEADERS
    return Answer(status=402, headers=headers, body=body)


def _parse_curl_output(text: bytes) -> Exchange:
    """Return the last response that curl printed; the others are interim responses (100),
    redirects, or those of a proxy.
    """
    at = status = 0
    headers: tuple[tuple[str, str], ...] = ()
    while line := _STATUS_LINE.match(text, at):
        status = int(line[1])
        headers, at = _read_headers(text, line.end())
    if not status:
        raise CaptureError("This starts with HTTP/, but not with a status line.")
    answer = Answer(status=status, headers=headers, body=text[at:])
    return Exchange(url="", method="", at=0, result=answer)


def _read_headers(text: bytes, at: int) -> tuple[tuple[tuple[str, str], ...], int]:
    """Return the headers that start at an offset, and the offset of the body."""
    headers: list[tuple[str, str]] = []
    while at < len(text):
        end = text.find(b"\n", at)
        end = len(text) if end < 0 else end
        line, at = text[at:end].removesuffix(b"\r").decode("latin-1"), end + 1
        name, colon, value = line.partition(":")
        if not line:
            break
        if line[0] in " \t" and headers:  # a folded line (RFC 9112, section 5.2)
            headers[-1] = (headers[-1][0], f"{headers[-1][1]} {line.strip()}")
        elif colon and name.strip() and not line[0].isspace():
            headers.append((name.strip().lower(), value.strip()))
        else:
            raise CaptureError("A line before the body is not a header.")
    return tuple(headers), min(at, len(text))
