"""Calibration as JSON: the figures of core/calibration/calibration, for the route and for
bench/replay.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tollgauge.core.base.units import DAY_MS
from tollgauge.core.calibration.calibration import (
    DAY,
    KEPT,
    NEXT,
    NOW,
    Bin,
    Group,
    Quality,
    Sums,
    groups,
    qualities,
    reliability,
)
from tollgauge.web.wire.response_model import ResponseModel, day, iso, permille

if TYPE_CHECKING:  # heavy: commands that only judge a report need no database
    from tollgauge.monitor.calibration import Calibration


class QualityResponse(ResponseModel):
    """How good a forecaster was. Lower is better for Brier score and log loss, higher for the AUC,
    which is null where all outcomes are the same.
    """

    name: str
    count: int
    brier: float
    log_loss: float
    auc: float | None


class BinResponse(ResponseModel):
    """Forecasts from `low` to below `high`: their mean, and the share that came true with its 95 %
    Wilson bounds; null, with a `note`, where there are too few.
    """

    low: float
    high: float
    count: int
    mean: float | None
    came_true: float | None
    least: float | None
    most: float | None
    note: str


class HorizonResponse(ResponseModel):
    """Forecasts of one horizon beside the baselines, and their reliability table."""

    count: int
    forecasters: list[QualityResponse]
    reliability: list[BinResponse]


class GroupResponse(ResponseModel):
    """How often endpoints of a grade, a recommendation or an age were payable at the next probe
    and after a day.
    """

    name: str
    count: int
    payable_next: float | None
    payable_after_day: float | None


class ShareResponse(ResponseModel):
    """A share, and of how many."""

    count: int
    share: float | None


class FiguresResponse(ResponseModel):
    """Everything that is computed from the counts of one policy; `kept` forecasts were stored,
    whether or not anything came of them.
    """

    policy_version: int
    kept: int
    payable_now: HorizonResponse
    payable_24h: HorizonResponse
    recommendations: list[GroupResponse]
    grades: list[GroupResponse]
    ages: list[GroupResponse]
    failures_graded_a_or_b: ShareResponse


class CalibrationResponse(ResponseModel):
    """What came of our own forecasts of the last 30 days, a policy each; `kept` is how many were
    stored. `firstDay` and `lastDay` are null until the first could come true, two days after.
    """

    as_of: str
    first_day: str | None
    last_day: str | None
    policies: list[FiguresResponse]


def figures(sums: Sums, policy_version: int) -> FiguresResponse:
    """The figures of one policy's counts."""
    graded = sums.of(NEXT, "grade")
    missed = {grade: count - hits for grade, (count, hits) in graded.items()}
    return FiguresResponse(
        policy_version=policy_version,
        kept=sums.of(KEPT.horizon, KEPT.measure).get(KEPT.value, (0, 0))[0],
        payable_now=_horizon(sums, NOW),
        payable_24h=_horizon(sums, DAY),
        recommendations=_groups(sums, "recommendation"),
        grades=_groups(sums, "grade"),
        ages=_groups(sums, "age"),
        failures_graded_a_or_b=share(sum(missed.values()), missed.get("A", 0) + missed.get("B", 0)),
    )


def calibration(report: Calibration, *, now: int) -> CalibrationResponse:
    """What came of our own forecasts, the newest policy first."""
    first, last = report.first_day, report.last_day
    return CalibrationResponse(
        as_of=iso(now),
        first_day=None if first is None else day(first * DAY_MS),
        last_day=None if last is None else day(last * DAY_MS),
        policies=[figures(sums, version) for version, sums in sorted(report.sums.items())[::-1]],
    )


def _horizon(sums: Sums, horizon: str) -> HorizonResponse:
    rows = qualities(sums, horizon)
    return HorizonResponse(
        count=rows[0].count if rows else 0,
        forecasters=[_quality(row) for row in rows],
        reliability=[_bin(row) for row in reliability(sums, horizon)],
    )


def _quality(row: Quality) -> QualityResponse:
    return QualityResponse(
        name=row.name,
        count=row.count,
        brier=row.brier_millionths / 1_000_000,
        log_loss=row.log_loss_millionths / 1_000_000,
        auc=_e4(row.auc_e4),
    )


def _bin(row: Bin) -> BinResponse:
    return BinResponse(
        low=row.low / 1_000,
        high=row.high / 1_000,
        count=row.count,
        mean=permille(row.mean),
        came_true=permille(row.came_true),
        least=permille(row.least),
        most=permille(row.most),
        note="not enough data" if row.mean is None else "",
    )


def _groups(sums: Sums, measure: str) -> list[GroupResponse]:
    return [_group(row) for row in groups(sums, measure)]


def _group(row: Group) -> GroupResponse:
    return GroupResponse(
        name=row.name,
        count=row.count,
        payable_next=_e4(row.next_e4),
        payable_after_day=_e4(row.day_e4),
    )


def share(count: int, part: int) -> ShareResponse:
    """Return `part` of `count`; the share of none is null."""
    return ShareResponse(count=count, share=part / count if count else None)


def _e4(value: int | None) -> float | None:
    return None if value is None else value / 10_000
