"""Mended: an evidence as it would be if one thing were mended.

Rules (docs/how-to/sell.md):
- a flag is mended as the next probe would show it, or once the time has passed for which it holds;
- a component is mended as if it had been at its best for the whole window; activity, by as many
  more buyers as the next step of the policy's table of payers asks for.

What that is worth is core/score/improvement's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from msgspec import structs

from tollgauge.core.base.units import DAY_MS, WINDOW_MS, day_of, dollars
from tollgauge.core.directory.discovery import PAYTO_CHANGED, PRICE_CHANGED
from tollgauge.core.endpoint.finding import LINT_FLAG, Severity
from tollgauge.core.probe.latency import bucket_of, merge, percentile
from tollgauge.core.probe.outcome import Outcome
from tollgauge.core.probe.rollup import SLOT_MS, Rollup
from tollgauge.core.probe.spans import Spans
from tollgauge.core.score.evidence import (
    ChainSums,
    Evidence,
    LastProbe,
    LatestState,
    PayerSums,
    TermChange,
)
from tollgauge.core.score.policy import Policy
from tollgauge.core.score.score import Score
from tollgauge.core.score.scoring import FIXES
from tollgauge.core.score.signals.volume import WHOLE_WEIGHT, payer_sums
from tollgauge.core.score.window import DAYS

CENT: Final = 10**4
"""Atomic units of a cent of USDC."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mended:
    """An evidence with one thing changed."""

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
    outcome, (scored, up) = Outcome.PAYMENT_REQUIRED.value, evidence.recent
    return replace(
        evidence,
        days=(*evidence.days, probe),
        recent=(scored + 1, up + 1),
        state=LatestState(at=at, outcome=outcome, up=True, payable=True),
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
    """The evidence once a price is asked that stock clients pay, which is a change of the price."""
    quote = evidence.quote
    if quote is None or quote.decimals is None:
        return evidence
    amount = policy.client_cap_usd * 10**quote.decimals
    change = TermChange(
        at=evidence.as_of,
        kind=PRICE_CHANGED,
        source="probe",
        before=str(quote.amount),
        after=str(amount),
    )
    changes = (*evidence.changes, change)
    return replace(evidence, quote=replace(quote, amount=amount), changes=changes)


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
    fix = f"Mend what the linter finds: {named}." if rules else "Answer each check with a good 402."
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
    """As many more independent buyers as the next step of the table of payers asks for, who pay as
    many dollars as count as much.
    """
    chain = evidence.chain
    if chain is None or evidence.format == 1:
        return
    sums = chain.sums or ChainSums()
    known = sums.low.weight // (WHOLE_WEIGHT * chain.shared_hosts)
    step = next((row for row in policy.payers if row[0] > max(known, 1)), None)
    if step is None:
        return
    buyers, subscore = step
    usd = next(usd for usd, worth in policy.volume if worth >= subscore)
    spent = -(-usd * 100 // buyers) * CENT
    more = payer_sums([spent] * ((buyers - known) * chain.shared_hosts))
    mended = replace(
        sums,
        transfers=sums.transfers + more.payers,
        raw=_plus(sums.raw, more),
        organic=_plus(sums.organic, more),
        high=_plus(sums.high, more),
        low=_plus(sums.low, more),
    )
    fix = f"Win {more.payers} more independent buyers who pay {dollars(spent)} each."
    seen = replace(evidence, chain=replace(chain, sums=mended))
    yield Mended(code="activity", evidence=seen, fix=fix, in_days=WINDOW_MS // DAY_MS)


def _plus(one: PayerSums, other: PayerSums) -> PayerSums:
    """The sums over the payers of both, who are not the same."""
    return PayerSums(
        payers=one.payers + other.payers,
        volume=one.volume + other.volume,
        squares=one.squares + other.squares,
        top=max(one.top, other.top),
        weight=one.weight + other.weight,
    )


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
