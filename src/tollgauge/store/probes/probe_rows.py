"""Rows of the probe archive ↔ ProbeResult and Rollup (tables `probe` and `probe_day`)."""

from __future__ import annotations

from typing import Any

import orjson

from tollgauge.core.exchange import Timings
from tollgauge.core.history_row import HistoryRow, Judgement
from tollgauge.core.probe import Attribution, Outcome, ProbeResult
from tollgauge.core.rollup import Rollup
from tollgauge.core.spans import Spans, Statement
from tollgauge.core.units import day_of
from tollgauge.db.codec import (
    findings_from_json,
    findings_to_json,
    quote_from_json,
    quote_to_json,
    small,
    statement_to_json,
)
from tollgauge.db.packing import pack_histogram, unpack_histogram
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
    return rows.from_columns(
        ProbeResult,
        row,
        outcome=Outcome(row.outcome),
        attribution=Attribution(row.attribution),
        timings=rows.from_columns(Timings, row, delay=0, overrun=0),
        quote=quote_from_json(row.quote),
        findings=findings_from_json(row.rules),
        forms=(),
    )


def history_row(row: Any) -> HistoryRow:
    """What a history says of a row of `probe`."""
    judgement = rows.from_columns(
        Judgement,
        row,
        outcome=Outcome(row.outcome),
        attribution=Attribution(row.attribution),
        quote=quote_from_json(row.quote),
    )
    return row.at, row.total, judgement


def day_to_row(
    endpoint_id: str, rollup: Rollup, *, last: Statement | None, packed: bytes | None
) -> dict[str, Any]:
    """A closed day as column values of `probe_day`: its sums, what its `last` probe that speaks
    says, and its `packed` probes, None once raw history is gone.
    """
    return rows.to_columns(
        rollup,
        "spans",
        endpoint_id=endpoint_id,
        latency=pack_histogram(rollup.latency),
        excluded=orjson.dumps(rollup.excluded).decode(),
        last_statement=statement_to_json(last),
        packed=packed,
        up_ms=rollup.spans.up,
        payable_ms=rollup.spans.payable,
        down_ms=rollup.spans.down,
        compliance_ms=rollup.spans.compliance,
        failures=rollup.spans.failures,
        repairs=rollup.spans.repairs,
    )


def day_from_row(row: Any) -> Rollup:
    """The rollup of a closed day."""
    return Rollup(  # each by its name: a month of an endpoint has thirty of them
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
        excluded=() if row.excluded == "[]" else tuple(map(tuple, orjson.loads(row.excluded))),
        spans=Spans(
            up=row.up_ms,
            payable=row.payable_ms,
            down=row.down_ms,
            compliance=row.compliance_ms,
            failures=row.failures,
            repairs=row.repairs,
        ),
    )
