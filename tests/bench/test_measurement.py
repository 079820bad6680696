"""Figures, goals and the page of benchmarks."""

from __future__ import annotations

import pytest

from bench import lines
from bench.document import write_sections
from bench.measurement import Measurement, Report


def measurement_of(figure: float, **fields: object) -> Measurement:
    values: dict[str, object] = {"name": "probe", "unit": "ms", "goal": 2.0} | fields
    return Measurement(figure=figure, **values)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("measurement", "met"),
    [
        (measurement_of(2.0), True),
        (measurement_of(2.1), False),
        (measurement_of(2.0, bound="least"), True),
        (measurement_of(1.9, bound="least"), False),
        (measurement_of(8.0, peer="curl", peer_figure=4.0), True),
        (measurement_of(1.0, peer="curl", peer_figure=0.4), False),
        (measurement_of(1.0, peer="curl", peer_figure=0.4, bound="least"), True),
        (measurement_of(1.0, peer="curl", peer_figure=0.0), False),
        (measurement_of(1.0, peer="curl"), False),
        (measurement_of(1.9, peer="curl", peer_figure=0.1, is_absolute=True), True),
        (measurement_of(2.1, peer="curl", peer_figure=9.0, is_absolute=True), False),
    ],
)
def test_goal_limits_figure_or_ratio_to_peers(measurement: Measurement, met: bool) -> None:
    assert measurement.met is met
    assert Report(measurements=(measurement_of(0.0), measurement)).met is met


def test_report_shows_figure_peer_ratio_goal_and_result() -> None:
    report = Report(measurements=(measurement_of(3.14159, peer="curl", peer_figure=2.0),))
    (document,) = report.document()["measurements"]
    assert document == {
        "name": "probe",
        "figure": 3.142,
        "unit": "ms",
        "peer": "curl",
        "peerFigure": 2.0,
        "ratio": 1.571,
        "goal": "at most 2 of curl",
        "met": True,
    }
    (line,) = lines(report.document())
    assert line == "probe: 3.142 ms, 1.571 of curl (2.0); goal at most 2 of curl: met"


def test_absolute_goal_is_shown_without_the_peer() -> None:
    report = Report(
        measurements=(measurement_of(1.0, peer="curl", peer_figure=0.5, is_absolute=True),)
    )
    (line,) = lines(report.document())
    assert line == "probe: 1.0 ms, 2.0 of curl (0.5); goal at most 2: met"


def test_page_keeps_sections_of_benchmarks_that_were_not_rerun() -> None:
    def page(before: str, name: str, figure: float) -> str:
        report = Report(measurements=(measurement_of(figure),))
        return write_sections(before, [{"bench": name, **report.document()}], machine="A machine.")

    both = page(page("", "serve", 1.0), "probe", 123456.0)
    assert both.index("## `probe`") < both.index("## `serve`")
    assert "| probe | 123,456 ms |  | at most 2 | **not met** |" in both
    again = page(both, "probe", 1.5)
    assert "123,456" not in again
    assert "| probe | 1.5 ms |  | at most 2 | met |" in again
    assert "| probe | 1.0 ms |" in again
    assert page(again, "probe", 1.5) == again
