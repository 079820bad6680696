"""Examples of the statistics and calibration responses, from invented figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any, Final

import orjson

from tollgauge.core.base.units import DAY_MS, day_of
from tollgauge.core.score.calibration import BIN_MIN, DAY, KEPT, NEXT, NOW, Forecast, Sums
from tollgauge.core.score.income import DaySum, PeriodFigures
from tollgauge.core.score.score import ShownDemand
from tollgauge.monitor import statistics
from tollgauge.monitor.calibration import Calibration
from tollgauge.monitor.facilitators import FacilitatorRecord, Facilitators, SupportedChange
from tollgauge.monitor.reports.overview import Ecosystem
from tollgauge.monitor.statistics import HistogramBin, Statistics
from tollgauge.store.chain.periods import ChainPeriods, PeriodComparison
from tollgauge.store.chain.submitters import (
    FacilitatorFigures,
    FacilitatorPeriod,
    FacilitatorSample,
)
from tollgauge.store.endpoints.ranking import Share, WeekShares, week_of
from tollgauge.web.wire import calibration_answers, facilitator_answers, statistics_answers
from tollgauge.web.wire.calibration_answers import CalibrationResponse
from tollgauge.web.wire.response_model import ResponseModel, dump
from tollgauge.web.wire.statistics_answers import EcosystemResponse, ecosystem

AS_OF: Final = 1_767_225_600_000
"""2026-01-01T00:00:00Z."""


def stats() -> Any:
    """Return the ecosystem's statistics."""
    return as_json(ecosystem_response())


def ecosystem_response(**changes: Any) -> EcosystemResponse:
    """Build the ecosystem's statistics; `changes` are to their distributions."""
    counts = Ecosystem(
        as_of=AS_OF,
        listed=40,
        delisted=3,
        monitored=40,
        reachable_permille=925,
        compliant_permille=775,
        grades=(("A", 6), ("B", 21), ("C", 7), ("D", 2), ("F", 4)),
        demand=ShownDemand(
            payers=1_204, volume=18_250_000_000, proven_payers=212, proven_volume=12_400_000_000
        ),
        receivers=31,
        indexed_permille=1_000,
        periods=(_periods(),),
    )
    return ecosystem(counts, replace(_statistics(), **changes))


