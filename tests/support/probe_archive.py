"""Two endpoints and probes of every kind, as the archive keeps them."""

from __future__ import annotations

import random
from dataclasses import asdict, replace
from typing import Any

from tollgauge.core.base.units import DAY_MS, HOUR_MS, MINUTE_MS
from tollgauge.core.endpoint.identity import Endpoint, endpoint_id
from tollgauge.core.endpoint.terms import Quote
from tollgauge.core.probe.exchange import Finding, OfficialClient, Severity, Timings
from tollgauge.core.probe.outcome import Attribution, Outcome
from tollgauge.core.probe.probe import ProbeResult
from tollgauge.db.engine import Store
from tollgauge.store.endpoints import endpoints
from tollgauge.store.probes import archive, probes

DAY = 20_000
START = DAY * DAY_MS
QUOTE = Quote(
    network="eip155:8453",
    asset="0x833589fcd6edb6e08f4c7c32d4f71b54bda02913",
    amount=10_000,
    pay_to="0x27599d824bbb4f506f985af865d840f61ba848c8",
)
WARNING = Finding(
    rule="no-description", severity=Severity.WARN, message="Say what it does.", where="accepts[0]"
)
GOOD = ProbeResult(
    at=START,
    outcome=Outcome.PAYMENT_REQUIRED,
    attribution=Attribution.TARGET,
    up=True,
    timings=Timings(dns=1, connect=20, tls=25, ttfb=80, total=127),
    status=402,
    compliance=96,
    compliant=True,
    payable=True,
    payable_by=frozenset({OfficialClient.TYPESCRIPT, OfficialClient.CIRCLE}),
    version=2,
    quote=QUOTE,
    accepts=1,
    findings=(WARNING,),
    tls_not_after=START + 40 * DAY_MS,
)
DOWN = ProbeResult(
    at=START,
    outcome=Outcome.TIMEOUT,
    attribution=Attribution.TARGET,
    up=False,
    timings=Timings(dns=3, total=10_000),
    reason="timeout",
    method="POST",
)
OURS = replace(DOWN, attribution=Attribution.LOCAL, outcome=Outcome.LOCAL, reason="own-network")
THROTTLED = replace(OURS, outcome=Outcome.THROTTLED, status=429, reason="throttled")
FORBIDDEN = replace(GOOD, outcome=Outcome.FORBIDDEN, status=401, payable=False, compliance=0)
KINDS = (
    GOOD,
    DOWN,
    OURS,
    THROTTLED,
    FORBIDDEN,
    replace(DOWN, holds=17 * HOUR_MS),
    replace(GOOD, confirms=True),
    replace(DOWN, confirms=True),
)
A = Endpoint(
    id=endpoint_id("https://a.com/"),
    resource="https://a.com/",
    host="a.com",
    first_seen=START,
    last_seen=START,
)
B = replace(A, id=endpoint_id("https://a.com/b"), resource="https://a.com/b")


def lively(seed: int, *, first: int, last: int, number: int) -> list[ProbeResult]:
    """Return probes of every kind at distinct random times."""
    rng = random.Random(seed)
    instants = {rng.randint(first, last) for _ in range(number)} | {first, last}
    results = []
    for at in sorted(instants):
        base = rng.choice((GOOD, GOOD, GOOD, *KINDS))
        times = [rng.randrange(0, 200) for _ in range(4)]
        timings = Timings(dns=times[0], connect=times[1], ttfb=times[2], total=sum(times))
        results.append(replace(base, at=at, timings=timings))
    return results


def cadence(seed: int, *, days: int, start: int = START) -> list[ProbeResult]:
    """Return a plausible history at the normal cadence: jitter, correlated times, an outage, and
    occasionally a new certificate or a price change.
    """
    rng = random.Random(seed)
    results, at, base = [], start, GOOD
    while at < start + days * DAY_MS:
        if rng.random() < 0.002:
            base = replace(base, quote=replace(QUOTE, amount=rng.choice((5_000, 10_000, 20_000))))
        phases = [int(rng.lognormvariate(mu, 0.25)) for mu in (1.5, 3.2, 3.4, 4.6)]
        timings = Timings(
            dns=phases[0],
            connect=phases[1],
            tls=phases[2],
            ttfb=phases[3],
            total=sum(phases) + rng.randrange(3),
        )
        kind = DOWN if rng.random() < 0.01 else base
        results.append(replace(kind, at=at, timings=timings if kind is base else DOWN.timings))
        at += 30 * MINUTE_MS + rng.randrange(-90_000, 90_000)
    return results


def strip_messages(results: list[ProbeResult]) -> list[ProbeResult]:
    """Convert probes to their form in packed days: findings without messages."""
    return [
        replace(one, findings=tuple(replace(f, message="", where="") for f in one.findings))
        for one in results
    ]


def fields_in_history(result: ProbeResult) -> tuple[int, int, dict[str, Any]]:
    """Return the fields of a probe that a history contains, with its verdict as plain fields."""
    names = ("outcome", "attribution", "up", "compliant", "payable", "status", "confirms")
    fields = {name: getattr(result, name) for name in names}
    quote = None if result.quote is None else asdict(result.quote)
    return result.at, result.timings.total, fields | {"quote": quote}


async def prepare(store: Store, results: list[ProbeResult], *others: ProbeResult) -> None:
    await store.writing(endpoints.insert, A, B)
    await store.writing(probes.record_many, A.id, results)
    await store.writing(probes.record_many, B.id, others)


async def close_all(store: Store, before_day: int, limit: int = 40) -> int:
    total = 0
    while True:
        closed = await store.writing(archive.close_days, before_day=before_day, limit=limit)
        if not closed:
            return total
        total += closed
