"""The package's results for evidence, in the terms of the reference."""

from __future__ import annotations

from typing import Any

from tollgauge.core.score.score import Score


def summarize_score(result: Score) -> dict[str, Any]:
    """A score in the words of `reference`."""
    demand = result.demand
    return {
        "scoreTenths": result.score_tenths,
        "lowTenths": result.low_tenths,
        "highTenths": result.high_tenths,
        "grade": result.grade,
        "breakdown": {row.name: row.tenths for row in result.components},
        "confidenceHundredths": result.confidence_hundredths,
        "economicHundredths": result.economic_hundredths,
        "avgLatencyMs": result.stats.avg_latency_ms,
        "p50LatencyMs": result.stats.p50_latency_ms,
        "p95LatencyMs": result.stats.p95_latency_ms,
        "caps": [[cap.code, cap.limit_tenths] for cap in result.caps],
        "flags": {flag.code: flag.severity.value for flag in result.flags},
        "recommendation": result.recommendation,
        "payableNowPermille": result.payable_now_permille,
        "payable24hPermille": result.payable_24h_permille,
        "demand": demand
        and [demand.payers, demand.volume, demand.proven_payers, demand.proven_volume],
    }
