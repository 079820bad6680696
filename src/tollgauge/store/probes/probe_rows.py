"""Rows of `probe` ↔ ProbeResult."""

from __future__ import annotations

from typing import Any

from tollgauge.core.base.units import day_of
from tollgauge.core.probe.exchange import Timings
from tollgauge.core.probe.outcome import Attribution, Outcome
from tollgauge.core.probe.probe import HistoryRow, ProbeJudgement, ProbeResult
from tollgauge.db.codec import (
    findings_from_json,
    findings_to_json,
    quote_from_json,
    quote_to_json,
    small,
)
from tollgauge.store import rows


def result_to_row(endpoint_id: str, result: ProbeResult) -> dict[str, Any]:
    """A probe of an endpoint as column values of `probe`."""
    timings = result.timings
    return rows.to_columns(
        result,
        "timings",
        "findings",
        "forms",
        day=day_of(result.at),
        endpoint_id=endpoint_id,
        outcome=result.outcome.value,
        attribution=result.attribution.value,
        version=small(result.version),
        quote=quote_to_json(result.quote),
        accepts=small(result.accepts),
        rules=findings_to_json(result.findings),
        dns=timings.dns,
        connect=timings.connect,
        tls=timings.tls,
        ttfb=timings.ttfb,
        total=timings.total,
    )


def result_from_row(row: Any) -> ProbeResult:
    """The inverse of `result_to_row`."""
    return ProbeResult(
        at=row.at,
        outcome=Outcome(row.outcome),
        attribution=Attribution(row.attribution),
        up=row.up,
        timings=Timings(
            dns=row.dns, connect=row.connect, tls=row.tls, ttfb=row.ttfb, total=row.total
        ),
        status=row.status,
        compliance=row.compliance,
        compliant=row.compliant,
        payable=row.payable,
        version=row.version,
        quote=quote_from_json(row.quote),
        accepts=row.accepts,
        findings=findings_from_json(row.rules),
        reason=row.reason,
        method=row.method,
        tls_not_after=row.tls_not_after,
        holds=row.holds,
        confirms=row.confirms,
    )


def history_row(row: Any) -> HistoryRow:
    """What a history says of a row of `probe`."""
    judgement = rows.from_columns(
        ProbeJudgement,
        row,
        outcome=Outcome(row.outcome),
        attribution=Attribution(row.attribution),
        quote=quote_from_json(row.quote),
    )
    return row.at, row.total, judgement
