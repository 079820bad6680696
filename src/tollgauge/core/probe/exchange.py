"""Exchange: one request to an endpoint, its response or fault, and the findings of the linter.

clients/x402 makes exchanges, core/lint lints them, and core/probe/probe judges them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC
from email.utils import parsedate_to_datetime
from enum import StrEnum
from typing import Final

from tollgauge.core.endpoint.terms import Terms

BODY_METHODS: Final = frozenset({"POST", "PUT", "PATCH"})
"""The methods that send a body."""
_DIGITS_MAX: Final = 9
"""Digits of a number of seconds that are read: 31 years, more than any caller waits."""
LINT_FLAG: Final = "lint:"
"""Prefix of the flags that represent a rule of the linter."""
SIGNED_OFFER_MISMATCH: Final = "signed-offer-mismatch"
"""Slug of the rule about an invalid signed offer, and of the flag that represents it."""
NOT_EVALUATED: Final = "not-evaluated"
"""Slug of the rule about an envelope whose entries cannot be evaluated, and of the flag that
represents it.
"""


class FaultKind(StrEnum):
    """Why there was no HTTP response. core/probe/probe decides who caused it."""

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
    """Caused by this machine: no socket, no memory, no route, a local limit."""


class Defect(StrEnum):
    """A defect of a certificate or a response that the kind does not name. Values are stored as the
    reason of a probe and must not change.
    """

    CERTIFICATE_EXPIRED = "certificate-expired"
    CERTIFICATE_NOT_YET_VALID = "certificate-not-yet-valid"
    CERTIFICATE_WRONG_NAME = "certificate-wrong-name"
    CERTIFICATE_SELF_SIGNED = "certificate-self-signed"
    CERTIFICATE_UNKNOWN_ISSUER = "certificate-unknown-issuer"
    LENGTH_TOO_LARGE = "content-length-too-large"
    """Content-Length is 2^63 or more: clients cannot count that far, and no body is that long."""
    NOT_MCP = "not-mcp"
    """The response of an MCP server is not a message of MCP."""
    LENGTH_AND_TRANSFER_ENCODING = "content-length-with-transfer-encoding"
    """Both define the end of the body (RFC 9112 section 6.3). Node rejects such a response."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timings:
    """Duration of each phase in whole milliseconds; None for a phase that was not reached.

    Attributes:
        total: From the start of the request to its end, whatever ended it.
        delay: Largest scheduling delay of the thread and event loop that served the request
            (clients/egress/curl_loop). Caused by this machine; stored as 0.
        overrun: Time by which `total` exceeded the deadline. Caused by this machine; stored as 0.
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
    """An HTTP response.

    Attributes:
        headers: Names in lower case, in order, duplicates kept; values decoded as latin-1.
        truncated: The body exceeded the size limit and was cut.
        defect: A defect that most clients accept.
    """

    status: int
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    truncated: bool = False
    defect: Defect | None = None

    def header_values(self, name: str) -> tuple[str, ...]:
        """Return all values of a header, `name` in lower case."""
        return tuple([value for key, value in self.headers if key == name])

    def header(self, name: str) -> str | None:
        """Return the first value of a header, or None."""
        return next(iter(self.header_values(name)), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """The end of a request without a response. `detail` contains no foreign text and is safe to
    show. `defect` is more specific than the kind, if it is known.
    """

    kind: FaultKind
    detail: str = ""
    defect: Defect | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """One request to an endpoint with its result.

    `at` is the start in milliseconds UTC. `tls_not_after` is the end of the leaf certificate's
    validity in milliseconds UTC; None without TLS. For an MCP tool, `url` is its resource.
    """

    url: str
    method: str
    at: int
    result: Answer | Fault
    timings: Timings = field(default_factory=Timings)
    address: str | None = None
    tls_not_after: int | None = None


class Severity(StrEnum):
    """The severity of a finding.

    An error: a stock client could not pay, or would pay the wrong thing. A warning: some clients
    cannot pay, or the description of the resource is wrong.
    """

    ERROR = "error"
    WARN = "warn"
    INFO = "info"

    @property
    def rank(self) -> int:
        """Its index among all severities, 0 for the worst."""
        return tuple(Severity).index(self)


def is_lint(code: str) -> bool:
    """Return whether a flag represents a rule of the linter."""
    return code.startswith(LINT_FLAG)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A rule that fired, and its place in the exchange: `status`, `header`, `body`, or a path such
    as `accepts[0].amount`.
    """

    rule: str
    severity: Severity
    message: str
    where: str = ""


class OfficialClient(StrEnum):
    """The official x402 clients: the SDKs for TypeScript and Python, and Circle's client for
    Gateway.
    """

    TYPESCRIPT = "typescript"
    PYTHON = "python"
    CIRCLE = "circle"

    @property
    def label(self) -> str:
        """The name for people."""
        return {"typescript": "TypeScript", "python": "Python", "circle": "Circle"}[self]


ALL_CLIENTS: Final = frozenset(OfficialClient)
"""All official clients."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lint:
    """The linter's result for one exchange.

    Attributes:
        payable: A stock client could pay.
        payable_by: The official clients that could pay. Empty for an envelope that is not
            evaluated, although `payable` is true if it has no errors.
        compliant: A 402 without errors.
        version: Version of the envelope that a client would use; None without an envelope.
        accepts: Number of entries in the envelope; None without an envelope.
        terms: Every readable entry.
        extensions: Names of its extensions, as written.
        app_code: The builder code of the seller's app (ERC-8021); empty without a valid one.
    """

    payable: bool
    compliant: bool
    version: int | None
    payable_by: frozenset[OfficialClient] = frozenset()
    accepts: int | None = None
    findings: tuple[Finding, ...] = ()
    terms: tuple[Terms, ...] = ()
    extensions: tuple[str, ...] = ()
    app_code: str = ""

    @property
    def evaluated(self) -> bool:
        """Whether the linter can decide if clients can pay. An error outside of the entries affects
        every network.
        """
        return not self.compliant or all(one.rule != NOT_EVALUATED for one in self.findings)

    @property
    def errors(self) -> int:
        """The number of errors."""
        return sum(finding.severity is Severity.ERROR for finding in self.findings)

    @property
    def warnings(self) -> int:
        """The number of warnings."""
        return sum(finding.severity is Severity.WARN for finding in self.findings)


def retry_after_ms(text: str | None, *, now: int | None) -> int | None:
    """Parse a Retry-After header; None if it is missing or malformed. Never raises.

    The value is a number of seconds or an HTTP date; a date in the past gives 0.

    Args:
        text: The header's value.
        now: Milliseconds UTC. If it is None, dates are not accepted.

    Returns:
        The wait in milliseconds.
    """
    value = (text or "").strip()
    if value.isascii() and value.isdigit():
        return int(value.lstrip("0")[:_DIGITS_MAX] or 0) * 1_000
    if now is None:
        return None
    try:
        date = parsedate_to_datetime(value)
        # HTTP dates are in GMT, even without a time zone (RFC 9110 section 5.6.7).
        at = int((date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp() * 1_000)
    except (ValueError, TypeError, OverflowError, IndexError):
        return None
    return max(at - now, 0)
