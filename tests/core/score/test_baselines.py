"""The trivial rules, by hand."""

from __future__ import annotations

from tests.support.forecasts import HALF_HOUR, START

from tollgauge.core.base.units import DAY_MS
from tollgauge.core.score.baselines import Baselines


def after(*probes: tuple[int, bool]) -> tuple[int, ...]:
    baselines = Baselines()
    for at, payable in probes:
        baselines.add(START + at, payable=payable)
    return baselines.permilles()


def test_one_probe_is_all_that_is_known() -> None:
    assert after((0, True)) == (1_000, 1_000, 1_000, 1_000)
    assert after((0, False)) == (0, 0, 0, 0)


def test_probe_one_day_old_counts_half() -> None:
    # A half of one and a half.
    assert after((0, True), (DAY_MS, False)) == (0, 333, 500, 500)


def test_probes_older_than_a_window_are_excluded() -> None:
    last = (8 * DAY_MS, True)
    assert after((0, False), (7 * DAY_MS, True), last)[2:] == (1_000, 667)
    assert after((0, False), (31 * DAY_MS, True))[2:] == (1_000, 1_000)


def test_very_old_probes_have_no_weight() -> None:
    assert after((0, False), (70 * DAY_MS, True)) == (1_000, 1_000, 1_000, 1_000)


def test_many_probes_in_a_row_keep_the_average_between_them() -> None:
    probes = [(number * HALF_HOUR, number % 2 == 0) for number in range(96)]
    last, average, week, month = after(*probes)
    assert (last, week, month) == (0, 500, 500)
    # Alternating, the later one of each pair not payable: 2^(-1/48) / (1 + 2^(-1/48)).
    assert average == 496
