"""The scoring policy: one frozen, versioned table that anyone can read.

Each score names the version of its policy, and docs/methodology.md is generated from it. Another
number is another version; earlier policies are in the history of the repository. The functions of
core/score/facts and the flags apply the numbers, core/score/scoring adds them up.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from tollgauge.core.base.rounding import Ratio
from tollgauge.core.base.units import DAY_MS, HOUR_MS

Table = tuple[tuple[int, int], ...]
"""Points (x, subscore) of a piecewise-linear function, x ascending."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One component: its weight in points, what it measures, and what its absence means. The
    function of the same name in core/score/facts measures it.
    """

    name: str
    weight: int
    measures: str
    absent: str


@dataclass(frozen=True, kw_only=True)
class Cap:
    """What limits the score to `limit_tenths` (tenths of a point), most often the flag `code`."""

    code: str
    limit_tenths: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastCap:
    """A forecast that limits the score: `cap` applies if the chance of being payable is below
    `now` in half an hour and below `day` in 24 hours, both in thousandths; 1,000 if that one does
    not matter.
    """

    now: int
    day: int
    cap: Cap


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Every number that a score depends on.

    `grades` are (letter, lowest score), best first; below the last one is `F`. Scored probes that
    cover `hours_full` hours make confidence 1; with fewer than `hours_min` the advice is caution.
    `z` and `autocorrelation` shape the score range: the Wilson bounds take one of `autocorrelation`
    probes as independent, and a day without changes as `observations_a_day` observations. `age` is
    in days. `day_weights[k]` is the weight of the day k days ago. Without a scored probe for
    `stale_ms` and `stale_intervals` times its interval an endpoint is stale. The limit of a new
    path is at least `new_path_tenths` while its chance of being payable in 24 hours is at least
    `new_path_permille`.
    """

    version: int
    rows: tuple[Row, ...]
    grades: tuple[tuple[str, int], ...]
    caps: tuple[Cap, ...]
    latency: Table
    age: Table
    payers: Table
    price_increase: int
    price_change: int
    price_max: int
    payto_step: int
    hours_full: int
    low_confidence: Fraction
    z: Fraction
    autocorrelation: int
    payto_recent_ms: int
    decoy_usd: int
    client_cap_usd: int
    tls_expiring_ms: int
    new_ms: int
    forecast_caps: tuple[ForecastCap, ...]
    day_weights: tuple[int, ...]
    observations_a_day: int
    hours_min: int
    payto_caution_ms: int
    price_jump_ms: int
    stale_ms: int
    stale_intervals: int
    refusing_ms: int
    new_path_tenths: int
    new_path_permille: int

    def grade(self, tenths: int) -> str:
        """The letter of a score in tenths of a point, as it is published."""
        for letter, least in self.grades:
            if tenths >= least * 10:
                return letter
        return "F"

    @property
    def weights(self) -> dict[str, int]:
        """Weight in points by component name."""
        return {row.name: row.weight for row in self.rows}


