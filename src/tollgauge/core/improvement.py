"""Improvement: what a seller could change to raise a score, and what the score would be then.

Rules (docs/selling.md):
- each improvement changes one thing of the evidence and is scored by the same scorer under the same
  policy; what does not raise the score, because a lower cap still holds, is left out;
- what a mended flag and a mended component look like is core/mended's;
- what time alone brings beside that is no part of a promise, so what comes is as good or better.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from tollgauge.core.evidence import Evidence
from tollgauge.core.latency import merge
from tollgauge.core.latest_probes import NOTHING
from tollgauge.core.mended import mended_components, mended_flags
from tollgauge.core.policy import POLICY, Policy
from tollgauge.core.score import Score
from tollgauge.core.scoring import score
from tollgauge.core.units import day_of
from tollgauge.core.window import DAYS, Window

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
    evidence = _with_latencies_together(evidence)
    window = _window(evidence)
    now = now or score(evidence, policy, window=window)
    if now.score_tenths is None:
        return ()
    rows = []
    for mended in (*mended_flags(evidence, now, policy), *mended_components(evidence, now, policy)):
        seen = mended.evidence
        # Most of a score's time goes into the sums of its days, which few improvements change.
        same_days = seen.days is evidence.days
        then = score(seen, policy, window=window if same_days else _window(seen))
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


def _with_latencies_together(evidence: Evidence) -> Evidence:
    """The evidence with the latencies of its window on one day, so that they are added up once: a
    score looks at their sum alone.
    """
    days = _window(evidence).open_days
    if not days:
        return evidence
    latest = replace(
        days[-1],
        latency=merge([row.latency for row in days]),
        latency_sum=sum(row.latency_sum for row in days),
    )
    before = tuple(replace(row, latency=(), latency_sum=0) for row in days[:-1])
    in_window = {row.day for row in days}
    outside = tuple(row for row in evidence.days if row.day not in in_window)
    return replace(evidence, days=(*outside, *before, latest))


def _window(evidence: Evidence) -> Window:
    """The days of an evidence that a score looks at, to be added up once."""
    today = day_of(evidence.as_of)
    days = tuple(row for row in evidence.days if today - DAYS < row.day <= today)
    return Window(open_days=days, recent=evidence.recent, latest=NOTHING)
