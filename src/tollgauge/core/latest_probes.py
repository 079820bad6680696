"""Latest probes: those of an endpoint that a score names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from tollgauge.core.evidence import LastProbe, LatestState
from tollgauge.core.probe import Outcome, ProbeResult
from tollgauge.core.record import record
from tollgauge.core.spans import statement


@record(frozen=True, slots=True, kw_only=True)
class Latest:
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
        newest = LastProbe.of(last) if last else None
        return cls(
            last=newest,
            envelope=newest if envelope is last else LastProbe.of(envelope) if envelope else None,
            state=latest_state(next(filter(statement, reversed(results)), None)),
        )

    def after(self, other: Latest) -> Latest:
        """The later of these and of others, one by one."""
        if other is NOTHING:
            return self
        return Latest(
            last=_later(self.last, other.last),
            envelope=_later(self.envelope, other.envelope),
            state=_later(self.state, other.state),
        )

    def since(self, at: int) -> Latest:
        """Those from an instant (ms UTC) on."""
        if all(probe is None or probe.at >= at for probe in (self.last, self.envelope, self.state)):
            return self
        return Latest(
            last=self.last if self.last is not None and self.last.at >= at else None,
            envelope=self.envelope if self.envelope and self.envelope.at >= at else None,
            state=self.state if self.state is not None and self.state.at >= at else None,
        )


NOTHING: Final = Latest()
"""The latest probes where there are none."""


def latest_state(probe: Any) -> LatestState | None:
    """What a result, or a row of one, says of now; None if it says nothing of the target."""
    said = None if probe is None else statement(probe)
    if said is None:
        return None
    outcome = Outcome(probe.outcome).value
    return LatestState(at=said.at, outcome=outcome, up=said.up, payable=said.payable)


def _later(one: Any, other: Any) -> Any:
    if one is None or other is None:
        return other if one is None else one
    return one if one.at >= other.at else other
