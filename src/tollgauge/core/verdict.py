"""Verdict: the uptime in a word, and a score in one plain sentence.

The cut-offs are those of docs/methodology.md, *confidence and range*. The two ends are literal, so
a single miss or a single answer leaves them; between them the word goes by the uptime as it is
published, so that a reader who has only the figure finds the same word.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Final

from tollgauge.core.rounding import half_up
from tollgauge.core.score import Score
from tollgauge.core.units import DAY_MS, WINDOW_MS

FLAWLESS: Final = "flawless"
FAILED: Final = "failed every check"
UNPROBED: Final = "Not probed yet: it waits for its first check."
_CLASSES: Final = ((995, "near-perfect"), (950, "occasional misses"), (800, "frequent outages"))
_LOWEST: Final = "unreliable"
_WINDOW_DAYS: Final = WINDOW_MS // DAY_MS


def verdict(up: int, scored: int) -> str | None:
    """The uptime in a word: flawless at 100 %, near-perfect from 99.5, occasional misses from 95,
    frequent outages from 80, unreliable above 0, failed every check at 0. A single miss is never
    flawless, a single answer never failed every check. None without a check.
    """
    if not scored:
        return None
    if up == scored:
        return FLAWLESS
    if not up:
        return FAILED
    tenths = half_up(Fraction(up, scored), 1_000)
    return next((word for least, word in _CLASSES if tenths >= least), _LOWEST)


def summary(score: Score) -> str:
    """One plain sentence about an endpoint, for people and agents."""
    stats = score.stats
    if not stats.probes:
        return UNPROBED if stats.last_probed is None else "Not probed in the last 30 days."
    if stats.uptime_tenths is None or score.score_tenths is None:
        return "Not verified: none of its checks in the last 30 days could be scored."
    checks = f"{stats.up:,} of {stats.scored:,} checks answered {_span(stats.observed_days)}"
    speed = "" if stats.avg_latency_ms is None else f", {stats.avg_latency_ms:,} ms on average"
    word = str(stats.verdict).capitalize()
    points = f"{score.score_tenths // 10}.{score.score_tenths % 10}"
    return f"{word}: {checks}{speed}; grade {score.grade} ({points} of 100), {_advice(score)}."


def _span(observed_days: int) -> str:
    """Since when checks can have been made: no more is claimed than was watched."""
    if observed_days >= _WINDOW_DAYS:
        return f"in {_WINDOW_DAYS} days"
    if observed_days == 0:
        return "since it was first seen, less than a day ago"
    days = "day" if observed_days == 1 else f"{observed_days} days"
    return f"in the {days} since it was first seen"


def _advice(score: Score) -> str:
    """The recommendation with its most serious reason."""
    errors = [flag.code for flag in score.flags if flag.severity == "error"]
    if score.recommendation in ("avoid", "not-payable") and errors:
        return f"{score.recommendation} because of {errors[0]}"
    return score.recommendation
