"""Window: the days that a score looks at, from an endpoint's closed days and its open probes.

A day is closed when it is over: its probes are packed, and their sums never change, unless a probe
of it comes late. A day without probes has what the last statement of the day before still says, if
anything.

The rows are store/probes/window' and store/probes/window's, what a score makes of them is
core/score/scoring's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from tollgauge.core.base.units import DAY_MS, WINDOW_MS, day_of
from tollgauge.core.probe.outcome import Outcome
from tollgauge.core.probe.probe import NO_SPANS, ProbeResult, Statement, spans, statement
from tollgauge.core.probe.rollup import Rollup, rollup
from tollgauge.core.score.evidence import LastProbe, LatestState

DAYS: Final = WINDOW_MS // DAY_MS + 1
"""The days of a window: the UTC day of its end and the 30 days before it."""


class DayScore(msgspec.Struct, frozen=True, array_like=True):
    """The score in tenths that an endpoint had when a UTC day was closed, and its policy."""

    tenths: int
    policy_version: int


class Latest(msgspec.Struct, frozen=True, kw_only=True):
    """The latest probes that a score names: the `last` scored one, the last scored one with a
    payment envelope, and the last that speaks.
    """

    last: LastProbe | None = None
    envelope: LastProbe | None = None
    state: LatestState | None = None

    @classmethod
    def of(cls, results: Sequence[ProbeResult]) -> Latest:
        """Those of results, which are in the order of time."""
        last = next((one for one in reversed(results) if one.scored), None)
        envelope = next(
            (one for one in reversed(results) if one.scored and one.accepts is not None), None
        )
        return cls(
            last=None if last is None else LastProbe.of(last),
            envelope=None if envelope is None else LastProbe.of(envelope),
            state=latest_state(next(filter(statement, reversed(results)), None)),
        )

    def after(self, other: Latest) -> Latest:
        """The later of these and of others, one by one."""
        return Latest(
            last=_later(self.last, other.last),
            envelope=_later(self.envelope, other.envelope),
            state=_later(self.state, other.state),
        )

    def since(self, at: int) -> Latest:
        """Those from an instant (ms UTC) on."""
        return Latest(
            last=self.last if self.last and self.last.at >= at else None,
            envelope=self.envelope if self.envelope and self.envelope.at >= at else None,
            state=self.state if self.state and self.state.at >= at else None,
        )


NOTHING: Final = Latest()


class ClosedDay(msgspec.Struct, frozen=True, array_like=True):
    """A closed day: its sums, what its last probe that speaks says (`said`), and the score that the
    endpoint had when it was closed, None where none is known.
    """

    sums: Rollup
    said: Statement | None = None
    score: DayScore | None = None

    @property
    def day(self) -> int:
        """The number of the UTC day."""
        return self.sums.day


class ClosedDays(msgspec.Struct, frozen=True, array_like=True):
    """The closed days of an endpoint that a score can look at, oldest first, with the `latest`
    probes of all closed days.
    """

    days: tuple[ClosedDay, ...] = ()
    latest: Latest = NOTHING

    def with_day(
        self, closed: ClosedDay, results: Sequence[ProbeResult]
    ) -> tuple[ClosedDays, tuple[ClosedDay, ...]]:
        """These with a day that was closed, or closed again, and its probes, which are in the order
        of time; and the days that leave them.
        """
        days = {one.day: one for one in (*self.days, closed)}
        newest = max(days)
        recent = tuple(days[day] for day in sorted(days) if day > newest - DAYS)
        leaving = tuple(days[day] for day in sorted(days) if day <= newest - DAYS)
        added = ClosedDays(
            days=recent,
            latest=Latest.of(results).after(self.latest),
        )
        return added, leaving


NO_DAYS: Final = ClosedDays()


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The probes of a window: the sums of each UTC day, oldest first, one entry for each that has
    any probe or a span of the day before; and the `latest`.
    """

    days: tuple[Rollup, ...]
    latest: Latest

    @property
    def last(self) -> LastProbe | None:
        """The latest scored probe."""
        return self.latest.last

    @property
    def envelope(self) -> LastProbe | None:
        """The latest scored probe with a payment envelope, if that is an older one than `last`."""
        last = self.latest.last
        return self.latest.envelope if last is not None and last.accepts is None else None

    @property
    def state(self) -> LatestState | None:
        """What the latest probe that speaks says, confirmed or not."""
        return self.latest.state


def window_of(closed: ClosedDays, opened: Sequence[ProbeResult], *, as_of: int) -> Window:
    """The window up to `as_of` (ms UTC) of closed days and of the probes of other days, which are
    in the order of time. All probes of a day are among the opened ones if any is.
    """
    today = day_of(as_of)
    first = today - DAYS + 1
    days = {one.day: (one.sums, one.said) for one in closed.days if one.day <= today}
    by_day: dict[int, list[ProbeResult]] = {}
    for result in opened:
        by_day.setdefault(day_of(result.at), []).append(result)
    for day, results in by_day.items():
        days[day] = day_of_probes(day, results, before=days.get(day - 1, _SILENCE)[1], until=as_of)
    return Window(
        days=tuple(sums for sums in _spoken_days(days, as_of=as_of) if sums.day >= first),
        latest=Latest.of(opened).after(closed.latest).since(first * DAY_MS),
    )


def day_of_probes(
    day: int, results: Sequence[ProbeResult], *, before: Statement | None, until: int
) -> tuple[Rollup, Statement | None]:
    """The sums of a day up to an instant (ms UTC) from all its probes in the order of time, and its
    last statement; `before` is that of the day before.
    """
    statements = [said for result in results if (said := statement(result)) is not None]
    spoken = spans(day, statements, before=before, until=until)
    return rollup(day, results, spans=spoken), statements[-1] if statements else None


def latest_state(probe: Any) -> LatestState | None:
    """What a result, or a row of one, says of now; None if it says nothing of the target."""
    said = None if probe is None else statement(probe)
    if said is None:
        return None
    outcome = Outcome(probe.outcome).value
    return LatestState(at=said.at, outcome=outcome, up=said.up, payable=said.payable)


def with_silent_days(closed: Sequence[ClosedDay], *, until: int) -> Iterator[ClosedDay]:
    """Closed days, oldest first, and the days before `until` that have no probes and for which the
    last statement of the day before still speaks.
    """
    scores = {one.day: one.score for one in closed}
    days = {one.day: (one.sums, one.said) for one in closed if one.day < until}
    for sums in _spoken_days(days, as_of=until * DAY_MS - 1):
        yield ClosedDay(sums, None, scores.get(sums.day))


_SILENCE: Final[tuple[None, None]] = (None, None)


def _spoken_days(
    days: Mapping[int, tuple[Rollup, Statement | None]], *, as_of: int
) -> Iterator[Rollup]:
    """The sums of days that have any, oldest first, and of those after them of which the last
    statement of the day before still says something before `as_of`.
    """
    for day in sorted(days):
        sums, said = days[day]
        if sums.probes or sums.spans != NO_SPANS:
            yield sums
        speaks = said is not None and said.at + said.holds > (day + 1) * DAY_MS
        if speaks and day + 1 not in days:
            spoken = spans(day + 1, (), before=said, until=as_of)
            if spoken != NO_SPANS:
                yield Rollup(day=day + 1, spans=spoken)


def _later(one: Any, other: Any) -> Any:
    if one is None or other is None:
        return other if one is None else one
    return one if one.at >= other.at else other
