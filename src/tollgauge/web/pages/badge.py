"""Badges: the recommendation for an endpoint as an SVG image, and as JSON for shields.io
(https://shields.io/badges/endpoint-badge).

An outage replaces all other text. A good grade is not shown next to a recommendation against
paying. The SVG is self-contained: it uses presentation attributes and installed fonts. With
`?history=true` it also has a bar for each of the last 30 days.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Final

from fastapi import Response
from markupsafe import Markup
from pydantic import Field

from tollgauge.core.base.units import minute
from tollgauge.core.lists.rated_endpoint import ScoreFigures
from tollgauge.monitor.reports import snapshots
from tollgauge.monitor.reports.endpoint import MIN_DAYS, read_uptimes
from tollgauge.web.dependencies import Service
from tollgauge.web.free.api import json_response
from tollgauge.web.pages.charts.svg import element, escape_text, title
from tollgauge.web.pages.labels import plain
from tollgauge.web.route import INVALID_QUERY, UNKNOWN_PAGE, UNKNOWN_RESOURCE, Routes
from tollgauge.web.wire import openapi
from tollgauge.web.wire.parameters import BadgeHistory, EndpointId
from tollgauge.web.wire.response_model import OneOf, ResponseModel

ROUTES: Final = Routes(tag="pages", cached=True)
CACHE_SECONDS: Final = 300
"""Cache time of a badge at shields.io, which accepts no less."""
_NAME: Final = "tollgauge"
_GRADES: Final = {"proceed": "ABCDF", "caution": "ABCDF", "avoid": "DF"}
"""The grades that are shown with each recommendation."""
_TEXT_MAX: Final = 20
_FONT: Final = "Verdana, DejaVu Sans, Geneva, sans-serif"
_COLOURS: Final = {
    "proceed": ("#0b4f8a", "#ffffff"),
    "caution": ("#e3b341", "#1a1a1a"),
    "avoid": ("#8c1d40", "#ffffff"),
    "not-payable": ("#8c1d40", "#ffffff"),
}
_NOT_KNOWN: Final = ("#5c6b73", "#ffffff")
_DOWN: Final = ("#b3261e", "#ffffff")
_DAY_WIDTH: Final = 4
_BAR_HEIGHT: Final = 12
_DAY_UP: Final = "#6fb7e9"
_DAY_OUTAGE: Final = "#ff7a6b"
_DAY_UNKNOWN: Final = "#8a97a0"


_EXAMPLE: Final = ScoreFigures(recommendation="proceed", grade="A", score_tenths=914)


class BadgeResponse(ResponseModel):
    """A badge in the endpoint schema of shields.io, version 1."""

    schema_version: Annotated[int, OneOf((1,))]
    label: str
    message: str
    color: Annotated[str, Field(pattern="^[0-9a-f]{6}$")]
    cache_seconds: Annotated[int, Field(ge=300)]


@ROUTES.get(
    "/endpoint/{id}/badge.svg",
    openapi.page("image/svg+xml", own=UNKNOWN_PAGE | INVALID_QUERY),
)
async def badge(
    service: Service, endpoint_id: EndpointId, *, history: BadgeHistory = False
) -> Response:
    """Badge of an endpoint. It is grey without data."""
    now = service.clock()
    snapshot = await service.read_endpoint(snapshots.snapshot, endpoint_id, now=now)
    days: tuple[int | None, ...] = ()
    if history:
        uptimes = await service.store.reading(read_uptimes, [endpoint_id], now=now)
        days = uptimes.get(endpoint_id, (None,) * MIN_DAYS)
    return Response(badge_svg(snapshot, days=days), media_type="image/svg+xml")


def badge_response(figures: ScoreFigures) -> BadgeResponse:
    """Build the JSON of a badge."""
    ground, _ = _colours(figures)
    return BadgeResponse(
        schema_version=1,
        label=_NAME,
        message=badge_text(figures),
        color=ground.removeprefix("#"),
        cache_seconds=CACHE_SECONDS,
    )


def badge_text(figures: ScoreFigures) -> str:
    """Return the text of a badge: `A 91 · proceed`, `not-payable` or `down since …`."""
    if (down := figures.down) is not None:
        return f"{'down since' if down.confirmed else 'failed once at'} {minute(down.since)}"
    advice, grade = plain(figures.recommendation)[:_TEXT_MAX], figures.grade
    if (
        not grade
        or grade not in _GRADES.get(figures.recommendation, "")
        or figures.score_tenths is None
    ):
        return advice
    # Rounded down: rounding up could show the points of a better grade.
    return f"{plain(grade)[:2]} {figures.score_tenths // 10} \N{MIDDLE DOT} {advice}"


def badge_svg(figures: ScoreFigures, *, days: Sequence[int | None] = ()) -> bytes:
    """Draw a badge. `days` are uptimes in permille, oldest first; None for a day without data."""
    value = badge_text(figures)
    ground, ink = _colours(figures)
    left = _width(_NAME) + 26
    right = left + _width(value) + 16
    width = right + (_DAY_WIDTH * len(days) + 9 if days else 0)
    end = "a4 4 0 0 1 4 4V16a4 4 0 0 1-4 4" if not days else "h4v20h-4"
    right_half = f"M{left} 0H{right - 4}{end}H{left}z"
    name = f"{_NAME}: {value}{_describe_days(days)}"
    return str(
        element(
            "svg",
            title(name),
            element("rect", width=width, height=20, rx=4, fill="#14212b"),
            element("path", d=right_half, fill=ground),
            *_barrier(),
            _text(_NAME, 20, "#ffffff", _width(_NAME)),
            _text(value, left + 8, ink, _width(value)),
            *_day_bars(days, right + 5),
            xmlns="http://www.w3.org/2000/svg",
            width=width,
            height=20,
            viewBox=f"0 0 {width} 20",
            role="img",
            aria_label=name,
        )
    ).encode()


def _colours(figures: ScoreFigures) -> tuple[str, str]:
    """Return the colours of background and text."""
    return _DOWN if figures.down else _COLOURS.get(figures.recommendation, _NOT_KNOWN)


def _day_bars(days: Sequence[int | None], left: int) -> Iterator[Markup]:
    """Draw a bar per day: the share of the day without an outage, and the rest above it."""
    for number, share in enumerate(days):
        x = left + _DAY_WIDTH * number
        up = 0 if share is None else min(_BAR_HEIGHT * share // 1_000, _BAR_HEIGHT)
        outage = 0 if share in (None, 1_000) else _BAR_HEIGHT - min(up, _BAR_HEIGHT - 2)
        parts = ((4 + outage, _BAR_HEIGHT - outage, _DAY_UP), (4, outage, _DAY_OUTAGE))
        for y, height, colour in parts if share is not None else ((14, 2, _DAY_UNKNOWN),):
            if height:
                yield element("rect", x=x, y=y, width=_DAY_WIDTH - 1, height=height, fill=colour)


def _describe_days(days: Sequence[int | None]) -> str:
    if not days:
        return ""
    outages = sum(share is not None and share < 1_000 for share in days)
    known = len(days) - list(days).count(None)
    return f"; {known} of {len(days)} days measured, {outages} with an outage"


def _barrier() -> list[Markup]:
    """Draw the logo: a post with its arm half raised."""
    return [
        element("rect", x=5, y=9, width=4, height=8, rx=1, fill="#ffffff"),
        element("path", d="M7 10L15 4", stroke="#ffffff", stroke_width=3, stroke_linecap="round"),
        element("path", d="M9.4 8.2l2-1.5M13 5.5l1.6-1.2", stroke="#d2452f", stroke_width=3),
    ]


def _text(text: str, x: int, ink: str, width: int) -> Markup:
    return element(
        "text",
        escape_text(text),
        x=x,
        y=14,
        fill=ink,
        font_family=_FONT,
        font_size=11,
        textLength=width,
    )


def _width(text: str) -> int:
    # Approximate width in Verdana 11; `textLength` fits the text in any other font.
    return sum(4 if char in ".,: il" else 7 for char in text)


@ROUTES.get(
    "/endpoint/{id}/badge.json",
    openapi.free(
        BadgeResponse,
        badge_response(_EXAMPLE).model_dump(by_alias=True),
        UNKNOWN_RESOURCE,
    ),
    name="get_badge_json",
    tag="free",
    strict_query=True,
)
async def badge_json(service: Service, endpoint_id: EndpointId) -> Response:
    """Badge of an endpoint for shields.io."""
    now = service.clock()
    snapshot = await service.read_endpoint(snapshots.snapshot, endpoint_id, now=now)
    return json_response(badge_response(snapshot))
