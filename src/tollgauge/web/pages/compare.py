"""`GET /compare`: up to four endpoints side by side, each by its address or its id."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tollgauge.core.directory.search_text import with_scheme
from tollgauge.core.endpoint.identity import ID_PATTERN, Perimeter, ResourceError, parse_resource
from tollgauge.monitor.reports.endpoint import LEAST_DAYS, EndpointView
from tollgauge.web.pages.charts.days import uptime_bars
from tollgauge.web.pages.render import render

FIELDS: Final = ("a", "b", "c", "d")
"""The query parameters, in the order of the columns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One endpoint that was asked for: the text, and its id, None where the text is neither an id
    nor an address that could be monitored; `problem` says why.
    """

    text: str
    id: str | None = None
    problem: str = ""


def asked_for(texts: Sequence[str | None], perimeter: Perimeter) -> tuple[Asked, ...]:
    """What was asked for, without what is empty and what is asked for twice."""
    asked: dict[str, Asked] = {}
    for text in texts:
        stripped = (text or "").strip()
        if stripped:
            one = _asked(stripped, perimeter)
            asked.setdefault(one.id or one.text, one)
    return tuple(asked.values())


def _asked(text: str, perimeter: Perimeter) -> Asked:
    if ID_PATTERN.fullmatch(text):
        return Asked(text=text, id=text)
    try:
        return Asked(text=text, id=parse_resource(with_scheme(text), perimeter).id)
    except ResourceError as error:
        return Asked(text=text, problem=str(error))


def compare_html(
    asked: Sequence[Asked], views: Mapping[str, EndpointView], *, base_url: str
) -> bytes:
    """The page; `views` are those of the endpoints that are known, by id."""
    shown = [(one, views.get(one.id or "")) for one in asked]
    known = [view for _, view in shown if view is not None]
    texts = (*(one.text for one in asked), *("" for _ in FIELDS[len(asked) :]))
    return render(
        "compare.html",
        base_url,
        simulated=any(view.snapshot.simulated for view in known),
        columns=[
            (one, view, view and uptime_bars(view.days[-LEAST_DAYS:], f"uptime-{number}"))
            for number, (one, view) in enumerate(shown)
        ],
        fields=list(zip(FIELDS, texts, strict=True)),
        best=_best(known),
    )


def _best(views: Sequence[EndpointView]) -> dict[str, set[str]]:
    """The ids of the endpoints with the best of a figure, by its name, where they differ in it.
    An endpoint that is down is not the best in anything.
    """
    snapshots = [view.snapshot for view in views if view.snapshot.down is None]
    best: dict[str, set[str]] = {}
    for name, sign in (
        ("score_tenths", 1),
        ("uptime_tenths", 1),
        ("payable_24h_permille", 1),
        ("latency_ms", -1),
        ("price_micro_usd", -1),
    ):
        values = {
            snapshot.id: sign * value
            for snapshot in snapshots
            if (value := getattr(snapshot, name)) is not None
        }
        top = max(values.values(), default=0)
        winners = {id_ for id_, value in values.items() if value == top}
        if len(winners) < len(snapshots):
            best[name] = winners
    return best
