"""Header: what is in `PAYMENT-REQUIRED`, and JSON that anybody may have written.

Every function takes any bytes and never raises.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import orjson

from tollgauge.core.base.strictjson import depth
from tollgauge.core.probe.exchange import Answer

HEADER: Final = "payment-required"
DEPTH_MAX: Final = 32
"""Levels of JSON below the outermost object or array."""
_STANDARD_ALPHABET: Final = bytes.maketrans(b"-_", b"+/")


class HeaderFault(StrEnum):
    """Why a header could not be read."""

    BASE64 = "base64"
    JSON = "json"
    OBJECT = "object"
    REQUIREMENTS = "requirements"


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """The `PAYMENT-REQUIRED` header: its joined text (empty when absent), how often it came,
    which departures from standard base64 it has although it decodes, the JSON value that it decodes
    to, and its object or the fault that hides it.
    """

    text: str = ""
    count: int = 0
    spaced: bool = False
    urlsafe: bool = False
    unpadded: bool = False
    value: object = None
    document: dict[str, object] | None = None
    fault: HeaderFault | None = None


NO_HEADER: Final = Header()
"""No header of this name came."""


def read_header(answer: Answer) -> Header:
    """The header, decoded as leniently as its meaning allows.

    Several headers of the name are joined with a comma as HTTP clients join them (RFC 9110
    section 5.3), which no longer decodes. The specification names no base64 alphabet, so the
    URL-safe one, missing padding and white space are read, and the rules warn of them.
    """
    values = answer.header_values(HEADER)
    text = ", ".join(values)
    encoded = text.encode("utf-8", "replace")  # what is not ASCII is no base64 either way
    compact = b"".join(encoded.split())
    if not compact:
        return Header(count=len(values))
    digits = compact.rstrip(b"=")
    standard = digits.translate(_STANDARD_ALPHABET)
    no_base64 = Header(text=text, count=len(values), fault=HeaderFault.BASE64)
    if len(compact) - len(digits) > 2:
        return no_base64
    try:
        raw = base64.b64decode(standard + b"=" * (-len(standard) % 4), validate=True)
    except ValueError:
        return no_base64
    value = load_json(raw)
    fault = _document_fault(value)
    return Header(
        text=text,
        count=len(values),
        spaced=compact != encoded,
        urlsafe=standard != digits,
        unpadded=len(compact) % 4 != 0,
        value=value,
        document=members(value) if fault is None else None,
        fault=fault,
    )


def _document_fault(value: object) -> HeaderFault | None:
    """Why the JSON value of a header is no envelope."""
    if value is None:
        return HeaderFault.JSON
    if not isinstance(value, dict):
        return HeaderFault.OBJECT
    if "accepts" not in value and {"scheme", "payTo"} <= value.keys():
        return HeaderFault.REQUIREMENTS
    return None


def load_json(raw: bytes) -> object:
    """A JSON text's value; None for `null`, for what is no JSON, and for what is nested deeper than
    DEPTH_MAX.

    orjson, because it limits the nesting itself: CPython's `json` overruns the C stack once an
    EVM library has raised the recursion limit.
    """
    try:
        value: object = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return None
    return value if depth(raw) <= DEPTH_MAX + 1 else None


def members(value: object) -> dict[str, object]:
    """The members of an object, none of anything else."""
    return value if isinstance(value, dict) else {}
