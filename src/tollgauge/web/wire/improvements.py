"""Improvements as JSON: what would raise a score, and what it would be then."""

from __future__ import annotations

from collections.abc import Iterable

from tollgauge.core.score.improvement import Improvement
from tollgauge.web.wire.figures import tenths
from tollgauge.web.wire.response_model import Grade, Percent, ResponseModel


class ImprovementResponse(ResponseModel):
    """One thing that the seller could change: the slug of a flag, or the name of a component. It
    gains `points`, to `score` and `grade`, within `inDays` days: 0 with the next probe. Nothing
    else of the evidence is changed.
    """

    code: str
    points: Percent
    score: Percent
    grade: Grade
    fix: str
    in_days: int


def improvement_responses(rows: Iterable[Improvement]) -> list[ImprovementResponse]:
    """Improvements as JSON, in their order."""
    return [
        ImprovementResponse(
            code=row.code,
            points=tenths(row.points_tenths),
            score=tenths(row.score_tenths),
            grade=row.grade,
            fix=row.fix,
            in_days=row.in_days,
        )
        for row in rows
    ]
