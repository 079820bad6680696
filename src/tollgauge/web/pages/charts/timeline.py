"""The timeline: changes of price, payTo and listing as marks over the days of the charts."""

from __future__ import annotations

from typing import Final

from markupsafe import Markup

from tollgauge.core.base.units import day_of
from tollgauge.monitor.reports.endpoint import TimelineEvent
from tollgauge.web.pages.charts.days import LEFT, WIDTH
from tollgauge.web.pages.charts.svg import element, label, number, picture
from tollgauge.web.pages.labels import day_date

_LANES: Final = (
    ("price", frozenset({"price-changed"}), "h0"),
    ("payTo", frozenset({"payto-changed", "network-changed"}), "m0-7l7 7-7 7-7-7z"),
    ("listing", frozenset({"listed", "delisted", "relisted"}), "h0"),
)
"""What changes, its events, and its mark as a path from the middle on: of a line without length
only the caps are drawn, round ones of prices and square ones of listings (SVG 2, 13.5.4).
"""


def timeline(events: tuple[TimelineEvent, ...], *, first_day: int, last_day: int) -> Markup:
    """Changes of price (circles), payTo and network (diamonds) and listing (squares) as marks on
    three lanes over the same days, one a day on each.
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
    words = f"{shown} changes between {day_date(first_day)} and {day_date(last_day)}."
    return picture("events", "Changes by day", words, (WIDTH, 122), *elements)
