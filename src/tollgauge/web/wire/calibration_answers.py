"""JSON of the calibration: forecasts compared with outcomes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import BeforeValidator

from tollgauge.core.score.calibration import (
    DAY,
    KEPT,
    NEXT,
    NOW,
    Sums,
    groups,
    qualities,
    reliability,
)
from tollgauge.web.wire.response_model import (
    Chance,
    Day,
    Millionths,
    ResponseModel,
    Time,
    from_attribute,
)

if TYPE_CHECKING:
    from tollgauge.monitor.calibration import Calibration

_TenThousandths = Annotated[float, BeforeValidator(lambda value: value / 10_000)]


class QualityResponse(ResponseModel):
    """Accuracy of a forecaster. Lower is better for the Brier score and the log loss, higher for
    the AUC. The AUC is null if all outcomes are equal.
    """

    name: str
    count: int
    brier: Millionths = from_attribute("brier_millionths")
    log_loss: Millionths = from_attribute("log_loss_millionths")
    auc: _TenThousandths | None = from_attribute("auc_e4")


class BinResponse(ResponseModel):
    """Forecasts from `low` to below `high`: their mean, and the observed share with its 95% Wilson
    interval. These are null, with a `note`, if there are too few forecasts.
    """

    low: Chance
    high: Chance
    count: int
    mean: Chance | None
    came_true: Chance | None
    least: Chance | None
    most: Chance | None
    note: str


class HorizonResponse(ResponseModel):
    """Forecasts of one horizon compared with the baselines, and their reliability table."""

    count: int
    forecasters: list[QualityResponse]
    reliability: list[BinResponse]


class GroupResponse(ResponseModel):
    """Share of endpoints of a grade, recommendation or age that were payable at the next probe and
    after one day.
    """

    name: str
    count: int
    payable_next: _TenThousandths | None = from_attribute("next_e4")
    payable_after_day: _TenThousandths | None = from_attribute("day_e4")


class ShareResponse(ResponseModel):
    """A share and the number that it is a share of."""

    count: int
    share: float | None


class FiguresResponse(ResponseModel):
    """Results of one policy; `kept` is the number of stored forecasts, evaluated or not."""

    policy_version: int
    kept: int
    payable_now: HorizonResponse
    payable_24h: HorizonResponse
    recommendations: list[GroupResponse]
    grades: list[GroupResponse]
    ages: list[GroupResponse]
    failures_graded_a_or_b: ShareResponse


class CalibrationResponse(ResponseModel):
    """Accuracy of the forecasts of the last 30 days, by policy. `firstDay` and `lastDay` are null
    until the first forecast is evaluated, two days after it was made.
    """

    as_of: Time
    first_day: Day | None
    last_day: Day | None
    policies: list[FiguresResponse]


def figures(sums: Sums, policy_version: int) -> FiguresResponse:
    """Build the results of one policy."""
    graded = sums.of(NEXT, "grade")
    missed = {grade: count - hits for grade, (count, hits) in graded.items()}
    return FiguresResponse.build(
        policy_version=policy_version,
        kept=sums.of(KEPT.horizon, KEPT.measure).get(KEPT.value, (0, 0))[0],
        payable_now=_horizon(sums, NOW),
        payable_24h=_horizon(sums, DAY),
        recommendations=groups(sums, "recommendation"),
        grades=groups(sums, "grade"),
        ages=groups(sums, "age"),
        failures_graded_a_or_b=share(sum(missed.values()), missed.get("A", 0) + missed.get("B", 0)),
    )


def calibration(report: Calibration, *, now: int) -> CalibrationResponse:
    """Build the JSON of the calibration, newest policy first."""
    return CalibrationResponse.build(
        report,
        as_of=now,
        policies=[figures(sums, version) for version, sums in sorted(report.sums.items())[::-1]],
    )


def _horizon(sums: Sums, horizon: str) -> HorizonResponse:
    rows = qualities(sums, horizon)
    return HorizonResponse.build(
        count=rows[0].count if rows else 0,
        forecasters=rows,
        reliability=[
            BinResponse.build(row, note="not enough data" if row.mean is None else "")
            for row in reliability(sums, horizon)
        ],
    )


def share(count: int, part: int) -> ShareResponse:
    """Build the share of `part` in `count`; null if `count` is 0."""
    return ShareResponse(count=count, share=part / count if count else None)
