"""Series from files, replayed by all processors, and the report of their forecasts.

`tollgauge bench replay` prints the report (docs/calibration.md).
"""

from __future__ import annotations

import gzip
import os
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Final

from bench.replay import (
    SHORT_OUTAGE,
    WEEK_RANGE,
    Line,
    Replaying,
    SeriesError,
    read_line,
    replay,
)
from tollgauge.core.base.errors import TollgaugeError
from tollgauge.core.calibration.calibration import NEXT, Sums
from tollgauge.web.wire.calibration_answers import (
    FiguresResponse,
    HorizonResponse,
    ShareResponse,
    figures,
    share,
)
from tollgauge.web.wire.response_model import ResponseModel

FORECASTS_MAX: Final = 250_000
"""Of longer series only every so many lines are forecast from, unless --every says otherwise."""
ALONE_MAX: Final = 20_000
"""So many lines are replayed in this process; more are shared among all processors."""

Progress = Callable[[str, int, int], None]
"""Receives what is being done, how much of it is done, and how much there is (0: unknown)."""


class ReplayResponse(ResponseModel):
    """The input of a replay, and its figures. `shortOutagesGradedAOrB` is of all lines
    of sites that were payable less than 3 hours before; `weeksInside` of all score ranges whose
    uptime ends were held against the next week.
    """

    sites: int
    lines: int
    every: int
    confirm: bool
    fill: bool
    figures: FiguresResponse
    short_outages_graded_a_or_b: ShareResponse
    weeks_inside: ShareResponse


def replay_files(
    files: Iterable[str], progress: Progress, *, every: int, confirm: bool, fill: bool
) -> ReplayResponse:
    """Replay the series of all files. With `every` 0 about FORECASTS_MAX forecasts are made."""
    series = read_series(files, progress)
    lines = sum(map(len, series.values()))
    options = Replaying(every=every or -(-lines // FORECASTS_MAX) or 1, confirm=confirm, fill=fill)
    sums = replay_all(series, options, progress)
    return _report(sums, sites=len(series), lines=lines, options=options)


def read_series(files: Iterable[str], progress: Progress) -> dict[str, list[Line]]:
    """The lines of all files by site. Raises TollgaugeError with the number of a bad line."""
    series: dict[str, list[Line]] = defaultdict(list)
    for name in files:
        with _opened(name) as stream:
            for number, text in enumerate(stream, 1):
                try:
                    site, line = read_line(text)
                except SeriesError as error:
                    raise TollgaugeError(
                        f"{name}: line {number} {error}.",
                        hint='A line is {"site": "a.example", "instant": "2026-01-31T12:00:00Z", '
                        '"up": true}.',
                    ) from error
                series[site].append(line)
                if number % 10_000 == 0:
                    progress(f"reading {name}"[-38:], number, 0)
    return series


@contextmanager
def _opened(name: str) -> Iterator[Iterable[bytes]]:
    try:
        if name == "-":
            yield sys.stdin.buffer
        elif name.endswith(".gz"):
            with gzip.open(name, "rb") as unpacked:
                yield unpacked
        else:
            with Path(name).open("rb") as stream:
                yield stream
    except (OSError, EOFError) as error:
        raise TollgaugeError(f"{name} cannot be read.", hint="Give a whole file, or -.") from error


def replay_all(
    series: dict[str, list[Line]],
    options: Replaying,
    progress: Progress,
) -> Sums:
    """What all sites add up to, replayed by as many processes as there are processors."""
    sums = Sums()
    if sum(map(len, series.values())) <= ALONE_MAX:
        for site, lines in series.items():
            sums.update(replay(site, lines, options))
        return sums
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as processes:
        futures = [processes.submit(replay, *item, options) for item in series.items()]
        for done, future in enumerate(as_completed(futures), 1):
            sums.update(future.result())
            progress("replaying sites", done, len(series))
    return sums


def _report(sums: Sums, *, sites: int, lines: int, options: Replaying) -> ReplayResponse:
    outages = {grade: count for grade, (count, _) in sums.of(NEXT, SHORT_OUTAGE).items()}
    weeks = sums.of(WEEK_RANGE.horizon, WEEK_RANGE.measure).get(WEEK_RANGE.value, (0, 0))
    return ReplayResponse(
        sites=sites,
        lines=lines,
        every=options.every,
        confirm=options.confirm,
        fill=options.fill,
        figures=figures(sums, options.policy.version),
        short_outages_graded_a_or_b=share(
            sum(outages.values()), outages.get("A", 0) + outages.get("B", 0)
        ),
        weeks_inside=share(*weeks),
    )


def report_lines(report: ReplayResponse) -> Iterator[str]:
    """Yield the report as text."""
    result = report.figures
    yield (
        f"policy {result.policy_version}: {report.lines} lines of {report.sites} sites, "
        f"forecasts from 1 of {report.every}"
    )
    yield from _horizon("payableNow against the next line within 2 hours", result.payable_now)
    yield from _horizon("payable24h against the line nearest to a day later", result.payable_24h)
    for title, rows in (
        ("by label", result.recommendations),
        ("by grade", result.grades),
        ("by age", result.ages),
    ):
        yield ""
        yield f"{title:20}{'count':>10}{'payable next':>16}{'after a day':>14}"
        for row in rows:
            following, day = _percent(row.payable_next), _percent(row.payable_after_day)
            yield f"{row.name:20}{row.count:>10}{following:>16}{day:>14}"
    yield ""
    yield _share_line("next lines not payable, graded A or B", result.failures_graded_a_or_b)
    yield _share_line(
        "not payable for less than 3 h, graded A or B", report.short_outages_graded_a_or_b
    )
    yield _share_line("next week's uptime inside the range", report.weeks_inside)


def _horizon(title: str, horizon: HorizonResponse) -> Iterator[str]:
    yield ""
    yield f"{title}: {horizon.count} forecasts"
    if not horizon.count:
        return
    yield f"{'':20}{'Brier':>10}{'log loss':>10}{'AUC':>10}"
    for row in horizon.forecasters:
        auc = "-" if row.auc is None else f"{row.auc:.4f}"
        yield f"{row.name:20}{row.brier:>10.6f}{row.log_loss:>10.6f}{auc:>10}"
    yield f"{'forecast in':20}{'count':>10}{'mean':>10}{'came true':>10}{'95 %':>16}"
    for bin_ in horizon.reliability:
        name = f"{bin_.low:.1f} to {bin_.high:.1f}"
        if bin_.note:
            yield f"{name:20}{bin_.count:>10}  {bin_.note}"
        else:
            ends = f"{bin_.least:.3f} to {bin_.most:.3f}"
            yield f"{name:20}{bin_.count:>10}{bin_.mean:>10.3f}{bin_.came_true:>10.3f}{ends:>16}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.2f} %"


def _share_line(text: str, row: ShareResponse) -> str:
    return f"{text}: {_percent(row.share)} of {row.count}"
