"""Pace: how often an endpoint is probed where its host cannot be asked as often as usual."""

from __future__ import annotations

from dataclasses import dataclass

import orjson

from tollgauge.core.base.units import HOUR_MS, MINUTE_MS
from tollgauge.store.schedule.hosts import HostState
from tollgauge.store.scores.scores import ScoreRow


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """An endpoint is probed every `every_ms`, because `sharing` endpoints share the budget of its
    host or its site.
    """

    every_ms: int
    sharing: int

    @property
    def reason(self) -> str:
        """The same in a sentence."""
        hours = self.every_ms >= HOUR_MS
        number = round(self.every_ms / (HOUR_MS if hours else MINUTE_MS))
        every = f"{number} {'h' if hours else 'min'}"
        because = f"{self.sharing:,} paths share what its host can be asked"
        return f"Probed every {every}, because {because}."


def pace(host: HostState, row: ScoreRow | None) -> Pace | None:
    """The pace in the evidence of a score; None without a score, and for an endpoint that is probed
    as usual.
    """
    if not host.sharing or row is None:
        return None
    return Pace(every_ms=orjson.loads(row.evidence)["interval"], sharing=host.sharing)
