"""The read side: the one place where API, MCP, pages and the command line get their numbers.

Every figure here is an integer in the unit its name says (tenths of a point, hundredths,
thousandths of a percent of 1, milliseconds UTC); turning it into JSON is web/wire's work and into
HTML web/pages'.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """A machine-readable issue of an endpoint; `since` in milliseconds UTC where it is known."""

    code: str
    severity: str
    message: str
    since: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The free, cached view of one endpoint (service.md, endpoint observation snapshot).

    `score_tenths` and `grade` are None while nothing was measured. `uptime_tenths` is tenths of a
    percent. `latency_ms` is the exact mean, rounded half up; None when every probe failed.
    `price_micro_usd` is None when no price in a known dollar is advertised. Texts under
    `advertised_` are the provider's own and untrusted.
    """

    id: str
    resource: str
    host: str
    recommendation: str
    grade: str | None
    score_tenths: int | None
    confidence_hundredths: int
    uptime_tenths: int | None
    latency_ms: int | None
    p50_latency_ms: int | None
    p95_latency_ms: int | None
    probes: int
    scored: int
    excluded: tuple[tuple[str, int], ...]
    price_micro_usd: int | None
    price_changes: int
    payto_changes: int
    network: str | None
    pay_to: str | None
    first_seen: int
    last_probed: int | None
    status: str
    computed_at: int
    verdict: str
    summary: str
    sources: tuple[str, ...]
    advertised_name: str
    advertised_description: str
    better_alternatives: int | None
    policy_version: int
    simulated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Component:
    """One row of the breakdown: its name, weight in points and subscore in tenths (0..1000)."""

    name: str
    weight: int
    tenths: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DayBar:
    """One UTC day of an endpoint: scored and up probes, latency percentiles of the up ones."""

    day: int
    scored: int
    up: int
    excluded: int
    p50_ms: int | None
    p95_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineEvent:
    """A discovery event: `kind` is listed, delisted, relisted, price-changed, payto-changed or
    network-changed; amounts are already dollars as text where the asset is known.
    """

    at: int
    kind: str
    source: str
    before: str
    after: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointView:
    """Everything the endpoint's page shows. `days` are the last 30 UTC days, oldest first, one
    entry a day with zeros where nothing was measured. `low_tenths` to `high_tenths` is the score
    range. `caps` are (code, limit in points, reason).
    """

    snapshot: Snapshot
    components: tuple[Component, ...]
    flags: tuple[Flag, ...]
    caps: tuple[tuple[str, int, str], ...]
    low_tenths: int | None
    high_tenths: int | None
    days: tuple[DayBar, ...]
    events: tuple[TimelineEvent, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaderboard:
    """The best listed endpoints, best first (at most 25)."""

    as_of: int
    policy_version: int
    rows: tuple[Snapshot, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ecosystem:
    """Counts over all known endpoints; shares are in thousandths of those probed."""

    as_of: int
    listed: int
    delisted: int
    monitored: int
    reachable_permille: int | None
    compliant_permille: int | None
    grades: tuple[tuple[str, int], ...]
    simulated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """One host and its endpoints, best first."""

    host: str
    rows: tuple[Snapshot, ...]
