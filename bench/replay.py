"""Replay of an availability series through the scorer, as if the site had been probed.

Each line of a series becomes a probe: up is a compliant 402 after LATENCY_MS, down is a timeout or
the status of the line. After each line, the evidence is aggregated as in the store
(core/probe/rollup, core/probe/probe) and scored with core/score/scoring. Forecasts are compared
with later lines:

- the next half hour with the next line, if it follows within NOW_MAX_MS;
- a day with the line nearest to 24 hours later, if it is at most one usual interval away: the
  site's median interval, at least half an hour and at most a day;
- grades and labels with the next line within two usual intervals, and with the line a day later;
- daily, the uptime interval of the score range with the uptime of the next week's lines; both
  rounded to tenths of a percent, as published.

A series does not contain the confirming probe that would follow a failure after a minute. With
`confirm`, a failure counts as confirmed immediately; without it, the first failure is unconfirmed
until the next line.
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
from tollgauge.core.base.rounding import bounds, half_up
from tollgauge.core.base.units import DAY_MS, HOUR_MS, MINUTE_MS, WINDOW_MS, day_of
from tollgauge.core.probe.exchange import Answer, Exchange, Fault, FaultKind, Lint, Timings
from tollgauge.core.probe.probe import (
    NO_SPANS,
    ProbeResult,
    Spans,
    Statement,
    holds_ms,
    judge,
    spans,
    statement,
)
from tollgauge.core.probe.rollup import Rollup, merge, rollup
from tollgauge.core.score.baselines import Baselines, Outcomes
from tollgauge.core.score.calibration import (
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
from tollgauge.core.score.evidence import Evidence, LastProbe, LatestState
from tollgauge.core.score.facts import SUBSCORES, facts_of
from tollgauge.core.score.policy import POLICY, Policy
from tollgauge.core.score.score import Score
from tollgauge.core.score.scoring import count_observations, score

LATENCY_MS: Final = 300
SHORT_OUTAGE_MS: Final = 3 * HOUR_MS
WEEK_MS: Final = 7 * DAY_MS
WEEK_LINES_MIN: Final = 4
"""Minimum number of lines from which the uptime of a week is computed."""
WEEK_RANGE: Final = Cell("week", "uptime-range", "inside")
"""Number of intervals compared with the next week, and of those that contain its uptime."""
SHORT_OUTAGE: Final = "short-outage"
"""By grade: lines of endpoints that are not payable and were payable less than SHORT_OUTAGE_MS ago.
"""
_STEP_MS: Final = 30 * MINUTE_MS
_TIME_MAX: Final = 1 << 53

_PAYABLE: Final = Lint(payable=True, compliant=True, version=2, accepts=1)
_NOTHING: Final = Lint(payable=False, compliant=False, version=None)


class SeriesError(TollgaugeError):
    """A line of a series is not valid."""


class Line(NamedTuple):
    """One observation of a site.

    Attributes:
        at: time in ms UTC.
        up: whether the site was payable.
        status: the HTTP status if it was not payable; None without a response.
    """

    at: int
    up: bool
    status: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Replaying:
    """Options of a replay.

    Attributes:
        every: forecasts are made at about one of `every` lines.
        fill: repeat each line every half hour until the next line, for at most one usual interval,
            as if nothing had changed. Forecasts are still made only at lines.
    """

    policy: Policy = POLICY
    every: int = 1
    confirm: bool = True
    fill: bool = False


def read_line(text: bytes) -> tuple[str, Line]:
    """Parse a line `{"site": ..., "instant": ..., "up": ..., "status": ...}`.

    `instant` is an ISO 8601 time or milliseconds UTC. Raises SeriesError.
    """
    try:
        document = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise SeriesError("is not JSON") from error
    if not isinstance(document, dict):
        raise SeriesError("is not a JSON object")
    site, up, status = document.get("site"), document.get("up"), document.get("status")
    if not isinstance(site, str) or not site:
        raise SeriesError("has no `site`")
    if not isinstance(up, bool):
        raise SeriesError("has no `up` (true or false)")
    if status is not None and (type(status) is not int or not 100 <= status <= 599):
        raise SeriesError("has a `status` that is not an HTTP status")
    return site, Line(_instant(document.get("instant")), up, None if up else status)


def _instant(value: object) -> int:
    if type(value) is int and 0 <= value < _TIME_MAX:
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
    raise SeriesError("has no `instant` (ISO 8601, or milliseconds UTC)")


def replay(site: str, lines: Iterable[Line], options: Replaying) -> Sums:
    """Return the counts of a site's forecasts and outcomes.

    Lines may be in any order. Of several lines with the same time, the last one is used.
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
    """Return whether a forecast is made at a line: for one of `every`, by a hash of site and
    time.
    """
    # Every N-th line would always have the same times of day.
    digest = hashlib.sha256(f"{site}:{at}".encode()).digest()
    return int.from_bytes(digest[:8]) % every == 0


