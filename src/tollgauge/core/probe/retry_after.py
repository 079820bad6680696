"""Retry-After: how long a server asks its client to wait (RFC 9110 section 10.2.3).

How much of the wait a caller grants, and what it does without one, is the caller's own rule.
"""

from __future__ import annotations

from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Final

_DIGITS_MAX: Final = 9
"""Digits of a number of seconds that are read: 31 years, more than any caller waits."""


def retry_after_ms(text: str | None, *, now: int | None) -> int | None:
    """The wait in milliseconds that a header's value asks for; None for a value that is missing
    or cannot be read. Never raises.

    The value is a number of seconds or an HTTP date; a date in the past is a wait of 0. `now` is
    in milliseconds UTC; where it is None, dates are not read.
    """
    value = (text or "").strip()
    if value.isascii() and value.isdigit():
        return int(value.lstrip("0")[:_DIGITS_MAX] or 0) * 1_000
    if now is None:
        return None
    try:
        date = parsedate_to_datetime(value)
        # HTTP dates are in GMT, also where they do not say so (RFC 9110 section 5.6.7).
        at = int((date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp() * 1_000)
    except (ValueError, TypeError, OverflowError, IndexError):
        return None
    return max(at - now, 0)
