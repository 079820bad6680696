"""Improvements: what would raise a saved score, from the evidence that it names."""

from __future__ import annotations

from tollgauge.core.score.evidence import from_stored
from tollgauge.core.score.improvement import Improvement, improvements
from tollgauge.core.score.score import Score
from tollgauge.store.scores.scores import ScoreRow


def improvements_of(row: ScoreRow | None, score: Score | None) -> tuple[Improvement, ...]:
    """What would raise a score, of which the row is at hand too; empty without one. It takes as
    long as scoring it several times.
    """
    return () if row is None else improvements(from_stored(row.evidence), now=score)
