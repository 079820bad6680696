"""All that a score takes from a window, to compare two of them."""

from __future__ import annotations

from typing import Any

from tollgauge.core.latency import percentiles
from tollgauge.core.policy import POLICY
from tollgauge.core.rollup import counts
from tollgauge.core.window import Window, day_text, weighted_time


def shown(seen: Window, *, today: int) -> dict[str, Any]:
    """All that a score takes from a window."""
    weights = {today - back: weight for back, weight in enumerate(POLICY.day_weights)}
    closed = seen.closed.texts.text if seen.closed else b""
    return {
        "days": seen.days,
        "texts": b",".join(filter(None, (closed, seen.open_texts))),
        "totals": seen.totals,
        "percentiles": seen.latencies(range(1, 101)),
        "weighted": seen.weighted(weights),
        "recent": seen.recent,
        "last": seen.last,
        "envelope": seen.envelope,
        "state": seen.state,
    }


def by_the_rows(seen: Window, *, today: int) -> dict[str, Any]:
    """The same, from each day of a window by itself."""
    weights = {today - back: weight for back, weight in enumerate(POLICY.day_weights)}
    return shown(seen, today=today) | {
        "texts": b",".join(map(day_text, seen.days)),
        "totals": counts(seen.days),
        "percentiles": percentiles([sums.latency for sums in seen.days], range(1, 101)),
        "weighted": weighted_time(seen.days, weights),
    }
