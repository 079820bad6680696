"""The evidence of several endpoints."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection

from tollgauge.core.endpoint.identity import Endpoint
from tollgauge.core.probe.schedule import Cadence
from tollgauge.core.score.evidence import Evidence
from tollgauge.monitor import scoring


def gather_many(
    tx: Connection, endpoints: Sequence[Endpoint], *, as_of: int, cadence: Cadence
) -> dict[str, Evidence]:
    """Gather the evidence of endpoints by ID, together."""
    gathered = scoring.gather_each(tx, endpoints, as_of=as_of, cadence=cadence)
    return {one.id: evidence for one, evidence in zip(endpoints, gathered, strict=True)}
