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
    """One component. The function of the same name in core/score/facts measures it.

    Attributes:
        weight: In points.
        measures: The measured quantity, in words.
        absent: The effect of missing evidence, in words.
    """

    name: str
    weight: int
    measures: str
    absent: str


@dataclass(frozen=True)
class Cap:
    """A limit of the score, in tenths of a point. `code` is that of its flag, if it has one."""

    code: str
    limit_tenths: int
    reason: str


@dataclass(frozen=True, slots=True)
class ForecastCap:
    """A cap that applies if the chance of being payable in half an hour is below `now` and the one
    in 24 hours is below `day`, in thousandths (1,000: any chance).
    """

    now: int
    day: int
    cap: Cap


_NOT_SOON: Final = "It is not payable, and is not expected to be within half an hour."
_TOMORROW: Final = "The chance that it is payable in 24 hours"


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Every number that a score depends on. The defaults are the policy of all scores."""

    version: int = 3
    rows: tuple[Row, ...] = (
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
            measures="the points for P, read from the table below; P is the sum of the weights of "
            "payers who also spend at anchors, without the anchor that adds most; the weights of a "
            "payer are at most 1 over all sellers",
            absent="no settlement known, or anchors of fewer than two owners: 0",
        ),
        Row(
            name="stability",
            weight=15,
            measures="100 - 20 for each price increase - 10 for every other counted price change "
            "(together at most 60) - 50 for each unannounced payTo change, not below 0",
            absent="no change known: 100",
        ),
    )
    grades: tuple[tuple[str, int], ...] = (("A", 81), ("B", 65), ("C", 50), ("D", 35))
    """(letter, lowest score), best first; a lower score is `F`."""
    caps: tuple[Cap, ...] = (
        Cap("payto-changed-recently", 490, "The payTo address changed in the last 7 days."),
        Cap("decoy-price", 490, "The advertised price is $1,000 or more."),
        Cap("not-payable", 490, "The endpoint names no way to pay."),
        Cap("never-compliant", 490, "It never answered with a 402 that a stock client could pay."),
        Cap("wildcard-402", 490, "Any path of the host asks for a payment."),
        Cap("signed-offer-mismatch", 490, "A signed offer has a wrong signature, signer or terms."),
        Cap("paid-not-delivered", 490, "A purchase was settled and not delivered."),
        Cap("down-now", 649, "It could not be paid at its last check."),
        Cap("price-jumped", 649, "The price is more than twice the usual price."),
    )
    latency: Table = ((200, 100), (500, 85), (1_000, 60), (2_000, 30), (5_000, 0))
    """Subscore by median latency in milliseconds."""
    age: Table = ((0, 0), (1, 20), (3, 35), (7, 55), (14, 75), (30, 100))
    """Subscore by days since first seen."""
    payers: Table = ((0, 0), (1, 5), (3, 30), (10, 60), (30, 80), (100, 100))
    """Subscore by the weight of proven payers."""
    price_increase: int = 20
    price_change: int = 10
    price_max: int = 60
    payto_step: int = 50
    hours_full: int = 720
    """Hours of coverage for confidence 1."""
    low_confidence: Fraction = Fraction(1, 5)
    z: Fraction = Fraction(196, 100)
    """Width of the score range, in standard deviations of the Wilson bounds."""
    autocorrelation: int = 3
    """For the score range, one of this number of probes is independent."""
    payto_recent_ms: int = 7 * DAY_MS
    decoy_usd: int = 1_000
    client_cap_usd: int = 1
    tls_expiring_ms: int = 14 * DAY_MS
    new_ms: int = DAY_MS
    forecast_caps: tuple[ForecastCap, ...] = (
        ForecastCap(
            now=200,
            day=200,
            cap=Cap("dead", 349, "It is not payable, and is not expected to be within a day."),
        ),
        ForecastCap(
            now=400,
            day=1_000,
            cap=Cap("not-payable-soon", 490, _NOT_SOON),
        ),
        ForecastCap(
            now=1_000,
            day=850,
            cap=Cap("doubtful-tomorrow", 649, f"{_TOMORROW} is below 85%."),
        ),
        ForecastCap(
            now=1_000,
            day=950,
            cap=Cap("unsure-tomorrow", 809, f"{_TOMORROW} is below 95%."),
        ),
    )
    day_weights: tuple[int, ...] = (
        *(1_000, 906, 820, 743, 673, 610, 552, 500, 453, 410, 371, 336, 305, 276, 250, 226),
        *(205, 186, 168, 152, 138, 125, 113, 103, 93, 84, 76, 69, 63, 57, 51),
    )
    """Weight of the day k days ago, by k."""
    observations_a_day: int = 2
    """Independent observations in a day without changes."""
    hours_min: int = 12
    """With less coverage the advice is caution."""
    payto_caution_ms: int = 30 * DAY_MS
    price_jump_ms: int = 7 * DAY_MS
    stale_ms: int = 3 * HOUR_MS
    stale_intervals: int = 6
    """An endpoint is stale without a scored probe for `stale_ms` and this number of intervals."""
    refusing_ms: int = 6 * HOUR_MS
    new_path_tenths: int = 649
    new_path_permille: int = 950
    """A new path is limited to at least `new_path_tenths` while its chance of being payable in 24
    hours is at least this."""

    def grade(self, tenths: int) -> str:
        """Return the letter of a score in tenths of a point, as it is published."""
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
        part, whole = part * of + row.weight * points * whole, whole * of
    return part, whole


POLICY: Final = Policy()
"""The policy of all scores."""
