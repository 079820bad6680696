"""Strict JSON for request bodies: unambiguous, and cheap to parse.

Rules (RFC 8259, RFC 7493): UTF-8 without a byte order mark, depth at most 32, no duplicate keys, no
NaN or Infinity, no integer that Python refuses to convert (more than 4,300 digits). The depth is
counted before the parser runs, because a deep text can exhaust the C stack if a library has raised
the recursion limit.
"""

from __future__ import annotations

import json
import math
import re
from itertools import accumulate
from typing import Final

from tollgauge.core.base.errors import TollgaugeError

RECURSION_LIMIT: Final = 3_000
"""Python's limit after libraries have raised it: a deep text must not exhaust the C stack."""
DEPTH_MAX: Final = 32
"""Levels of JSON, including the outermost object or array."""
_NO_BRACKETS: Final = bytes(set(range(256)) - set(b"[{]}"))
_STEPS: Final = {bracket: 1 if bracket in b"[{" else -1 for bracket in b"[{]}"}
_STRING: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
"""A string, or the rest of a text with an unterminated string. It does not backtrack, so it takes
linear time.
"""


class StrictJsonError(TollgaugeError):
    """A text that is not strict JSON. The message does not contain the text and is safe to
    show.
    """


def loads(data: bytes) -> object:
    """Return the value of a strict JSON text. Raises only StrictJsonError."""
    if data[:3] == b"\xef\xbb\xbf" or data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise StrictJsonError("The JSON starts with a byte order mark.")
    # Most texts contain fewer brackets than the allowed depth.
    if data.count(b"[") + data.count(b"{") > DEPTH_MAX and depth(data) > DEPTH_MAX:
        raise StrictJsonError(f"The JSON is nested deeper than {DEPTH_MAX} levels.")
    try:
        return _DECODER.decode(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise StrictJsonError("The text is not valid JSON in UTF-8.") from error


def depth(data: bytes) -> int:
    """Return the deepest nesting of brackets outside strings; an upper bound for broken texts."""
    brackets = _STRING.sub(b"", data).translate(None, delete=_NO_BRACKETS)
    return max(accumulate(map(_STEPS.__getitem__, brackets), initial=0))


def _build_object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise StrictJsonError("The JSON has an object with a duplicate key.")
    return members


def _reject_constant(name: str) -> object:
    raise StrictJsonError(f"The JSON contains {name}, which is not a JSON number.")


def _parse_finite(text: str) -> float:
    """Parse a number with a fraction or an exponent; one too large for a float would become
    Infinity.
    """
    value = float(text)
    if math.isinf(value):
        raise StrictJsonError("The JSON contains a number that is too large.")
    return value


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_build_object, parse_constant=_reject_constant, parse_float=_parse_finite
)
