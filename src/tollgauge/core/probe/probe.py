"""ProbeResult: the judgement of one exchange. Outcomes and their attribution are rows of
core/probe/outcome.

Rules (docs/methodology.md):
- only results with attribution `TARGET` are scored; the others are excluded, counted and shown;
- an answer, and a fault that lateness can cause, is attributed to this machine if its thread or
  event loop was late by more than LATE_MS meanwhile: the target's own time is then unknown. So is
  every result that ends that long after the deadline;
- compliance of a scored probe is 100 minus 4 per warning (at most 20) without errors, 50 if a stock
  client could still pay, 0 if it could not;
- an offer that cannot be evaluated (core/endpoint/finding.NOT_EVALUATED) counts as payable, so that
  the forecast goes on, with compliance 0. No other result is payable with compliance 0.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

from tollgauge.core.base.units import HOUR_MS
from tollgauge.core.endpoint.finding import Finding, Lint
from tollgauge.core.endpoint.terms import Quote, forms_of, preferred
from tollgauge.core.probe.exchange import Answer, Exchange, Fault, Timings
from tollgauge.core.probe.outcome import FAULTS, OUTCOMES, Attribution, Outcome, classify_answer

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
        return self.attribution is Attribution.TARGET

    @property
    def latency_ms(self) -> int | None:
        """Milliseconds of the exchange; None if it was not up."""
        return self.timings.total if self.up else None

    @property
    def late_here(self) -> bool:
        """Whether we were late ourselves, so that slowness says nothing about the target."""
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
        quote=preferred(lint.terms),
        accepts=lint.accepts,
        forms=forms_of(lint.terms),
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
    """What was wrong with an answer beside its envelope, "" for nothing."""
    if 300 <= answer.status <= 399 and exchange.url.startswith("https:"):
        locations = answer.header_values("location")
        if any(_INVISIBLE.sub("", url).lower().startswith("http:") for url in locations):
            return REDIRECT_TO_HTTP
    return "" if answer.defect is None else answer.defect.value


def _compliance(lint: Lint) -> int:
    """0..100: what the envelope of a probe that was up is worth (docs/methodology.md)."""
    if not lint.payable or not lint.evaluated:
        return 0
    if lint.errors:
        return PAYABLE_WITH_ERRORS
    return 100 - min(WARNINGS_COST_MAX, WARNING_COST * lint.warnings)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ProbeJudgement:
    """What many probes of a day have in common, in the words of ProbeResult. Compared by identity,
    so that it is a quick key for what is computed from it.
    """

    outcome: Outcome
    attribution: Attribution
    up: bool
    compliant: bool
    status: int | None
    quote: Quote | None
    confirms: bool = False


HistoryRow = tuple[int, int, ProbeJudgement]
"""The instant of a probe (ms UTC), how long it took in all (ms), and its judgement. A plain tuple,
because an answer has tens of thousands.
"""
