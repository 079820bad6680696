"""Improvements: what a seller can change to raise a score, and the score after the change.

Rules (docs/how-to/sell.md):
- each improvement changes one property of the evidence, which is then scored as usual. Changes that
  do not raise the score, because a lower cap still applies, are omitted;
- a flag is fixed as the next probe would show it, or after the period for which it applies;
- a component is improved as if it had been at its best for the whole window; activity, to the next
  step of the policy's table of payers;
- improvements by mere passing of time are not included, so the actual result is as good or better.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from msgspec import structs

from tollgauge.core.base.units import DAY_MS, WINDOW_MS, day_of
from tollgauge.core.directory.discovery import PAYTO_CHANGED, PRICE_CHANGED
from tollgauge.core.probe.exchange import LINT_FLAG, Severity
from tollgauge.core.probe.outcome import Outcome
from tollgauge.core.probe.probe import Spans
from tollgauge.core.probe.rollup import (
    SLOT_MS,
    Rollup,
    bucket_of,
    count_latencies,
    encode_histogram,
    merge_histograms,
    percentile,
)
from tollgauge.core.score.demand import MIN_OWNERS, WHOLE_WEIGHT
from tollgauge.core.score.evidence import DemandEvidence, Evidence, LastProbe, LatestState
from tollgauge.core.score.facts import count_weighted_payers
from tollgauge.core.score.policy import POLICY
from tollgauge.core.score.score import Score
from tollgauge.core.score.scoring import FIXES, score
from tollgauge.core.score.window import DAYS

SHOWN: Final = 5
"""The maximum number of improvements."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Improvement:
    """One change that raises a score.

    Attributes:
        code: The code of a flag or the name of a component.
        points_tenths: The gain, to `score_tenths` and `grade`.
        fix: What to change, in words.
        in_days: When the gain is complete, in days; 0: with the next probe.
    """

    code: str
    points_tenths: int
    score_tenths: int
    grade: str
    fix: str
    in_days: int


class _Change(NamedTuple):
    """Evidence with one property changed; the other fields are those of Improvement."""

    code: str
    evidence: Evidence
    fix: str
    in_days: int = 0


def improvements(evidence: Evidence, *, now: Score | None = None) -> tuple[Improvement, ...]:
    """Return the changes that raise a score, the largest gain first; empty before anything was
    measured.

    `now` is the score of the evidence, if it is already known.
    """
    now = now or score(evidence)
    if now.score_tenths is None:
        return ()
    rows = []
    for code, changed, fix, in_days in (
        *fix_flags(evidence, now),
        *improve_components(evidence, now),
    ):
        then = score(changed)
        if then.score_tenths is None or then.grade is None or then.score_tenths <= now.score_tenths:
            continue
        rows.append(
            Improvement(
                code=code,
                points_tenths=then.score_tenths - now.score_tenths,
                score_tenths=then.score_tenths,
                grade=then.grade,
                fix=fix,
                in_days=in_days,
            )
        )
    return tuple(sorted(rows, key=lambda row: (-row.points_tenths, row.in_days, row.code))[:SHOWN])


_NEXT_PROBE: Final = (
    *("not-payable", "validates-before-402", "tls-invalid", "refuses-probes"),
    *("never-compliant", "down-now", "stale"),
)
"""Flags that a good answer to the next probe removes, the most specific one first."""


def fix_flags(evidence: Evidence, now: Score) -> Iterator[_Change]:
    """Yield the evidence without each flag that can limit the score."""
    codes = {flag.code for flag in now.flags}
    if code := _next_probe_code(evidence, codes):
        fix = FIXES.get(code) or next(flag.message for flag in now.flags if flag.code == code)
        yield _Change(code, _with_good_probe(evidence), fix)
    changed: dict[str, Evidence] = {
        "decoy-price": _at_client_cap(evidence),
        "wildcard-402": replace(evidence, wildcard=False),
        "paid-not-delivered": replace(evidence, paid_not_delivered=False),
    }
    for code in codes & changed.keys():
        yield _Change(code, changed[code], FIXES[code])
    for code, kind, holds_ms in (
        ("payto-changed-recently", PAYTO_CHANGED, POLICY.payto_recent_ms),
        ("price-jumped", PRICE_CHANGED, POLICY.price_jump_ms),
    ):
        if code in codes:
            yield _wait_out(evidence, code, kind, holds_ms)
    if "new-path-of-known-site" in codes:
        days = _days(evidence.first_seen + 7 * DAY_MS - evidence.as_of)
        fix = "Keep it up: the limit ends 7 days after the path was first seen."
        without = replace(evidence, site_median_tenths=None)
        yield _Change("new-path-of-known-site", without, fix, days)


