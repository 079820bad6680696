"""Badge: the advice on an endpoint as a small picture that others embed in their own pages.

Rules:
- grade and score are shown only with advice that lets pay (`A 91 · proceed`; whole points, rounded
  down so that they never show a better grade); any other advice is shown alone (`avoid`);
- the colour is that of the advice;
- the file needs no other one: colours are presentation attributes and not classes, and its fonts
  are installed ones.
"""

from __future__ import annotations

from typing import Final

from markupsafe import Markup

from tollgauge.core.advice import PAYABLE
from tollgauge.web.pages.charts.svg import element, title, words
from tollgauge.web.pages.labels import plain

_NAME: Final = "tollgauge"
_LONGEST: Final = 20
_FONT: Final = "Verdana, DejaVu Sans, Geneva, sans-serif"
_COLOURS: Final = {
    "proceed": ("#0b4f8a", "#ffffff"),
    "caution": ("#e3b341", "#1a1a1a"),
    "avoid": ("#8c1d40", "#ffffff"),
    "not-payable": ("#8c1d40", "#ffffff"),
}
_NOT_KNOWN: Final = ("#5c6b73", "#ffffff")


def badge_svg(recommendation: str, grade: str | None, score_tenths: int | None) -> bytes:
    """The badge of an endpoint; grade and score are None while nothing was measured."""
    value = plain(recommendation)[:_LONGEST]
    if recommendation in PAYABLE and grade is not None and score_tenths is not None:
        value = f"{plain(grade)[:2]} {score_tenths // 10} \N{MIDDLE DOT} {value}"
    ground, ink = _COLOURS.get(recommendation, _NOT_KNOWN)
    left = _width(_NAME) + 26
    width = left + _width(value) + 16
    right_half = f"M{left} 0H{width - 4}a4 4 0 0 1 4 4V16a4 4 0 0 1-4 4H{left}z"
    return str(
        element(
            "svg",
            title(f"{_NAME}: {value}"),
            element("rect", width=width, height=20, rx=4, fill="#14212b"),
            element("path", d=right_half, fill=ground),
            *_barrier(),
            _text(_NAME, 20, "#ffffff", _width(_NAME)),
            _text(value, left + 8, ink, _width(value)),
            xmlns="http://www.w3.org/2000/svg",
            width=width,
            height=20,
            viewBox=f"0 0 {width} 20",
            role="img",
            aria_label=f"{_NAME}: {value}",
        )
    ).encode()


def _barrier() -> list[Markup]:
    """The mark: a post with its arm half up."""
    return [
        element("rect", x=5, y=9, width=4, height=8, rx=1, fill="#ffffff"),
        element("path", d="M7 10L15 4", stroke="#ffffff", stroke_width=3, stroke_linecap="round"),
        element("path", d="M9.4 8.2l2-1.5M13 5.5l1.6-1.2", stroke="#d2452f", stroke_width=3),
    ]


def _text(text: str, x: int, ink: str, width: int) -> Markup:
    return element(
        "text",
        words(text),
        x=x,
        y=14,
        fill=ink,
        font_family=_FONT,
        font_size=11,
        textLength=width,
    )


def _width(text: str) -> int:
    """About the width in Verdana 11; `textLength` makes the fit exact in any other font."""
    return sum(4 if char in ".,: il" else 7 for char in text)