def interpolate(table: Table, x: Ratio) -> Ratio:
    """A piecewise-linear table at `x`: exact between its points, flat outside."""
    part, whole = x
    place = bisect_left(table, (-(-part // whole),))  # of the first point that is not below x
    if place == 0:
        return table[0][1], 1
    left_x, left_y = table[place - 1]
    if place == len(table):
        return left_y, 1
    right_x, right_y = table[place]
    width = (right_x - left_x) * whole
    return left_y * width + (part - left_x * whole) * (right_y - left_y), width


def weighted_sum(policy: Policy, subscores: Mapping[str, Ratio]) -> Ratio:
    """The sum of the subscores times their weights."""
    part, whole = 0, 1
    for row in policy.rows:
        points, of = subscores[row.name]
        if of == whole:
            part += row.weight * points
        elif of == 1:
            part += row.weight * points * whole
        else:
            part = part * of + row.weight * points * whole
            whole *= of
    return part, whole


POLICY: Final = Policy(
    version=3,
    rows=(
        Row(
            name="uptime",
            weight=35,
            measures="time up / time that scored probes cover, of the last 31 days; the day k days "
            "ago has weight 1000 x 2^(-k/7)",
            absent="no scored probe: no score, `unverified`",
        ),
        Row(
            name="compliance",
            weight=20,
            measures="the probes' compliance (100 - min(20, 4 x warnings) without errors; 50 when "
            "a stock client could still pay; 0 when it could not), weighted by their time and the "
            "age of the day",
            absent="no scored probe: no score, `unverified`",
        ),
        Row(
            name="latency",
            weight=5,
            measures="the median of up probes, read from the table below",
            absent="never up: 0",
        ),
        Row(
            name="age",
            weight=10,
            measures="time since first seen, read from the table below",
            absent="always known",
        ),
        Row(
            name="activity",
            weight=15,
            measures="P, read from the table below, of the payers who also spend at anchors, each "
            "with a weight of at most 1 over all sellers; the smallest P that is left without any "
            "one anchor",
            absent="no settlement known, or anchors of fewer than two owners: 0",
        ),
        Row(
            name="stability",
            weight=15,
            measures="100 - 20 for each price increase - 10 for every other counted price change "
            "(together at most 60) - 50 for each unannounced payTo change, not below 0",
            absent="no change known: 100",
        ),
    ),
    grades=(("A", 81), ("B", 65), ("C", 50), ("D", 35)),
    caps=(
        Cap(
            code="payto-changed-recently",
            limit_tenths=490,
            reason="The payTo address changed in the last 7 days.",
        ),
        Cap(code="decoy-price", limit_tenths=490, reason="The advertised price is $1,000 or more."),
        Cap(code="not-payable", limit_tenths=490, reason="The endpoint names no way to pay."),
        Cap(
            code="never-compliant",
            limit_tenths=490,
            reason="It never answered with a 402 that a stock client could pay.",
        ),
        Cap(
            code="wildcard-402", limit_tenths=490, reason="Any path of the host asks for a payment."
        ),
        Cap(
            code="signed-offer-mismatch",
            limit_tenths=490,
            reason="A signed offer has a wrong signature, signer or terms.",
        ),
        Cap(
            code="paid-not-delivered",
            limit_tenths=490,
            reason="A purchase was settled and not delivered.",
        ),
        Cap(
            code="down-now",
            limit_tenths=649,
            reason="It could not be paid at its last check.",
        ),
        Cap(
            code="price-jumped",
            limit_tenths=649,
            reason="The price is more than twice the usual price.",
        ),
    ),
    forecast_caps=(
        ForecastCap(
            now=200,
            day=200,
            cap=Cap(
                code="dead",
                limit_tenths=349,
                reason="It is not payable, and is not expected to be within a day.",
            ),
        ),
        ForecastCap(
            now=400,
            day=1_000,
            cap=Cap(
                code="not-payable-soon",
                limit_tenths=490,
                reason="It is not payable, and is not expected to be within half an hour.",
            ),
        ),
        ForecastCap(
            now=1_000,
            day=850,
            cap=Cap(
                code="doubtful-tomorrow",
                limit_tenths=649,
                reason="The chance that it is payable in 24 hours is below 85 %.",
            ),
        ),
        ForecastCap(
            now=1_000,
            day=950,
            cap=Cap(
                code="unsure-tomorrow",
                limit_tenths=809,
                reason="The chance that it is payable in 24 hours is below 95 %.",
            ),
        ),
    ),
    latency=((200, 100), (500, 85), (1_000, 60), (2_000, 30), (5_000, 0)),
    payers=((0, 0), (1, 5), (3, 30), (10, 60), (30, 80), (100, 100)),
    age=((0, 0), (1, 20), (3, 35), (7, 55), (14, 75), (30, 100)),
    price_increase=20,
    price_change=10,
    price_max=60,
    payto_step=50,
    hours_full=720,
    low_confidence=Fraction(1, 5),
    z=Fraction(196, 100),
    autocorrelation=3,
    payto_recent_ms=7 * DAY_MS,
    decoy_usd=1_000,
    client_cap_usd=1,
    tls_expiring_ms=14 * DAY_MS,
    new_ms=DAY_MS,
    day_weights=(
        *(1_000, 906, 820, 743, 673, 610, 552, 500, 453, 410, 371, 336, 305, 276, 250, 226),
        *(205, 186, 168, 152, 138, 125, 113, 103, 93, 84, 76, 69, 63, 57, 51),
    ),
    observations_a_day=2,
    hours_min=12,
    payto_caution_ms=30 * DAY_MS,
    price_jump_ms=7 * DAY_MS,
    stale_ms=3 * HOUR_MS,
    stale_intervals=6,
    refusing_ms=6 * HOUR_MS,
    new_path_tenths=649,
    new_path_permille=950,
)
"""The policy of all scores."""
