"""Improvement: what a seller could change to raise a score, and what the score would be then.

Rules (docs/how-to/sell.md):
- each improvement changes one thing of the evidence and is scored by the same scorer; what does not
  raise the score, because a lower cap still holds, is left out;
- a flag is fixed as the next probe would show it, or once the time has passed for which it holds;
- a component is improved as if it had been at its best for the whole window; activity, by as many
  more proven customers as the next step of the policy's table of payers asks for;
- what time alone adds to that is not part of a promise, so the result is as good or better.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from msgspec import structs

from tollgauge.core.base.units import DAY_MS, WINDOW_MS, day_of
from tollgauge.core.directory.discovery import PAYTO_CHANGED, PRICE_CHANGED
from tollgauge.core.endpoint.finding import LINT_FLAG, Severity
from tollgauge.core.probe.latency import bucket_of, merge, percentile
from tollgauge.core.probe.outcome import Outcome
from tollgauge.core.probe.rollup import SLOT_MS, Rollup
from tollgauge.core.probe.spans import Spans
from tollgauge.core.score.demand import MIN_OWNERS, WHOLE_WEIGHT
from tollgauge.core.score.evidence import DemandEvidence, Evidence, LastProbe, LatestState
from tollgauge.core.score.policy import POLICY, Policy
from tollgauge.core.score.score import Score
from tollgauge.core.score.scoring import FIXES, score
from tollgauge.core.score.window import DAYS

SHOWN: Final = 5
"""The maximum number of improvements."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Improvement:
    """One thing to change: the `code` of a flag or the name of a component, and the `fix` in words.
    It gains `points_tenths`, to `score_tenths` and `grade`, within `in_days` days: 0 with the next
    probe.
    """

    code: str
    points_tenths: int
    score_tenths: int
    grade: str
    fix: str
    in_days: int


def improvements(
    evidence: Evidence, policy: Policy = POLICY, *, now: Score | None = None
) -> tuple[Improvement, ...]:
    """What would raise the score of an evidence, the largest gain first; empty while nothing was
    measured. `now` is its score under the policy, where that is known.
    """
    now = now or score(evidence, policy)
    if now.score_tenths is None:
        return ()
    rows = []
    for mended in (*mended_flags(evidence, now, policy), *mended_components(evidence, now, policy)):
        then = score(mended.evidence, policy)
        if then.score_tenths is None or then.grade is None or then.score_tenths <= now.score_tenths:
            continue
        rows.append(
            Improvement(
                code=mended.code,
                points_tenths=then.score_tenths - now.score_tenths,
                score_tenths=then.score_tenths,
                grade=then.grade,
                fix=mended.fix,
                in_days=mended.in_days,
            )
        )
    return tuple(sorted(rows, key=lambda row: (-row.points_tenths, row.in_days, row.code))[:SHOWN])


@dataclass(frozen=True, slots=True, kw_only=True)
class Mended:
    """Evidence with one thing changed."""

    code: str
    evidence: Evidence
    fix: str
    in_days: int = 0


def mended_flags(evidence: Evidence, now: Score, policy: Policy) -> Iterator[Mended]:
    """The evidence without each of the flags that can limit a score."""
    codes = {flag.code for flag in now.flags}
    if code := _of_next_probe(evidence, codes):
        fix = FIXES.get(code) or next(flag.message for flag in now.flags if flag.code == code)
        yield Mended(code=code, evidence=with_good_probe(evidence), fix=fix)
    for code, mend in _MENDS.items():
        if code in codes:
            yield Mended(code=code, evidence=mend(evidence, policy), fix=FIXES[code])
    for code, kind, holds_ms in (
        ("payto-changed-recently", PAYTO_CHANGED, policy.payto_recent_ms),
        ("price-jumped", PRICE_CHANGED, policy.price_jump_ms),
    ):
        if code in codes:
            yield _once_passed(evidence, code, kind, holds_ms)
    if "new-path-of-known-site" in codes:
        days = _days(evidence.first_seen + 7 * DAY_MS - evidence.as_of)
        fix = "Keep it up: the limit ends 7 days after the path was first seen."
        mended = replace(evidence, site_median_tenths=None)
        yield Mended(code="new-path-of-known-site", evidence=mended, fix=fix, in_days=days)


