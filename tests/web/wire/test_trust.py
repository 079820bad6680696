"""Short reports: omitted fields and maximum size."""

from __future__ import annotations

import orjson
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.examples import examples as count

from docs.response_examples import sample_report
from tollgauge.core.probe import exchange
from tollgauge.web.wire import trust
from tollgauge.web.wire.examples import BASE_URL
from tollgauge.web.wire.response_model import dump
from tollgauge.web.wire.scores import DetailedFlag, FlagResponse
from tollgauge.web.wire.trust import (
    SHORT_BYTES,
    FindingResponse,
    PreviewResponse,
    SampleResponse,
    TrustReportResponse,
    outline,
)

WHOLE = trust.trust_report(sample_report(), base_url=BASE_URL)
SEVERITIES = [severity.value for severity in exchange.Severity]
FLAGS = st.lists(
    st.tuples(st.sampled_from(SEVERITIES), st.integers(0, 400), st.integers(0, 200)), max_size=70
)


def report_with(flags: list[tuple[str, int, int]], description: str = "") -> TrustReportResponse:
    """A report with flags and findings of these severities and lengths of message and fix."""
    rows = sorted(flags, key=lambda row: SEVERITIES.index(row[0]))
    detailed = [
        DetailedFlag(code=f"lint:rule-{number}", severity=severity, message="m" * size)
        for number, (severity, size, _) in enumerate(rows)
    ]
    by_code = {
        row.code: FlagResponse(severity=row.severity, message=row.message, fix="f" * fix or None)
        for row, (_, _, fix) in zip(detailed, rows, strict=True)
    }
    findings = [
        FindingResponse(rule=row.code, severity=row.severity, message=row.message)
        for row in detailed
    ]
    assert WHOLE.live_probe is not None
    return WHOLE.model_copy(
        update={
            "flags": by_code,
            "flags_detailed": detailed,
            "live_probe": WHOLE.live_probe.model_copy(update={"findings": findings}),
            "advertised_by": WHOLE.advertised_by.model_copy(update={"description": description}),
        }
    )


@settings(max_examples=count(100), deadline=None)
@given(flags=FLAGS, description=st.text(max_size=500))
def test_short_report_has_at_most_4_kb_and_keeps_the_worst_flags(
    flags: list[tuple[str, int, int]], description: str
) -> None:
    whole = report_with(flags, description)
    short = trust.short(whole)
    assert len(dump(short)) <= SHORT_BYTES
    codes = [row.code for row in whole.flags_detailed]
    shown = [row.code for row in short.flags_detailed]
    assert shown == codes[: len(shown)]
    assert list(short.flags) == shown
    assert len(shown) + (short.more_flags or 0) == len(codes)
    assert short.live_probe is not None
    assert len(short.live_probe.findings) + (short.live_probe.more_findings or 0) == len(codes)


def test_texts_are_dropped_only_if_the_report_is_too_long() -> None:
    short = trust.short(report_with([("warn", 80, 60)] * 3))
    assert all(flag.message and flag.fix for flag in short.flags.values())
    assert all(row.message for row in short.flags_detailed)


def test_message_of_an_error_is_dropped_last() -> None:
    short = trust.short(report_with([("error", 300, 100), *[("info", 300, 100)] * 11]))
    assert short.flags_detailed[0].message
    assert not short.flags_detailed[-1].message


def test_outline_of_three_reports_is_below_8_kb() -> None:
    report = report_with([("warn", 200, 100)] * 12)
    sample = SampleResponse(role="best", population_rank=1, report=report)
    text = outline(PreviewResponse(samples=[sample] * 3))
    assert 2 * len(text) < 8_000
    assert set(orjson.loads(text)["samples"][0]) == {"role", "populationRank", "report"}
