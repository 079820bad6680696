"""ProbeResult: the judgement of one exchange. core/probe/outcome has the table of outcomes.

Rules (docs/methodology.md):
- only results with attribution `TARGET` are scored; the others are excluded, counted and shown;
- a response, and a fault that lateness can cause, is attributed to this machine if its thread or
  event loop was late by more than LATE_MS in the meantime, because the target's time is then
  unknown. So is every result that ends more than LATE_MS after the deadline;
- compliance of a scored probe is 100 minus 4 per warning (at most 20) without errors, 50 if a stock
  client could still pay, 0 if it could not;
- an offer that cannot be evaluated (core/endpoint/finding.NOT_EVALUATED) counts as payable, so that
  the forecast continues, with compliance 0. No other result is payable with compliance 0.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

from tollgauge.core.base.units import HOUR_MS
from tollgauge.core.endpoint.finding import Finding, Lint
from tollgauge.core.endpoint.terms import Quote, extension_names, forms_of, select_quote
from tollgauge.core.probe.exchange import Answer, Exchange, Fault, Timings
from tollgauge.core.probe.outcome import FAULTS, OUTCOMES, Attribution, Outcome, classify_answer

WARNING_COST: Final = 4
WARNINGS_COST_MAX: Final = 20
PAYABLE_WITH_ERRORS: Final = 50
HOLDS_MIN_MS: Final = 2 * HOUR_MS
"""Maximum time that a payable probe counts for, and minimum for every other one."""
LATE_MS: Final = 250
"""A longer scheduling delay of this machine, in milliseconds, may have caused a failure."""
LATE_HERE: Final = "late-here"
"""The reason of a result that lateness of this machine may have caused."""
REDIRECT_TO_HTTP: Final = "redirect-to-http"
"""The reason of a redirect from https to http: a payment would be sent unencrypted."""
_INVISIBLE: Final = re.compile(r"[\x00-\x20]")
"""Characters that clients drop from a Location before they parse its scheme (WHATWG URL)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeResult:
    """The judgement of one probe.

    Attributes:
        at: Milliseconds UTC.
        up: Only meaningful if the attribution is `theirs`.
        compliance: 0..100.
        version, quote: From the envelope; None without one.
        reason: Why it is not scored, the fault that ended it, or another defect of the response: a
            value of FaultKind or Defect, or REDIRECT_TO_HTTP.
        findings: The linter's findings; the store keeps their slugs.
        forms: The forms of payment in the envelope (core/endpoint/terms); stored with the endpoint.
        extensions: Names of the envelope's extensions; stored with the endpoint.
        holds: Maximum time in milliseconds that it counts for (core/probe/spans).
        confirms: Repeats a failed probe soon after it. Counts for time only, not for any count.
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
    extensions: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    reason: str = ""
    method: str = "GET"
    tls_not_after: int | None = None
    holds: int = HOLDS_MIN_MS
    confirms: bool = False

    @property
    def scored(self) -> bool:
        """Whether this result counts in a score."""
        return self.attribution is Attribution.TARGET

    @property
    def latency_ms(self) -> int | None:
        """Milliseconds of the exchange; None if it was not up."""
        return self.timings.total if self.up else None

    @property
    def late_here(self) -> bool:
        """Whether this machine was late, so that slowness does not describe the target."""
        return self.timings.delay > LATE_MS


def judge(exchange: Exchange, lint: Lint) -> ProbeResult:
    """Judge an exchange and the lint of its envelope. Never raises."""
    if isinstance(exchange.result, Fault):
        return _judge_fault(exchange, exchange.result)
    outcome = classify_answer(exchange.result)
    row = OUTCOMES[outcome]
    attribution, reason = row.attribution, _reason(exchange, exchange.result)
    if attribution is not Attribution.TARGET:
        reason = outcome.value
    elif max(exchange.timings.delay, exchange.timings.overrun) > LATE_MS:
        attribution, reason = Attribution.LOCAL, LATE_HERE
    return ProbeResult(
        at=exchange.at,
        outcome=outcome,
        attribution=attribution,
        up=row.up,
        timings=exchange.timings,
        status=exchange.result.status,
        compliance=_compliance(lint) if row.up else 0,
        compliant=lint.compliant,
        payable=lint.payable or not lint.evaluated,
        version=lint.version,
        quote=select_quote(lint.terms),
        accepts=lint.accepts,
        forms=forms_of(lint.terms),
        extensions=extension_names(lint.extensions),
        findings=lint.findings,
        reason=reason,
        method=exchange.method,
        tls_not_after=exchange.tls_not_after,
    )


def _judge_fault(exchange: Exchange, fault: Fault) -> ProbeResult:
    row = FAULTS[fault.kind]
    late = exchange.timings.overrun > LATE_MS or (row.lateness and exchange.timings.delay > LATE_MS)
    attribution = row.attribution or OUTCOMES[row.outcome].attribution
    return ProbeResult(
        at=exchange.at,
        outcome=row.outcome,
        attribution=Attribution.LOCAL if late else attribution,
        up=False,
        timings=exchange.timings,
        reason=LATE_HERE if late else (fault.defect or fault.kind).value,
        method=exchange.method,
        tls_not_after=exchange.tls_not_after,
    )


def describes_target(probe: Any) -> bool:
    """Return whether a ProbeResult, or a row with its fields, describes the target's state."""
    return bool(probe.attribution == Attribution.TARGET)


def _reason(exchange: Exchange, answer: Answer) -> str:
    """Return the defect of a response other than its envelope; "" for none."""
    if 300 <= answer.status <= 399 and exchange.url.startswith("https:"):
        locations = answer.header_values("location")
        if any(_INVISIBLE.sub("", url).lower().startswith("http:") for url in locations):
            return REDIRECT_TO_HTTP
    return "" if answer.defect is None else answer.defect.value


def _compliance(lint: Lint) -> int:
    """Return the compliance of a probe that was up, 0..100 (docs/methodology.md)."""
    if not lint.payable or not lint.evaluated:
        return 0
    if lint.errors:
        return PAYABLE_WITH_ERRORS
    return 100 - min(WARNINGS_COST_MAX, WARNING_COST * lint.warnings)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ProbeJudgement:
    """The values that many probes of a day share, named as in ProbeResult. Compared by identity, so
    it is a cheap cache key.
    """

    outcome: Outcome
    attribution: Attribution
    up: bool
    compliant: bool
    status: int | None
    quote: Quote | None
    confirms: bool = False


HistoryRow = tuple[int, int, ProbeJudgement]
"""The time of a probe (ms UTC), its duration (ms), and its judgement. A plain tuple, because a
response contains tens of thousands.
"""
