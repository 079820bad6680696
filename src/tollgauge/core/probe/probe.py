"""ProbeResult: what one exchange means, and who caused its outcome.

Rules (docs/methodology.md):
- only an attribution `theirs` is scored; our own faults are excluded, counted and shown;
- up is an HTTP answer with status 402, 2xx, 400, 401, 403 or 422; 429 is excluded; every other
  answer, TLS and connection failures and time-outs are down;
- an answer, and a fault that lateness can cause (_LATENESS_FAULTS), is ours when our own thread or
  event loop was late by more than LATE_MS meanwhile, because nobody knows how long the target took;
  so is whatever ends that far past the deadline;
- compliance of a scored probe is 100 less 4 for each warning (at most 20) without errors, 50 when
  a stock client could still pay, 0 when it could not;
- an offer that cannot be evaluated (core/endpoint/finding.NOT_EVALUATED) counts as payable, so that
  the forecast goes on, with compliance 0. No other result is payable with compliance 0.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tollgauge.core.base.units import HOUR_MS
from tollgauge.core.endpoint.finding import Finding, Lint
from tollgauge.core.endpoint.terms import Quote, forms_of, preferred
from tollgauge.core.probe.exchange import Answer, Exchange, Fault, FaultKind, Timings

WARNING_COST: Final = 4
WARNINGS_COST_MAX: Final = 20
PAYABLE_WITH_ERRORS: Final = 50
HOLDS_MIN_MS: Final = 2 * HOUR_MS
"""How long a payable probe speaks at most, and every other one at least."""
LATE_MS: Final = 250
"""A longer scheduling delay of our own, in milliseconds, may be why a probe failed."""
LATE_HERE: Final = "late-here"
"""The reason of a result that our own lateness may have caused."""
REDIRECT_TO_HTTP: Final = "redirect-to-http"
"""The reason of a redirect that leads from https to http: a payment would travel in the open."""
_INVISIBLE: Final = re.compile(r"[\x00-\x20]")
"""What clients drop from a Location before they read its scheme (WHATWG URL)."""


class Attribution(StrEnum):
    """Who caused a result: the target, ourselves, or nobody knows."""

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


STATUS_OUTCOMES: Final[dict[int, tuple[Outcome, bool]]] = {
    402: (Outcome.PAYMENT_REQUIRED, True),
    400: (Outcome.VALIDATES, True),
    422: (Outcome.VALIDATES, True),
    401: (Outcome.FORBIDDEN, True),
    403: (Outcome.FORBIDDEN, True),
    404: (Outcome.NOT_FOUND, False),
    410: (Outcome.NOT_FOUND, False),
    405: (Outcome.METHOD_REFUSED, False),
    429: (Outcome.THROTTLED, False),
}
"""Statuses with an outcome of their own, and whether they count as up; `_outcome` has the rest."""

FAULT_OUTCOMES: Final[dict[FaultKind, Outcome]] = {
    FaultKind.DNS_NOT_FOUND: Outcome.DNS,
    FaultKind.DNS_FAILED: Outcome.DNS,
    FaultKind.NOT_PUBLIC: Outcome.CONNECT,
    FaultKind.CONNECT: Outcome.CONNECT,
    FaultKind.CONNECT_TIMEOUT: Outcome.TIMEOUT,
    FaultKind.TLS: Outcome.TLS,
    FaultKind.TLS_INVALID: Outcome.TLS,
    FaultKind.TIMEOUT: Outcome.TIMEOUT,
    FaultKind.RESET: Outcome.CONNECT,
    FaultKind.EMPTY: Outcome.BROKEN,
    FaultKind.OVERSIZE: Outcome.BROKEN,
    FaultKind.MALFORMED: Outcome.BROKEN,
    FaultKind.LOCAL: Outcome.LOCAL,
}
"""The outcome of an attempt that ended without an answer."""

_FAULT_ATTRIBUTIONS: Final = {
    FaultKind.DNS_FAILED: Attribution.UNKNOWN,
    FaultKind.LOCAL: Attribution.OURS,
}
"""The faults that are not the target's: a resolver that fails may be our own."""

