"""Bars of parts of a whole: a component of a score, and the grades of all endpoints."""

from __future__ import annotations

from functools import lru_cache

from markupsafe import Markup

from tollgauge.web.pages.charts.svg import element, picture, title
from tollgauge.web.pages.labels import count


@lru_cache(maxsize=1_024)
def component_bar(weight: int, tenths: int, *, heaviest: int) -> Markup:
    """A track as long as the weight, filled as far as the subscore reaches. It is
    hidden from screen readers, because the table has the figures.
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
    """How many endpoints have which grade, as one strip."""
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
    words = ", ".join(f"{letter}: {count(amount)}" for letter, amount in grades) or "none"
    return picture("grades", "Endpoints by grade", words, (600, 16), *elements, kind="strip")
