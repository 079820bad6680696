"""Endpoints and scores as they are stored, by their paths."""

from __future__ import annotations

from dataclasses import replace

from tollgauge.core.base.units import DAY_MS
from tollgauge.core.endpoint.identity import Endpoint, endpoint_id
from tollgauge.db.engine import Store
from tollgauge.store.scores import scores
from tollgauge.store.scores.scores import ScoreRow

NOW = 20_000 * DAY_MS


def endpoint(path: str, *, host: str = "a.com") -> Endpoint:
    resource = f"https://{host}{path}"
    return Endpoint(
        id=endpoint_id(resource), resource=resource, host=host, first_seen=NOW, last_seen=NOW
    )


def row(path: str, tenths: int | None, confidence: int = 50, **values: object) -> ScoreRow:
    base = ScoreRow(
        endpoint_id=endpoint(path).id,
        as_of=NOW,
        policy_version=1,
        score_tenths=tenths,
        grade=None if tenths is None else "A" if tenths >= 810 else "B",
        recommendation="proceed",
        confidence_hundredths=confidence,
        uptime_tenths=tenths,
        compliant=tenths is not None and tenths > 800,
        evidence=b"{}",
        result=b'{"stats":{"avg_latency_ms":90}}',
    )
    return replace(base, **values)  # type: ignore[arg-type]


async def save(store: Store, *rows: ScoreRow) -> None:
    for one in rows:
        await store.writing(scores.save, one)
