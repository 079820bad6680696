"""Window: the days that a score looks at, and what they add up to.

A closed day never changes by itself, so its part of the sums and of the evidence's text is made
once, when a day is closed (`ClosedDays`), and a score adds only the days that are still open:

- the closed days are those of the window of the day after the newest of them. On a later day the
  oldest have left it, and the days are added one by one again (`Window.of`);
- a day without probes has what the last statement of the day before still says, if anything.

The rows are store/probes/window's, what a score makes of them core/scoring's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, NamedTuple

import orjson

from tollgauge.core.evidence import LastProbe, LatestState
from tollgauge.core.latency import NO_LATENCIES, percentiles
from tollgauge.core.latest_probes import Latest
from tollgauge.core.open_day import OpenDay
from tollgauge.core.policy import POLICY
from tollgauge.core.record import record
from tollgauge.core.rollup import (
    NO_TOTALS,
    Rollup,
    Totals,
    counts,
    day_document,
    day_from_document,
    totals,
    totals_without,
)
from tollgauge.core.spans import NO_SPANS, Spans, Statement, spans
from tollgauge.core.units import DAY_MS, WINDOW_MS

DAYS: Final = WINDOW_MS // DAY_MS + 1
"""The days of a window: the UTC day of its end and the 30 days before it."""


@dataclass(frozen=True, slots=True)
class DayTexts:
    """The canonical JSON of days, with commas between, as it is kept: `unpack` makes the text of
    `packed`. A score hands it on as it is.
    """

    packed: bytes
    unpack: Callable[[bytes], bytes] = bytes

    @property
    def text(self) -> bytes:
        """The text."""
        return self.unpack(self.packed)


class WeightedTime(NamedTuple):
    """Milliseconds `up` and `down`, and the sum of compliance x milliseconds, as in `Spans`, each
    times the weight of its day.
    """

    up: int
    down: int
    compliance: int


NO_TIME: Final = WeightedTime(0, 0, 0)
DAY_WEIGHTS: Final = POLICY.day_weights
"""What a day counts by its age. Sums of closed days are kept with them,
so a policy with others needs a migration that makes these sums anew.
"""


def weights_on(today: int) -> dict[int, int]:
    """The weight of each day of the window that ends on a day."""
    return {today - age: weight for age, weight in enumerate(DAY_WEIGHTS)}


@record(frozen=True, slots=True, kw_only=True)
class ClosedDays:
    """The closed days of an endpoint up to `day`, as a window of the day after shows them.

    `totals` are their sums and `weighted` their time, each day's times what `DAY_WEIGHTS` gives it
    on the day after. `said` is what the last probe of `day` says that speaks; `tail` has (at, up)
    of that day's last counted probes, of the hours that `Evidence.recent` may reach back.
    """

    day: int
    totals: Totals
    weighted: WeightedTime
    texts: DayTexts
    latest: Latest
    said: Statement | None
    tail: Sequence[tuple[int, bool]]

    @classmethod
    def of(
        cls,
        days: Mapping[int, tuple[Rollup, Statement | None]],
        *,
        day: int,
        latest: Latest,
        tail: Sequence[tuple[int, bool]],
    ) -> ClosedDays:
        """From the sums of closed days, each with what its last probe that speaks says."""
        first = day - DAYS + 2
        said = days[day][1] if day in days else None
        shown = tuple(sums for sums in with_silent_days(days, until=day) if sums.day >= first)
        return cls(
            day=day,
            totals=totals(shown),
            weighted=weighted_time(shown, weights_on(day + 1)),
            texts=DayTexts(b",".join(day_text(sums) for sums in shown)),
            latest=latest.since(first * DAY_MS),
            said=said,
            tail=tail,
        )

    def followed_by(
        self,
        sums: Rollup,
        said: Statement | None,
        *,
        latest: Latest,
        tail: Sequence[tuple[int, bool]],
    ) -> ClosedDays:
        """These and a later day, as `of` makes them of all days: the oldest leave the window, and
        nothing else is read again.
        """
        first = sums.day - DAYS + 2
        known = _documents(self.texts.text)
        gone = [document for document in known if document["day"] < first]
        leaving = list(map(day_from_document, gone))
        ends = {self.day: (Rollup(day=self.day), self.said), sums.day: (sums, said)}
        later = (one for one in with_silent_days(ends, until=sums.day) if one.day > self.day)
        added = [one for one in later if one.day >= first]
        staying = _without_first(len(gone), self.texts.text)
        weights = weights_on(sums.day + 1)
        return ClosedDays(
            day=sums.day,
            totals=totals(added, totals_without(self.totals, totals(leaving))),
            weighted=weighted_time(added, weights, _weighted(known[len(gone) :], weights)),
            texts=DayTexts(b",".join(filter(None, (staying, *map(day_text, added))))),
            latest=latest.since(first * DAY_MS),
            said=said,
            tail=tail,
        )

    def rollups(self) -> tuple[Rollup, ...]:
        """The sums of each day."""
        return _rollups(self.texts.text)


@record(frozen=True, kw_only=True)
class Window:
    """The probes of a window: (scored, up) of the most `recent`; the `latest` that are named; the
    `closed` days, None where each day was added by itself; and the others (`open_days`), oldest
    first, one entry for each UTC day that has any probe, or a span of the day before. `today` has
    the sums of the last day up to its newest probe, for the next score; None where they were not
    made.
    """

    open_days: tuple[Rollup, ...]
    recent: tuple[int, int]
    latest: Latest
    closed: ClosedDays | None = None
    today: OpenDay | None = None

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

    @cached_property
    def days(self) -> tuple[Rollup, ...]:
        """The sums of each day, oldest first."""
        return (*(self.closed.rollups() if self.closed else ()), *self.open_days)

    @cached_property
    def totals(self) -> Totals:
        """The sums of all days, without the histogram of latencies."""
        return counts(self.open_days, NO_TOTALS if self.closed is None else self.closed.totals)

    def latencies(self, percents: Sequence[int]) -> list[int | None]:
        """Percentiles of the latencies of all days, in milliseconds; None without any."""
        closed = NO_LATENCIES if self.closed is None else self.closed.totals.latency
        return percentiles([sums.latency for sums in self.open_days], percents, closed)

    def weighted(self, weights: Mapping[int, int]) -> WeightedTime:
        """The time of all days, each times the weight of its day, as `weights_on` gives it."""
        closed = NO_TIME if self.closed is None else self.closed.weighted
        return weighted_time(self.open_days, weights, closed)

    @property
    def open_texts(self) -> bytes:
        """The canonical JSON of the open days, with commas between."""
        return b",".join(map(day_text, self.open_days))


def weighted_time(
    days: Iterable[Rollup], weights: Mapping[int, int], before: WeightedTime = NO_TIME
) -> WeightedTime:
    """The time of days, each times its weight, which is 0 where none is given, on top of that of
    other days (`before`).
    """
    up, down, compliance = before
    for sums in days:
        weight, spoken = weights.get(sums.day, 0), sums.spans
        up += weight * spoken.up
        down += weight * spoken.down
        compliance += weight * spoken.compliance
    return WeightedTime(up, down, compliance)


def day_text(sums: Rollup) -> bytes:
    """The canonical JSON of a day."""
    return orjson.dumps(day_document(sums), option=orjson.OPT_SORT_KEYS)


def _rollups(texts: bytes) -> tuple[Rollup, ...]:
    """The sums of days of which the canonical JSON is at hand, with commas between."""
    return tuple(map(day_from_document, _documents(texts)))


def _documents(texts: bytes) -> list[dict[str, Any]]:
    documents: list[dict[str, Any]] = orjson.loads(b"[%b]" % texts)
    return documents


def _weighted(documents: Iterable[Mapping[str, Any]], weights: Mapping[int, int]) -> WeightedTime:
    """As `weighted_time`, of days that are JSON objects, which takes a third of the time."""
    up = down = compliance = 0
    for document in documents:
        weight, spoken = weights[document["day"]], document["spans"]
        up += weight * spoken["up"]
        down += weight * spoken["down"]
        compliance += weight * spoken["compliance"]
    return WeightedTime(up, down, compliance)


def _without_first(count: int, texts: bytes) -> bytes:
    """The texts of days without so many of them, the first ones. A quote inside of a text is
    escaped, so these bytes are between days alone.
    """
    begin = 0
    for _ in range(count):
        end = texts.find(b'},{"', begin)
        if end < 0:
            return b""
        begin = end + 2
    return texts[begin:]


def with_silent_days(
    days: Mapping[int, tuple[Rollup, Statement | None]], *, until: int
) -> Iterable[Rollup]:
    """The sums of days in their order, but for those that have none; those without probes too for
    which the last statement of the day before still speaks, none of them later than `until`.
    """
    for day in sorted(days):
        sums, said = days[day]
        if sums.probes or sums.spans != NO_SPANS:
            yield sums
        if day < until and day + 1 not in days:
            spoken = spans_of_next_day(day, said)
            if spoken != NO_SPANS:
                yield Rollup(day=day + 1, spans=spoken)


def spans_of_next_day(day: int, said: Statement | None) -> Spans:
    """What the last statement of a day still says of the day after it, if that has no probes."""
    if said is None:
        return NO_SPANS
    return spans(day + 1, (), before=said, until=(day + 2) * DAY_MS)