_NEXT_PROBE: Final = (
    *("not-payable", "validates-before-402", "tls-invalid", "refuses-probes"),
    *("never-compliant", "down-now", "stale"),
)
"""Flags that a good answer to the next probe mends, the one first that says most of the cause."""


def _of_next_probe(evidence: Evidence, codes: set[str]) -> str | None:
    """The code of what a good answer to the next probe mends: the lint rule, where one alone is
    broken by an error.
    """
    rules = evidence.last.rules if evidence.last is not None else ()
    broken = {rule for rule, severity, _ in rules if severity == Severity.ERROR}
    if len(broken) == 1:
        return f"{LINT_FLAG}{broken.pop()}"
    return next((code for code in _NEXT_PROBE if code in codes), None)


def with_good_probe(evidence: Evidence) -> Evidence:
    """The evidence with one more probe, as of now: answered as usual, with a 402 without findings
    that a stock client can pay.
    """
    at, state, last = evidence.as_of, evidence.state, evidence.last
    since = state.payable_since if state is not None and state.payable else at
    median = percentile(merge([row.latency for row in evidence.days]), 50)
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
        latency=() if median is None else ((bucket_of(median), 1),),
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


def _at_client_cap(evidence: Evidence, policy: Policy) -> Evidence:
    """The evidence once the price is one that stock clients pay."""
    quote = evidence.quote
    if quote is None or quote.decimals is None:
        return evidence
    amount = policy.client_cap_usd * 10**quote.decimals
    return replace(evidence, quote=replace(quote, amount=amount))


_MENDS: Final[dict[str, Callable[[Evidence, Policy], Evidence]]] = {
    "decoy-price": _at_client_cap,
    "wildcard-402": lambda evidence, _: replace(evidence, wildcard=False),
    "paid-not-delivered": lambda evidence, _: replace(evidence, paid_not_delivered=False),
}
"""How to mend flags that do not depend on a probe's answer."""


