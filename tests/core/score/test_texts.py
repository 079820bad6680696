"""Texts agree with the figures next to them."""

from __future__ import annotations

import re

from hypothesis import given, settings
from tests.support.evidences import EVIDENCE
from tests.support.examples import examples

from tollgauge.core.score.advice import PAYABLE, summary
from tollgauge.core.score.evidence import Evidence
from tollgauge.core.score.improvement import improvements
from tollgauge.core.score.scoring import score

CONTRADICTIONS = [
    (r"(?i)unreliable|frequent outages|failed every check", r"Proceed: grade"),
    (r"(?i)flawless|near-perfect", r"Avoid: grade"),
    (r"independent buyers|organic|customers", r"grade [CDF]"),
    (r"not expected to be within", r"Proceed: grade"),
    (r"100\.0% up", r"was never up"),
]
"""Pairs of texts that never appear in one summary."""


@settings(max_examples=examples(200), deadline=None)
@given(EVIDENCE)
def test_no_summary_contradicts_itself(evidence: Evidence) -> None:
    text = summary(score(evidence))
    for one, other in CONTRADICTIONS:
        assert not (re.search(one, text) and re.search(other, text)), text


@settings(max_examples=examples(200), deadline=None)
@given(EVIDENCE)
def test_endpoint_that_is_up_and_not_payable_is_explained(evidence: Evidence) -> None:
    result = score(evidence)
    if result.recommendation not in PAYABLE and "not expected to be" in result.reason:
        state = evidence.state
        assert state is not None
        assert not state.up or result.reason.count(".") > 1


@settings(max_examples=examples(100), deadline=None)
@given(EVIDENCE)
def test_improvement_of_demand_names_no_amount(evidence: Evidence) -> None:
    for row in improvements(evidence):
        assert row.code != "activity" or "$" not in row.fix
