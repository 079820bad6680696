"""Calibration as JSON."""

from __future__ import annotations

from tests.support.forecasts import calibrated, empty_calibration
from tests.support.page_reader import NOW

from tollgauge.web.wire.statistics_answers import calibration


def test_policies_stand_apart_the_newest_first() -> None:
    model = calibration(calibrated(), now=NOW)
    assert [policy.policy_version for policy in model.policies] == [3, 2]
    assert (model.first_day, model.last_day) == ("2026-01-01", "2026-01-02")
    assert [policy.kept for policy in model.policies] == [200, 10]


def test_figures_are_shares_and_means() -> None:
    policy = calibration(calibrated(), now=NOW).policies[0]
    forecast = next(row for row in policy.payable_24h.forecasters if row.name == "forecast")
    # Nine in ten of (1 - 0.95) squared, one in ten of 0.95 squared.
    assert forecast.brier == 0.0925
    assert forecast.auc == 0.5
    assert policy.recommendations[0].model_dump() == {
        "name": "proceed",
        "count": 200,
        "payable_next": 0.9,
        "payable_after_day": 0.9,
    }
    assert policy.failures_graded_a_or_b.model_dump() == {"count": 20, "share": 1.0}


def test_a_bin_without_enough_data_says_so() -> None:
    new, old = (
        policy.payable_now.reliability[9] for policy in calibration(calibrated(), now=NOW).policies
    )
    assert (new.mean, new.came_true, new.note) == (0.95, 0.9, "")
    assert new.least is not None
    assert new.most is not None
    assert new.least < 0.9 < new.most
    assert (old.count, old.came_true, old.note) == (10, None, "not enough data")


def test_nothing_is_an_empty_list() -> None:
    model = calibration(empty_calibration(), now=NOW)
    assert (model.policies, model.first_day, model.last_day) == ([], None, None)
