"""Compare the service's forecasts with later probes and count the results by policy version.

Each hour the forecasts of a different sample of endpoints are stored
(core/score/calibration.sample). A forecast is dated with its score's `as_of`, which is at
most an hour old, and is compared with later probes that are evidence about the seller; a 429 counts
as one. A forecast without such a probe in time is ignored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from sqlalchemy import Connection

from tollgauge.core.base.units import DAY_MS, HOUR_MS, WINDOW_MS, day_of
from tollgauge.core.probe.outcome import Attribution
from tollgauge.core.score.baselines import Baselines, Outcomes
from tollgauge.core.score.calibration import (
    DAY,
    DAY_NEAR_MS,
    KEPT,
    NEXT,
    NOW,
    NOW_MAX_MS,
    Sums,
    forecast_of,
)
from tollgauge.store.endpoints import endpoints
from tollgauge.store.probes import probes
from tollgauge.store.scores import forecasts, scores
from tollgauge.store.scores.forecasts import ForecastRow

SHOWN_DAYS: Final = 30  # days covered by the published figures


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Outcomes of the forecasts of the last SHOWN_DAYS days by policy version, with the first and
    the last UTC day that is counted. Both days are None without any.
    """

    first_day: int | None
    last_day: int | None
    sums: dict[int, Sums]


def make(tx: Connection, endpoint_ids: Sequence[str], *, now: int) -> list[ForecastRow]:
    """Return the forecasts in the current scores of endpoints.

    Scores older than an hour or without a forecast, and endpoints without usable probes, are
    skipped.
    """
    known = endpoints.get_many(tx, endpoint_ids)
    rows = []
    for id_, score in scores.results(tx, endpoint_ids).items():
        if score.as_of <= now - HOUR_MS or score.payable_now_permille is None or id_ not in known:
            continue
        counted = _outcomes(tx, id_, since=score.as_of - WINDOW_MS, until=score.as_of)
        baselines = Baselines()
        for at, payable in counted:
            baselines.add(at, payable=payable)
        if counted:
            forecast = forecast_of(score, known[id_].first_seen, baselines.permilles())
            rows.append(
                ForecastRow(
                    hour=forecasts.hour_of(now),
                    endpoint_id=id_,
                    policy_version=score.policy_version,
                    as_of=score.as_of,
                    forecast=forecast,
                )
            )
    return rows


def last_complete_day(now: int) -> int:
    """Return the last UTC day whose forecasts can all be compared.

    That takes until the end of the following day, plus the time that a probe may be late
    (DAY_NEAR_MS).
    """
    return day_of(now - DAY_NEAR_MS) - 2


def outcomes(tx: Connection, rows: Sequence[ForecastRow]) -> dict[int, Sums]:
    """Count the forecasts that came true by policy version. Rows of an endpoint must be
    adjacent.
    """
    sums: dict[int, Sums] = {}
    for id_, of_endpoint in groupby(rows, key=lambda row: row.endpoint_id):
        endpoint_rows = list(of_endpoint)
        since = min(row.as_of for row in endpoint_rows)
        until = max(row.as_of for row in endpoint_rows) + DAY_MS + DAY_NEAR_MS
        seen = Outcomes(_outcomes(tx, id_, since=since, until=until))
        for row in endpoint_rows:
            sums.setdefault(row.policy_version, Sums()).add(KEPT, payable=False)
            _count(sums[row.policy_version], row, seen)
    return sums


def report(tx: Connection, *, now: int) -> Calibration:
    """Return the outcomes of the last SHOWN_DAYS days."""
    first = day_of(now) - SHOWN_DAYS
    days = forecasts.days_since(tx, first)
    return Calibration(
        first_day=days[0] if days else None,
        last_day=days[-1] if days else None,
        sums=forecasts.sums_since(tx, first),
    )


def _count(sums: Sums, row: ForecastRow, seen: Outcomes) -> None:
    following = seen.find_next(row.as_of, within=NOW_MAX_MS)
    if following is not None:
        sums.add_forecast(row.forecast, NOW, payable=following)
        sums.add_groups(row.forecast, NEXT, payable=following)
    day = seen.find_nearest(row.as_of + DAY_MS, after=row.as_of, within=DAY_NEAR_MS)
    if day is not None:
        sums.add_forecast(row.forecast, DAY, payable=day)
        sums.add_groups(row.forecast, DAY, payable=day)


def _outcomes(
    tx: Connection, endpoint_id: str, *, since: int, until: int
) -> list[tuple[int, bool]]:
    """Return the time and `payable` of the probes that are evidence about the seller and no
    confirmations.
    """
    return [
        (at, judgement.payable)
        for day in probes.history_rows(tx, endpoint_id, since=since, until=until)
        for at, _, judgement in day
        if judgement.attribution is Attribution.TARGET and not judgement.confirms
    ]
