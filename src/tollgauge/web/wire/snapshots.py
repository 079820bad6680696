"""A snapshot as JSON, and the leaderboard, which is a list of them in brief."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import WithJsonSchema

from tollgauge.core.endpoint import Listing
from tollgauge.monitor.reports import Leaderboard, Snapshot
from tollgauge.web.wire.figures import day, iso, micro_usd, minute, tenths
from tollgauge.web.wire.shape import Grade, OneOf, Percent, Recommendation, Shape

_NotAdvertised = Annotated[
    Literal["not advertised"],
    # An enum of one: generators of clients that take a `const` refuse the number beside it.
    WithJsonSchema({"type": "string", "enum": ["not advertised"]}),
]


class LeaderRow(Shape):
    """One row of the leaderboard."""

    rank: int
    resource: str
    host: str
    score: Percent
    grade: Grade | None
    recommendation: Recommendation
    confidence: float
    uptime30d: Percent | None
    avg_latency_ms: int | None
    amount_usd: float | None
    network: str | None
    endpoint_page: str


class LeaderboardShape(Shape):
    """The best 25 listed endpoints."""

    as_of: str
    policy_version: int
    simulated: bool
    endpoints: list[LeaderRow]


class SnapshotShape(Shape):
    """The free, cached view of one endpoint."""

    id: str
    resource: str
    recommendation: Recommendation
    grade: Grade | None
    score: Percent | None
    confidence: float
    uptime30d: Percent | None
    avg_latency_ms: int | None
    probes30d: int
    advertised_price_usd: float | _NotAdvertised
    price_stability: str
    network: str | None
    first_seen: str
    last_probed: str | None
    status: Annotated[str, OneOf(Listing)]
    snapshot_computed: str
    age_hours: int
    advertised_description: str
    better_alternatives: int | None
    summary: str
    verdict: str | None
    sources: list[str]
    endpoint_page: str
    simulated: bool


def leaderboard(board: Leaderboard, *, base_url: str) -> LeaderboardShape:
    """The leaderboard as JSON shape."""
    return LeaderboardShape(
        as_of=iso(board.as_of),
        policy_version=board.policy_version,
        simulated=any(row.simulated for row in board.rows),
        endpoints=[
            LeaderRow(
                rank=rank,
                resource=row.resource,
                host=row.host,
                score=tenths(row.score_tenths),
                grade=row.grade,
                recommendation=row.recommendation,
                confidence=row.confidence_hundredths / 100,
                uptime30d=tenths(row.uptime_tenths),
                avg_latency_ms=row.latency_ms,
                amount_usd=micro_usd(row.price_micro_usd),
                network=row.network,
                endpoint_page=f"{base_url}/endpoint/{row.id}",
            )
            for rank, row in enumerate(board.rows, 1)
        ],
    )


def snapshot(view: Snapshot, *, now: int, base_url: str) -> SnapshotShape:
    """A snapshot as JSON shape; its age counts whole hours."""
    changes = view.price_changes
    return SnapshotShape(
        id=view.id,
        resource=view.resource,
        recommendation=view.recommendation,
        grade=view.grade,
        score=tenths(view.score_tenths),
        confidence=view.confidence_hundredths / 100,
        uptime30d=tenths(view.uptime_tenths),
        avg_latency_ms=view.latency_ms,
        probes30d=view.probes,
        advertised_price_usd=micro_usd(view.price_micro_usd)
        if view.price_micro_usd is not None
        else "not advertised",
        price_stability=f"{changes} change(s)" if changes else "stable",
        network=view.network,
        first_seen=day(view.first_seen),
        last_probed=day(view.last_probed) if view.last_probed is not None else None,
        status=view.status,
        snapshot_computed=minute(view.computed_at),
        age_hours=max(0, now - view.computed_at) // 3_600_000,
        advertised_description=view.advertised_description,
        better_alternatives=view.better_alternatives,
        summary=view.summary,
        verdict=view.verdict or None,
        sources=list(view.sources),
        endpoint_page=f"{base_url}/endpoint/{view.id}",
        simulated=view.simulated,
    )
