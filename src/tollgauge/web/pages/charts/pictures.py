"""Gauge, bars, timeline and reliability diagram, as SVG."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from markupsafe import Markup

from tollgauge.core.base.units import day_of, dollars
from tollgauge.core.score.calibration import Bin
from tollgauge.core.score.evidence import TermChange
from tollgauge.core.score.income import DaySum
from tollgauge.core.score.score import Down
from tollgauge.web.pages.charts.days import LEFT, WIDTH
from tollgauge.web.pages.charts.svg import element, label, number, picture, title
from tollgauge.web.pages.labels import count, day_date, percent, tenths

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
    """Draw the barrier of a score in tenths; `grades` are (letter, least tenths), best first."""
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


def _bands(grades: tuple[tuple[str, int], ...]) -> tuple[Markup, ...]:
    """Draw one arc per grade with its letter."""
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


def _ticks() -> tuple[Markup, ...]:
    """Draw a tick every 5 points, and a number every 20."""
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
    """Return the point of the scale at a value in tenths."""
    angle = math.pi / 2 * min(1_000.0, max(0.0, value)) / 1_000
    return (_PIVOT[0] + radius * math.cos(angle), _PIVOT[1] - radius * math.sin(angle))


def _arc(radius: float, start: float, end: float) -> str:
    (x1, y1), (x2, y2) = _at(radius, start), _at(radius, end)
    size = number(radius)
    return f"M{number(x1)} {number(y1)}A{size} {size} 0 0 0 {number(x2)} {number(y2)}"


def component_bar(weight: int, tenths: int, *, heaviest: int) -> Markup:
    """Draw a bar as long as the weight, filled up to the subscore.

    It is hidden from screen readers, because the table has the numbers.
    """
    track = 300 * weight / max(1, heaviest)
    fill = track * min(1_000, max(0, tenths)) / 1_000
    return element(
        "svg",
        element("rect", x=0, y=2, width=track, height=10, rx=2, class_="track"),
        element("rect", x=0, y=2, width=fill, height=10, rx=2, class_="fill"),
        class_="bar",
        viewBox="0 0 300 14",
        aria_hidden="true",
        preserveAspectRatio="xMinYMid meet",
    )


def grade_strip(grades: tuple[tuple[str, int], ...]) -> Markup:
    """Draw the number of endpoints per grade as one strip."""
    total = sum(max(0, amount) for _, amount in grades)
    elements: list[Markup] = []
    x = 0.0
    for letter, amount in grades:
        width = 600 * max(0, amount) / total if total else 0.0
        tip = title(f"Grade {letter}: {count(amount)}")
        kind = f"fill-{letter.lower()}" if letter.isalpha() and len(letter) == 1 else "fill-none"
        elements.append(
            element("rect", tip, x=x, y=0, width=max(0.0, width - 2), height=16, class_=kind)
        )
        x += width
    description = ", ".join(f"{letter}: {count(amount)}" for letter, amount in grades) or "none"
    return picture("grades", "Endpoints by grade", description, (600, 16), *elements, kind="strip")


_DAY_BARS: Final = (600, 96)


def volume_bars(key: str, days: Sequence[DaySum]) -> Markup:
    """Draw one bar per day as high as its settled volume, with its proven part in colour; `key` is
    unique on the page.
    """
    top = max((day.volume for day in days), default=0)
    width, height = _DAY_BARS[0] / max(1, len(days)), _DAY_BARS[1] - 20
    elements = []
    for index, day in enumerate(days):
        tip = title(
            f"{day_date(day.day)}: {dollars(day.volume)}, {count(day.transfers)} settlements"
        )
        for part, kind in ((day.volume, "fill-none"), (min(day.proven_volume, day.volume), "fill")):
            # A day with any settlement has a visible bar.
            tall = max(1, height * part / top) if part else 0
            place = {"x": index * width, "y": height - tall, "width": max(1, width - 2)}
            elements.append(element("rect", tip, **place, height=tall, class_=kind))
    if days:
        elements.append(label(day_date(days[0].day), 0, _DAY_BARS[1] - 4))
        elements.append(label(day_date(days[-1].day), _DAY_BARS[0], _DAY_BARS[1] - 4, anchor="end"))
    description = f"{len(days)} days, at most {dollars(top)} per day." if top else "No settlements."
    return picture(key, "Settled volume by day", description, _DAY_BARS, *elements)


_LANES: Final = (
    ("price", frozenset({"price-changed"}), "h0"),
    ("payTo", frozenset({"payto-changed", "network-changed"}), "m0-7l7 7-7 7-7-7z"),
    ("listing", frozenset({"listed", "delisted", "relisted"}), "h0"),
)
"""Lane, its events, and its mark as a path from the center. A line without length draws only its
caps: round for prices, square for listings (SVG 2, 13.5.4).
"""


def timeline(events: tuple[TermChange, ...], *, first_day: int, last_day: int) -> Markup:
    """Draw changes of price (circles), payTo and network (diamonds) and listing (squares).

    Each has a lane, with at most one mark per day.
    """
    span = max(1, last_day - first_day + 1)
    step = (WIDTH - LEFT) / span
    elements: list[Markup] = []
    shown = 0
    for lane, (name, kinds, mark) in enumerate(_LANES):
        y = 22 + lane * 28
        elements.append(label(name, LEFT - 8, y + 4, anchor="end"))
        elements.append(element("line", x1=LEFT, y1=y, x2=WIDTH, y2=y, class_="grid"))
        days = [day_of(event.at) for event in events if event.kind in kinds]
        days = [day for day in days if first_day <= day <= last_day]
        shown += len(days)
        places = [number(LEFT + (day - first_day + 0.5) * step) for day in sorted(set(days))]
        if places:
            path = "".join(f"M{x} {y}{mark}" for x in places)
            elements.append(element("path", d=path, class_=f"event {name.lower()}"))
    elements.append(label(day_date(first_day), LEFT, 112))
    elements.append(label(day_date(last_day), WIDTH, 112, anchor="end"))
    description = f"{shown} changes between {day_date(first_day)} and {day_date(last_day)}."
    return picture("events", "Changes by day", description, (WIDTH, 122), *elements)


_SIZE: Final = (520, 416)
_LEFT: Final = 58
_TOP: Final = 32
_WIDTH: Final = 440
_HEIGHT: Final = 330
_BOTTOM: Final = _TOP + _HEIGHT
_MARKS: Final = (0, 250, 500, 750, 1_000)


def reliability_diagram(key: str, name: str, bins: tuple[Bin, ...]) -> Markup:
    """Draw the diagram of a reliability table; `key` is unique on the page."""
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
