"""Replaying a series through the real scorer: its forecasts and their outcomes."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.forecasts import HALF_HOUR, START, half_hours
from tests.support.probe_rows import spans_by_day
from tests.support.recorded import FOLDER, needs_recorded_inputs

from bench.replay import (
    SHORT_OUTAGE,
    WEEK_RANGE,
    Line,
    Replaying,
    SeriesError,
    probe_of,
    read_line,
    replay,
    span_parts,
    usual_interval,
)
from tollgauge.core.base.units import DAY_MS, HOUR_MS
from tollgauge.core.probe.probe import Spans, Statement, spans_sum, statement
from tollgauge.core.score.calibration import BASELINES, DAY, FORECAST, NEXT, NOW, qualities

REAL = FOLDER / "uptime-series"
STATUSES = st.sampled_from([None, 200, 401, 404, 429, 503])
STATES = st.lists(st.booleans(), min_size=2, max_size=120)


def counts(lines: list[Line], horizon: str, measure: str, **options: Any) -> dict[object, int]:
    sums = replay("site", lines, Replaying(**options))
    return {value: count for value, (count, _) in sums.of(horizon, measure).items()}


def briers(lines: list[Line], horizon: str = DAY, **options: Any) -> dict[str, float]:
    sums = replay("site", lines, Replaying(**options))
    return {row.name: row.brier_millionths / 1_000_000 for row in qualities(sums, horizon)}


def test_reads_lines_of_every_form() -> None:
    text = b'{"site": "a", "instant": "2024-10-04T00:00:00Z", "up": true}'
    assert read_line(text) == ("a", Line(20_000 * DAY_MS, up=True))
    text = b'{"site": "a", "instant": "2024-10-04T02:00:00.5+02:00", "up": true, "status": 200}'
    assert read_line(text) == ("a", Line(20_000 * DAY_MS + 500, up=True))
    text = b'{"site": "a", "instant": 5, "up": false, "status": 404}'
    assert read_line(text) == ("a", Line(5, up=False, status=404))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b"{", "is not JSON"),
        (b"[]", "is not a JSON object"),
        (b'{"instant": 5, "up": true}', "has no `site`"),
        (b'{"site": "a", "instant": 5}', "has no `up`"),
        (b'{"site": "a", "instant": 5, "up": 1}', "has no `up`"),
        (b'{"site": "a", "instant": "today", "up": true}', "has no `instant`"),
        (b'{"site": "a", "instant": -1, "up": true}', "has no `instant`"),
        (b'{"site": "a", "instant": true, "up": true}', "has no `instant`"),
        (b'{"site": "a", "instant": 5, "up": false, "status": 42}', "has a `status`"),
    ],
)
def test_rejects_invalid_line_with_reason(text: bytes, problem: str) -> None:
    with pytest.raises(SeriesError, match=problem):
        read_line(text)


def test_forecast_is_compared_with_next_line_and_line_a_day_later() -> None:
    # Up for three days, then down for one line. Of the 145 lines, 97 have a line exactly one day
    # later; for one more, the last line is within half an hour of that time.
    lines = half_hours([True] * 144 + [False])
    assert sum(counts(lines, NOW, FORECAST).values()) == 144
    assert sum(counts(lines, DAY, FORECAST).values()) == 98
    rows = briers(lines, NOW)
    assert rows["last-probe"] == pytest.approx(1 / 144, abs=1e-6)
    assert rows["base-rate"] == pytest.approx(143 / 144 / 144, abs=1e-6)
    rows = briers(lines, DAY)
    assert rows["last-probe"] == rows["uptime-7d"] == pytest.approx(2 / 98, abs=1e-6)


def test_line_after_more_than_two_hours_is_not_an_outcome_of_now() -> None:
    lines = [Line(START, up=True), Line(START + 2 * HOUR_MS + 1, up=True)]
    assert counts(lines, NOW, FORECAST) == {}
    assert counts(lines, NEXT, "grade") == {"B": 1}
    assert counts([lines[0], Line(START + 2 * HOUR_MS, up=True)], NOW, FORECAST) != {}


def test_day_later_outcome_is_nearest_line_within_half_an_hour() -> None:
    near = Line(START + DAY_MS + HALF_HOUR, up=True)
    first = half_hours([True, True, True])
    assert sum(counts([*first, near], DAY, FORECAST).values()) == 3
    far = near._replace(at=near.at + HALF_HOUR)
    assert sum(counts([*first, far], DAY, FORECAST).values()) == 2


def test_daily_series_is_compared_with_next_day() -> None:
    lines = [Line(START + number * DAY_MS, up=number != 3) for number in range(5)]
    assert sum(counts(lines, DAY, FORECAST).values()) == 4
    assert briers(lines)["last-probe"] == pytest.approx(2 / 4)


def test_forecast_never_uses_later_lines() -> None:
    lines = half_hours([True] * 30 + [False] * 5 + [True] * 30)
    whole = replay("site", lines, Replaying())
    for end in range(1, len(lines)):
        part = replay("site", lines[:end], Replaying())
        missing = set(part.of(NEXT, "grade")) - set(whole.of(NEXT, "grade"))
        assert not missing
        for value, (count, _) in part.of(NOW, FORECAST).items():
            assert count <= whole.of(NOW, FORECAST)[value][0]


def test_order_of_lines_is_irrelevant() -> None:
    lines = half_hours([True, True, False, True, False, False, True] * 9)
    backwards = replay("site", reversed(lines), Replaying())
    assert sorted(backwards.rows(), key=str) == sorted(
        replay("site", lines, Replaying()).rows(), key=str
    )


def test_every_nth_line_is_forecast_from() -> None:
    lines = half_hours([True] * 100)
    assert sum(counts(lines, NOW, "last-probe", every=4).values()) in (24, 25)


def test_confirmed_outage_is_not_graded_a_or_b_and_unconfirmed_keeps_grade() -> None:
    lines = half_hours([True] * 48 * 20 + [False] * 10)
    confirmed = counts(lines, NEXT, SHORT_OUTAGE)
    # The first five lines of the outage are less than three hours old and have a next line.
    assert sum(confirmed.values()) == 6
    assert not confirmed.keys() & {"A", "B"}
    assert counts(lines, NEXT, SHORT_OUTAGE, confirm=False)["A"] == 1


def test_endpoint_that_was_never_payable_has_no_short_outage() -> None:
    assert counts(half_hours([False] * 48), NEXT, SHORT_OUTAGE) == {}


def test_next_week_is_in_range_if_endpoint_does_not_change() -> None:
    sums = replay("site", half_hours([True] * 48 * 20), Replaying(every=1_000))
    count, inside = sums.of(WEEK_RANGE.horizon, WEEK_RANGE.measure)[WEEK_RANGE.value]
    assert count == inside == 13
    dies = replay("site", half_hours([True] * 48 * 20 + [False] * 48 * 8), Replaying(every=1_000))
    count, inside = dies.of(WEEK_RANGE.horizon, WEEK_RANGE.measure)[WEEK_RANGE.value]
    assert inside < count


def test_filled_daily_series_includes_uptime_between_lines() -> None:
    lines = [Line(START + number * DAY_MS, up=True) for number in range(20)]
    assert counts(lines, NEXT, "recommendation") == {"caution": 6, "proceed": 13}
    filled = counts(lines, NEXT, "recommendation", fill=True)
    assert filled == {"caution": 1, "proceed": 18}


def test_status_of_line_determines_outcome() -> None:
    assert probe_of(Line(START, up=True), 0).payable
    opened = probe_of(Line(START, up=False, status=200), 0)
    assert (opened.up, opened.payable) == (True, False)
    assert probe_of(Line(START, up=False), 0).outcome == "timeout"
    refused = probe_of(Line(START, up=False, status=429), 0)
    assert refused.scored


@given(STATES, st.sampled_from([HALF_HOUR, DAY_MS]), STATUSES)
def test_incremental_spans_equal_spans_of_whole_series(
    states: list[bool], gap: int, status: int | None
) -> None:
    lines = [
        Line(START + number * gap, up, None if up else status) for number, up in enumerate(states)
    ]
    said = [item for line in lines if (item := statement(probe_of(line, gap))) is not None]
    grown: dict[int, Spans] = {}
    before: Statement | None = None
    for item in said:
        for day, part in span_parts(before, item):
            grown[day] = spans_sum((grown.get(day, Spans()), part))
        before = item
    whole = spans_by_day(said, until=said[-1].at) if said else {}
    assert {day: part for day, part in grown.items() if part != Spans()} == {
        day: part for day, part in whole.items() if part != Spans()
    }


@given(STATES)
def test_every_line_except_the_last_is_compared_with_its_next(states: list[bool]) -> None:
    sums = replay("site", half_hours(states), Replaying())
    for name in (FORECAST, *BASELINES):
        rows = sums.of(NOW, name).values()
        assert sum(count for count, _ in rows) == len(states) - 1
        assert sum(hits for _, hits in rows) == sum(states[1:])


def test_usual_interval_is_median_within_limits() -> None:
    assert usual_interval(half_hours([True] * 5)) == HALF_HOUR
    assert usual_interval([Line(0, up=True), Line(5, up=True)]) == HALF_HOUR
    assert usual_interval([Line(0, up=True), Line(9 * DAY_MS, up=True)]) == DAY_MS


@needs_recorded_inputs
def test_forecasts_beat_last_probe_and_average_on_real_series() -> None:
    series: dict[str, list[Line]] = {}
    for path in sorted(REAL.glob("*.json.gz"))[-20:]:
        for resource in json.loads(gzip.decompress(path.read_bytes()))["resources"]:
            health = resource["health"]
            status = health.get("statusCode")
            row = {"site": resource["url"], "instant": health["checkedAt"], "up": status == 402}
            site, line = read_line(json.dumps({**row, "status": status}).encode())
            series.setdefault(site, []).append(line)
    sums = replay("", (), Replaying())
    for site, lines in series.items():
        sums.update(replay(site, lines, Replaying(fill=True)))
    rows = {row.name: row.brier_millionths for row in qualities(sums, DAY)}
    # Twenty daily snapshots cannot tell the forecast from the uptime of 7 days.
    assert rows[FORECAST] < min(rows["last-probe"], rows["average-24h"])


@needs_recorded_inputs
def test_forecasts_beat_every_baseline_on_sites_of_all_providers() -> None:
    """One site per provider, so that no provider with many sites decides."""
    packed = (FOLDER / "uptime-series-2" / "series.jsonl.gz").read_bytes()
    series: dict[str, dict[str, Any]] = {}
    for text in gzip.decompress(packed).splitlines():
        row = json.loads(text)
        series.setdefault(row["provider"], row)
    sums = replay("", (), Replaying())
    for row in series.values():
        lines = [
            Line(start + number * row["step_ms"], up=bool(up))
            for start, up, count in row["runs"]
            for number in range(count)
        ]
        sums.update(replay(row["site"], lines, Replaying(every=40)))
    for horizon in (NOW, DAY):
        rows = {row.name: row.brier_millionths for row in qualities(sums, horizon)}
        assert rows.keys() >= {FORECAST, *BASELINES}
        assert all(rows[FORECAST] < rows[name] for name in BASELINES), (horizon, rows)
