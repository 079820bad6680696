"""The probes of a simulated endpoint, and its score at any time.

Responses pass through the linter, core/probe/probe, core/probe/schedule (pauses), the day sums and
core/score/scoring, like those of a real endpoint. A failure counts as confirmed immediately.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import pairwise
from operator import attrgetter, itemgetter
from typing import Any, Final

from tollgauge.core.base.units import DAY_MS, HOUR_MS, MINUTE_MS, WINDOW_MS, day_of
from tollgauge.core.directory.discovery import PRICE_CHANGED
from tollgauge.core.endpoint.terms import Quote
from tollgauge.core.lint.judge import lint
from tollgauge.core.probe.exchange import Answer, Exchange, Fault, FaultKind, Timings
from tollgauge.core.probe.outcome import Attribution, Outcome
from tollgauge.core.probe.probe import ProbeResult, Statement, holds_ms, judge, spans, statement
from tollgauge.core.probe.rollup import Rollup, rollup
from tollgauge.core.probe.schedule import pause_ms
from tollgauge.core.score.evidence import Evidence, LastProbe, LatestState, TermChange
from tollgauge.core.score.prices import changed_price
from tollgauge.core.score.score import Score
from tollgauge.core.score.scoring import score

EVERY_MS: Final = 30 * MINUTE_MS
LATENCY_MS: Final = 200
_ADVICE: Final = ("avoid", "not-payable", "unverified", "caution", "proceed")

Behaviour = Callable[[int], Answer | Fault]
"""Returns the endpoint's response at a time (ms UTC)."""


@dataclass(frozen=True, eq=False)
class History:
    """The probes of an endpoint, oldest first, from `first_seen` to `until` (ms UTC)."""

    resource: str
    first_seen: int
    until: int
    probes: tuple[ProbeResult, ...]

    @cached_property
    def _closed_days(self) -> dict[int, Rollup]:
        """The sums of whole days, by day."""
        by_day = _by_day(self.probes)
        days = range(day_of(self.first_seen), day_of(self.until) + 1)
        return {day: _sums(day, by_day, until=(day + 1) * DAY_MS) for day in days}

    def evidence(self, as_of: int, **known: Any) -> Evidence:
        """Return the evidence at a time. `known` are the fields that do not come from probes."""
        today, first = day_of(as_of), day_of(as_of - WINDOW_MS)
        end = bisect_right(self.probes, as_of, key=attrgetter("at"))
        newest = [probe for probe in self.probes[:end][::-1] if probe.at >= first * DAY_MS]
        scored = [probe for probe in newest if probe.scored]
        enveloped = next((probe for probe in scored if probe.accepts is not None), None)
        closed = [row for day, row in self._closed_days.items() if first <= day < today]
        recent = _by_day(probe for probe in newest if probe.at >= (today - 1) * DAY_MS)
        evidence = Evidence(
            resource=self.resource,
            as_of=as_of,
            first_seen=self.first_seen,
            days=(*closed, _sums(today, recent, until=as_of)),
            last=LastProbe.of(scored[0]) if scored else None,
            envelope=None if not enveloped or enveloped is scored[0] else LastProbe.of(enveloped),
            state=_state(self.probes[:end]),
        )
        return replace(evidence, **known)

    def score(self, as_of: int, **known: Any) -> Score:
        """Return the score at a time."""
        return score(self.evidence(as_of, **known))

    def best_of_last_day(self, **known: Any) -> Score:
        """Return the score of the hour of the last day that looks best to a buyer."""
        hours = [self.score(self.until - hour * HOUR_MS, **known) for hour in range(24)]
        return max(hours, key=worth)


def alternate(up_ms: int, down_ms: int, up: Answer, down: Answer | Fault) -> Behaviour:
    """Alternate between `up_ms` up and `down_ms` down, counted from the epoch."""
    return lambda at: up if at % (up_ms + down_ms) < up_ms else down


def up_until(end: int, up: Answer, down: Answer | Fault) -> Behaviour:
    """Up until `end`, and never again."""
    return lambda at: up if at < end else down


def history(
    resource: str,
    behave: Behaviour,
    *,
    start: int,
    until: int,
    every: Callable[[int], int] = lambda _: EVERY_MS,
) -> History:
    """Probe an endpoint from `start` to `until` (ms UTC).

    `every` returns the milliseconds to the next probe at a time. Pauses that the endpoint requests
    are respected.
    """
    probes = tuple(_probes(resource, behave, every, start=start, until=until))
    return History(resource, start, until, probes)


