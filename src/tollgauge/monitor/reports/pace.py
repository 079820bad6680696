"""Pace: how often an endpoint is probed where its host cannot be asked as often as usual."""

from __future__ import annotations

from dataclasses import dataclass

import orjson
from sqlalchemy import Connection

from tollgauge.core.base.units import HOUR_MS, MINUTE_MS
from tollgauge.core.endpoint.identity import Endpoint
from tollgauge.store.schedule import hosts
from tollgauge.store.schedule.hosts import HostState
from tollgauge.store.scores import scores
from tollgauge.store.scores.scores import ScoreRow


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """An endpoint is probed every `every_ms`, because `sharing` endpoints share what its host, or
    its site, can be asked.
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


def pace(
    tx: Connection,
    endpoint: Endpoint,
    row: ScoreRow | None = None,
    *,
    host: HostState | None = None,
) -> Pace | None:
    """The pace that the evidence of a score names; None for an endpoint that is probed as usual,
    or has no score. The saved score and the `host` are read where they are not given.
    """
    host = host or hosts.get(tx, endpoint.host)
    if not host.sharing:
        return None
    row = row or scores.get(tx, endpoint.id)
    if row is None:
        return None
    return Pace(every_ms=orjson.loads(row.evidence)["interval"], sharing=host.sharing)
