"""Evidence from single probes, as a store would gather it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tests.support.probe_rows import spans_by_day

from tollgauge.core.base.units import DAY_MS, MINUTE_MS, day_of
from tollgauge.core.probe.exchange import Timings
from tollgauge.core.probe.outcome import OUTCOMES, Attribution, Outcome
from tollgauge.core.probe.probe import ProbeResult, holds_ms, statement
from tollgauge.core.probe.rollup import rollup
from tollgauge.core.score.evidence import Evidence, LastProbe, LatestState

DAYS = 31


def payable(at: int, *, ms: int = 240, compliance: int = 100) -> ProbeResult:
    """A 402 that a stock client can pay."""
    return ProbeResult(
        at=at,
        outcome=Outcome.PAYMENT_REQUIRED,
        attribution=Attribution.TARGET,
        up=True,
        timings=Timings(total=ms),
        status=402,
        compliance=compliance,
        compliant=compliance > 50,
        payable=True,
        accepts=1,
    )


def unpaid_probe(
    at: int, outcome: Outcome = Outcome.SERVER_ERROR, *, interval_ms: int = 30 * MINUTE_MS
) -> ProbeResult:
    """Return a probe with an outcome that is not payable; the next is due `interval_ms` later."""
    return ProbeResult(
        at=at,
        outcome=outcome,
        attribution=Attribution.TARGET,
        up=OUTCOMES[outcome].up,
        timings=Timings(total=240),
        holds=holds_ms(payable=False, interval_ms=interval_ms),
    )


def observe(
    probes: Sequence[ProbeResult], base: Evidence, *, unconfirmed: bool = False
) -> Evidence:
    """Return the evidence of probes up to `base.as_of`: complete days with their spans, and the
    latest state. A first failure is `unconfirmed` if the caller states so.
    """
    as_of = base.as_of
    known = sorted((probe for probe in probes if probe.at <= as_of), key=lambda probe: probe.at)
    first = day_of(as_of) - DAYS + 1
    by_day: dict[int, list[ProbeResult]] = {}
    for probe in known:
        by_day.setdefault(day_of(probe.at), []).append(probe)
    speaking = [(probe, said) for probe in known if (said := statement(probe)) is not None]
    spans = spans_by_day([said for _, said in speaking], until=as_of)
    days = [
        rollup(day, by_day.get(day, ()), spans=spans[day])
        if day in spans
        else rollup(day, by_day[day])
        for day in sorted(by_day.keys() | spans.keys())
        if first <= day <= day_of(as_of)
    ]
    scored = [probe for probe in known if probe.scored and not probe.confirms]
    terms = [probe for probe in scored if probe.accepts is not None]
    return replace(
        base,
        days=tuple(days),
        last=LastProbe.of(scored[-1]) if scored else None,
        envelope=LastProbe.of(terms[-1]) if terms and scored[-1].accepts is None else None,
        state=_state(speaking, since=first * DAY_MS, unconfirmed=unconfirmed),
    )


def _state(
    speaking: Sequence[tuple[ProbeResult, object]], *, since: int, unconfirmed: bool
) -> LatestState | None:
    inside = [probe for probe, _ in speaking if probe.at >= since]
    if not inside:
        return None
    said = statement(inside[-1])
    assert said is not None
    before = statement(speaking[-2][0]) if len(speaking) > 1 else None
    first_failure = not said.payable and before is not None and before.payable
    outage_since = payable_since = None
    for probe, _ in speaking:
        if probe.payable and (payable_since is None or outage_since is not None):
            payable_since = probe.at
        outage_since = None if probe.payable else outage_since or probe.at
    return LatestState(
        at=said.at,
        outcome=inside[-1].outcome.value,
        up=said.up,
        payable=said.payable,
        unconfirmed=unconfirmed and first_failure,
        since=outage_since if outage_since is not None and outage_since < said.at else None,
        payable_since=payable_since,
    )


def unprobed_evidence(*, as_of: int, known_days: int = 365) -> Evidence:
    """Return an endpoint that was never probed and is several days old."""
    return Evidence(
        resource="https://api.seller.dev/quote",
        as_of=as_of,
        first_seen=as_of - known_days * DAY_MS,
    )
