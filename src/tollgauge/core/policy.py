"""The scoring policies: frozen, versioned tables that anyone can read.

A published policy never changes: another number is another policy, below the last one, with its
place in POLICIES. Each score names the version of its policy, and docs/methodology.md is generated
from the current one. What the numbers are applied to is core/signals' work, how they add up is
core/scoring's.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from tollgauge.core.units import DAY_MS

Table = tuple[tuple[int, int], ...]
"""Points (x, subscore) of a piecewise-linear function, x ascending."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One component: its weight in points, what it measures, and what its absence means."""

    name: str
    weight: int
    measures: str
    absent: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Cap:
    """A flag that limits the score: `limit` in points."""

    code: str
    limit: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Every number that a score depends on.

    `grades` are (letter, least score), best first; below the last one is `F`. `slots_full` is
    the number of half hours that make confidence 1. `z` and `autocorrelation` shape the score
    range: the Wilson bounds take one of `autocorrelation` probes as independent.
    """

    version: int
    rows: tuple[Row, ...]
    grades: tuple[tuple[str, int], ...]
    caps: tuple[Cap, ...]
    latency: Table
    payers: Table
    volume: Table
    age_days: int
    price_step: int
    price_max: int
    payto_step: int
    slots_full: int
    low_confidence: Fraction
    z: Fraction
    autocorrelation: int
    down_probes: int
    payto_recent_ms: int
    decoy_usd: int
    client_cap_usd: int
    tls_expiring_ms: int
    new_ms: int
    concentrated_payers: int
    concentrated_transfers: int

    def grade(self, tenths: int) -> str:
        """The letter of a score in tenths of a point, as it is published."""
        return next((letter for letter, least in self.grades if tenths >= least * 10), "F")

    @property
    def weights(self) -> dict[str, int]:
        """Weight in points by component name."""
        return {row.name: row.weight for row in self.rows}


def interpolate(table: Table, x: Fraction | int) -> Fraction:
    """A piecewise-linear table at `x`: exact between its points, flat outside."""
    left_x, left_y = table[0]
    if x <= left_x:
        return Fraction(left_y)
    for right_x, right_y in table[1:]:
        if x <= right_x:
            return left_y + Fraction((x - left_x) * (right_y - left_y)) / (right_x - left_x)
        left_x, left_y = right_x, right_y
    return Fraction(left_y)


POLICY_1: Final = Policy(
    version=1,
    rows=(
        Row(
            name="uptime",
            weight=35,
            measures="up / scored probes of the last 30 days, linear",
            absent="no scored probe: no score, `unverified`",
        ),
        Row(
            name="compliance",
            weight=20,
            measures="mean over scored probes: 100 - min(20, 4 x warnings) without errors; 50 when "
            "a stock client could still pay; 0 when it could not",
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
            measures="time since first seen, linear to 100 at 30 days",
            absent="always known",
        ),
        Row(
            name="activity",
            weight=15,
            measures="min(P, (P + V) / 2): P from effective payers, V from organic settled USD, "
            "both read from the tables below; volume without independent payers buys nothing",
            absent="no settlement known: 0",
        ),
        Row(
            name="stability",
            weight=15,
            measures="100 - 20 for each advertised price change (at most 60) - 50 for each payTo "
            "change, not below 0",
            absent="no change known: 100",
        ),
    ),
    grades=(("A", 81), ("B", 65), ("C", 50), ("D", 35)),
    caps=(
        Cap(
            code="payto-changed-recently",
            limit=64,
            reason="The payTo address changed in the last 7 days.",
        ),
        Cap(code="decoy-price", limit=49, reason="The advertised price is $1,000 or more."),
        Cap(code="not-payable", limit=49, reason="The endpoint names no way to pay."),
        Cap(code="wildcard-402", limit=49, reason="Any path of the host asks for a payment."),
        Cap(code="down-now", limit=49, reason="No probe of the last 3 hours was answered."),
    ),
    latency=((200, 100), (500, 85), (1_000, 60), (2_000, 30), (5_000, 0)),
    payers=((0, 0), (1, 5), (3, 30), (10, 60), (30, 80), (100, 100)),
    volume=((0, 0), (1, 20), (10, 40), (100, 60), (1_000, 80), (10_000, 100)),
    age_days=30,
    price_step=20,
    price_max=60,
    payto_step=50,
    slots_full=1_440,
    low_confidence=Fraction(1, 5),
    z=Fraction(196, 100),
    autocorrelation=3,
    down_probes=6,
    payto_recent_ms=7 * DAY_MS,
    decoy_usd=1_000,
    client_cap_usd=1,
    tls_expiring_ms=14 * DAY_MS,
    new_ms=DAY_MS,
    concentrated_payers=2,
    concentrated_transfers=10,
)

POLICIES: Final[dict[int, Policy]] = {POLICY_1.version: POLICY_1}
"""Every policy that a stored score may name, by version."""
CURRENT: Final = POLICY_1
"""The policy of new scores."""
