"""Replays series from files on all processors and reports the quality of their forecasts.

`tollgauge bench replay` prints the report (docs/calibration.md).
"""

from __future__ import annotations

import gzip
import os
import random
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from math import log
from multiprocessing import get_context
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

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
from tollgauge.core.endpoint.identity import site
from tollgauge.core.score.calibration import DAY, FORECAST, KEPT, NEXT, NOW, Sums
from tollgauge.web.wire.calibration_answers import (
    FiguresResponse,
    HorizonResponse,
    ShareResponse,
    figures,
    share,
)
from tollgauge.web.wire.response_model import ResponseModel

FORECASTS_MAX: Final = 250_000
"""Approximate number of forecasts for long series. `--every` overrides it."""
RESAMPLES: Final = 1_000
SINGLE_PROCESS_MAX: Final = 20_000
"""Up to this number of lines, the replay runs in this process; otherwise on all processors."""

Progress = Callable[[str, int, int], None]
"""Receives the current step, the completed amount, and the total (0: unknown)."""


class ResampledResponse(ResponseModel):
    """The 95% interval of a mean if providers are resampled with replacement."""

    brier: tuple[float, float]
    log_loss: tuple[float, float]


class ReplayResponse(ResponseModel):
    """The input of a replay and its figures.

    `shortOutagesGradedAOrB` is the share among lines of sites that were payable less than 3 hours
    before; `weeksInside` is the share of score ranges that contain the uptime of the next week.
    `sampledShare` is the share of lines at which forecasts were made. `providers` is the number of
    registrable domains, by which intervals are resampled.
    """

    sites: int
    lines: int
    every: int
    confirm: bool
    fill: bool
    sampled_share: float
    providers: int
    payable_now_resampled: ResampledResponse | None
    payable24h_resampled: ResampledResponse | None
    figures: FiguresResponse
    short_outages_graded_a_or_b: ShareResponse
    weeks_inside: ShareResponse


