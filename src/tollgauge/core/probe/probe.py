"""The judgement of one exchange, and spans: the time for which an endpoint was up, payable or down.

Judgement (docs/methodology.md; core/probe/outcome has the table of outcomes):
- only results with attribution `TARGET` are scored; the others are excluded, counted and shown;
- a response, and a fault that lateness can cause, is attributed to this machine if its thread or
  event loop was late by more than LATE_MS in the meantime, because the target's time is then
  unknown. So is every result that ends more than LATE_MS after the deadline;
- compliance of a scored probe is 100 minus 4 per warning (at most 20) without errors, 50 if a stock
  client could still pay, 0 if it could not;
- an offer that cannot be evaluated (NOT_EVALUATED) counts as payable, so that the forecast
  continues, with compliance 0. No other result is payable with compliance 0.

Spans (docs/methodology.md, *time, not probe counts*):
- a probe counts from its time to the next probe that counts, at most for `holds` milliseconds:
  HOLDS_MIN_MS if it was payable, otherwise one and a half times the time to the endpoint's next
  probe, so a target that answers 503 and asks for a pause of six hours is down for those hours.
  Later time is in no sum, so a stop of this service counts neither way;
- every scored probe counts, and every probe that confirms a failure (`ProbeResult.confirms`), which
  is in no count of probes. A result whose cause is local or unknown does not describe the target
  and does not count;
- sums are integers of milliseconds and split at midnight UTC, so those of closed days never change.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import msgspec

from tollgauge.core.base.units import DAY_MS, HOUR_MS
from tollgauge.core.endpoint.terms import (
    KnownOffer,
    Quote,
    extension_names,
    forms_of,
    list_offers,
    select_terms,
)
from tollgauge.core.probe.exchange import (
    Answer,
    Exchange,
    Fault,
    Finding,
    Lint,
    OfficialClient,
    Timings,
)
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
        payable_by: The official clients that could pay; empty if no offer can be evaluated.
        version, quote: From the envelope; None without one.
        reason: Why it is not scored, the fault that ended it, or another defect of the response: a
            value of FaultKind or Defect, or REDIRECT_TO_HTTP.
        findings: The linter's findings; the store keeps their slugs.
        forms: The forms of payment in the envelope (core/endpoint/terms); stored with the endpoint.
        offers: The offers of the envelope (core/endpoint/terms); stored with the endpoint.
        holds: Maximum time in milliseconds that it counts for (core/probe/probe).
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
    payable_by: frozenset[OfficialClient] = frozenset()
    version: int | None = None
    quote: Quote | None = None
    accepts: int | None = None
    forms: tuple[str, ...] = ()
    offers: tuple[KnownOffer, ...] = ()
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


class DayProbe(msgspec.Struct, frozen=True):
    """The part of a ProbeResult that day sums and windows read, with the same names.

    Reading one from the database takes a quarter of the time of a ProbeResult. A score reads about
    twenty.
    """

    at: int
    outcome: Outcome
    attribution: Attribution
    up: bool
    payable: bool
    compliant: bool
    compliance: int
    accepts: int | None
    findings: tuple[Finding, ...]
    reason: str
    tls_not_after: int | None
    total: int
    holds: int
    confirms: bool

    @property
    def scored(self) -> bool:
        """Whether this probe counts in a score."""
        return self.attribution is Attribution.TARGET

    @property
    def latency_ms(self) -> int | None:
        """Milliseconds of the exchange; None if it was not up."""
        return self.total if self.up else None


AnyProbe = ProbeResult | DayProbe


def judge(exchange: Exchange, lint: Lint) -> ProbeResult:
    """Judge an exchange and the lint of its envelope. Never raises."""
    if isinstance(exchange.result, Fault):
        return _judge_fault(exchange, exchange.result)
    outcome = classify_answer(exchange.result)
    row = OUTCOMES[outcome]
    attribution, reason = row.attribution, _find_defect(exchange, exchange.result)
    if attribution is not Attribution.TARGET:
        reason = outcome.value
    elif max(exchange.timings.delay, exchange.timings.overrun) > LATE_MS:
        attribution, reason = Attribution.LOCAL, LATE_HERE
    selected = select_terms(lint.terms)
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
        payable_by=lint.payable_by,
        version=lint.version,
        quote=selected.quote() if selected else None,
        accepts=lint.accepts,
        forms=forms_of(lint.terms),
        offers=list_offers(lint.terms, lint.app_code),
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


def _find_defect(exchange: Exchange, answer: Answer) -> str:
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
    payable: bool
    status: int | None
    quote: Quote | None
    confirms: bool = False


HistoryRow = tuple[int, int, ProbeJudgement]
"""The time of a probe (ms UTC), its duration (ms), and its judgement. A plain tuple, because a
response contains tens of thousands.
"""


HOLDS_MAX_MS: Final = 24 * HOUR_MS
"""Maximum time that any probe counts for."""


class Statement(NamedTuple):
    """The state of the endpoint from `at` (ms UTC) on, for at most `holds` milliseconds.
    `compliance` is 0..100; `refused`: it answered without serving the prober.
    """

    at: int
    holds: int
    up: bool
    payable: bool
    compliance: int
    refused: bool = False


Said = tuple[int, int, bool, bool, int, bool]
"""The values of a statement: (at, holds, up, payable, compliance, refused)."""


class Spans(msgspec.Struct, frozen=True, kw_only=True):
    """Milliseconds `up`, `payable` and `down` (up + down is the observed time), the sum of
    compliance x milliseconds, and the numbers of failures and repairs: changes from payable to not
    payable and back. `refused` is the part of `down` with refusals.
    """

    up: int = 0
    payable: int = 0
    down: int = 0
    compliance: int = 0
    failures: int = 0
    repairs: int = 0
    refused: int = 0


NO_SPANS: Final = Spans()


def spans_sum(parts: Sequence[Spans]) -> Spans:
    """Return the sum of spans that do not overlap."""
    columns = zip(*map(msgspec.structs.astuple, parts), strict=True)
    return Spans(**dict(zip(Spans.__struct_fields__, map(sum, columns), strict=False)))


def holds_ms(*, payable: bool, interval_ms: int) -> int:
    """Return the maximum time that a probe counts for if the next one is due after
    `interval_ms`.
    """
    if payable:
        return HOLDS_MIN_MS
    return min(max(interval_ms * 3 // 2, HOLDS_MIN_MS), HOLDS_MAX_MS)


def statement(result: AnyProbe) -> Statement | None:
    """Return the statement of a result; None if it does not describe the target."""
    if result.attribution is not Attribution.TARGET:
        return None
    return Statement(
        result.at,
        result.holds,
        result.up,
        result.payable,
        result.compliance,
        OUTCOMES[result.outcome].refusal,
    )


def spans(day: int, statements: Iterable[Said], *, before: Said | None, until: int) -> Spans:
    """Return the spans of a UTC day up to `until` (ms UTC), from its statements in any order.

    `before` is the last statement of the day before. Older ones are unknown: the first statement
    after a day without any begins neither a failure nor a repair.
    """
    begin, end = day * DAY_MS, min((day + 1) * DAY_MS, until)
    ordered = sorted(statements)
    known = [before, *ordered] if before is not None else ordered
    up = payable = down = compliance = failures = repairs = refused = 0
    following_at, following_payable = end, None
    for at, holds, is_up, is_payable, worth, is_refusal in reversed(known):
        stop = at + holds
        stop = stop if stop < following_at else following_at
        spoken = (stop if stop < end else end) - (at if at > begin else begin)
        if spoken > 0:
            up += spoken if is_up else 0
            down += 0 if is_up else spoken
            payable += spoken if is_payable else 0
            compliance += worth * spoken
            refused += spoken if is_refusal else 0
        if following_payable is not None and bool(is_payable) is not following_payable:
            failures += not following_payable
            repairs += following_payable
        following_at, following_payable = at, bool(is_payable)
    return Spans(
        up=up,
        payable=payable,
        down=down,
        compliance=compliance,
        failures=failures,
        repairs=repairs,
        refused=refused,
    )
