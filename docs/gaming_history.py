"""The history of an invented endpoint: its probes, and its scores as of any instant.

Nothing here judges: answers go through the linter, core/probe/probe, core/probe/schedule (pauses),
the day sums and core/score/scoring, as those of a real endpoint do. A failure counts as confirmed
at once.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from operator import attrgetter
from typing import Any, Final

from tollgauge.core.base.units import DAY_MS, HOUR_MS, MINUTE_MS, WINDOW_MS, day_of
from tollgauge.core.lint import lint
from tollgauge.core.probe.exchange import Answer, Exchange, Fault, FaultKind, Timings
from tollgauge.core.probe.outcome import Attribution
from tollgauge.core.probe.probe import ProbeResult, judge
from tollgauge.core.probe.rollup import Rollup, rollup
from tollgauge.core.probe.schedule import pause_ms
from tollgauge.core.probe.spans import Statement, holds_ms, spans, statement
from tollgauge.core.score.evidence import RECENT_MS, Evidence, LastProbe, LatestState
from tollgauge.core.score.score import Score
from tollgauge.core.score.scoring import score

EVERY_MS: Final = 30 * MINUTE_MS
LATENCY_MS: Final = 200
_ADVICE: Final = ("avoid", "not-payable", "unverified", "caution", "proceed")

Behaviour = Callable[[int], Answer | Fault]
"""What an endpoint answers, by the instant (ms UTC)."""


@dataclass(frozen=True, eq=False)
class History:
    """The probes of an endpoint, oldest first, from when it was first seen `until` now (ms UTC)."""

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
        """What a score may look at. `known` are the fields of it that do not come from probes."""
        today, first = day_of(as_of), day_of(as_of - WINDOW_MS)
        place = bisect_right(self.probes, as_of, key=attrgetter("at"))
        newest = [probe for probe in self.probes[:place][::-1] if probe.at >= first * DAY_MS]
        scored = [probe for probe in newest if probe.scored]
        enveloped = next((probe for probe in scored if probe.accepts is not None), None)
        recent = [probe for probe in scored if probe.at > as_of - RECENT_MS]
        closed = [row for day, row in self._closed_days.items() if first <= day < today]
        lately = _by_day(probe for probe in newest if probe.at >= (today - 1) * DAY_MS)
        evidence = Evidence(
            resource=self.resource,
            as_of=as_of,
            first_seen=self.first_seen,
            days=(*closed, _sums(today, lately, until=as_of)),
            recent=(len(recent), sum(probe.up for probe in recent)),
            last=LastProbe.of(scored[0]) if scored else None,
            envelope=None if not enveloped or enveloped is scored[0] else LastProbe.of(enveloped),
            state=_state(newest),
        )
        return replace(evidence, **known)

    def score(self, as_of: int, **known: Any) -> Score:
        """The score at a time."""
        return score(self.evidence(as_of, **known))

    def best_of_last_day(self, **known: Any) -> Score:
        """The score of that hour of the last day which looks best to a buyer."""
        hours = [self.score(self.until - hour * HOUR_MS, **known) for hour in range(24)]
        return max(hours, key=worth)


def in_turns(up_ms: int, down_ms: int, up: Answer, down: Answer | Fault) -> Behaviour:
    """Up for `up_ms` and down for `down_ms` in turns, counted from the epoch."""
    return lambda at: up if at % (up_ms + down_ms) < up_ms else down


def up_until(end: int, up: Answer, down: Answer | Fault) -> Behaviour:
    """Up until an instant, and never again."""
    return lambda at: up if at < end else down


def history(
    resource: str,
    behave: Behaviour,
    *,
    start: int,
    until: int,
    every: Callable[[int], int] = lambda _: EVERY_MS,
) -> History:
    """The history of an endpoint that behaves so and is probed `every` so many milliseconds, by the
    instant. A pause that it asks for is granted.
    """
    probes = tuple(_probes(resource, behave, every, start=start, until=until))
    return History(resource, start, until, probes)


def worth(computed: Score) -> tuple[int, int]:
    """The order of scores from worst to best: by advice, then by points."""
    return _ADVICE.index(computed.recommendation), computed.score_tenths or 0


def _probes(
    resource: str, behave: Behaviour, every: Callable[[int], int], *, start: int, until: int
) -> Iterator[ProbeResult]:
    at = start
    while at < until:
        answer = behave(at)
        wait = max(every(at), pause_ms(answer, now=at))
        result = replace(_judged(resource, answer), at=at)
        yield replace(result, holds=holds_ms(payable=result.payable, interval_ms=wait))
        at += wait


@lru_cache(maxsize=1_024)
def _judged(resource: str, answer: Answer | Fault) -> ProbeResult:
    timings = Timings(total=LATENCY_MS)
    exchange = Exchange(url=resource, method="GET", at=0, result=answer, timings=timings)
    result = judge(exchange, lint(exchange))
    if (
        result.reason == FaultKind.DNS_FAILED
    ):  # other sites answer (core/probe/attribution.unresolved)
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


def _state(newest: Iterable[ProbeResult]) -> LatestState | None:
    spoken = ((probe, said) for probe in newest if (said := statement(probe)) is not None)
    probe, said = next(spoken, (None, None))
    if probe is None or said is None:
        return None
    return LatestState(at=said.at, outcome=probe.outcome.value, up=said.up, payable=said.payable)
