"""Lenient parsers for the JSON of sellers and for the PAYMENT-REQUIRED header. They never raise."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import orjson

from tollgauge.core.base.strictjson import depth
from tollgauge.core.probe.exchange import Answer

HEADER: Final = "payment-required"
DEPTH_MAX: Final = 32  # levels of JSON below the outermost object or array
_STANDARD_ALPHABET: Final = bytes.maketrans(b"-_", b"+/")


class HeaderFault(StrEnum):
    """The reason why a header could not be read."""

    BASE64 = "base64"
    JSON = "json"
    OBJECT = "object"
    REQUIREMENTS = "requirements"


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """The `PAYMENT-REQUIRED` header.

    Attributes:
        text: The joined values; empty if the header is absent.
        count: Number of headers of this name.
        spaced: Contains whitespace, but decodes.
        urlsafe: Uses the URL-safe alphabet.
        unpadded: Lacks padding, but decodes.
        value: The decoded JSON value.
        document: The envelope; None with a fault.
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
"""The header is absent."""


def read_header(answer: Answer) -> Header:
    """Decode the header leniently.

    Several headers of the name are joined with a comma as HTTP clients join them (RFC 9110 section
    5.3), and the result does not decode. The specification names no base64 alphabet, so the
    URL-safe one, missing padding and whitespace are accepted, and rules warn about them.
    """
    values = answer.header_values(HEADER)
    text = ", ".join(values)
    encoded = text.encode("utf-8", "replace")  # other characters than ASCII are not base64 anyway
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
    fault = _find_fault(value)
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


def _find_fault(value: object) -> HeaderFault | None:
    """Return the reason why the JSON value of a header is not an envelope."""
    if value is None:
        return HeaderFault.JSON
    if not isinstance(value, dict):
        return HeaderFault.OBJECT
    if "accepts" not in value and {"scheme", "payTo"} <= value.keys():
        return HeaderFault.REQUIREMENTS
    return None


def load_json(raw: bytes) -> object:
    """Parse JSON; None for `null`, invalid JSON, and JSON nested deeper than DEPTH_MAX.

    orjson limits the nesting itself. CPython's `json` overruns the C stack once an EVM library has
    raised the recursion limit.
    """
    try:
        value: object = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return None
    return value if depth(raw) <= DEPTH_MAX + 1 else None


def members(value: object) -> dict[str, object]:
    """Return the members of an object; empty for any other value."""
    return value if isinstance(value, dict) else {}
