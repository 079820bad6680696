"""`GET /incidents`: what changed at all endpoints, with the evidence of each change.

What is shown of a change is what its alert says (core/watch/notice): the texts of endpoints are
cleaned and cut there, and none of them becomes a link.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from typing import Any, Final
from urllib.parse import urlencode

from tollgauge.core.base.text import clean_text
from tollgauge.core.base.units import DAY_MS, day_of, iso_seconds
from tollgauge.core.watch import changes, notice
from tollgauge.core.watch.watch_rules import CHANGES_MS
from tollgauge.monitor.reports.overview import Incidents
from tollgauge.store.probes.change_rows import Incident
from tollgauge.web.pages import labels
from tollgauge.web.pages.render import render

DAYS: Final = 7
"""How many days the page shows unless it is asked for others."""
RULES_MAX: Final = 3
"""How many of the broken rules of one change are spelled out."""
_TEXT_MAX: Final = 200
_KINDS: Final = tuple((kind, notice.TITLES[kind]) for kind in changes.EVENTS)
_SPANS: Final = ((1, "Today"), (DAYS, "7 days"), (30, "30 days"), (CHANGES_MS // DAY_MS, "90 days"))


def incidents_html(incidents: Incidents, *, base_url: str) -> bytes:
    """A page of incidents, a heading for each UTC day."""
    kind, days = incidents.kind, incidents.days
    by_day = groupby(incidents.rows, key=lambda incident: day_of(incident.change.at))
    more = incidents.next_after and _query(kind, days, after=incidents.next_after)
    return render(
        "incidents.html",
        base_url,
        incidents=incidents,
        simulated=any(incident.simulated for incident in incidents.rows),
        days=[(day, list(map(_shown, rows))) for day, rows in by_day],
        kinds=[
            (label, _query(name, days), name == kind) for name, label in ((None, "All"), *_KINDS)
        ],
        spans=[(label, _query(kind, number), number == days) for number, label in _SPANS],
        title=None if kind is None else notice.TITLES[kind],
        feed_query=_query(kind, DAYS),
        more=more,
    )


def _query(kind: str | None, days: int, **more: int) -> str:
    """The query of a page; what is usual is left out."""
    parts: dict[str, object] = {"type": kind} if kind else {}
    if days != DAYS:
        parts["days"] = days
    query = urlencode(parts | more)
    return f"?{query}" if query else ""


def _shown(incident: Incident) -> dict[str, object]:
    """What the page shows of one incident."""
    change = incident.change
    return {
        "endpoint_id": incident.endpoint_id,
        "resource": incident.resource,
        "at": change.at,
        "title": notice.TITLES.get(change.type, change.type),
        "severity": change.severity.value,
        "reason": clean_text(change.reason, notice.VALUE_MAX),
        "differences": notice.differences(change.before, change.after),
        "evidence": _evidence(change.evidence),
        "rules": _rules(change.evidence),
    }


def _evidence(evidence: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What was seen, as (label, text)."""
    known = {name: value for name, value in evidence.items() if value is not None}
    shown = []
    for name, label, write in (
        ("probeAt", "Probed", iso_seconds),
        ("outcome", "Outcome", labels.outcome),
        ("status", "HTTP status", str),
        ("latencyMs", "Latency", labels.milliseconds),
        ("misses", "Failed checks in a row", str),
        ("hits", "Answered checks in a row", str),
        ("source", "Seen by", str),
    ):
        if name in known:
            shown.append((label, clean_text(write(known[name]), _TEXT_MAX)))
    return shown


def _rules(evidence: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The first of the rules that are broken, as (rule, message)."""
    return [
        (rule["rule"], clean_text(rule["message"], _TEXT_MAX))
        for rule in evidence.get("rules", ())[:RULES_MAX]
    ]
