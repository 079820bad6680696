"""The gauge: the score as a toll barrier, shut at 0 and upright at 100.

The scale around it carries the grades. A thin inner arc is the range in which the score lies;
without a score the barrier is shut and hollow, and while the endpoint is down it is shut.
"""

from __future__ import annotations

import math
from functools import cache, lru_cache
from typing import Final

from markupsafe import Markup

from tollgauge.core.score.score import Down
from tollgauge.web.pages.charts.svg import element, label, number, picture
from tollgauge.web.pages.labels import tenths

SIZE: Final = (240, 216)
_PIVOT: Final = (34.0, 184.0)
_SCALE_RADIUS: Final = 146.0
_RANGE_RADIUS: Final = 128.0
_BOOM: Final = 112.0


def gauge(
    grades: tuple[tuple[str, int], ...],
    *,
    score: int | None,
    grade: str | None,
    low: int | None = None,
    high: int | None = None,
    down: Down | None = None,
) -> Markup:
    """The barrier for a score in tenths; `grades` are (letter, least tenths), best first."""
    name = "No trust score yet"
    if score is not None:
        name = f"Trust score {tenths(score)} of 100, grade {grade or 'none'}"
    description = "A toll barrier that opens from 0, shut, to 100, upright."
    if down is not None:
        name = f"{down.text} {name}"
        description += " It is shut because the endpoint is down."
    score_range = []
    if low is not None and high is not None:
        description += f" The score lies between {tenths(low)} and {tenths(high)}."
        arc = _arc(_RANGE_RADIUS, min(low, high) - 3, max(low, high) + 3)
        score_range = [element("path", d=arc, class_="range")]
    return picture(
        "dial",
        name,
        description,
        SIZE,
        *_bands(grades),
        *_ticks(),
        *score_range,
        *_barrier(score if score is None or down is None else 0),
        kind="dial",
    )


@lru_cache(maxsize=16)
def _bands(grades: tuple[tuple[str, int], ...]) -> tuple[Markup, ...]:
    """One arc a grade, with its letter on it."""
    elements: list[Markup] = []
    top = 1_000
    for letter, least in grades:
        arc, style = _arc(_SCALE_RADIUS, least + 4, top - 4), letter.lower()
        elements.append(element("path", d=arc, class_=f"band grade-{style}"))
        x, y = _at(_SCALE_RADIUS, (least + top) / 2)
        kind = f"band-letter on-{style}"
        elements.append(label(letter, x, y + 4, anchor="middle", kind=kind))
        top = least
    return tuple(elements)


@cache
def _ticks() -> tuple[Markup, ...]:
    """Marks every 5 points, a figure every 20."""
    marks, figures = "", []
    for value in range(0, 1_001, 50):
        long = value % 200 == 0
        (x1, y1), (x2, y2) = _at(157, value), _at(166 if long else 162, value)
        marks += f"M{number(x1)} {number(y1)}L{number(x2)} {number(y2)}"
        if long:
            x, y = _at(178, value)
            figures.append(label(str(value // 10), x, y + 4, anchor="middle"))
    return (element("path", d=marks, class_="mark"), *figures)


def _barrier(score: int | None) -> list[Markup]:
    """Post, arm and pivot."""
    x, y = _PIVOT
    x2, y2 = _at(_BOOM, 0 if score is None else score)
    arms = ("boom-none",) if score is None else ("boom-edge", "boom", "boom-stripes")
    return [
        element("rect", x=x - 12, y=y - 4, width=24, height=28, rx=3, class_="post"),
        element("line", x1=8, y1=y + 25, x2=SIZE[0] - 8, y2=y + 25, class_="road"),
        *(element("line", class_=arm, x1=x, y1=y, x2=x2, y2=y2) for arm in arms),
        element("circle", cx=x, cy=y, r=9, class_="pivot"),
        element("circle", cx=x, cy=y, r=3, class_="pivot-eye"),
    ]


def _at(radius: float, value: float) -> tuple[float, float]:
    """The point of the scale at a value in tenths."""
    angle = math.pi / 2 * min(1_000.0, max(0.0, value)) / 1_000
    return (_PIVOT[0] + radius * math.cos(angle), _PIVOT[1] - radius * math.sin(angle))


def _arc(radius: float, start: float, end: float) -> str:
    (x1, y1), (x2, y2) = _at(radius, start), _at(radius, end)
    size = number(radius)
    return f"M{number(x1)} {number(y1)}A{size} {size} 0 0 0 {number(x2)} {number(y2)}"
