"""Replay: a series of up and down through the real scorer, as if it had been probed.

Each line of a series is a probe: up is a compliant 402 after LATENCY_MS, not up is a time-out or
the status that the line names. After each line the evidence is what the store would gather
(core/probe/rollup, core/probe/spans) and the score is core/score/scoring's; its forecasts are
compared with the lines that follow:

- the next half hour against the next line, if it comes within NOW_MAX_MS;
- a day against the line nearest to 24 hours later, at most one usual interval away: the median of
  the site's, at least half an hour and at most a day;
- grades and labels against the next line within two usual intervals, and against a day;
- once a day, the interval that the uptime of the score range lies in, against the share of the next
  week's lines; both as an uptime is published, in tenths of a percent.

A series cannot say what a second probe a minute later would have seen. With `confirm` a failure
counts as confirmed at once; without, the first one is unconfirmed until the next line.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from fractions import Fraction
from functools import cache
from itertools import accumulate, pairwise
from statistics import median_low
from typing import Final, NamedTuple

import orjson

from tollgauge.core.base.errors import TollgaugeError
from tollgauge.core.base.rounding import half_up
from tollgauge.core.base.units import DAY_MS, HOUR_MS, MINUTE_MS, WINDOW_MS, day_of
from tollgauge.core.calibration.baselines import Baselines
from tollgauge.core.calibration.calibration import (
    DAY,
    KEPT,
    NEXT,
    NOW,
    NOW_MAX_MS,
    Cell,
    Forecast,
    Sums,
    forecast_of,
)
from tollgauge.core.calibration.outcomes import Outcomes
from tollgauge.core.endpoint.finding import Lint
from tollgauge.core.probe.exchange import Answer, Exchange, Fault, FaultKind, Timings
from tollgauge.core.probe.probe import ProbeResult, judge
from tollgauge.core.probe.rollup import Rollup, merge, rollup
from tollgauge.core.probe.spans import NO_SPANS, Spans, Statement, holds_ms, spans, statement
from tollgauge.core.score.evidence import Evidence, LastProbe, LatestState
from tollgauge.core.score.policy import POLICY, Policy
from tollgauge.core.score.score import Score
from tollgauge.core.score.scoring import score, uptime_bounds

LATENCY_MS: Final = 300
SHORT_OUTAGE_MS: Final = 3 * HOUR_MS
WEEK_MS: Final = 7 * DAY_MS
WEEK_LINES_MIN: Final = 4
"""The least lines that say something of a week."""
WEEK_RANGE: Final = Cell("week", "uptime-range", "inside")
"""How many intervals were compared with the next week, and how many of them contain its share."""
SHORT_OUTAGE: Final = "short-outage"
"""By grade: lines of endpoints that are not payable and were less than SHORT_OUTAGE_MS before."""
_STEP_MS: Final = 30 * MINUTE_MS
_INSTANT_MAX: Final = 1 << 53

_PAYABLE: Final = Lint(payable=True, compliant=True, version=2, accepts=1)
_NOTHING: Final = Lint(payable=False, compliant=False, version=None)


class SeriesError(TollgaugeError):
    """A line of a series that cannot be read."""


class Line(NamedTuple):
    """One observation of a site: when (ms UTC), whether it was payable, and the HTTP status where
    it was not (None: no answer).
    """

    at: int
    up: bool
    status: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Replaying:
    """How a series is replayed. Forecasts are made at about one of `every` lines. `fill` repeats
    each line every half hour until the next one, for one usual interval at most, as if nothing had
    changed in between. Forecasts are still computed at lines only.
    """

    policy: Policy = POLICY
    every: int = 1
    confirm: bool = True
    fill: bool = False


def read_line(text: bytes) -> tuple[str, Line]:
    """The site and the line of `{"site": ..., "instant": ..., "up": ..., "status": ...}`; the
    instant is ISO 8601 or milliseconds UTC. Raises SeriesError.
    """
    try:
        document = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise SeriesError("is not JSON") from error
    if not isinstance(document, dict):
        raise SeriesError("is not a JSON object")
    site, up, status = document.get("site"), document.get("up"), document.get("status")
    if not isinstance(site, str) or not site:
        raise SeriesError("names no site")
    if not isinstance(up, bool):
        raise SeriesError("does not say whether it was up (true or false)")
    if status is not None and (type(status) is not int or not 100 <= status <= 599):
        raise SeriesError("has a status that is none of HTTP's")
    return site, Line(_instant(document.get("instant")), up, None if up else status)


def _instant(value: object) -> int:
    if type(value) is int and 0 <= value < _INSTANT_MAX:
        return value
    if isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            pass
        else:
            at = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
            since = at - datetime.fromtimestamp(0, UTC)
            return (since.days * 86_400 + since.seconds) * 1_000 + since.microseconds // 1_000
    raise SeriesError("has no instant (ISO 8601, or milliseconds UTC)")


def replay(site: str, lines: Iterable[Line], options: Replaying) -> Sums:
    """The counts of a site's forecasts and outcomes. Lines come in any order; of several of one
    instant the last counts.
    """
    series = tuple({line.at: line for line in sorted(lines, key=lambda line: line.at)}.values())
    usual = usual_interval(series)
    history = _History(site, _STEP_MS if options.fill else usual, confirm=options.confirm)
    outcomes = Outcomes((line.at, line.up) for line in series)
    weeks = _Weeks(series, usual)
    sums = Sums()
    last_day = -1
    for index, line in enumerate(series):
        until = series[index + 1].at if index + 1 < len(series) else line.at
        history.add(line)
        history.baselines.add(line.at, payable=line.up)
        if is_sampled(site, line.at, every=options.every):
            sums.add(KEPT, payable=line.up)
            _count(sums, history, outcomes, usual, options.policy)
        if day_of(line.at) > last_day:
            last_day = day_of(line.at)
            _count_week(sums, history, weeks.share(index), options.policy)
        for at in range(line.at + _STEP_MS, min(until, line.at + usual), _STEP_MS):
            if options.fill:
                history.add(line._replace(at=at))
    return sums


def is_sampled(site: str, at: int, *, every: int) -> bool:
    """Whether a forecast is made at a line: one of `every`, by a hash of site and time. Every N-th
    line would be of the same clock times each day.
    """
    digest = hashlib.sha256(f"{site}:{at}".encode()).digest()
    return int.from_bytes(digest[:8]) % every == 0


def usual_interval(series: Sequence[Line]) -> int:
    """The median time between lines in milliseconds, from half an hour to a day."""
    gaps = [after.at - before.at for before, after in pairwise(series)]
    return min(max(median_low(gaps), _STEP_MS), DAY_MS) if gaps else DAY_MS


class _Weeks:
    """How much of the week after each line of a series was up."""

    def __init__(self, series: Sequence[Line], usual: int) -> None:
        self._usual = usual
        self._instants = [line.at for line in series]
        said = [statement(_probe(line.up, line.status, usual)) for line in series]
        self._said = (0, *accumulate(item is not None for item in said))
        self._up = (0, *accumulate(item is not None and item.up for item in said))

    def share(self, index: int) -> Fraction | None:
        """The share of the lines of the week after a line that are up; None where there are fewer
        than WEEK_LINES_MIN, or the series ends before.
        """
        until = self._instants[index] + WEEK_MS
        end = bisect_left(self._instants, until + 1)
        said = self._said[end] - self._said[index + 1]
        if said < WEEK_LINES_MIN or self._instants[-1] + self._usual < until:
            return None
        return Fraction(self._up[end] - self._up[index + 1], said)


def _count(sums: Sums, history: _History, outcomes: Outcomes, usual: int, policy: Policy) -> None:
    """Count what the score at the latest line forecasts, and what the lines after it show."""
    computed = score(history.evidence(), policy)
    forecast, at = history.forecast(computed), computed.as_of
    now = outcomes.following(at, within=NOW_MAX_MS)
    following = outcomes.following(at, within=max(2 * usual, NOW_MAX_MS))
    day = outcomes.near(at + DAY_MS, after=at, within=usual)
    if computed.score_tenths is not None:
        if now is not None:
            sums.add_forecast(forecast, NOW, payable=now)
        if day is not None:
            sums.add_forecast(forecast, DAY, payable=day)
    if following is not None:
        sums.add_groups(forecast, NEXT, payable=following)
        if history.short_outage:
            sums.add(Cell(NEXT, SHORT_OUTAGE, forecast.grade), payable=following)
    if day is not None:
        sums.add_groups(forecast, DAY, payable=day)


def _count_week(sums: Sums, history: _History, share: Fraction | None, policy: Policy) -> None:
    """Count whether the uptime's range contains the share of the next week."""
    ends = uptime_bounds(history.evidence(), policy)
    if share is not None and ends is not None:
        low, middle, high = (
            half_up(value, 1_000) for value in (ends[0], share.as_integer_ratio(), ends[1])
        )
        sums.add(WEEK_RANGE, payable=low <= middle <= high)


