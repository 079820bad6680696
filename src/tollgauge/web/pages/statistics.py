"""`GET /statistics`: how the figures of all endpoints are spread, as bars with their numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from tollgauge.core.base.units import dollars
from tollgauge.monitor.reports.overview import Ecosystem
from tollgauge.monitor.statistics import HistogramBin, Statistics
from tollgauge.web.pages import labels
from tollgauge.web.pages.charts.pictures import component_bar, grade_strip
from tollgauge.web.pages.render import render


@dataclass(frozen=True, slots=True, kw_only=True)
class StatisticsRow:
    """One row of a table: `share` is tenths of a percent of all that the table counts."""

    label: str
    note: str
    count: int
    share: int
    bar: Markup


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """How one figure is spread; `key` is unique in the page, `head` names the figure."""

    key: str
    title: str
    head: str
    rows: tuple[StatisticsRow, ...]


def statistics_html(statistics: Statistics, stats: Ecosystem, *, base_url: str) -> bytes:
    """The page of all distributions; without any endpoint, a word of where they come from."""
    return render(
        "statistics.html",
        base_url,
        statistics=statistics,
        stats=stats,
        simulated=stats.simulated,
        strip=grade_strip(stats.grades),
        tables=_tables(statistics) if statistics.endpoints else (),
    )


def _tables(counted: Statistics) -> tuple[Table, ...]:
    no_latency = [("never up in 30 days", "", counted.no_latency)]
    no_price = [
        ("not in dollars", "another token", counted.other_tokens),
        ("not advertised", "", counted.no_price),
    ]
    uptimes = [("0%", "", counted.uptimes[0].count), *_binned(counted.uptimes[1:-1], _percent)]
    uptimes.append(("100%", "", counted.uptimes[-1].count))
    return (
        _table("scores", "Scores", "Score", _binned(counted.scores, _points)),
        _table("recommendations", "Recommendations", "Recommendation", _named(counted)),
        _table("uptime", "Uptime in 30 days", "Uptime", uptimes),
        _table(
            "latency",
            "Average latency in 30 days",
            "Latency",
            [*_binned(counted.latencies, labels.milliseconds), *no_latency],
        ),
        _table(
            "prices",
            "Prices of a call",
            "Price",
            [*_binned(counted.prices, dollars), *no_price],
        ),
        _table(
            "networks",
            "Networks that are paid on",
            "Network",
            [(name or "others", labels.network_name(name), n) for name, n in counted.networks],
        ),
        _table(
            "directories",
            "Listed by",
            "Directory",
            [(name or "others", "", n) for name, n in counted.sources],
        ),
    )


def _named(counted: Statistics) -> list[tuple[str, str, int]]:
    return [(name, "", number) for name, number in counted.recommendations]


def _table(key: str, title: str, head: str, rows: Sequence[tuple[str, str, int]]) -> Table:
    """A table of (label, note, count)."""
    total = sum(number for _, _, number in rows)
    largest = max((number for _, _, number in rows), default=0)
    return Table(
        key=key,
        title=title,
        head=head,
        rows=tuple(
            StatisticsRow(
                label=label,
                note=note,
                count=number,
                share=(number * 2_000 + total) // (2 * total) if total else 0,
                bar=component_bar(1, number * 1_000 // max(1, largest), heaviest=1),
            )
            for label, note, number in rows
        ),
    )


def _binned(
    bins: Iterable[HistogramBin], write: Callable[[int], str]
) -> list[tuple[str, str, int]]:
    return [(_range(row, write), "", row.count) for row in bins]


def _range(row: HistogramBin, write: Callable[[int], str]) -> str:
    if row.below is None:
        return f"{write(row.least)} or more"
    if not row.least:
        return f"under {write(row.below)}"
    return f"{write(row.least)} to {write(row.below)}"


def _points(tenths: int) -> str:
    return str(tenths // 10)


def _percent(tenths: int) -> str:
    return f"{tenths / 10:g}%"