def _next_probe_code(evidence: Evidence, codes: set[str]) -> str | None:
    """Return the code that describes the effect of a good next probe: the broken lint rule if there
    is exactly one error, otherwise the first flag of _NEXT_PROBE.
    """
    rules = evidence.last.rules if evidence.last is not None else ()
    broken = {rule for rule, severity, _ in rules if severity == Severity.ERROR}
    if len(broken) == 1:
        return f"{LINT_FLAG}{broken.pop()}"
    return next((code for code in _NEXT_PROBE if code in codes), None)


def _with_good_probe(evidence: Evidence) -> Evidence:
    """Return the evidence with one more probe, made now: a 402 without findings, with the usual
    latency.
    """
    at, state, last = evidence.as_of, evidence.state, evidence.last
    since = state.payable_since if state is not None and state.payable else at
    median = percentile(merge_histograms([row.histogram for row in evidence.days]), 50)
    repaired = state is not None and not state.payable and day_of(state.at) >= day_of(at) - 1
    probe = Rollup(
        day=day_of(at),
        probes=1,
        scored=1,
        up=1,
        compliant=1,
        payable=1,
        compliance=100,
        slots=1 << at % DAY_MS // SLOT_MS,
        latency_sum=median or 0,
        latency=encode_histogram(() if median is None else ((bucket_of(median), 1),)),
        spans=Spans(repairs=int(repaired)),
    )
    outcome = Outcome.PAYMENT_REQUIRED.value
    return replace(
        evidence,
        days=(*evidence.days, probe),
        state=LatestState(at=at, outcome=outcome, up=True, payable=True, payable_since=since),
        envelope=None,
        last=LastProbe(
            at=at,
            outcome=outcome,
            up=True,
            payable=True,
            accepts=1,
            tls_not_after=None if last is None else last.tls_not_after,
        ),
    )


def _at_client_cap(evidence: Evidence) -> Evidence:
    """Return the evidence with the highest price that stock clients pay."""
    quote = evidence.quote
    if quote is None or quote.decimals is None:
        return evidence
    amount = POLICY.client_cap_usd * 10**quote.decimals
    return replace(evidence, quote=replace(quote, amount=amount))


def _wait_out(evidence: Evidence, code: str, kind: str, holds_ms: int) -> _Change:
    """Return the evidence after the period of a flag about a change: with the recent changes moved
    back in time.
    """
    begin = evidence.as_of - holds_ms
    latest = max(
        change.at for change in evidence.changes if change.kind == kind and not change.announced
    )
    wait_ms = latest - begin + 1
    changes = tuple(
        replace(change, at=change.at - wait_ms)
        if change.kind == kind and change.at >= begin
        else change
        for change in evidence.changes
    )
    return _Change(code, replace(evidence, changes=changes), FIXES[code], _days(wait_ms))


def improve_components(evidence: Evidence, now: Score) -> Iterator[_Change]:
    """Yield the evidence with each component improved that is not at its best."""
    for component in now.components:
        if component.tenths < 1_000 and (change := _COMPONENTS[component.name](evidence)):
            yield change


def _uptime(evidence: Evidence) -> _Change:
    """Replace each failure by a good 402."""
    payable = evidence.state is not None and evidence.state.payable
    seen = evidence if payable else _with_good_probe(evidence)
    better = replace(seen, days=tuple(map(_without_outage, seen.days)))
    days = _days_to_leave(evidence, (row.day for row in evidence.days if row.spans.down))
    return _Change("uptime", better, "Answer every check.", days)


def _without_outage(row: Rollup) -> Rollup:
    failed, spans = row.scored - row.up, row.spans
    steady = spans.payable == spans.up  # otherwise some changes are not outages
    return structs.replace(
        row,
        up=row.scored,
        compliant=row.compliant + failed,
        payable=row.payable + failed,
        compliance=row.compliance + 100 * failed,
        spans=Spans(
            up=spans.up + spans.down,
            payable=spans.payable + spans.down,
            compliance=spans.compliance + 100 * spans.down,
            failures=0 if steady else spans.failures,
            repairs=0 if steady else spans.repairs,
        ),
    )


