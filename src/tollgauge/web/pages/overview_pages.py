"""Pages about several endpoints: `/incidents`, `/provider` and `/statistics`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final
from urllib.parse import urlencode

from tollgauge.core.base.text import clean_text
from tollgauge.core.base.units import DAY_MS, day_of, dollars, iso_seconds
from tollgauge.core.lists.rated_endpoint import RatedEndpoint
from tollgauge.core.watch import alert_text, changes
from tollgauge.core.watch.watch_rules import CHANGES_MS
from tollgauge.monitor.reports.endpoint import Uptimes
from tollgauge.monitor.reports.overview import Ecosystem, Incidents
from tollgauge.monitor.reports.snapshots import Provider
from tollgauge.monitor.statistics import HistogramBin, Statistics
from tollgauge.store.endpoints.ranking import WeekShares
from tollgauge.store.probes.change_rows import Incident
from tollgauge.web.pages import labels
from tollgauge.web.pages.render import render

DAYS: Final = 7
"""Default number of days on the page."""
RULES_MAX: Final = 3
"""Number of violated rules listed per change."""
SHOWN_WEEKS: Final = 4
_TEXT_MAX: Final = 200
_Row = tuple[str, str, int]
"""A row of a distribution: label, note, number of endpoints."""
_KINDS: Final = tuple((kind, alert_text.TITLES[kind]) for kind in changes.EVENTS)
_SPANS: Final = ((1, "Today"), (DAYS, "7 days"), (30, "30 days"), (CHANGES_MS // DAY_MS, "90 days"))


def incidents_html(incidents: Incidents, *, base_url: str) -> bytes:
    """Render one page of incidents, grouped by UTC day."""
    kind, days = incidents.kind, incidents.days
    by_day = groupby(_incident_groups(incidents.rows), key=lambda group: day_of(group.newest["at"]))
    more = incidents.next_after and _query(kind, days, after=incidents.next_after)
    return render(
        "incidents.html",
        base_url,
        incidents=incidents,
        rows=incidents.rows,
        days=[(day, list(groups)) for day, groups in by_day],
        kinds=[
            (label, _query(name, days), name == kind) for name, label in ((None, "All"), *_KINDS)
        ],
        spans=[(label, _query(kind, number), number == days) for number, label in _SPANS],
        title=None if kind is None else alert_text.TITLES[kind],
        feed_query=_query(kind, DAYS),
        more=more,
    )


def provider_html(provider: Provider, uptimes: Uptimes, *, base_url: str) -> bytes:
    """Render one page of a host's endpoints, best first."""
    pay_tos: dict[tuple[str, str], list[RatedEndpoint]] = {}
    for row in provider.rows:
        if row.pay_to and row.network:
            pay_tos.setdefault((row.network, row.pay_to), []).append(row)
    return render(
        "provider.html",
        base_url,
        provider=provider,
        rows=provider.rows,
        uptimes=uptimes,
        pay_tos=pay_tos.items(),
        changes=_incident_groups(provider.changes),
    )


@dataclass(frozen=True, slots=True)
class ChangeGroup:
    """Changes of the same subject: the newest one, the `earlier` ones, and the days they span."""

    newest: Any
    earlier: list[Any]
    days: int


def group_changes(changes: Iterable[tuple[int, object, Any]]) -> list[ChangeGroup]:
    """Group (time, subject, change) by subject, newest first."""
    groups: dict[object, list[tuple[int, Any]]] = {}
    for at, subject, change in sorted(changes, key=lambda change: change[0], reverse=True):
        groups.setdefault(subject, []).append((at, change))
    return [
        ChangeGroup(
            newest=group[0][1],
            earlier=[change for _, change in group[1:]],
            days=1 + (group[0][0] - group[-1][0]) // DAY_MS,
        )
        for group in groups.values()
    ]


def _incident_groups(incidents: Iterable[Incident]) -> list[ChangeGroup]:
    return group_changes(
        (one.change.at, (one.endpoint_id, one.change.type), _incident_row(one)) for one in incidents
    )


def _query(kind: str | None, days: int, **more: int) -> str:
    """Build the query of a page; default values are omitted."""
    parts: dict[str, object] = {"type": kind} if kind else {}
    if days != DAYS:
        parts["days"] = days
    query = urlencode(parts | more)
    return f"?{query}" if query else ""


