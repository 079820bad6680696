"""`tollgauge calibration`: are the forecasts true?"""

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
from typing import TYPE_CHECKING, Annotated, Final

import typer

from tollgauge.cli.terminal import Json, progress_bar, show
from tollgauge.core.errors import TollgaugeError

if TYPE_CHECKING:
    from tollgauge.core.calibration import Sums
    from tollgauge.core.replay import Line, Replaying
    from tollgauge.web.wire.calibration import HorizonShape, ReplayShape, ShareShape

FORECASTS_MAX: Final = 250_000
"""Of longer series only every so many lines are forecast from, unless --every says otherwise."""
ALONE_MAX: Final = 20_000
"""So many lines are replayed in this process; more are shared among all processors."""

calibration_app = typer.Typer(help="Hold forecasts against what happened.", no_args_is_help=True)


@calibration_app.callback()
def calibration() -> None:
    """A group of one command."""


@calibration_app.command()
def replay(
    files: Annotated[list[str], typer.Argument(help="Series: JSON lines, .gz too, or -.")],
    every: Annotated[
        int, typer.Option(min=0, help="Forecast from one of so many lines; 0 chooses.")
    ] = 0,
    confirm: Annotated[
        bool,
        typer.Option(help="A failure counts as confirmed at once; else at the next line."),
    ] = True,
    fill: Annotated[
        bool,
        typer.Option(help="Repeat each line every half hour until the next: for daily series."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Replay series of up and down through the real scorer, and print what its forecasts are worth.

    Each line is {"site": "a.example", "instant": "2026-01-31T12:00:00Z", "up": true}, in any order;
    the instant may be milliseconds UTC. A line that is not up may name the "status" it answered
    with; without one it was a time-out.
    """
    from tollgauge.core.policy import POLICY
    from tollgauge.core.replay import Replaying
    from tollgauge.web.wire.calibration import replayed

    with progress_bar() as progress:
        series = read_series(files, progress)
        lines = sum(map(len, series.values()))
        options = Replaying(
            policy=POLICY,
            every=every or -(-lines // FORECASTS_MAX) or 1,
            confirm=confirm,
            fill=fill,
        )
        sums = replay_all(series, options, progress)
    report = replayed(sums, sites=len(series), lines=lines, options=options)
    show(report.model_dump(by_alias=True), _text(report), as_json=as_json)


def read_series(
    files: Iterable[str], progress: Callable[[str, int, int], None]
) -> dict[str, list[Line]]:
    """The lines of all files by site. Raises TollgaugeError with the number of a bad line."""
    from tollgauge.core.replay import SeriesError, read_line

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
    progress: Callable[[str, int, int], None],
) -> Sums:
    """What all sites add up to, replayed by as many processes as there are processors."""
    from tollgauge.core.calibration import Sums
    from tollgauge.core.replay import replay as replay_site

    sums = Sums()
    if sum(map(len, series.values())) <= ALONE_MAX:
        for site, lines in series.items():
            sums.update(replay_site(site, lines, options))
        return sums
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as processes:
        futures = [processes.submit(replay_site, *item, options) for item in series.items()]
        for done, future in enumerate(as_completed(futures), 1):
            sums.update(future.result())
            progress("replaying sites", done, len(series))
    return sums


def _text(report: ReplayShape) -> Iterator[str]:
    figures = report.figures
    yield (
        f"policy {figures.policy_version}: {report.lines} lines of {report.sites} sites, "
        f"forecasts from 1 of {report.every}"
    )
    yield from _horizon("payableNow against the next line within 2 hours", figures.payable_now)
    yield from _horizon("payable24h against the line nearest to a day later", figures.payable_24h)
    for title, rows in (
        ("by label", figures.recommendations),
        ("by grade", figures.grades),
        ("by age", figures.ages),
    ):
        yield ""
        yield f"{title:20}{'count':>10}{'payable next':>16}{'after a day':>14}"
        for row in rows:
            following, day = _percent(row.payable_next), _percent(row.payable_after_day)
            yield f"{row.name:20}{row.count:>10}{following:>16}{day:>14}"
    yield ""
    yield _share("next lines not payable, graded A or B", figures.failures_graded_a_or_b)
    yield _share("not payable for less than 3 h, graded A or B", report.short_outages_graded_a_or_b)
    yield _share("next week's uptime inside the range", report.weeks_inside)


def _horizon(title: str, horizon: HorizonShape) -> Iterator[str]:
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


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.2f} %"


def _share(words: str, share: ShareShape) -> str:
    return f"{words}: {_percent(share.share)} of {share.count}"
