"""Improvements: what would raise a saved score, from the evidence that it names."""

from __future__ import annotations

from tollgauge.core.evidence import from_stored
from tollgauge.core.improvement import Improvement, improvements
from tollgauge.core.policy import POLICIES
from tollgauge.core.score import Score
from tollgauge.store.endpoints.scores import ScoreRow


def improvements_of(row: ScoreRow | None, score: Score | None) -> tuple[Improvement, ...]:
    """What would raise a score, of which the row is at hand too; empty without one. It takes as
    long as scoring it several times.
    """
    policy = None if row is None else POLICIES.get(row.policy_version)
    if row is None or policy is None:
        return ()
    return improvements(from_stored(row.evidence), policy, now=score)
