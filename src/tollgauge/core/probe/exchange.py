"""Exchange: one request to an endpoint, and the answer or the fault that ended it.

clients/x402 makes exchanges; core/probe/probe judges them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC
from email.utils import parsedate_to_datetime
from enum import StrEnum
from typing import Final

BODY_METHODS: Final = frozenset({"POST", "PUT", "PATCH"})
"""The methods that send a body."""


class FaultKind(StrEnum):
    """Why no HTTP answer came. Whose fault that is, core/probe/probe decides."""

    DNS_NOT_FOUND = "dns-not-found"
    DNS_FAILED = "dns-failed"
    NOT_PUBLIC = "address-not-public"
    CONNECT = "connect-failed"
    CONNECT_TIMEOUT = "connect-timeout"
    TLS = "tls-failed"
    TLS_INVALID = "tls-invalid"
    TIMEOUT = "timeout"
    RESET = "connection-reset"
    EMPTY = "empty-reply"
    OVERSIZE = "headers-too-large"
    MALFORMED = "malformed-http"
    LOCAL = "local-failure"
    """Ours: no socket, no memory, no route, a limit of our own."""


class Defect(StrEnum):
    """What exactly is wrong with a certificate or an answer, where the kind does not say it. The
    values are stable: they are stored as the reason of a probe.
    """

    CERTIFICATE_EXPIRED = "certificate-expired"
    CERTIFICATE_NOT_YET_VALID = "certificate-not-yet-valid"
    CERTIFICATE_WRONG_NAME = "certificate-wrong-name"
    CERTIFICATE_SELF_SIGNED = "certificate-self-signed"
    CERTIFICATE_UNKNOWN_ISSUER = "certificate-unknown-issuer"
    LENGTH_TOO_LARGE = "content-length-too-large"
    """Content-Length is 2^63 or more: no client can count so far, and no body ends there."""
    LENGTH_AND_TRANSFER_ENCODING = "content-length-with-transfer-encoding"
    """Both say where the body ends (RFC 9112 section 6.3). Node refuses such an answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timings:
    """How long each phase took, in whole milliseconds; None for a phase that was not reached.

    `total` runs from the start of the attempt to its end, whatever ended it.

    Two are of our own making, and 0 once a probe is stored: `delay`, the largest scheduling delay
    of the thread and the event loop that served the attempt (clients/egress/curl_loop), and
    `overrun`, how far `total` went past the attempt's deadline.
    """

    dns: int | None = None
    connect: int | None = None
    tls: int | None = None
    ttfb: int | None = None
    total: int = 0
    delay: int = 0
    overrun: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An HTTP answer. Header names are lower case, in order, duplicates kept; values are text
    decoded as latin-1. `truncated` says that the body went past the cap and was cut. `defect` is
    one that most clients accept.
    """

    status: int
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    truncated: bool = False
    defect: Defect | None = None

    def header_values(self, name: str) -> tuple[str, ...]:
        """All values of a header, `name` in lower case."""
        return tuple([value for key, value in self.headers if key == name])

    def header(self, name: str) -> str | None:
        """The first value of a header, or None."""
        return next(iter(self.header_values(name)), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """The end of an attempt without an answer. `detail` is our own text and safe to show. `defect`
    says more than the kind, where it is known.
    """

    kind: FaultKind
    detail: str = ""
    defect: Defect | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """One attempt: what was asked, when, and what came of it.

    `at` is the start in milliseconds UTC. `tls_not_after` is the end of the leaf certificate's
    validity in milliseconds UTC, None without TLS.
    """

    url: str
    method: str
    at: int
    result: Answer | Fault
    timings: Timings = field(default_factory=Timings)
    address: str | None = None
    tls_not_after: int | None = None


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