def probe_of(line: Line, interval_ms: int) -> ProbeResult:
    """The probe that a line stands for, when the next one is due after `interval_ms`."""
    return replace(_probe(line.up, line.status, interval_ms), at=line.at)


@cache
def _probe(up: bool, status: int | None, interval_ms: int) -> ProbeResult:  # noqa: FBT001 - a key
    """The probe of a line, at instant 0: many lines have the same."""
    answer = Answer(status=402 if up else status or 0)
    exchange = Exchange(
        url="",
        method="GET",
        at=0,
        result=answer if answer.status else Fault(kind=FaultKind.TIMEOUT),
        timings=Timings(total=LATENCY_MS),
    )
    result = judge(exchange, _PAYABLE if up else _NOTHING)
    return replace(result, holds=holds_ms(payable=result.payable, interval_ms=interval_ms))


class _History:
    """What is known of a site so far: the day sums of the window and the latest probes."""

    def __init__(self, site: str, interval: int, *, confirm: bool) -> None:
        self._site, self._interval, self._confirm = site, interval, confirm
        self._days: dict[int, Rollup] = {}
        self._statement: Statement | None = None
        self._state: LatestState | None = None
        self._last: ProbeResult | None = None
        self._envelope: ProbeResult | None = None
        self._first_seen = self._at = 0
        self._payable_since: int | None = None
        self._failed_at = 0
        self.baselines = Baselines()

    def add(self, line: Line) -> None:
        """The next probe."""
        if not self._days:
            self._first_seen = line.at
        self._at = line.at
        result = probe_of(line, self._interval)
        self._merge(rollup(day_of(line.at), [result]))
        if (said := statement(result)) is not None:
            self._speak(said, result)
        if result.scored:
            self._last = result
            self._envelope = result if result.accepts is not None else self._envelope

    def _speak(self, said: Statement, result: ProbeResult) -> None:
        before = self._statement
        for day, part in span_parts(before, said):
            self._merge(Rollup(day=day, spans=part))
        first_failure = before is not None and before.payable and not said.payable
        if not said.payable and (before is None or before.payable):
            self._failed_at = said.at
        if said.payable and (before is None or not before.payable):
            self._payable_since = said.at
        self._statement = said
        self._state = LatestState(
            at=said.at,
            outcome=result.outcome.value,
            up=said.up,
            payable=said.payable,
            unconfirmed=first_failure and not self._confirm,
            since=None if said.payable else self._failed_at,
            payable_since=self._payable_since,
        )

    def _merge(self, part: Rollup) -> None:
        known = self._days.get(part.day)
        self._days[part.day] = part if known is None else merge([known, part])

    @property
    def short_outage(self) -> bool:
        """Whether it is not payable now and was less than SHORT_OUTAGE_MS ago."""
        down = self._state is not None and not self._state.payable
        return (
            down
            and self._payable_since is not None
            and self._at - self._failed_at < SHORT_OUTAGE_MS
        )

    def evidence(self) -> Evidence:
        """The evidence as of the latest probe."""
        first = day_of(self._at - WINDOW_MS)
        self._days = {day: row for day, row in self._days.items() if day >= first}
        last, envelope = self._last, self._envelope
        return Evidence(
            resource=self._site,
            as_of=self._at,
            first_seen=self._first_seen,
            days=tuple(self._days.values()),
            last=_last_probe(last),
            envelope=None if envelope is last else _last_probe(envelope),
            state=self._state,
            interval=self._interval,
        )

    def forecast(self, computed: Score) -> Forecast:
        """What a score says, as it is counted."""
        return forecast_of(computed, self._first_seen, self.baselines.permilles())


def _last_probe(result: ProbeResult | None) -> LastProbe | None:
    if result is None:
        return None
    return LastProbe(
        at=result.at,
        outcome=result.outcome.value,
        up=result.up,
        payable=result.payable,
        accepts=result.accepts,
        tls_not_after=None,
    )


def span_parts(before: Statement | None, said: Statement) -> Iterator[tuple[int, Spans]]:
    """What a new statement adds to the spans of each day that the one before it reaches: together
    they are the spans of all statements up to the latest (core/probe/spans).
    """
    today = day_of(said.at)
    if before is not None:
        for day in range(day_of(before.at), min(today, day_of(before.at) + 2)):
            part = spans(day, (), before=before, until=said.at)
            if part != NO_SPANS:
                yield day, part
        if today - day_of(before.at) > 1:
            before = None
    yield today, spans(today, (said,), before=before, until=said.at)
