"""Rows of the probe archive ↔ ProbeResult and Rollup (tables `probe` and `probe_day`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from tollgauge.core.exchange import Timings
from tollgauge.core.probe import Attribution, Outcome, ProbeResult
from tollgauge.core.rollup import Rollup
from tollgauge.core.units import day_of
from tollgauge.db.codec import (
    findings_from_json,
    findings_to_json,
    quote_from_json,
    quote_to_json,
    small,
)
from tollgauge.store import rows
from tollgauge.store.probes.packing import pack, pack_histogram, unpack_histogram


def result_to_row(endpoint_id: str, result: ProbeResult) -> dict[str, Any]:
    """A probe of an endpoint as column values of `probe`."""
    columns = rows.to_columns(
        result,
        "timings",
        "findings",
        day=day_of(result.at),
        endpoint_id=endpoint_id,
        outcome=result.outcome.value,
        attribution=result.attribution.value,
        version=small(result.version),
        quote=quote_to_json(result.quote),
        accepts=small(result.accepts),
        rules=findings_to_json(result.findings),
    )
    return columns | rows.to_columns(result.timings, "delay", "overrun")


def result_from_row(row: Any) -> ProbeResult:
    """The inverse of `result_to_row`."""
    return rows.from_columns(
        ProbeResult,
        row,
        outcome=Outcome(row.outcome),
        attribution=Attribution(row.attribution),
        timings=rows.from_columns(Timings, row, delay=0, overrun=0),
        quote=quote_from_json(row.quote),
        findings=findings_from_json(row.rules),
    )


def day_to_row(
    endpoint_id: str, rollup: Rollup, results: Sequence[ProbeResult] | None
) -> dict[str, Any]:
    """A closed day as column values of `probe_day`; without results once raw history is gone."""
    return rows.to_columns(
        rollup,
        endpoint_id=endpoint_id,
        latency=pack_histogram(rollup.latency),
        excluded=orjson.dumps(rollup.excluded).decode(),
        packed=None if results is None else pack(results),
    )


def day_from_row(row: Any) -> Rollup:
    """The rollup of a closed day."""
    return rows.from_columns(
        Rollup,
        row,
        latency=unpack_histogram(row.latency),
        excluded=() if row.excluded == "[]" else tuple(map(tuple, orjson.loads(row.excluded))),
    )
