"""Rows of the probe archive ↔ ProbeResult and Rollup (tables `probe` and `probe_day`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson
import sqlalchemy as sa

from tollgauge.core.exchange import Timings
from tollgauge.core.probe import Attribution, Outcome, ProbeResult
from tollgauge.core.rollup import Rollup
from tollgauge.core.units import day_of
from tollgauge.db.codec import (
    findings_from_json,
    findings_to_json,
    plain,
    quote_from_json,
    quote_to_json,
    small,
)
from tollgauge.store.probes.packing import pack, pack_histogram, unpack_histogram


def result_to_row(endpoint_id: str, result: ProbeResult) -> dict[str, Any]:
    """A probe of an endpoint as column values of `probe`."""
    timings = result.timings
    return {
        "day": day_of(result.at),
        "endpoint_id": endpoint_id,
        "at": result.at,
        "outcome": result.outcome.value,
        "attribution": result.attribution.value,
        "up": result.up,
        "status": result.status,
        "compliance": result.compliance,
        "compliant": result.compliant,
        "payable": result.payable,
        "version": small(result.version),
        "quote": quote_to_json(result.quote),
        "accepts": small(result.accepts),
        "rules": findings_to_json(result.findings),
        "reason": plain(result.reason),
        "method": plain(result.method),
        "tls_not_after": result.tls_not_after,
        "dns": timings.dns,
        "connect": timings.connect,
        "tls": timings.tls,
        "ttfb": timings.ttfb,
        "total": timings.total,
    }


def result_from_row(row: sa.Row[Any]) -> ProbeResult:
    """The inverse of `result_to_row`."""
    return ProbeResult(
        at=row.at,
        outcome=Outcome(row.outcome),
        attribution=Attribution(row.attribution),
        up=row.up,
        timings=Timings(
            dns=row.dns,
            connect=row.connect,
            tls=row.tls,
            ttfb=row.ttfb,
            total=row.total,
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
    )


def day_to_row(
    endpoint_id: str, rollup: Rollup, results: Sequence[ProbeResult] | None
) -> dict[str, Any]:
    """A closed day as column values of `probe_day`; without results once raw history is gone."""
    return {
        "day": rollup.day,
        "endpoint_id": endpoint_id,
        "probes": rollup.probes,
        "scored": rollup.scored,
        "up": rollup.up,
        "compliant": rollup.compliant,
        "payable": rollup.payable,
        "compliance": rollup.compliance,
        "slots": rollup.slots,
        "latency_sum": rollup.latency_sum,
        "latency": pack_histogram(rollup.latency),
        "excluded": orjson.dumps(rollup.excluded).decode(),
        "packed": None if results is None else pack(results),
    }


def day_from_row(row: sa.Row[Any]) -> Rollup:
    """The rollup of a closed day."""
    excluded = row.excluded
    return Rollup(
        day=row.day,
        probes=row.probes,
        scored=row.scored,
        up=row.up,
        compliant=row.compliant,
        payable=row.payable,
        compliance=row.compliance,
        slots=row.slots,
        latency_sum=row.latency_sum,
        latency=unpack_histogram(row.latency),
        excluded=() if excluded == "[]" else tuple((r, n) for r, n in orjson.loads(excluded)),
    )
