"""The invariants of the score on evidence of any kind, and those of its tables and bounds. Those of
histories of probes are in test_scoring_by_time.py.
"""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.evidences import EVIDENCE
from tests.support.examples import examples

from tollgauge.core.base.rounding import bounds, root
from tollgauge.core.score.evidence import Evidence
from tollgauge.core.score.evidence_document import from_json, to_json
from tollgauge.core.score.policy import POLICY, Table, interpolate
from tollgauge.core.score.score import score_from_json, score_to_json
from tollgauge.core.score.scoring import score

LIMITS = settings(max_examples=examples(120), deadline=None)
NUMBERS = st.randoms(use_true_random=False)


@LIMITS
@given(EVIDENCE)
def test_range_holds_the_score(evidence: Evidence) -> None:
    result = score(evidence)
    if result.score_tenths is not None:
        assert result.low_tenths is not None
        assert result.high_tenths is not None
        assert 0 <= result.low_tenths <= result.score_tenths <= result.high_tenths <= 1_000


@LIMITS
@given(EVIDENCE, NUMBERS)
def test_order_of_evidence_is_irrelevant(evidence: Evidence, dice: random.Random) -> None:
    mixed = replace(
        evidence,
        days=tuple(dice.sample(evidence.days, len(evidence.days))),
        changes=tuple(dice.sample(evidence.changes, len(evidence.changes))),
    )
    assert score(mixed) == score(evidence)


@LIMITS
@given(EVIDENCE)
def test_score_survives_its_json_form(evidence: Evidence) -> None:
    result = score(evidence)
    assert score_from_json(score_to_json(result)) == result


@LIMITS
@given(EVIDENCE)
def test_score_survives_the_json_form_of_its_evidence(evidence: Evidence) -> None:
    assert score(from_json(to_json(evidence))) == score(evidence)


def ends_of(share: Fraction, n: int) -> tuple[Fraction, Fraction]:
    """The Wilson bounds of a share of a number of probes."""
    low, high = bounds(share.as_integer_ratio(), (n, 3), z=POLICY.z)
    return Fraction(*low), Fraction(*high)


@given(st.fractions(0, 1), st.integers(1, 20_000))
def test_wilson_bounds_hold_the_share(share: Fraction, n: int) -> None:
    low, high = ends_of(share, n)
    assert 0 <= low <= share <= high <= 1


@given(st.fractions(0, 1), st.integers(1, 20_000))
def test_wilson_bounds_solve_their_equation(share: Fraction, n: int) -> None:
    """|p - x| = z * sqrt(x(1 - x) / n_eff) at both bounds, within the cut of the root."""
    for bound in ends_of(share, n):
        left = (share - bound) ** 2
        right = POLICY.z**2 * bound * (1 - bound) * 3 / n
        assert abs(left - right) < Fraction(1, 10**4)


@given(st.fractions(0, 4))
def test_root_is_cut_to_a_millionth(x: Fraction) -> None:
    cut = Fraction(root(x.numerator, x.denominator), 10**6)
    assert cut**2 <= x < (cut + Fraction(1, 10**6)) ** 2


def read(table: Table, x: Fraction) -> Fraction:
    return Fraction(*interpolate(table, x.as_integer_ratio()))


@given(st.fractions(-5, 20_000))
def test_tables_are_flat_outside_and_ascend_or_descend(x: Fraction) -> None:
    for table in (POLICY.latency, POLICY.payers, POLICY.age):
        values = [y for _, y in table]
        assert min(values) <= read(table, x) <= max(values)
        rising = values[0] < values[-1]
        step = read(table, x + 1) - read(table, x)
        assert step >= 0 if rising else step <= 0


def test_tables_hold_their_own_points() -> None:
    for table in (POLICY.latency, POLICY.payers, POLICY.age):
        assert [read(table, Fraction(x)) for x, _ in table] == [y for _, y in table]
