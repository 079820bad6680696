"""Results of probes, recorded as the probe loop records them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlalchemy import Connection

from tollgauge.core.base.units import DAY_MS, MINUTE_MS, day_of
from tollgauge.core.endpoint.terms import Quote
from tollgauge.core.probe.exchange import Finding, Severity, Timings
from tollgauge.core.probe.outcome import Attribution, Outcome
from tollgauge.core.probe.probe import ProbeResult, Spans, Statement, spans
from tollgauge.store.probes import probes
from tollgauge.store.probes.probes import NewProbe


def record_probe(
    tx: Connection,
    endpoint_id: str,
    result: ProbeResult,
    *,
    next_due: int | None = None,
    learned: str | None = None,
) -> bool:
    """Record a probe; return whether it was new."""
    new = NewProbe(endpoint_id=endpoint_id, result=result, next_due=next_due, learned=learned)
    return bool(probes.record_each(tx, [new]))


BASE = "eip155:8453"
USDC = "0x833589fcd6edb6e08f4c7c32d4f71b54bda02913"
QUOTE = Quote(network=BASE, asset=USDC, amount=10_000, pay_to="0x" + "aa" * 20)
STEP = 5 * MINUTE_MS
START = 1_795_000_000_000


def probe(number: int, *, up: bool = True, ms: int = 100, **more: object) -> ProbeResult:
    """Return the check of this index: one per five minutes, with the failed error rules in
    `broken`.
    """
    rules = more.pop("broken", ())
    findings = tuple(
        Finding(rule=rule, severity=Severity.ERROR, message="Mend it.")
        for rule in rules  # type: ignore[attr-defined]
    )
    result = ProbeResult(
        at=START + number * STEP,
        outcome=Outcome.PAYMENT_REQUIRED if up else Outcome.SERVER_ERROR,
        attribution=Attribution.TARGET,
        up=up,
        status=402 if up else 502,
        timings=Timings(total=ms),
        payable=up,
        quote=QUOTE if up else None,
        findings=findings,
    )
    return replace(result, **more)  # type: ignore[arg-type]


def spans_by_day(statements: Sequence[Statement], *, until: int) -> dict[int, Spans]:
    """Return the spans of each UTC day that contains a statement or a part of one, up to
    `until`.
    """
    by_day: dict[int, list[Statement]] = {}
    for item in sorted(statements):
        by_day.setdefault(day_of(item.at), []).append(item)
    result: dict[int, Spans] = {}
    for day, items in by_day.items():
        earlier = by_day.get(day - 1)
        before = earlier[-1] if earlier else None
        result[day] = spans(day, items, before=before, until=until)
        if day + 1 not in by_day and items[-1].at + items[-1].holds > (day + 1) * DAY_MS < until:
            result[day + 1] = spans(day + 1, (), before=items[-1], until=until)
    return result
