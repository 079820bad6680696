"""The spans of many days from all statements at once: what stored sums must be."""

from __future__ import annotations

from collections.abc import Sequence

from tollgauge.core.base.units import DAY_MS, day_of
from tollgauge.core.probe.spans import Spans, Statement, spans


def spans_by_day(statements: Sequence[Statement], *, until: int) -> dict[int, Spans]:
    """The spans of each UTC day that has a statement or a part of one, up to `until`."""
    by_day: dict[int, list[Statement]] = {}
    for item in sorted(statements):
        by_day.setdefault(day_of(item.at), []).append(item)
    result: dict[int, Spans] = {}
    for day, items in by_day.items():
        earlier = by_day.get(day - 1)
        before = earlier[-1] if earlier else None
        result[day] = spans(day, items, before=before, until=until)
        if day + 1 not in by_day and items[-1].at + items[-1].holds > (day + 1) * DAY_MS < until:
            result[day + 1] = spans(day + 1, (), before=items[-1], until=until)
    return result
