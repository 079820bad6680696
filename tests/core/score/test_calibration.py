"""Forecasts against outcomes: figures computed by hand, and what holds for all."""

from __future__ import annotations

from fractions import Fraction
from math import log

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tollgauge.core.score.calibration import (
    BASE_RATE,
    DAY,
    FORECAST,
    NEXT,
    NOW,
    Cell,
    Forecast,
    Quality,
    Sums,
    age_group,
    groups,
    qualities,
    reliability,
)

OUTCOMES = st.lists(st.tuples(st.integers(0, 1_000), st.booleans()), min_size=1, max_size=60)


def count_outcomes(outcomes: list[tuple[int, bool]]) -> Sums:
    sums = Sums()
    for permille, payable in outcomes:
        sums.add(Cell(DAY, FORECAST, permille), payable=payable)
    return sums


def quality(outcomes: list[tuple[int, bool]], name: str = FORECAST) -> Quality:
    rows = qualities(with_baselines(outcomes), DAY)
    return next(row for row in rows if row.name == name)


def with_baselines(outcomes: list[tuple[int, bool]]) -> Sums:
    sums = Sums()
    for permille, payable in outcomes:
        sums.add_forecast(forecast(permille), DAY, payable=payable)
    return sums


def forecast(permille: int, *, grade: str = "A", age_days: int = 3) -> Forecast:
    return Forecast(
        payable_now=permille,
        payable_24h=permille,
        grade=grade,
        recommendation="proceed",
        age_days=age_days,
        baselines=(0, 250, 500, 1_000),
    )


def test_brier_log_loss_and_auc_match_manual_calculation() -> None:
    row = quality([(900, True), (800, True), (800, False), (100, False)])
    # The mean of 0.01, 0.04, 0.64 and 0.01.
    assert row.brier_millionths == 175_000
    by_hand = -(log(0.9) + log(0.8) + log(0.2) + log(0.9)) / 4
    assert row.log_loss_millionths == round(by_hand * 1_000_000)
    # Of the four pairs three are in order and one is even.
    assert row.auc_e4 == 8_750


def test_base_rate_is_the_best_constant() -> None:
    row = quality([(900, True), (900, True), (900, True), (900, False)], BASE_RATE)
    assert row.brier_millionths == 187_500
    assert row.auc_e4 == 5_000


def test_failed_certain_forecast_has_a_finite_log_loss() -> None:
    assert quality([(1_000, False)]).log_loss_millionths == round(-log(1 / 2_000) * 1_000_000)


def test_without_both_outcomes_there_is_no_auc() -> None:
    assert quality([(900, True), (100, True)]).auc_e4 is None


def test_baselines_are_scored_with_the_forecast() -> None:
    rows = {row.name: row.brier_millionths for row in qualities(with_baselines([(900, True)]), DAY)}
    assert rows == {
        "forecast": 10_000,
        "last-probe": 1_000_000,
        "average-24h": 562_500,
        "uptime-7d": 250_000,
        "uptime-30d": 0,
        "base-rate": 0,
    }


def test_bin_with_fewer_than_200_forecasts_has_no_rate() -> None:
    sums = count_outcomes([(950, True)] * 199)
    assert reliability(sums, DAY)[9].came_true is None
    sums.add(Cell(DAY, FORECAST, 1_000), payable=True)
    row = reliability(sums, DAY)[9]
    assert (row.count, row.mean, row.came_true, row.most) == (200, 950, 1_000, 1_000)
    # The Wilson bound of 200 out of 200: 200 / (200 + 1.96 squared).
    assert row.least == 981


def test_bins_hold_every_forecast_once() -> None:
    sums = count_outcomes([(permille, False) for permille in range(1_001)])
    assert [row.count for row in reliability(sums, DAY)] == [100] * 9 + [101]


def test_groups_tell_the_next_probe_from_the_one_after_a_day() -> None:
    sums = Sums()
    for grade, following, day in (("A", True, False), ("A", True, True), ("D", False, False)):
        sums.add_groups(forecast(0, grade=grade), NEXT, payable=following)
        sums.add_groups(forecast(0, grade=grade), DAY, payable=day)
    rows = [(row.name, row.count, row.next_e4, row.day_e4) for row in groups(sums, "grade")]
    assert rows == [("A", 2, 10_000, 5_000), ("D", 1, 0, 0)]


def test_ages_are_in_their_order() -> None:
    sums = Sums()
    for days in (40, 0, 7, 1):
        sums.add_groups(forecast(0, age_days=days), NEXT, payable=True)
    names = [row.name for row in groups(sums, "age")]
    assert names == ["first day", "1 to 6 days", "7 to 29 days", "30 days and more"]
    assert age_group(6) == "1 to 6 days"


def test_no_forecasts_give_empty_tables() -> None:
    assert qualities(Sums(), NOW) == ()
    assert groups(Sums(), "grade") == ()


@given(OUTCOMES, OUTCOMES)
def test_counts_of_two_days_add_up_to_those_of_both(
    first: list[tuple[int, bool]], second: list[tuple[int, bool]]
) -> None:
    together = with_baselines(first)
    together.update(with_baselines(second))
    whole = with_baselines(first + second)
    assert qualities(together, DAY) == qualities(whole, DAY)
    assert sorted(Sums(whole.rows()).rows(), key=str) == sorted(together.rows(), key=str)


@given(OUTCOMES)
def test_auc_is_the_share_of_pairs_in_order(outcomes: list[tuple[int, bool]]) -> None:
    hits = [permille for permille, payable in outcomes if payable]
    misses = [permille for permille, payable in outcomes if not payable]
    pairs = [Fraction(2 * (hit > miss) + (hit == miss), 2) for hit in hits for miss in misses]
    expected = sum(pairs, Fraction(0)) / len(pairs) if pairs else None
    auc = quality(outcomes).auc_e4
    assert (auc is None) == (expected is None)
    if auc is not None and expected is not None:
        assert float(auc) == pytest.approx(float(expected * 10_000), abs=0.51)


@given(OUTCOMES)
def test_brier_score_is_the_mean_of_squares(outcomes: list[tuple[int, bool]]) -> None:
    squares = [(permille / 1_000 - payable) ** 2 for permille, payable in outcomes]
    expected = sum(squares) / len(squares) * 1_000_000
    assert quality(outcomes).brier_millionths == pytest.approx(expected, abs=0.51)
