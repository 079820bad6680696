"""The timeline: changes of price, payTo and listing as marks over the days of the charts."""

from __future__ import annotations

from typing import Final

from markupsafe import Markup

from tollgauge.core.units import day_of
from tollgauge.monitor.reports import TimelineEvent
from tollgauge.web.pages.charts.days import LEFT, WIDTH
from tollgauge.web.pages.charts.svg import element, label, number, picture, title
from tollgauge.web.pages.labels import day_date

_LANES: Final = (
    ("price", frozenset({"price-changed"})),
    ("payTo", frozenset({"payto-changed", "network-changed"})),
    ("listing", frozenset({"listed", "delisted", "relisted"})),
)


def timeline(events: tuple[TimelineEvent, ...], *, first_day: int, last_day: int) -> Markup:
    """Changes of price, payTo and listing as marks on three lanes over the same days."""
    span = max(1, last_day - first_day + 1)
    step = (WIDTH - LEFT) / span
    elements: list[Markup] = []
    shown = 0
    for lane, (name, kinds) in enumerate(_LANES):
        y = 22 + lane * 28
        elements.append(label(name, LEFT - 8, y + 4, anchor="end"))
        elements.append(element("line", x1=LEFT, y1=y, x2=WIDTH, y2=y, class_="grid"))
        for event in events:
            day = day_of(event.at)
            if event.kind in kinds and first_day <= day <= last_day:
                shown += 1
                elements.append(_mark(name, event, LEFT + (day - first_day + 0.5) * step, y))
    elements.append(label(day_date(first_day), LEFT, 112))
    elements.append(label(day_date(last_day), WIDTH, 112, anchor="end"))
    words = f"{shown} changes between {day_date(first_day)} and {day_date(last_day)}."
    return picture("events", "Changes by day", words, (WIDTH, 122), *elements)


def _mark(lane: str, event: TimelineEvent, x: float, y: float) -> Markup:
    """A dot for prices, a diamond for payTo and network, a square for listings."""
    tip = title(f"{day_date(day_of(event.at))}: {event.kind} ({event.source})")
    if lane == "price":
        return element("circle", tip, cx=x, cy=y, r=6, class_="event price")
    turn = f"rotate(45 {number(x)} {number(y)})" if lane == "payTo" else None
    square = {"x": x - 5, "y": y - 5, "width": 10, "height": 10}
    return element("rect", tip, **square, transform=turn, class_=f"event {lane.lower()}")