def _compliance(evidence: Evidence) -> _Change | None:
    """Replace each answer by a 402 without findings."""
    state, last = evidence.state, evidence.last
    if state is not None and not state.up:  # better earlier answers would not help
        return None
    unpaid = state is not None and not state.payable
    seen = _with_good_probe(evidence) if unpaid else evidence
    if seen.last is not None and seen.last.payable:
        seen = replace(seen, last=replace(seen.last, rules=()))
    better = replace(seen, days=tuple(map(_compliant, seen.days)))
    rules = sorted({rule for rule, _, _ in last.rules}) if last is not None else []
    named = ", ".join(f"`{rule}`" for rule in rules)
    fix = f"Fix what the linter finds: {named}." if rules else "Answer each check with a good 402."
    lacking = (row.day for row in evidence.days if row.spans.compliance < 100 * row.spans.up)
    return _Change("compliance", better, fix, _days_to_leave(evidence, lacking))


def _compliant(row: Rollup) -> Rollup:
    spans = row.spans
    steady = not spans.down  # otherwise some changes are outages
    return structs.replace(
        row,
        compliant=row.up,
        payable=row.up,
        compliance=100 * row.up,
        spans=structs.replace(
            spans,
            payable=spans.up,
            compliance=100 * spans.up,
            failures=0 if steady else spans.failures,
            repairs=0 if steady else spans.repairs,
        ),
    )


def _latency(evidence: Evidence) -> _Change:
    """Make every answer as fast as the best entry of the latency table."""
    limit = POLICY.latency[0][0]
    days = []
    for row in evidence.days:
        count = count_latencies(row.histogram)
        latency = encode_histogram(((bucket_of(limit), count),) if count else ())
        days.append(structs.replace(row, latency=latency, latency_sum=limit * count))
    fix = f"Answer within {limit} ms, network distance to our vantage included."
    return _Change("latency", replace(evidence, days=tuple(days)), fix, DAYS)


def _age(evidence: Evidence) -> _Change:
    """Make the endpoint as old as the last entry of the age table."""
    known_ms = POLICY.age[-1][0] * DAY_MS
    better = replace(evidence, first_seen=min(evidence.first_seen, evidence.as_of - known_ms))
    days = _days(evidence.first_seen + known_ms - evidence.as_of)
    return _Change("age", better, "Stay listed under the same URL: age comes by itself.", days)


def _activity(evidence: Evidence) -> _Change | None:
    """Add proven customers up to the next step of the table of payers."""
    chain = evidence.chain
    if chain is None or chain.owner is not None or len(evidence.anchors) < MIN_OWNERS:
        return None
    demand = chain.demand or DemandEvidence()
    known, unit = count_weighted_payers(evidence)
    step = next((payers for payers, _ in POLICY.payers if payers * unit > known), None)
    if step is None:
        return None
    reached = step * WHOLE_WEIGHT * chain.shares
    weights = tuple((anchor.owner, reached) for anchor in evidence.anchors)
    better = replace(
        evidence,
        chain=replace(chain, demand=replace(demand, weights=weights)),
        other_chains=(),
    )
    fix = "More customers who also buy from other sellers."
    return _Change("activity", better, fix, WINDOW_MS // DAY_MS)


def _stability(evidence: Evidence) -> _Change:
    """Remove all changes of price and payTo."""
    kinds = (PRICE_CHANGED, PAYTO_CHANGED)
    kept = tuple(change for change in evidence.changes if change.kind not in kinds)
    latest = max((change.at for change in evidence.changes if change.kind in kinds), default=0)
    days = _days(latest + WINDOW_MS - evidence.as_of)
    fix = "Keep the price and the payTo address."
    return _Change("stability", replace(evidence, changes=kept), fix, days)


_COMPONENTS: Final[dict[str, Callable[[Evidence], _Change | None]]] = {
    "uptime": _uptime,
    "compliance": _compliance,
    "latency": _latency,
    "age": _age,
    "activity": _activity,
    "stability": _stability,
}


def _days_to_leave(evidence: Evidence, days: Iterable[int]) -> int:
    """Return the number of days after which the last of some UTC days has left the window."""
    return max(max(days, default=0) + DAYS - day_of(evidence.as_of), 0)


def _days(ms: int) -> int:
    """Return milliseconds as whole days, rounded up; at least 0."""
    return max(-(-ms // DAY_MS), 0)
