"""Charts of uptime, latency and score by day.

Missing data is shown as such: hatched bars, and gaps in lines. Even a short outage is visible.
Parts that look the same on all days are one SVG path, because a page has 90 days.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from itertools import chain, groupby
from typing import Final

from markupsafe import Markup

from tollgauge.core.base.units import DAY_MS
from tollgauge.core.score.window import DayScore
from tollgauge.monitor.reports.endpoint import MIN_DAYS, DayBar
from tollgauge.web.pages.charts.svg import (
    dots,
    element,
    label,
    number,
    picture,
    points,
    tooltips,
)
from tollgauge.web.pages.labels import DASH, count, day_date, hours, milliseconds, percent, tenths

WIDTH: Final = 520
LEFT: Final = 52
_TOP: Final = 14
_BAR_HEIGHT: Final = 96
_COVER_Y: Final = _TOP + _BAR_HEIGHT + 6
_LINE_HEIGHT: Final = 130
_SCORE_MARKS: Final = (0, 200, 400, 600, 800, 1_000)
_BAR_GAP: Final = 2.6
_MIN_VISIBLE: Final = 4.0
_DOTTED_DAYS: Final = 31
"""With more days, only isolated ones get a dot."""


def uptime_bars(days: tuple[DayBar, ...], key: str = "uptime") -> Markup:
    """Draw one bar per day: up from below, down from above, hatched without data.

    A line under each bar shows the measured share of the day. `key` is unique on the page.
    """
    bottom, step = _TOP + _BAR_HEIGHT, _step(days)
    gap = min(_BAR_GAP, step / 4)
    width = step - gap
    placed = [(LEFT + index * step + gap / 2, bar) for index, bar in enumerate(days)]
    measured = [(x, bar) for x, bar in placed if bar.spoken_ms]
    downs = [(x, _down_height(bar)) for x, bar in measured]
    hollow = [x for x, bar in placed if not bar.spoken_ms]
    return picture(
        key,
        "Uptime by day",
        f"{len(measured)} of {len(days)} days have data.",
        (WIDTH, bottom + 42),
        element("defs", _hatch(key)),
        label("100%", LEFT - 8, _TOP + 10, anchor="end"),
        label("0%", LEFT - 8, bottom, anchor="end"),
        *_columns("up", width, [(x, down, _BAR_HEIGHT - down) for x, down in downs]),
        *_columns("down", width, [(x, 0, down) for x, down in downs]),
        *_hollow(width, hollow, key),
        *_covers(width, measured),
        _tooltips([uptime_text(bar) for bar in days], step, _BAR_HEIGHT),
        *_dates(days, bottom + 32),
    )


@lru_cache(maxsize=1_024)  # drawing the 40 strips of a list takes 1.3 ms
def uptime_strip(uptimes: tuple[int | None, ...]) -> Markup:
    """Draw the bars of a list: one per day, in permille. A day with an outage has a mark at the top
    and a bar below it, unless the endpoint was down for more than half of the day.
    """
    days = uptimes or (None,) * MIN_DAYS
    full = [share == 1_000 for share in days]
    outage = [share is not None and share < 1_000 for share in days]
    partial = [share is not None and 500 <= share < 1_000 for share in days]
    missing = [share is None for share in days]
    counts = ((sum(full), "up"), (sum(outage), "with an outage"), (sum(missing), "without data"))
    text = ", ".join(f"{number} {state}" for number, state in counts if number)
    layers = (("up", full, 16), ("up", partial, 9), ("down", outage, -6), ("cover", missing, 2))
    return element(
        "svg",
        *(
            element("path", d=path, class_=kind, stroke_width=abs(height))
            for kind, chosen, height in layers
            if (path := _dashes(chosen, 16 - height / 2 if height > 0 else -height / 2))
        ),
        class_="uptimes",
        viewBox=f"0 0 {4 * len(days) - 1} 16",
        preserveAspectRatio="none",
        role="img",
        aria_label=f"{len(days)} days: {text}",
    )


def _dashes(chosen: Iterable[bool], y: float) -> str:
    """Draw a line per run of days; its dashes of 3 and gaps of 1 (style sheet) are the bars."""
    path, day = "", 0
    for is_chosen, run in groupby(chosen):
        length = len(list(run))
        if is_chosen:
            path += f"M{4 * day} {number(y)}h{4 * length - 1}"
        day += length
    return path


def uptime_text(bar: DayBar) -> str:
    """Describe one day of uptime."""
    left_out = f", {count(bar.excluded)} left out" if bar.excluded else ""
    if bar.spoken_ms == 0:
        return f"{day_date(bar.day)}: no data{left_out}"
    share = f"{percent(day_uptime(bar))} up of {hours(bar.spoken_ms)}"
    return f"{day_date(bar.day)}: {share}{left_out}"


def day_rows(days: Iterable[DayBar]) -> Markup:
    """Write the figures as table rows, without optional end tags, which would add 50% in size."""
    rows = []
    for bar in days:
        figures = (
            tenths(bar.score.tenths if bar.score else None),
            percent(day_uptime(bar)) if bar.spoken_ms else "no data",
            hours(bar.spoken_ms),
            *map(count, (bar.up, bar.scored, bar.excluded)),
            *(DASH if ms is None else count(ms) for ms in (bar.p50_ms, bar.p95_ms)),
        )
        cells = "<td>".join(figures)
        rows.append(f'<tr><th scope="row">{day_date(bar.day)}<td>{cells}\n')
    return Markup("".join(rows))  # noqa: S704 - only numbers and fixed texts


def day_uptime(bar: DayBar) -> int | None:
    """Return tenths of a percent, rounded down so that a day with an outage is never 100.0."""
    return bar.up_ms * 1_000 // bar.spoken_ms if bar.spoken_ms else None


def latency_lines(days: tuple[DayBar, ...]) -> Markup:
    """Draw p50 and p95 per day, with gaps if no probe succeeded."""
    bottom = _TOP + _LINE_HEIGHT
    size = (WIDTH, bottom + 32)
    values = [ms for bar in days for ms in (bar.p50_ms, bar.p95_ms) if ms is not None]
    if not values:
        probed = any(bar.spoken_ms for bar in days)
        what = "No probe succeeded" if probed else "Nothing was measured"
        note = f"{what} in these {len(days)} days."
        body = label(note, WIDTH / 2, size[1] / 2, anchor="middle", kind="note")
        return picture("latency", "Latency by day", note, size, body)
    marks, step = ticks(max(values)), _step(days)
    top = marks[-1]
    return picture(
        "latency",
        "Latency by day",
        f"Median and 95th percentile a day, from {min(values)} to {max(values)} ms.",
        size,
        *_grid(marks, top, lambda mark: milliseconds(mark) if mark == top else count(mark)),
        *_series([bar.p95_ms for bar in days], top, step, "p95"),
        *_series([bar.p50_ms for bar in days], top, step, "p50"),
        _tooltips([_latency_text(bar) for bar in days], step, _LINE_HEIGHT),
        *_dates(days, bottom + 22),
    )


def score_line(days: tuple[DayBar, ...]) -> Markup:
    """Draw the score per day, with one line per policy: a new policy is not a change of the
    endpoint.
    """
    scores = [bar.score for bar in days]
    kept = [score for score in scores if score is not None]
    bottom, step = _TOP + _LINE_HEIGHT, _step(days)
    size = (WIDTH, bottom + 32)
    if not kept:
        note = "No score of these days is kept."
        body = label(note, WIDTH / 2, size[1] / 2, anchor="middle", kind="note")
        return picture("scores", "Score by day", note, size, body)
    least, most = min(kept, key=_tenths).tenths, max(kept, key=_tenths).tenths
    lines = [
        _series(
            [
                score.tenths if score and score.policy_version == policy else None
                for score in scores
            ],
            _SCORE_MARKS[-1],
            step,
            "p50",
        )
        for policy in sorted({score.policy_version for score in kept})
    ]
    return picture(
        "scores",
        "Score by day",
        f"{len(kept)} of {len(days)} days have a score, from {tenths(least)} to {tenths(most)}.",
        size,
        *_grid(_SCORE_MARKS, _SCORE_MARKS[-1], lambda mark: str(mark // 10)),
        *chain.from_iterable(lines),
        _tooltips(score_texts(days), step, _LINE_HEIGHT),
        *_dates(days, bottom + 22),
    )


def score_texts(days: tuple[DayBar, ...]) -> Iterator[str]:
    """Describe each day of the score chart; the policy is named only when it changes."""
    policy = 0
    for bar in days:
        score = bar.score
        if score is None:
            yield ""
            continue
        named = "" if score.policy_version == policy else f", policy {score.policy_version}"
        policy = score.policy_version
        yield f"{day_date(bar.day)}: {tenths(score.tenths)} of 100{named}"


def ticks(largest: int) -> tuple[int, ...]:
    """Round milliseconds from 0 to at least `largest`, three to six of them."""
    unit = 1
    while unit * 50 < largest:
        unit *= 10
    step = next(unit * factor for factor in (1, 2, 5, 10) if unit * factor * 5 >= largest)
    last = max(2, -(-largest // step))
    return tuple(step * index for index in range(last + 1))


def _tenths(score: DayScore) -> int:
    return score.tenths


def _hatch(key: str) -> Markup:
    line = element("path", d="M0 6L6 0", class_="hatch-line")
    ground = element("rect", width=6, height=6, class_="hatch-ground")
    return element(
        "pattern",
        ground,
        line,
        id=f"{key}-no-data",
        width=6,
        height=6,
        patternUnits="userSpaceOnUse",
    )


def _step(days: tuple[DayBar, ...]) -> float:
    return (WIDTH - LEFT) / max(1, len(days))


def _columns(
    kind: str, width: float, columns: Iterable[tuple[float, float, float]]
) -> list[Markup]:
    """Draw columns of one kind as one path; each is (left edge, offset from the top, height)."""
    path = "".join(
        f"M{number(x + width / 2)} {number(_TOP + below)}v{number(height)}"
        for x, below, height in columns
        if height
    )
    return [element("path", d=path, class_=kind, stroke_width=width)] if path else []


def _hollow(width: float, edges: Iterable[float], key: str) -> list[Markup]:
    """Draw the outlines of days without data, by their left edges."""
    side = number(width)
    path = "".join(f"M{number(x)} {_TOP}h{side}v{_BAR_HEIGHT}h-{side}z" for x in edges)
    return [element("path", d=path, class_="none", fill=f"url(#{key}-no-data)")] if path else []


def _covers(width: float, days: Iterable[tuple[float, DayBar]]) -> list[Markup]:
    """Draw a line under each day, as long as its measured share."""
    path = "".join(
        f"M{number(round(x, 1))} {_COVER_Y}h{number(width * min(1.0, bar.spoken_ms / DAY_MS))}"
        for x, bar in days
    )
    return [element("path", d=path, class_="cover", stroke_width=3)] if path else []


def _down_height(bar: DayBar) -> float:
    """Return the height of the down part; any outage and any success remains visible."""
    if not bar.down_ms:
        return 0.0
    if not bar.up_ms:
        return float(_BAR_HEIGHT)
    share = _BAR_HEIGHT * bar.down_ms / bar.spoken_ms
    return min(_BAR_HEIGHT - _MIN_VISIBLE, max(_MIN_VISIBLE, share))


def _dates(days: tuple[DayBar, ...], y: float) -> list[Markup]:
    if not days:
        return [label("no days", LEFT, y)]
    return [
        label(day_date(days[0].day), LEFT, y),
        label(day_date(days[-1].day), WIDTH, y, anchor="end"),
    ]


def _y(value: int, top: int) -> float:
    return round(_TOP + _LINE_HEIGHT * (1 - max(0, value) / top), 1)


def _grid(marks: tuple[int, ...], top: int, write: Callable[[int], str]) -> list[Markup]:
    elements: list[Markup] = []
    for mark in marks:
        y = _y(mark, top)
        elements.append(element("line", x1=LEFT, y1=y, x2=WIDTH, y2=y, class_="grid"))
        elements.append(label(write(mark), LEFT - 8, y + 4, anchor="end"))
    return elements


def _series(values: list[int | None], top: int, step: float, kind: str) -> list[Markup]:
    """Draw a line for each run of days with data, and a dot for isolated days."""
    places = [
        None if value is None else (LEFT + (index + 0.5) * step, _y(value, top))
        for index, value in enumerate(values)
    ]
    runs = [
        [place for place in run if place is not None]
        for measured, run in groupby(places, key=lambda place: place is not None)
        if measured
    ]
    lines = [
        element("polyline", points=points(run), class_=f"line {kind}")
        for run in runs
        if len(run) > 1
    ]
    dotted = chain.from_iterable(
        run for run in runs if len(run) == 1 or len(values) <= _DOTTED_DAYS
    )
    return [*lines, dots(dotted, radius=2.4, kind=f"dot {kind}")]


def _latency_text(bar: DayBar) -> str:
    if bar.p50_ms is None and bar.p95_ms is None:
        return f"{day_date(bar.day)}: no data"
    latencies = f"p50 {milliseconds(bar.p50_ms)}, p95 {milliseconds(bar.p95_ms)}"
    return f"{day_date(bar.day)}: {latencies}"


def _tooltips(texts: Iterable[str], step: float, height: int) -> Markup:
    """Draw the tooltips of days over the height of the chart, in units of a day and the chart."""
    place = f"translate({number(LEFT + step / 2)} {_TOP}) scale({number(step)} {height})"
    return element("g", tooltips(texts), class_="hover", transform=place)
