"""Reliability diagram: how often forecasts of each height came true.

A point lies on the diagonal where forecasts are right, above it where they are too low. Its line
is the 95 % interval of the share. A bin without enough data has no point; the page's table says
how many forecasts it holds.
"""

from __future__ import annotations

from typing import Final

from markupsafe import Markup

from tollgauge.core.calibration.calibration import Bin
from tollgauge.web.pages.charts.svg import element, label, picture, title
from tollgauge.web.pages.labels import count, percent

_SIZE: Final = (520, 416)
_LEFT: Final = 58
_TOP: Final = 32
_WIDTH: Final = 440
_HEIGHT: Final = 330
_BOTTOM: Final = _TOP + _HEIGHT
_MARKS: Final = (0, 250, 500, 750, 1_000)


def reliability_diagram(key: str, name: str, bins: tuple[Bin, ...]) -> Markup:
    """The diagram of a reliability table; `key` is unique in the page."""
    drawn = [row for row in bins if row.mean is not None]
    description = (
        f"{len(drawn)} of {len(bins)} bins have enough data."
        if drawn
        else "Not enough data in any bin."
    )
    body = [element for row in drawn for element in _point(row)]
    if not drawn:
        body = [label("not enough data", _x(500), _y(500) - 40, anchor="middle", kind="note")]
    return picture(
        key,
        name,
        description,
        _SIZE,
        *_axes(),
        element("line", x1=_x(0), y1=_y(0), x2=_x(1_000), y2=_y(1_000), class_="diagonal"),
        *body,
        label("forecast", _x(500), _BOTTOM + 42, anchor="middle"),
        label("came true", _LEFT - 46, 12),
    )


def _point(row: Bin) -> list[Markup]:
    if row.mean is None or row.came_true is None or row.least is None or row.most is None:
        return []
    x, y = _x(row.mean), _y(row.came_true)
    tip = title(
        f"Forecast {percent(row.mean)}, came true {percent(row.came_true)} "
        f"({percent(row.least)} to {percent(row.most)}), {count(row.count)} forecasts"
    )
    return [
        element("line", x1=x, y1=_y(row.least), x2=x, y2=_y(row.most), class_="interval"),
        element("circle", tip, cx=x, cy=y, r=5, class_="dot p50"),
    ]


def _axes() -> list[Markup]:
    elements = []
    for mark in _MARKS:
        x, y = _x(mark), _y(mark)
        elements += [
            element("line", x1=_LEFT, y1=y, x2=_LEFT + _WIDTH, y2=y, class_="grid"),
            label(f"{mark // 10}%", _LEFT - 8, y + 4, anchor="end"),
            label(f"{mark // 10}%", x, _BOTTOM + 20, anchor="middle"),
        ]
    return elements


def _x(permille: int) -> float:
    return _LEFT + _WIDTH * permille / 1_000


def _y(permille: int) -> float:
    return _BOTTOM - _HEIGHT * permille / 1_000