_LATENESS_FAULTS: Final = frozenset(
    {
        FaultKind.DNS_FAILED,
        FaultKind.TIMEOUT,
        FaultKind.CONNECT_TIMEOUT,
        FaultKind.RESET,
        FaultKind.EMPTY,
        FaultKind.TLS,
    }
)
"""Faults that our own lateness can cause: we ask too late, or the other side stops waiting."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeResult:
    """The judgement of one probe. `at` is milliseconds UTC.

    `up` is meaningful where the attribution is `theirs`. `compliance` is 0..100. `version` and
    `quote` come from the envelope, None without one. `reason` says why a result is not scored,
    what fault ended it, or what else was wrong with the answer: a slug of FaultKind, of Defect, or
    REDIRECT_TO_HTTP. `findings` are the linter's; the store keeps their slugs. `holds` is for how
    many milliseconds it speaks at most (core/probe/spans). One that `confirms` asks a failure
    again soon after it: it speaks for time, and is no part of any count. `forms` are the forms of
    payment that the envelope offers (core/endpoint/terms); the store keeps them with the endpoint.
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
    forms: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    reason: str = ""
    method: str = "GET"
    tls_not_after: int | None = None
    holds: int = HOLDS_MIN_MS
    confirms: bool = False

    @property
    def scored(self) -> bool:
        """Whether this result counts in a score."""
        return self.attribution is Attribution.THEIRS

    @property
    def latency_ms(self) -> int | None:
        """Whole milliseconds of the exchange, None when the target was not up, or refused with 401
        or 403: how fast it refuses says nothing of how fast it answers.
        """
        return self.timings.total if self.up and self.outcome is not Outcome.FORBIDDEN else None

    @property
    def late_here(self) -> bool:
        """Whether we were late ourselves, so that slowness says nothing about the target."""
        return self.timings.delay > LATE_MS


def judge(exchange: Exchange, lint: Lint) -> ProbeResult:
    """What an exchange and its lint mean for the score. Never raises."""
    if isinstance(exchange.result, Fault):
        return _faulted(exchange, exchange.result)
    status = exchange.result.status
    outcome, up = _outcome(status)
    excluded = _excluded(exchange, outcome)
    return ProbeResult(
        at=exchange.at,
        outcome=outcome,
        attribution=Attribution.OURS if excluded else Attribution.THEIRS,
        up=up,
        timings=exchange.timings,
        status=status,
        compliance=_compliance(lint) if up else 0,
        compliant=lint.compliant,
        payable=lint.payable or not lint.evaluated,
        version=lint.version,
        quote=preferred(lint.terms),
        accepts=lint.accepts,
        forms=forms_of(lint.terms),
        findings=lint.findings,
        reason=excluded or _reason(exchange, exchange.result),
        method=exchange.method,
        tls_not_after=exchange.tls_not_after,
    )


def _excluded(exchange: Exchange, outcome: Outcome) -> str:
    """Why an answer is not scored, empty where it is."""
    if outcome is Outcome.THROTTLED:
        return Outcome.THROTTLED.value
    late = max(exchange.timings.delay, exchange.timings.overrun) > LATE_MS
    return LATE_HERE if late else ""


def _late(exchange: Exchange, fault: Fault) -> bool:
    """Whether our own lateness may have caused a fault."""
    delayed = fault.kind in _LATENESS_FAULTS and exchange.timings.delay > LATE_MS
    return delayed or exchange.timings.overrun > LATE_MS


def _faulted(exchange: Exchange, fault: Fault) -> ProbeResult:
    """The judgement of an attempt that ended without an answer."""
    late = _late(exchange, fault)
    attribution = _FAULT_ATTRIBUTIONS.get(fault.kind, Attribution.THEIRS)
    return ProbeResult(
        at=exchange.at,
        outcome=FAULT_OUTCOMES[fault.kind],
        attribution=Attribution.OURS if late else attribution,
        up=False,
        timings=exchange.timings,
        reason=LATE_HERE if late else (fault.defect or fault.kind).value,
        method=exchange.method,
        tls_not_after=exchange.tls_not_after,
    )


def _reason(exchange: Exchange, answer: Answer) -> str:
    """What was wrong with an answer beside its envelope, "" for nothing."""
    if 300 <= answer.status <= 399 and exchange.url.startswith("https:"):
        locations = answer.header_values("location")
        if any(_INVISIBLE.sub("", url).lower().startswith("http:") for url in locations):
            return REDIRECT_TO_HTTP
    return "" if answer.defect is None else answer.defect.value


def _outcome(status: int) -> tuple[Outcome, bool]:
    """The outcome of a status, and whether it counts as up."""
    if status in STATUS_OUTCOMES:
        return STATUS_OUTCOMES[status]
    if 200 <= status <= 299:
        return Outcome.OPEN, True
    if 300 <= status <= 399:
        return Outcome.REDIRECT, False
    if 400 <= status <= 499:
        return Outcome.CLIENT_ERROR, False
    return Outcome.SERVER_ERROR if 500 <= status <= 599 else Outcome.BROKEN, False


def _compliance(lint: Lint) -> int:
    """0..100: what the envelope of a probe that was up is worth (docs/methodology.md)."""
    if not lint.payable or not lint.evaluated:
        return 0
    if lint.errors:
        return PAYABLE_WITH_ERRORS
    return 100 - min(WARNINGS_COST_MAX, WARNING_COST * lint.warnings)
