"""SVG elements as escaped text.

Elements have no `style` attribute, which the content security policy of the pages forbids. Colours
come from CSS classes, or from presentation attributes in separate images.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from markupsafe import Markup, escape

from tollgauge.web.pages.labels import plain


def element(name: str, *children: Markup, **attributes: object) -> Markup:
    """Return an element. In attribute names, a trailing underscore is dropped (`class_`) and others
    become hyphens (`stroke_width`). Attributes that are None are omitted.
    """
    written = "".join(
        f' {key.removesuffix("_").replace("_", "-")}="{_value(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    inner = "".join(map(escape, children))
    text = f"<{name}{written}>{inner}</{name}>" if inner else f"<{name}{written}/>"
    return Markup(text)  # noqa: S704 - names are ours, values and children are escaped above


def escape_text(text: str) -> Markup:
    """Return a text as a child of an element, or as the value of an attribute."""
    return escape(plain(text))


def title(text: str) -> Markup:
    """Return a tooltip for the parent element."""
    return element("title", escape_text(text))


def label(text: str, x: float, y: float, *, anchor: str = "start", kind: str = "tick") -> Markup:
    """Draw a text at a point."""
    return element("text", escape_text(text), x=x, y=y, text_anchor=anchor, class_=kind)


def tooltips(texts: Iterable[str]) -> Markup:
    """Draw a path of height 1 at x = 0, 1, 2, … with each text as its tooltip."""
    parts = [
        f'<path d="M{place} 0v1"><title>{escape_text(text)}</title></path>'
        for place, text in enumerate(texts)
        if text
    ]
    return Markup("".join(parts))  # noqa: S704 - the texts are escaped above


def dots(pairs: Iterable[tuple[float, float]], *, radius: float, kind: str) -> Markup:
    """Draw a circle at each point."""
    end = f'r="{number(radius)}" class="{escape_text(kind)}"/>'
    parts = [f'<circle cx="{number(x)}" cy="{number(y)}" {end}' for x, y in pairs]
    return Markup("".join(parts))  # noqa: S704 - the values are escaped above


def picture(
    key: str, name: str, description: str, size: tuple[int, int], *body: Markup, kind: str = "chart"
) -> Markup:
    """Return a picture with its accessible name and description; `key` is unique on the page."""
    return element(
        "svg",
        element("title", escape_text(name), id=f"{key}-title"),
        element("desc", escape_text(description), id=f"{key}-desc"),
        *body,
        class_=kind,
        viewBox=f"0 0 {size[0]} {size[1]}",
        role="img",
        aria_labelledby=f"{key}-title {key}-desc",
    )


def number(value: float) -> str:
    """Format a coordinate with at most two decimals. Raises ValueError unless it is finite."""
    if isinstance(value, int):
        return str(value)
    if not math.isfinite(value):
        raise ValueError("A coordinate must be finite.")
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def points(pairs: list[tuple[float, float]]) -> str:
    """Return the `points` of a polyline."""
    return " ".join(f"{number(x)},{number(y)}" for x, y in pairs)


def _value(value: object) -> str:
    """Return the escaped value of an attribute."""
    return number(value) if isinstance(value, int | float) else escape_text(str(value))
