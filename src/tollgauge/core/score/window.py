"""Window: the days that a score depends on, from an endpoint's closed days and open probes.

A day is closed after its end: its probes are packed, and their sums never change, unless a probe of
that day arrives late. A day without probes has the time for which the last statement of the day
before still applies. store/probes/window reads the rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from msgspec import structs

from tollgauge.core.base.units import DAY_MS, WINDOW_MS, day_of
from tollgauge.core.probe.outcome import Outcome
from tollgauge.core.probe.probe import NO_SPANS, AnyProbe, Statement, spans, statement
from tollgauge.core.probe.rollup import Days, Rollup, merge, rollup
from tollgauge.core.score.evidence import LastProbe, LatestState

DAYS: Final = WINDOW_MS // DAY_MS + 1
"""Days of a window: the UTC day of its end and the 30 days before it."""


class DayScore(msgspec.Struct, frozen=True, array_like=True):
    """An endpoint's score in tenths when a UTC day was closed, and the score's policy."""

    tenths: int
    policy_version: int


class Latest(msgspec.Struct, frozen=True, kw_only=True):
    """The latest probes that a score depends on: the last scored one, the last scored one with a
    payment envelope, and the state by the last one that describes the target.
    """

    last: LastProbe | None = None
    envelope: LastProbe | None = None
    state: LatestState | None = None

    @classmethod
    def of(cls, results: Sequence[AnyProbe]) -> Latest:
        """Return those of results in the order of time."""
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
        """Return the later of these and others, field by field."""
        names = Latest.__struct_fields__
        return Latest(**{name: _later(getattr(self, name), getattr(other, name)) for name in names})

    def since(self, at: int) -> Latest:
        """Return those at or after a time (ms UTC)."""
        kept = {name: one for name, one in structs.asdict(self).items() if one and one.at >= at}
        return Latest(**kept)


NOTHING: Final = Latest()
NO_SUMS: Final = merge(())


class ClosedDay(msgspec.Struct, frozen=True, array_like=True):
    """A closed day.

    Attributes:
        said: The last statement of the day; None without one.
        score: The endpoint's score when the day was closed; None if it is unknown.
    """

    sums: Rollup
    said: Statement | None = None
    score: DayScore | None = None

    @property
    def day(self) -> int:
        """The number of the UTC day."""
        return self.sums.day


class ClosedDays(msgspec.Struct, frozen=True, array_like=True):
    """An endpoint's closed days within a window, oldest first, and the latest probes of all closed
    days.

    `totals` is the sum of the days that belong to the window of the day after the newest one.
    """

    days: tuple[ClosedDay, ...] = ()
    latest: Latest = NOTHING
    totals: Rollup = NO_SUMS

    def with_day(
        self, closed: ClosedDay, results: Sequence[AnyProbe]
    ) -> tuple[ClosedDays, tuple[ClosedDay, ...]]:
        """Return the closed days with one more, or with a new version of one; and the days that
        leave the window. `results` are the day's probes in the order of time.
        """
        days = {one.day: one for one in (*self.days, closed)}
        newest = max(days)
        recent = tuple(days[day] for day in sorted(days) if day > newest - DAYS)
        next_window = [one.sums for one in recent if one.day > newest + 1 - DAYS]
        leaving = tuple(days[day] for day in sorted(days) if day <= newest - DAYS)
        added = ClosedDays(
            days=recent,
            latest=Latest.of(results).after(self.latest),
            totals=merge(next_window),
        )
        return added, leaving


NO_DAYS: Final = ClosedDays()


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The sums of UTC days with probes or spans, oldest first, and the latest probes."""

    days: Days
    latest: Latest

    @property
    def last(self) -> LastProbe | None:
        """The latest scored probe."""
        return self.latest.last

    @property
    def envelope(self) -> LastProbe | None:
        """The latest scored probe with a payment envelope, if it is older than `last`."""
        last = self.latest.last
        return self.latest.envelope if last is not None and last.accepts is None else None

    @property
    def state(self) -> LatestState | None:
        """The state by the latest probe that describes the target, confirmed or not."""
        return self.latest.state


def window_of(closed: ClosedDays, opened: Sequence[AnyProbe], *, as_of: int) -> Window:
    """Return the window up to `as_of` (ms UTC).

    Args:
        closed: The closed days.
        opened: Probes of other days in the order of time; all of a day or none.
        as_of: End of the window.
    """
    today = day_of(as_of)
    first = today - DAYS + 1
    days = {one.sums.day: (one.sums, one.said) for one in closed.days if one.sums.day <= today}
    known = frozenset(days)
    by_day: dict[int, list[AnyProbe]] = {}
    for result in opened:
        by_day.setdefault(day_of(result.at), []).append(result)
    for day, results in by_day.items():
        days[day] = day_of_probes(day, results, before=days.get(day - 1, _SILENCE)[1], until=as_of)
    in_window = [sums for sums in _spoken_days(days, as_of=as_of) if sums.day >= first]
    newest = closed.days[-1].sums.day if closed.days else None
    parts: list[Rollup] = []
    if newest == today - 1 and known.isdisjoint(by_day):  # late probes are not in the totals
        parts = [closed.totals, *(sums for sums in in_window if sums.day not in known)]
    return Window(
        days=Days(in_window, parts=parts),
        latest=Latest.of(opened).after(closed.latest).since(first * DAY_MS),
    )


def day_of_probes(
    day: int, results: Sequence[AnyProbe], *, before: Statement | None, until: int
) -> tuple[Rollup, Statement | None]:
    """Return the sums of a day and its last statement.

    Args:
        day: UTC days since the epoch.
        results: All probes of the day in the order of time.
        before: The last statement of the day before.
        until: Time at which the sums end (ms UTC).
    """
    statements = [said for result in results if (said := statement(result)) is not None]
    spoken = spans(day, statements, before=before, until=until)
    return rollup(day, results, spans=spoken), statements[-1] if statements else None


def latest_state(probe: Any) -> LatestState | None:
    """Return the state by a result, or a row of one; None if it does not describe the target."""
    said = None if probe is None else statement(probe)
    if said is None:
        return None
    outcome = Outcome(probe.outcome).value
    return LatestState(at=said.at, outcome=outcome, up=said.up, payable=said.payable)


def with_silent_days(closed: Sequence[ClosedDay], *, until: int) -> Iterator[ClosedDay]:
    """Yield closed days, oldest first, and days before `until` without probes to which the last
    statement of the day before still applies.
    """
    scores = {one.day: one.score for one in closed}
    days = {one.day: (one.sums, one.said) for one in closed if one.day < until}
    for sums in _spoken_days(days, as_of=until * DAY_MS - 1):
        yield ClosedDay(sums, None, scores.get(sums.day))


_SILENCE: Final[tuple[None, None]] = (None, None)


def _spoken_days(
    days: Mapping[int, tuple[Rollup, Statement | None]], *, as_of: int
) -> Iterator[Rollup]:
    """Yield the sums of days that have any, oldest first, and of days after them to which the last
    statement of the day before still applies before `as_of`.
    """
    for day in sorted(days):
        sums, said = days[day]
        if sums.probes or sums.spans != NO_SPANS:
            yield sums
        holds = said is not None and said.at + said.holds > (day + 1) * DAY_MS
        if holds and day + 1 not in days:
            spoken = spans(day + 1, (), before=said, until=as_of)
            if spoken != NO_SPANS:
                yield Rollup(day=day + 1, spans=spoken)


def _later(one: Any, other: Any) -> Any:
    if one is None or other is None:
        return other if one is None else one
    return one if one.at >= other.at else other
