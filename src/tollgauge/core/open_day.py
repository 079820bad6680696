"""Open day: what the probes of a day that is not over add up to.

A score keeps the sums of its day up to the newest probe that it knew, so the next one looks only at
the probes after that. Sums are right as long as no probe of before is recorded late or attributed
anew; how often that happened is counted (`revised`), and sums of an older count are not used.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Final

from tollgauge.core.latest_probes import NOTHING, Latest
from tollgauge.core.probe import ProbeResult
from tollgauge.core.record import record
from tollgauge.core.rollup import Rollup, Sample, sample, with_samples
from tollgauge.core.spans import NO_SPANS, Said, Statement, spans, statement

Up = tuple[int, bool]
"""The instant of a scored probe, and whether it was up."""


@record(frozen=True, slots=True, kw_only=True)
class DayProbes:
    """Probes of an endpoint on a day: the instant of the `newest` (ms UTC), what they add to it,
    what they say, each in any order, and the latest of them.
    """

    newest: int = 0
    samples: Sequence[Sample] = ()
    statements: Sequence[Said] = ()
    latest: Latest = NOTHING

    @classmethod
    def of(cls, results: Sequence[ProbeResult]) -> DayProbes:
        """Those of results, in the order of time."""
        return cls(
            newest=results[-1].at if results else 0,
            samples=[sample(result) for result in results if not result.confirms],
            statements=[said for result in results if (said := statement(result)) is not None],
            latest=Latest.of(results),
        )

    def __add__(self, other: DayProbes) -> DayProbes:
        """These and others of the same day."""
        return DayProbes(
            newest=max(self.newest, other.newest),
            samples=[*self.samples, *other.samples],
            statements=[*self.statements, *other.statements],
            latest=self.latest.after(other.latest),
        )

    @property
    def ups(self) -> list[Up]:
        """Of each scored probe whether it was up."""
        return [(row[0], row[2]) for row in self.samples if row[1] is None]


NO_PROBES: Final = DayProbes()
_at: Final = itemgetter(0)


@record(frozen=True, slots=True, kw_only=True)
class OpenDay:
    """The probes of a day up to the `newest` (ms UTC): what they add up to (`sums`, with the spans
    up to the last statement, `said`), whether the scored ones of the last hours were up, and the
    latest. `revised` is as in the module's text.
    """

    sums: Rollup
    newest: int = 0
    said: Statement | None = None
    ups: Sequence[Up] = ()
    latest: Latest = NOTHING
    revised: int = 0

    def followed_by(self, probes: DayProbes, *, before: Statement | None) -> OpenDay:
        """These and later probes of the day; `before` is the last statement of the day before."""
        if not probes.newest:
            return self
        day, said, spoken = self.sums.day, self.said, NO_SPANS
        if probes.statements:
            said = Statement(*max(probes.statements, key=_at))
            spoken = spans(day, probes.statements, before=self.said or before, until=said.at)
        return OpenDay(
            sums=with_samples(self.sums, probes.samples, spans=spoken),
            newest=probes.newest,
            said=said,
            ups=[*self.ups, *probes.ups],
            latest=probes.latest.after(self.latest),
            revised=self.revised,
        )

    def until(self, instant: int, *, before: Statement | None) -> Rollup:
        """The sums of the day up to an instant (ms UTC), which is none before its newest probe."""
        spoken = spans(self.sums.day, (), before=self.said or before, until=instant)
        return with_samples(self.sums, (), spans=spoken)
