"""Verdict: the uptime in a word, and a score in a few plain sentences.

The cut-offs are those of docs/methodology.md, *confidence and range*. The two ends are exact, so
one miss or one answer is enough to leave them; between them the word goes by the uptime as it is
published, so that a reader who has only the figure gets the same word.
"""

from __future__ import annotations

from typing import Final

from tollgauge.core.base.rounding import half_up
from tollgauge.core.base.units import DAY_MS, WINDOW_MS
from tollgauge.core.score.advice import PAYABLE
from tollgauge.core.score.score import Score

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
    tenths = half_up((up, scored), 1_000)
    for least, word in _CLASSES:
        if tenths >= least:
            return word
    return _LOWEST


def summary(score: Score) -> str:
    """A few plain sentences about an endpoint, for people and agents: its outage first if it is
    down, then the reason of the advice, advice and grade, and what was observed. The uptime gets
    its word only where the advice lets pay and the endpoint could be paid when it was last checked:
    praise of the past would contradict that.
    """
    if score.down is not None:
        return f"{score.down.text} {_without_outage(score)}"
    return _without_outage(score)


def _without_outage(score: Score) -> str:
    stats = score.stats
    advice = score.recommendation.capitalize()
    if stats.uptime_tenths is None or score.score_tenths is None:
        unmeasured = score.recommendation == "unverified" and stats.uptime_tenths is None
        reason = _unmeasured(score) if unmeasured else score.reason
        return f"{reason} {advice}.".lstrip()
    points = f"{score.score_tenths // 10}.{score.score_tenths % 10}"
    uptime = f"{stats.uptime_tenths // 10}.{stats.uptime_tenths % 10}% up"
    if score.recommendation in PAYABLE and score.is_payable:
        uptime = f"{str(stats.verdict).capitalize()}: {uptime}"
    speed = "" if stats.avg_latency_ms is None else f", {stats.avg_latency_ms:,} ms on average"
    checks = "check" if stats.scored == 1 else "checks"
    return (
        f"{score.reason} {advice}: grade {score.grade} ({points} of 100). "
        f"{uptime} over {stats.scored:,} {checks} {_span(stats.observed_days)}{speed}."
    ).lstrip()


def _unmeasured(score: Score) -> str:
    if score.stats.probes:
        return "None of its checks in the last 30 days could be scored."
    return UNPROBED if score.stats.last_probed is None else "Not probed in the last 30 days."


def _span(observed_days: int) -> str:
    """The time in which it was checked: no longer than it has been known."""
    if observed_days >= _WINDOW_DAYS:
        return f"in {_WINDOW_DAYS} days"
    if observed_days == 0:
        return "since it was first seen, less than a day ago"
    days = "day" if observed_days == 1 else f"{observed_days} days"
    return f"in the {days} since it was first seen"
