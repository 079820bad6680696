"""One probe, recorded as a wave of one."""

from __future__ import annotations

from sqlalchemy import Connection

from tollgauge.core.probe.probe import ProbeResult
from tollgauge.store.probes import probes
from tollgauge.store.probes.probes import NewProbe


def record_probe(
    tx: Connection,
    endpoint_id: str,
    result: ProbeResult,
    *,
    next_due: int | None = None,
    learned: str | None = None,
) -> bool:
    """Record a probe; whether it was new."""
    new = NewProbe(endpoint_id=endpoint_id, result=result, next_due=next_due, learned=learned)
    return bool(probes.record_each(tx, [new]))
