"""Stored endpoints and scores, by path."""

from __future__ import annotations

from dataclasses import replace

from tollgauge.core.base.units import DAY_MS
from tollgauge.core.endpoint.identity import Endpoint, endpoint_id
from tollgauge.core.lists.rated_endpoint import ScoreFigures
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
    """Return a score; `values` are fields of ScoreRow or of its figures."""
    figures = {
        "confidence_hundredths": confidence,
        "rank_key": None if tenths is None else tenths * 100 + confidence,
        "recommendation": "proceed",
        "grade": None if tenths is None else "A" if tenths >= 810 else "B",
        "uptime_tenths": tenths,
        "compliant": tenths is not None and tenths > 800,
        "latency_ms": 90,
    }
    return stored_score(endpoint(path).id, tenths, **(figures | values))


def stored_score(endpoint_id: str, tenths: int | None, **values: object) -> ScoreRow:
    """Return a score of an endpoint; `values` are fields of ScoreRow or of its figures."""
    names = ScoreFigures.__struct_fields__
    figures = {name: values.pop(name) for name in names if name in values}
    row = ScoreRow(
        endpoint_id=endpoint_id,
        as_of=NOW,
        policy_version=1,
        score_tenths=tenths,
        evidence=b"{}",
        result=b"{}",
    )
    row = replace(row, **values)  # type: ignore[arg-type]
    known = {"scored_at": row.as_of, "score_tenths": tenths, "rank_key": tenths, **figures}
    return replace(row, figures=ScoreFigures(**known))  # type: ignore[arg-type]


async def save(store: Store, *rows: ScoreRow) -> None:
    for one in rows:
        await store.writing(scores.save, one)