def replay_files(
    files: Iterable[str], progress: Progress, *, every: int, confirm: bool, fill: bool
) -> ReplayResponse:
    """Replay the series of all files. With `every` 0, about FORECASTS_MAX forecasts are made."""
    series = read_series(files, progress)
    lines = sum(map(len, series.values()))
    options = Replaying(every=every or -(-lines // FORECASTS_MAX) or 1, confirm=confirm, fill=fill)
    by_provider = replay_all(series, options, progress)
    return _report(by_provider, sites=len(series), lines=lines, options=options)


def read_series(files: Iterable[str], progress: Progress) -> dict[str, list[Line]]:
    """Return the lines of all files by site. Raises TollgaugeError with the number of a bad
    line.
    """
    series: dict[str, list[Line]] = defaultdict(list)
    for name in files:
        with _open(name) as stream:
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
def _open(name: str) -> Iterator[Iterable[bytes]]:
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
        raise TollgaugeError(
            f"{name} cannot be read.", hint="Give a complete file, or - for standard input."
        ) from error


def replay_all(
    series: dict[str, list[Line]],
    options: Replaying,
    progress: Progress,
) -> dict[str, Sums]:
    """Replay all sites on all processors and return the sums of each provider."""
    sums: dict[str, Sums] = defaultdict(Sums)
    if sum(map(len, series.values())) <= SINGLE_PROCESS_MAX:
        for name, lines in series.items():
            sums[provider_of(name)].update(replay(name, lines, options))
        return sums
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as processes:
        futures = {
            processes.submit(replay, *item, options): provider_of(item[0])
            for item in series.items()
        }
        for done, future in enumerate(as_completed(futures), 1):
            sums[futures[future]].update(future.result())
            progress("replaying sites", done, len(series))
    return sums


def provider_of(name: str) -> str:
    """Return the registrable domain of a site. Sites of one provider share its outages."""
    host = urlsplit(name).hostname or name.partition("/")[0]
    return site(host)


def resample(by_provider: Mapping[str, Sums], horizon: str) -> ResampledResponse | None:
    """Return the intervals of the Brier score and log loss. None without outcomes."""
    parts = [_losses(sums, horizon) for sums in by_provider.values()]
    parts = [part for part in parts if part[0]]
    if not parts:
        return None
    dice = random.Random(1)  # noqa: S311 - the same intervals each time
    briers, losses = [], []
    for _ in range(RESAMPLES):
        drawn = dice.choices(parts, k=len(parts))
        count = sum(part[0] for part in drawn)
        briers.append(sum(part[1] for part in drawn) / count)
        losses.append(sum(part[2] for part in drawn) / count)
    return ResampledResponse(brier=_middle(briers), log_loss=_middle(losses))


def _losses(sums: Sums, horizon: str) -> tuple[int, float, float]:
    """Return the number of outcomes and the sums of their squared errors and log losses."""
    count, squares, loss = 0, 0.0, 0.0
    for value, (total, hits) in sums.of(horizon, FORECAST).items():
        chance = int(value) / 1_000
        limited = min(max(chance, 1 / 2_000), 1 - 1 / 2_000)
        count += total
        squares += hits * (1 - chance) ** 2 + (total - hits) * chance**2
        loss -= hits * log(limited) + (total - hits) * log(1 - limited)
    return count, squares, loss


def _middle(values: list[float]) -> tuple[float, float]:
    """Return the limits of the middle 95% of the values."""
    ordered = sorted(values)
    cut = len(ordered) // 40
    return round(ordered[cut], 6), round(ordered[-1 - cut], 6)


def _report(
    by_provider: Mapping[str, Sums], *, sites: int, lines: int, options: Replaying
) -> ReplayResponse:
    sums = Sums()
    for of_provider in by_provider.values():
        sums.update(of_provider)
    sampled = sum(count for count, _ in sums.of(KEPT.horizon, KEPT.measure).values())
    outages = {grade: count for grade, (count, _) in sums.of(NEXT, SHORT_OUTAGE).items()}
    weeks = sums.of(WEEK_RANGE.horizon, WEEK_RANGE.measure).get(WEEK_RANGE.value, (0, 0))
    return ReplayResponse(
        sites=sites,
        lines=lines,
        every=options.every,
        confirm=options.confirm,
        fill=options.fill,
        sampled_share=round(sampled / lines, 4) if lines else 0,
        providers=len(by_provider),
        payable_now_resampled=resample(by_provider, NOW),
        payable24h_resampled=resample(by_provider, DAY),
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
        f"forecasts from {100 * report.sampled_share:.2f}% of them"
    )
    for name, interval in (
        ("payableNow", report.payable_now_resampled),
        ("payable24h", report.payable24h_resampled),
    ):
        if interval is not None:
            yield (
                f"{name}, resampled by {report.providers} providers, 95%: Brier "
                f"{interval.brier[0]:.6f} to {interval.brier[1]:.6f}, log loss "
                f"{interval.log_loss[0]:.6f} to {interval.log_loss[1]:.6f}"
            )
    yield from _horizon("payableNow compared with the next line within 2 h", result.payable_now)
    yield from _horizon("payable24h compared with the line nearest to 24 h", result.payable_24h)
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
    yield f"{'forecast in':20}{'count':>10}{'mean':>10}{'came true':>10}{'95%':>16}"
    for bin_ in horizon.reliability:
        name = f"{bin_.low:.1f} to {bin_.high:.1f}"
        if bin_.note:
            yield f"{name:20}{bin_.count:>10}  {bin_.note}"
        else:
            ends = f"{bin_.least:.3f} to {bin_.most:.3f}"
            yield f"{name:20}{bin_.count:>10}{bin_.mean:>10.3f}{bin_.came_true:>10.3f}{ends:>16}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.2f}%"


def _share_line(text: str, row: ShareResponse) -> str:
    return f"{text}: {_percent(row.share)} of {row.count}"