def probe_when_open(
    resource: str, open_after_ms: int, up: Answer, down: Answer, *, start: int, until: int
) -> History:
    """Probe an endpoint that closes after each probe and opens `open_after_ms` later.

    Probe times are random, as core/probe/schedule draws them.
    """
    dice = random.Random(1)  # noqa: S311 - a reproducible simulation
    probes, at, probed_at = [], start, start - EVERY_MS
    while at < until:
        answer = up if at - probed_at >= open_after_ms else down
        result = replace(_classify(resource, answer), at=at)
        holds = holds_ms(payable=result.payable, interval_ms=EVERY_MS)
        probes.append(replace(result, holds=holds))
        probed_at, at = at, at + dice.randint(EVERY_MS // 6, EVERY_MS * 11 // 6)
    return History(resource, start, until, tuple(probes))


def worth(computed: Score) -> tuple[int, int]:
    """Return a sort key for scores from worst to best: by advice, then by points."""
    return _ADVICE.index(computed.recommendation), computed.score_tenths or 0


def _probes(
    resource: str, behave: Behaviour, every: Callable[[int], int], *, start: int, until: int
) -> Iterator[ProbeResult]:
    at = start
    while at < until:
        answer = behave(at)
        wait = max(every(at), pause_ms(answer, now=at))
        result = replace(_classify(resource, answer), at=at)
        yield replace(result, holds=holds_ms(payable=result.payable, interval_ms=wait))
        at += wait


@lru_cache(maxsize=1_024)
def _classify(resource: str, answer: Answer | Fault) -> ProbeResult:
    timings = Timings(total=LATENCY_MS)
    exchange = Exchange(url=resource, method="GET", at=0, result=answer, timings=timings)
    result = judge(exchange, lint(exchange))
    if result.reason == FaultKind.DNS_FAILED:
        # Other sites resolve (core/probe/attribution.attribute_dns_failures).
        return replace(result, attribution=Attribution.TARGET)
    return result


def _by_day(probes: Iterable[ProbeResult]) -> dict[int, list[ProbeResult]]:
    days: dict[int, list[ProbeResult]] = defaultdict(list)
    for probe in sorted(probes, key=attrgetter("at")):
        days[day_of(probe.at)].append(probe)
    return days


def _sums(day: int, by_day: Mapping[int, list[ProbeResult]], *, until: int) -> Rollup:
    before, probes = _statements(by_day.get(day - 1, ())), by_day.get(day, ())
    spoken = spans(day, _statements(probes), before=before[-1] if before else None, until=until)
    return rollup(day, probes, spans=spoken)


def _statements(probes: Iterable[ProbeResult]) -> list[Statement]:
    return [said for probe in probes if (said := statement(probe)) is not None]


def _state(probes: Sequence[ProbeResult]) -> LatestState | None:
    """Return the state after some probes, oldest first."""
    outage_since = payable_since = None
    spoken = [probe for probe in probes if statement(probe) is not None]
    for probe in spoken:
        if probe.payable and (payable_since is None or outage_since is not None):
            payable_since = probe.at
        outage_since = None if probe.payable else outage_since or probe.at
    if not spoken:
        return None
    last = spoken[-1]
    return LatestState(
        at=last.at,
        outcome=last.outcome.value,
        up=last.up,
        payable=last.payable,
        since=outage_since,
        payable_since=payable_since,
    )


def price_changes(prices: Sequence[tuple[int, int]]) -> tuple[TermChange, ...]:
    """Return the price changes of a list of (time in ms UTC, atomic USDC).

    Each change includes the comparison with the prices that probes observed in the previous 31
    days.
    """
    changes = []
    for (_, before), (at, after) in pairwise(prices):
        times = range(at - 31 * DAY_MS, at, EVERY_MS)
        seen = [
            replace(_QUOTED, at=time, quote=replace(_QUOTE, amount=amount))
            for time in times
            if (amount := _price_at(prices, time)) is not None
        ]
        old, new = (replace(_QUOTE, amount=amount) for amount in (before, after))
        changes.append(
            TermChange(
                at=at,
                kind=PRICE_CHANGED,
                source="probe",
                before=str(before),
                after=str(after),
                price=changed_price(old, new, seen, at=at),
            )
        )
    return tuple(changes)


def _price_at(prices: Sequence[tuple[int, int]], time: int) -> int | None:
    index = bisect_right(prices, time, key=itemgetter(0))
    return prices[index - 1][1] if index else None


_QUOTE: Final = Quote(
    network="eip155:8453",
    asset="0x833589fcd6edb6e08f4c7c32d4f71b54bda02913",
    amount=0,
    pay_to="0x" + 40 * "5",
)
_QUOTED: Final = ProbeResult(
    at=0,
    outcome=Outcome.PAYMENT_REQUIRED,
    attribution=Attribution.TARGET,
    up=True,
    payable=True,
    timings=Timings(total=LATENCY_MS),
)
