"""Improvement: what a seller could change to raise a score, and what the score would be then.

Rules (docs/how-to/sell.md):
- each improvement changes one thing of the evidence and is scored by the same scorer under the same
  policy; what does not raise the score, because a lower cap still holds, is left out;
- what a mended flag and a mended component look like is core/score/mended's;
- what time alone brings beside that is no part of a promise, so what comes is as good or better.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tollgauge.core.score.evidence import Evidence
from tollgauge.core.score.mended import mended_components, mended_flags
from tollgauge.core.score.policy import POLICY, Policy
from tollgauge.core.score.score import Score
from tollgauge.core.score.scoring import score

SHOWN: Final = 5
"""How many improvements are named at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Improvement:
    """One thing to change: the `code` of a flag or the name of a component, and the `fix` in words.
    It gains `points_tenths`, to `score_tenths` and `grade`, within `in_days` days: 0 with the next
    probe.
    """

    code: str
    points_tenths: int
    score_tenths: int
    grade: str
    fix: str
    in_days: int


def improvements(
    evidence: Evidence, policy: Policy = POLICY, *, now: Score | None = None
) -> tuple[Improvement, ...]:
    """What would raise the score of an evidence, the largest gain first; empty while nothing was
    measured. `now` is its score under the policy, where that is known.
    """
    now = now or score(evidence, policy)
    if now.score_tenths is None:
        return ()
    rows = []
    for mended in (*mended_flags(evidence, now, policy), *mended_components(evidence, now, policy)):
        then = score(mended.evidence, policy)
        if then.score_tenths is None or then.grade is None or then.score_tenths <= now.score_tenths:
            continue
        rows.append(
            Improvement(
                code=mended.code,
                points_tenths=then.score_tenths - now.score_tenths,
                score_tenths=then.score_tenths,
                grade=then.grade,
                fix=mended.fix,
                in_days=mended.in_days,
            )
        )
    return tuple(sorted(rows, key=lambda row: (-row.points_tenths, row.in_days, row.code))[:SHOWN])