def _incident_row(incident: Incident) -> dict[str, object]:
    change = incident.change
    return {
        "endpoint_id": incident.endpoint_id,
        "resource": incident.resource,
        "at": change.at,
        "title": alert_text.TITLES.get(change.type, change.type),
        "severity": change.severity.value,
        "reason": clean_text(change.reason, alert_text.VALUE_MAX),
        "differences": alert_text.list_differences(change.before, change.after),
        "evidence": _evidence(change.evidence),
        "rules": _rules(change.evidence),
    }


def _evidence(evidence: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the evidence of a change as (label, text)."""
    known = {name: value for name, value in evidence.items() if value is not None}
    shown = []
    for name, label, write in (
        ("probeAt", "Probed", iso_seconds),
        ("outcome", "Outcome", labels.outcome),
        ("status", "HTTP status", str),
        ("latencyMs", "Latency", labels.milliseconds),
        ("misses", "Failed checks in a row", str),
        ("hits", "Successful checks in a row", str),
        ("source", "Source", str),
    ):
        if name in known:
            shown.append((label, clean_text(write(known[name]), _TEXT_MAX)))
    return shown


def _rules(evidence: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the first violated rules as (rule, message)."""
    return [
        (rule["rule"], clean_text(rule["message"], _TEXT_MAX))
        for rule in evidence.get("rules", ())[:RULES_MAX]
    ]


def statistics_html(
    statistics: Statistics, stats: Ecosystem, weeks: Sequence[WeekShares], *, base_url: str
) -> bytes:
    """Render all distributions and the shares of the newest `weeks` (newest first), or a hint if
    there are no endpoints.
    """
    return render(
        "statistics.html",
        base_url,
        statistics=statistics,
        stats=stats,
        simulated=stats.simulated,
        tables=_tables(statistics) if statistics.endpoints else (),
        weeks=weeks,
        shares=labels.weekly_shares(weeks),
    )


def _tables(counted: Statistics) -> list[tuple[str, str, str, list[_Row], int | None]]:
    """Return the tables: key on the page, title, head, rows, and the total of their shares (None:
    the sum of the rows).
    """
    offers, uptimes = counted.offers, counted.uptimes
    latencies = _bin_rows(counted.latencies, labels.milliseconds)
    latencies.append(("never up in 30 days", "", counted.no_latency))
    prices = _bin_rows(counted.prices, dollars)
    prices.append(("not in dollars", "another token", counted.other_tokens))
    prices.append(("not advertised", "", counted.no_price))
    shares = _bin_rows(uptimes[1:-1], lambda tenths: f"{tenths / 10:g}%")
    shares = [("0%", "", uptimes[0].count), *shares, ("100%", "", uptimes[-1].count)]
    scores = _bin_rows(counted.scores, lambda tenths: str(tenths // 10))
    advice = _name_rows(counted.recommendations)
    networks = _name_rows(counted.networks, labels.network_name)
    offered = _name_rows(counted.offered_networks, labels.network_name)
    schemes, extensions = _name_rows(counted.schemes), _name_rows(counted.extensions)
    versions = _name_rows(counted.versions)
    return [
        ("scores", "Scores", "Score", scores, None),
        ("recommendations", "Recommendations", "Recommendation", advice, None),
        ("uptime", "Uptime in 30 days", "Uptime", shares, None),
        ("latency", "Average latency in 30 days", "Latency", latencies, None),
        ("prices", "Price per call", "Price", prices, None),
        ("networks", "Payment networks", "Network", networks, None),
        ("schemes", "Payment schemes", "Scheme", schemes, offers),
        ("offered-networks", "Networks in offers", "Network", offered, offers),
        ("extensions", "Extensions of x402", "Extension", extensions, offers),
        ("versions", "Versions of x402", "Version", versions, offers),
    ]


def _name_rows(
    counts: Iterable[tuple[str, int]], note: Callable[[str], str] = lambda _name: ""
) -> list[_Row]:
    return [(name or "others", note(name), number) for name, number in counts]


def _bin_rows(bins: Iterable[HistogramBin], write: Callable[[int], str]) -> list[_Row]:
    return [(_range(row, write), "", row.count) for row in bins]


def _range(row: HistogramBin, write: Callable[[int], str]) -> str:
    if row.below is None:
        return f"{write(row.least)} or more"
    if not row.least:
        return f"under {write(row.below)}"
    return f"{write(row.least)} to {write(row.below)}"