def _once_passed(evidence: Evidence, code: str, kind: str, holds_ms: int) -> Mended:
    """The evidence once a flag about a change no longer holds: as if the recent changes had been
    seen so much earlier.
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
    mended = replace(evidence, changes=changes)
    return Mended(code=code, evidence=mended, fix=FIXES[code], in_days=_days(wait_ms))


def mended_components(evidence: Evidence, now: Score, policy: Policy) -> Iterator[Mended]:
    """The evidence with each component that is not at its best mended."""
    for component in now.components:
        if component.tenths < 1_000:
            yield from _COMPONENTS[component.name](evidence, policy)


def _uptime(evidence: Evidence, _: Policy) -> Iterator[Mended]:
    """No outage: a good 402 instead of each failure."""
    payable = evidence.state is not None and evidence.state.payable
    seen = evidence if payable else with_good_probe(evidence)
    mended = replace(seen, days=tuple(map(_without_outage, seen.days)))
    days = _leaving(evidence, (row.day for row in evidence.days if row.spans.down))
    yield Mended(code="uptime", evidence=mended, fix="Answer every check.", in_days=days)


def _without_outage(row: Rollup) -> Rollup:
    failed, spoken = row.scored - row.up, row.spans
    steady = spoken.payable == spoken.up  # else some changes are no outages
    if not failed and not spoken.down and not (steady and (spoken.failures or spoken.repairs)):
        return row
    return structs.replace(
        row,
        up=row.scored,
        compliant=row.compliant + failed,
        payable=row.payable + failed,
        compliance=row.compliance + 100 * failed,
        spans=Spans(
            up=spoken.up + spoken.down,
            payable=spoken.payable + spoken.down,
            compliance=spoken.compliance + 100 * spoken.down,
            failures=0 if steady else spoken.failures,
            repairs=0 if steady else spoken.repairs,
        ),
    )


def _compliance(evidence: Evidence, _: Policy) -> Iterator[Mended]:
    """A 402 without findings whenever it answered."""
    state, last = evidence.state, evidence.last
    if state is not None and not state.up:  # what it answered before helps no more
        return
    unpaid = state is not None and not state.payable
    seen = with_good_probe(evidence) if unpaid else evidence
    if seen.last is not None and seen.last.payable:
        seen = replace(seen, last=replace(seen.last, rules=()))
    mended = replace(seen, days=tuple(map(_compliant, seen.days)))
    rules = sorted({rule for rule, _, _ in last.rules}) if last is not None else []
    named = ", ".join(f"`{rule}`" for rule in rules)
    fix = f"Fix what the linter finds: {named}." if rules else "Answer each check with a good 402."
    lacking = (row.day for row in evidence.days if row.spans.compliance < 100 * row.spans.up)
    days = _leaving(evidence, lacking)
    yield Mended(code="compliance", evidence=mended, fix=fix, in_days=days)


def _compliant(row: Rollup) -> Rollup:
    spoken = row.spans
    steady = not spoken.down  # else some changes are outages
    return structs.replace(
        row,
        compliant=row.up,
        payable=row.up,
        compliance=100 * row.up,
        spans=Spans(
            up=spoken.up,
            payable=spoken.up,
            down=spoken.down,
            compliance=100 * spoken.up,
            failures=0 if steady else spoken.failures,
            repairs=0 if steady else spoken.repairs,
        ),
    )


def _latency(evidence: Evidence, policy: Policy) -> Iterator[Mended]:
    """Every answer as fast as counts fully."""
    limit = policy.latency[0][0]
    days = tuple(_as_fast(row, limit) for row in evidence.days)
    fix = f"Answer within {limit} ms, network distance to our vantage included."
    yield Mended(code="latency", evidence=replace(evidence, days=days), fix=fix, in_days=DAYS)


def _as_fast(row: Rollup, limit: int) -> Rollup:
    count = sum(number for _, number in row.latency)
    if not count:
        return row
    return structs.replace(row, latency=((bucket_of(limit), count),), latency_sum=limit * count)


def _age(evidence: Evidence, policy: Policy) -> Iterator[Mended]:
    """Known for as long as counts fully."""
    known_ms = policy.age[-1][0] * DAY_MS
    mended = replace(evidence, first_seen=min(evidence.first_seen, evidence.as_of - known_ms))
    days = _days(evidence.first_seen + known_ms - evidence.as_of)
    fix = "Stay listed under the same URL: age comes by itself."
    yield Mended(code="age", evidence=mended, fix=fix, in_days=days)


def _activity(evidence: Evidence, policy: Policy) -> Iterator[Mended]:
    """As many more proven customers as the next step of the table of payers asks for."""
    chain = evidence.chain
    if chain is None or chain.owner is not None or len(evidence.anchors) < MIN_OWNERS:
        return
    demand = chain.demand or DemandEvidence()
    whole = WHOLE_WEIGHT * chain.shares
    known = min((weight for _, weight in demand.weights), default=0)
    step = next((payers for payers, _ in policy.payers if payers * whole > known), None)
    if step is None:
        return
    weights = tuple((anchor.owner, step * whole) for anchor in evidence.anchors)
    mended = replace(chain, demand=replace(demand, weights=weights))
    fix = "More customers who also buy from other sellers."
    days = WINDOW_MS // DAY_MS
    yield Mended(code="activity", evidence=replace(evidence, chain=mended), fix=fix, in_days=days)


def _stability(evidence: Evidence, _: Policy) -> Iterator[Mended]:
    """No change of price and payTo."""
    kinds = (PRICE_CHANGED, PAYTO_CHANGED)
    kept = tuple(change for change in evidence.changes if change.kind not in kinds)
    latest = max((change.at for change in evidence.changes if change.kind in kinds), default=0)
    days = _days(latest + WINDOW_MS - evidence.as_of)
    fix = "Keep the price and the payTo address."
    mended = replace(evidence, changes=kept)
    yield Mended(code="stability", evidence=mended, fix=fix, in_days=days)


_COMPONENTS: Final[dict[str, Callable[[Evidence, Policy], Iterator[Mended]]]] = {
    "uptime": _uptime,
    "compliance": _compliance,
    "latency": _latency,
    "age": _age,
    "activity": _activity,
    "stability": _stability,
}


def _leaving(evidence: Evidence, days: Iterable[int]) -> int:
    """In how many days the last of some UTC days has left the window."""
    return max(max(days, default=0) + DAYS - day_of(evidence.as_of), 0)


def _days(ms: int) -> int:
    """Milliseconds as whole days, rounded up."""
    return max(-(-ms // DAY_MS), 0)