def _periods() -> ChainPeriods:
    def figures(part: int) -> PeriodFigures:
        """Return one `part`-th of a month."""
        return PeriodFigures(
            settlements=9_120 // part,
            volume=18_000_000_000 // part,
            buyers=1_180 // part,
            sellers=31,
            proven_buyers=208 // part,
            proven_volume=12_300_000_000 // part,
        )

    last = AS_OF // DAY_MS - 1
    comparisons = (
        PeriodComparison(days=1, current=figures(30), previous=figures(32)),
        PeriodComparison(days=7, current=figures(4), previous=figures(5)),
        PeriodComparison(days=30, current=figures(1), previous=None),
    )
    by_day = [DaySum(last - 29 + n, 304, 600_000_000, 410_000_000) for n in range(30)]
    return ChainPeriods(
        chain=8453,
        as_of=AS_OF,
        last_day=last,
        comparisons=comparisons,
        by_day=tuple(by_day),
        facilitators=tuple(_facilitators(days, 9_120 * days // 30) for days in (1, 7, 30)),
    )


def _facilitators(days: int, settlements: int) -> FacilitatorPeriod:
    """Return a period in which three of four settlements were looked up."""
    looked_up = settlements * 3 // 4
    counts = (looked_up - looked_up // 5 - looked_up // 20, looked_up // 5, looked_up // 20)
    top = [
        FacilitatorFigures(
            address=f"0x{number:02x}" + "c0" * 19,
            configured=number == 1,
            settlements=count,
            volume=count * 2_000_000,
            buyers=count // 8 + 1,
        )
        for number, count in enumerate(counts, 1)
    ]
    return FacilitatorPeriod(
        days=days,
        settlements=settlements,
        looked_up=looked_up,
        submitters=len(top),
        top=tuple(top),
    )


def _statistics() -> Statistics:
    def bins(edges: Sequence[int], *counts: int) -> tuple[HistogramBin, ...]:
        limits = zip((0, *edges), (*edges, None), counts, strict=True)
        return tuple(HistogramBin(*values) for values in limits)

    return Statistics(
        as_of=AS_OF,
        endpoints=40,
        scores=bins(statistics.SCORES, 0, 1, 3, 2, 0, 7, 12, 9, 6, 0),
        uptimes=bins(statistics.UPTIMES, 3, 1, 2, 3, 9, 8, 6, 8),
        latencies=bins(statistics.LATENCIES, 4, 13, 11, 6, 2, 1, 0),
        no_latency=3,
        prices=bins(statistics.PRICES, 2, 9, 6, 14, 3, 2, 0, 0),
        other_tokens=1,
        no_price=3,
        recommendations=(("proceed", 21), ("caution", 9), ("avoid", 10)),
        networks=(("eip155:8453", 35), ("eip155:137", 2)),
        sources=(("cdp", 38), ("community", 14)),
        offers=36,
        schemes=(("exact", 36), ("upto", 3)),
        offered_networks=(("eip155:8453", 35), ("eip155:137", 2)),
        extensions=(("bazaar", 24), ("payment-identifier", 5)),
        versions=(("2", 33), ("1", 3)),
    )


def facilitators() -> Any:
    """Return the facilitators of a chain, and the configured one."""
    first, second = (one.address for one in _facilitators(30, 9_120).top[:2])
    sample = FacilitatorSample(
        address=first,
        forms=("eip3009",),
        outcomes=(("facilitator", 2), ("payer", 1), ("settled", 212)),
        p50_delay_s=3,
        p95_delay_s=9,
    )
    unlisted = replace(sample, address="0x" + "04" * 20, outcomes=(("settled", 40),))
    record = FacilitatorRecord(
        host="facilitator.example",
        checked_at=AS_OF,
        answered=True,
        kinds=("v2 exact eip155:8453", "v2 upto eip155:8453"),
        signers=(first, second),
        days=((day_of(AS_OF) - 1, 288, 287), (day_of(AS_OF), 1, 1)),
        changes=(SupportedChange(at=AS_OF - DAY_MS, added=("v2 upto eip155:8453",), removed=()),),
    )
    chain = replace(_periods(), samples=(sample, unlisted))
    return as_json(
        facilitator_answers.facilitators(Facilitators(chains=(chain,), configured=record))
    )


def shares() -> Any:
    """Return the shares of a week."""
    counted = _statistics()
    named = (counted.schemes, counted.offered_networks, counted.extensions, counted.versions)
    rows = [Share(statistics.OFFERS, "", counted.offers)]
    for kind, counts in zip(statistics.SHARE_KINDS, named, strict=True):
        rows += [Share(kind, name, count) for name, count in counts]
    for one in _facilitators(7, 2_128).top:
        rows.append(Share(statistics.FACILITATOR, f"eip155:8453 {one.address}", one.settlements))
    week = WeekShares(week=week_of(AS_OF), counted_at=AS_OF, shares=tuple(rows))
    return as_json(statistics_answers.shares([week]))


def calibration() -> Any:
    """Return a calibration in which all forecasts are exact."""
    return as_json(_calibration_response())


def _calibration_response() -> CalibrationResponse:
    return calibration_answers.calibration(_calibration(), now=AS_OF)


@cache
def _calibration() -> Calibration:
    sums = Sums([(KEPT, 6_000, 0)])
    for permille in range(50, 1_000, 100):
        forecast = Forecast(
            payable_now=permille,
            payable_24h=permille,
            grade="B",
            recommendation="proceed",
            age_days=40,
            baselines=(1_000, 700, 600, 500),
        )
        for number in range(BIN_MIN):
            payable = 1_000 * number < permille * BIN_MIN
            for horizon in (NOW, DAY):
                sums.add_forecast(forecast, horizon, payable=payable)
            for horizon in (NEXT, DAY):
                sums.add_groups(forecast, horizon, payable=payable)
    last = day_of(AS_OF) - 2
    return Calibration(first_day=last - 27, last_day=last, sums={2: sums})


def as_json(model: ResponseModel) -> Any:
    """Return a response as decoded JSON."""
    return orjson.loads(dump(model))
