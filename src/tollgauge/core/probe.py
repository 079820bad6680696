"""ProbeResult: what one exchange means, and whose doing it was.

Rules (scoring.md, *scored probes*):
- only an attribution `theirs` is scored; our own faults are excluded, counted and shown;
- up is an HTTP answer with status 402, 2xx, 400, 401, 403 or 422; 429 is excluded; every other
  answer, TLS and connection failures and time-outs are down;
- compliance of a scored probe is 100 less 4 for each warning (at most 20) without errors, 50 when
  a stock client could still pay, 0 when it could not.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from tollgauge.core.exchange import Timings
from tollgauge.core.finding import Finding
from tollgauge.core.terms import Quote


class Attribution(StrEnum):
    """Whose doing a result is."""

    THEIRS = "theirs"
    OURS = "ours"
    UNKNOWN = "unknown"


class Outcome(StrEnum):
    """What a probe met, as history and pages name it."""

    PAYMENT_REQUIRED = "payment-required"
    OPEN = "open"
    VALIDATES = "validates-first"
    FORBIDDEN = "forbidden"
    THROTTLED = "throttled"
    NOT_FOUND = "not-found"
    METHOD_REFUSED = "method-refused"
    REDIRECT = "redirect"
    CLIENT_ERROR = "client-error"
    SERVER_ERROR = "server-error"
    DNS = "dns-failure"
    CONNECT = "connect-failure"
    TLS = "tls-failure"
    TIMEOUT = "timeout"
    BROKEN = "broken-http"
    LOCAL = "local-failure"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeResult:
    """The judgement of one probe. `at` is milliseconds UTC.

    `up` is meaningful where the attribution is `theirs`. `compliance` is 0..100. `version` and
    `quote` come from the envelope, None without one. `reason` says why a result is not scored or
    what fault ended it. `findings` are the linter's; the store keeps their slugs.
    """

    at: int
    outcome: Outcome
    attribution: Attribution
    up: bool
    timings: Timings
    status: int | None = None
    compliance: int = 0
    compliant: bool = False
    payable: bool = False
    version: int | None = None
    quote: Quote | None = None
    accepts: int | None = None
    findings: tuple[Finding, ...] = ()
    reason: str = ""
    method: str = "GET"
    tls_not_after: int | None = None

    @property
    def scored(self) -> bool:
        """Whether this result counts in a score."""
        return self.attribution is Attribution.THEIRS

    @property
    def latency_ms(self) -> int | None:
        """Whole milliseconds of the exchange, None when the target was not up."""
        return self.timings.total if self.up else None