def usual_interval(series: Sequence[Line]) -> int:
    """Return the median time between lines in ms, at least half an hour and at most a day."""
    gaps = [after.at - before.at for before, after in pairwise(series)]
    return min(max(median_low(gaps), _STEP_MS), DAY_MS) if gaps else DAY_MS


class _Weeks:
    """The uptime in the week after each line of a series."""

    def __init__(self, series: Sequence[Line], usual: int) -> None:
        self._usual = usual
        self._instants = [line.at for line in series]
        said = [statement(_probe(line.up, line.status, usual)) for line in series]
        self._said = (0, *accumulate(item is not None for item in said))
        self._up = (0, *accumulate(item is not None and item.up for item in said))

    def share(self, index: int) -> Fraction | None:
        """Return the share of up lines in the week after a line.

        None if the week has fewer than WEEK_LINES_MIN lines or the series ends before.
        """
        until = self._instants[index] + WEEK_MS
        end = bisect_left(self._instants, until + 1)
        said = self._said[end] - self._said[index + 1]
        if said < WEEK_LINES_MIN or self._instants[-1] + self._usual < until:
            return None
        return Fraction(self._up[end] - self._up[index + 1], said)


def _count(sums: Sums, history: _History, outcomes: Outcomes, usual: int, policy: Policy) -> None:
    """Count the forecasts at the latest line and their outcomes."""
    computed = score(history.evidence(), policy)
    forecast, at = history.forecast(computed), computed.as_of
    now = outcomes.find_next(at, within=NOW_MAX_MS)
    following = outcomes.find_next(at, within=max(2 * usual, NOW_MAX_MS))
    day = outcomes.find_nearest(at + DAY_MS, after=at, within=usual)
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
    """Count whether the range of the score takes in the uptime of the next week."""
    facts = facts_of(history.evidence(), policy)
    if share is not None and facts.covered_ms:
        percent, of = SUBSCORES["uptime"](facts)
        ends = bounds((percent, 100 * of), count_observations(facts), z=policy.z)
        low, middle, high = (
            half_up(value, 1_000) for value in (ends[0], share.as_integer_ratio(), ends[1])
        )
        sums.add(WEEK_RANGE, payable=low <= middle <= high)


def probe_of(line: Line, interval_ms: int) -> ProbeResult:
    """Return the probe of a line. The next probe is due after `interval_ms`."""
    return replace(_probe(line.up, line.status, interval_ms), at=line.at)


@cache
def _probe(up: bool, status: int | None, interval_ms: int) -> ProbeResult:  # noqa: FBT001 - a key
    # At time 0, so that the result can be cached for many lines.
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
    """The state of a site: the day sums of the window and the latest probes."""

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
        """Add the next probe."""
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
        """Return whether it is not payable now and was payable less than SHORT_OUTAGE_MS ago."""
        down = self._state is not None and not self._state.payable
        return (
            down
            and self._payable_since is not None
            and self._at - self._failed_at < SHORT_OUTAGE_MS
        )

    def evidence(self) -> Evidence:
        """Return the evidence at the time of the latest probe."""
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
        """Return the forecast of a score."""
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
    """Yield the spans that a new statement adds to each day that the previous statement reaches.

    The sum of all parts is the spans of all statements up to the latest (core/probe/probe).
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
