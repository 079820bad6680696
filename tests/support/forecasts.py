"""Forecasts of endpoints, and endpoints with the probes that they are computed from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tests.support.probe_loop import endpoint

from bench.replay import Line, probe_of
from tollgauge.core.base.units import DAY_MS, MINUTE_MS
from tollgauge.core.score.calibration import BIN_MIN, DAY, KEPT, NEXT, NOW, Forecast, Sums
from tollgauge.core.score.policy import POLICY
from tollgauge.core.score.score import Score, score_to_json
from tollgauge.core.score.scoring import score
from tollgauge.db.engine import Store
from tollgauge.monitor import scoring
from tollgauge.monitor.calibration import Calibration
from tollgauge.store.endpoints import endpoints
from tollgauge.store.probes import probes
from tollgauge.store.scores import scores
from tollgauge.store.scores.forecasts import ForecastRow

START = 20_000 * DAY_MS
HALF_HOUR = 30 * MINUTE_MS


def half_hours(states: Sequence[bool], *, start: int = START) -> list[Line]:
    """Return one line per half hour."""
    return [Line(start + HALF_HOUR * number, up) for number, up in enumerate(states)]


HOUR = START // (2 * HALF_HOUR)
"""The hour since the epoch that begins at START."""


def forecast(**changes: Any) -> Forecast:
    usual = Forecast(
        payable_now=990,
        payable_24h=950,
        grade="A",
        recommendation="proceed",
        age_days=12,
        baselines=(1_000, 999, 998, 997),
    )
    return replace(usual, **changes)


def row(endpoint_id: str = "a", *, hour: int = 0, policy: int = 3, **changes: Any) -> ForecastRow:
    """Return a forecast made at the beginning of the given hour after START."""
    return ForecastRow(
        hour=HOUR + hour,
        endpoint_id=endpoint_id,
        policy_version=policy,
        as_of=START + 2 * HALF_HOUR * hour,
        forecast=forecast(**changes),
    )


async def add_probed_endpoint(
    store: Store, url: str, states: Sequence[bool], *, start: int = START
) -> str:
    """Add an endpoint with a probe every half hour from `start`; return its ID."""
    added = replace(endpoint(url), first_seen=START, last_seen=START)
    await store.writing(endpoints.insert, added)
    await record(store, added.id, states, start=start)
    return added.id


async def record(store: Store, id_: str, states: Sequence[bool], *, start: int) -> None:
    """Add more probes, one per half hour."""
    lines = [Line(start + HALF_HOUR * number, up) for number, up in enumerate(states)]
    results = [probe_of(line, HALF_HOUR) for line in lines]
    await store.writing(probes.record_many, id_, results)


async def score_and_store(store: Store, id_: str, *, as_of: int, **changes: Any) -> Score:
    """Score the endpoint as of a time, with a forecast, and save it as the score loop does."""
    known = await store.reading(endpoints.get, id_)
    assert known is not None
    evidence = await store.reading(scoring.gather, known, as_of=as_of)
    computed = replace(
        score(evidence, POLICY),
        **{"payable_now_permille": 990, "payable_24h_permille": 950, **changes},
    )
    saved = replace(
        scoring.score_evidence(id_, evidence),
        policy_version=computed.policy_version,
        result=score_to_json(computed),
    )
    assert await store.writing(scores.save, saved)
    return computed


def make_calibration() -> Calibration:
    """Return two days of 95% forecasts, 90% of which came true; under policy 2 only a few."""
    return Calibration(
        first_day=20_454,
        last_day=20_455,
        sums={2: _sums(10), 3: _sums(BIN_MIN)},
    )


def empty_calibration() -> Calibration:
    """Return the forecasts of a service's first day."""
    return Calibration(first_day=None, last_day=None, sums={})


def _sums(count: int) -> Sums:
    sums = Sums([(KEPT, count, 0)])
    usual = forecast(payable_now=950)
    for number in range(count):
        payable = number % 10 != 0
        for horizon in (NOW, DAY):
            sums.add_forecast(usual, horizon, payable=payable)
        for horizon in (NEXT, DAY):
            sums.add_groups(usual, horizon, payable=payable)
    return sums
