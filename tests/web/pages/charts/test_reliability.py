"""The reliability diagram: its points and their positions."""

from __future__ import annotations

from xml.etree import ElementTree as ET

from tollgauge.core.score.calibration import Bin
from tollgauge.web.pages.charts.pictures import reliability_diagram


def draw(*bins: Bin) -> ET.Element:
    return ET.fromstring(str(reliability_diagram("key", "Tomorrow", bins)))


def of(kind: str, picture: ET.Element) -> list[ET.Element]:
    return [part for part in picture.iter() if kind in part.get("class", "").split()]


def full(permille: int, came_true: int) -> Bin:
    return Bin(
        low=permille // 100 * 100,
        high=permille // 100 * 100 + 100,
        count=400,
        mean=permille,
        came_true=came_true,
        least=max(came_true - 50, 0),
        most=min(came_true + 50, 1_000),
    )


def test_accurate_forecast_lies_on_the_diagonal() -> None:
    picture = draw(full(300, 300))
    (line,), (dot,) = of("diagonal", picture), of("dot", picture)
    x1, y1, x2, y2 = (float(line.get(name, "")) for name in ("x1", "y1", "x2", "y2"))
    x, y = float(dot.get("cx", "")), float(dot.get("cy", ""))
    assert abs(y - (y1 + (y2 - y1) * (x - x1) / (x2 - x1))) < 0.01


def test_forecast_that_was_too_low_lies_above_the_diagonal() -> None:
    (right,), (low,) = of("dot", draw(full(300, 300))), of("dot", draw(full(300, 600)))
    assert right.get("cx") == low.get("cx")
    assert float(low.get("cy", "")) < float(right.get("cy", ""))


def test_interval_contains_the_point() -> None:
    picture = draw(full(900, 950))
    (line,), (dot,) = of("interval", picture), of("dot", picture)
    assert float(line.get("y2", "")) <= float(dot.get("cy", "")) <= float(line.get("y1", ""))


def test_bin_without_enough_data_has_no_point() -> None:
    picture = draw(full(900, 950), Bin(low=0, high=100, count=199))
    assert len(of("dot", picture)) == 1
    empty = draw(Bin(low=0, high=100, count=199))
    assert of("dot", empty) == []
    assert "not enough data" in "".join(empty.itertext())
