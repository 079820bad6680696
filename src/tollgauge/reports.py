"""The read side: the one place where API, MCP, pages and the command line get their numbers.

Every figure here is an integer in the unit its name says (tenths of a point, hundredths,
thousandths of a percent of 1, milliseconds UTC); turning it into JSON is web/wire's work and into
HTML web/pages'.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import orjson
from sqlalchemy.ext.asyncio import AsyncConnection

from tollgauge.core.endpoint import Endpoint
from tollgauge.core.evidence import Evidence, digest, from_stored, to_json
from tollgauge.core.latency import percentile
from tollgauge.core.policy import POLICIES
from tollgauge.core.probe import ProbeResult
from tollgauge.core.rollup import Rollup
from tollgauge.core.score import Score, score_from_json
from tollgauge.core.scoring import score as score_of
from tollgauge.core.units import ASSETS, DAY_MS, WINDOW_MS, day_of, usd_text
from tollgauge.core.verdict import summary
from tollgauge.store import discovery, endpoints, probes, scores, similar, volumes
from tollgauge.store import evidence as evidence_rows
from tollgauge.store.scores import ScoreRow

LEADERBOARD_SIZE: Final = 25
PAGE_DAYS: Final = 30
PROVIDER_ROWS: Final = 200


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
    """Counts over all known endpoints; shares are in thousandths of those probed.

    Settlements of the last 30 days on every indexed chain, None while none is: `volume_micro_usd`
    is all that authorizations brought to known payTo addresses, `organic_micro_usd` that without
    self-payments and round trips; `receivers` of it, and `payers`. `indexed_permille` is the
    share of these addresses' last 30 days that is indexed.
    """

    as_of: int
    listed: int
    delisted: int
    monitored: int
    reachable_permille: int | None
    compliant_permille: int | None
    grades: tuple[tuple[str, int], ...]
    simulated: bool = False
    volume_micro_usd: int | None = None
    organic_micro_usd: int | None = None
    receivers: int | None = None
    payers: int | None = None
    indexed_permille: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """One host and its endpoints, best first."""

    host: str
    rows: tuple[Snapshot, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustReport:
    """Everything a trust report says. `document` is the evidence as its canonical JSON value,
    `digest` the SHA-256 of its canonical text; `probe` the live probe, or the last one known.
    """

    score: Score
    evidence: Evidence
    document: dict[str, Any]
    digest: str
    probe: ProbeResult | None
    quote_at: int | None
    service_name: str
    description: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A sample report of the preview, with its rank in the scored population (1 is the best)."""

    role: Literal["best", "median", "worst"]
    rank: int
    report: TrustReport


async def leaderboard(tx: AsyncConnection, *, now: int) -> Leaderboard:
    """The best listed endpoints, best first."""
    rows = await scores.top(tx, limit=LEADERBOARD_SIZE)
    return Leaderboard(as_of=now, policy_version=max(POLICIES), rows=await _snapshots(tx, rows))


async def snapshot(tx: AsyncConnection, endpoint_id: str, *, now: int) -> Snapshot | None:
    """The cached view of one endpoint, None when nobody knows it."""
    found = await endpoints.get(tx, endpoint_id)
    if found is None:
        return None
    row = await scores.get(tx, endpoint_id)
    better = (await similar.counts(tx, (endpoint_id,))).get(endpoint_id)
    return snapshot_of(found, row, now=now, better_alternatives=better)


async def provider(tx: AsyncConnection, host: str, *, now: int) -> Provider | None:
    """One host's endpoints, best first; None when nobody knows the host."""
    found = await endpoints.of_host(tx, host, limit=PROVIDER_ROWS)
    if not found:
        return None
    known = await scores.get_many(tx, [endpoint.id for endpoint in found])
    rows = [snapshot_of(endpoint, known.get(endpoint.id), now=now) for endpoint in found]
    rows.sort(key=lambda row: (-(row.score_tenths if row.score_tenths is not None else -1), row.id))
    return Provider(host=host, rows=tuple(rows))


async def view(tx: AsyncConnection, endpoint_id: str, *, now: int) -> EndpointView | None:
    """Everything the endpoint's page shows; None when nobody knows it."""
    found = await endpoints.get(tx, endpoint_id)
    if found is None:
        return None
    row = await scores.get(tx, endpoint_id)
    score = None if row is None else score_from_json(row.result)
    today = day_of(now)
    sums = await probes.days(tx, endpoint_id, first_day=today - PAGE_DAYS + 1, last_day=today)
    events = await discovery.events(tx, endpoint_id, since=now - 3 * WINDOW_MS, until=now)
    better = (await similar.counts(tx, (endpoint_id,))).get(endpoint_id)
    return EndpointView(
        snapshot=snapshot_of(found, row, now=now, better_alternatives=better),
        components=()
        if score is None
        else tuple(
            Component(name=part.name, weight=part.weight, tenths=part.tenths)
            for part in score.components
        ),
        flags=() if score is None else _flags(score),
        caps=() if score is None else tuple((c.code, c.limit, c.reason) for c in score.caps),
        low_tenths=None if score is None else score.low_tenths,
        high_tenths=None if score is None else score.high_tenths,
        days=_bars(sums, today=today),
        events=tuple(_timeline(event) for event in events),
    )


async def ecosystem(tx: AsyncConnection, *, now: int) -> Ecosystem:
    """Counts over everything that is known."""
    known = await endpoints.counts(tx)
    population = await scores.population(tx)
    return Ecosystem(
        as_of=now,
        listed=known.get("listed", 0),
        delisted=known.get("delisted", 0),
        monitored=population.scored,
        reachable_permille=_share(population.reachable, population.scored),
        compliant_permille=_share(population.compliant, population.scored),
        grades=population.grades,
        simulated=bool(known.get("simulated", 0)),
        **_settlements(await volumes.published(tx)),
    )


def _settlements(found: Sequence[volumes.ChainVolume]) -> dict[str, int]:
    """The settlements of all indexed chains together; nothing while none is indexed."""
    if not found:
        return {}
    wallets = sum(each.wallets for each in found)
    indexed = sum(each.indexed_permille * each.wallets for each in found)
    return {
        "volume_micro_usd": sum(each.raw for each in found),
        "organic_micro_usd": sum(each.organic for each in found),
        "receivers": sum(each.receivers for each in found),
        "payers": sum(each.payers for each in found),
        "indexed_permille": indexed // wallets if wallets else 0,
    }


async def preview(tx: AsyncConnection) -> tuple[Sample, ...]:
    """Sample reports of the best, the median and the worst endpoint by score; fewer while the
    scored population is smaller.
    """
    size = (await scores.population(tx)).scored
    wanted: dict[int, Literal["best", "median", "worst"]] = {}
    for rank, role in ((1, "best"), ((size + 1) // 2, "median"), (size, "worst")):
        if 1 <= rank <= size:
            wanted.setdefault(rank, role)  # type: ignore[arg-type]
    samples = []
    for rank, role in wanted.items():
        row = await scores.at_rank(tx, rank=rank)
        found = None if row is None else await endpoints.get(tx, row.endpoint_id)
        if row is not None and found is not None:
            samples.append(Sample(role=role, rank=rank, report=await _cached(tx, found, row)))
    return tuple(samples)


async def history(
    tx: AsyncConnection, endpoint_id: str, *, since: int, until: int
) -> AsyncIterator[tuple[ProbeResult, ...]]:
    """The probes with `since < at <= until`, oldest first, one batch a UTC day: each stored day is
    read once, and no more than one is held.
    """
    while since < until:
        edge = min((day_of(since + 1) + 1) * DAY_MS - 1, until)
        yield await probes.history(tx, endpoint_id, since=since, until=edge)
        since = edge


async def live(
    tx: AsyncConnection, endpoint: Endpoint, probe: ProbeResult, *, now: int
) -> TrustReport:
    """The report of an endpoint that was probed just now, scored from its evidence as of now."""
    current = await endpoints.get(tx, endpoint.id) or endpoint
    seen = await evidence_rows.gather(tx, current, as_of=now)
    return _report(current, seen, score_of(seen), probe)


async def _cached(tx: AsyncConnection, endpoint: Endpoint, row: ScoreRow) -> TrustReport:
    """The report of an endpoint as it was scored last."""
    seen = from_stored(row.evidence)
    last = await probes.history(
        tx, endpoint.id, since=(endpoint.last_probed or 0) - 1, until=endpoint.last_probed or 0
    )
    return _report(endpoint, seen, score_from_json(row.result), last[-1] if last else None)


def _report(
    endpoint: Endpoint, seen: Evidence, score: Score, probe: ProbeResult | None
) -> TrustReport:
    return TrustReport(
        score=score,
        evidence=seen,
        document=orjson.loads(to_json(seen)),
        digest=digest(seen),
        probe=probe,
        quote_at=endpoint.quote_at,
        service_name=endpoint.service_name,
        description=endpoint.description,
    )


async def _snapshots(tx: AsyncConnection, rows: Sequence[ScoreRow]) -> tuple[Snapshot, ...]:
    known = await endpoints.get_many(tx, [row.endpoint_id for row in rows])
    return tuple(
        snapshot_of(known[row.endpoint_id], row, now=row.as_of)
        for row in rows
        if row.endpoint_id in known
    )


def snapshot_of(
    endpoint: Endpoint, row: ScoreRow | None, *, now: int, better_alternatives: int | None = None
) -> Snapshot:
    """The snapshot of an endpoint and its latest score, None while it has none. The count of
    better alternatives is None until it was counted.
    """
    blank = Snapshot(
        id=endpoint.id,
        resource=endpoint.resource,
        host=endpoint.host,
        recommendation="unverified",
        grade=None,
        score_tenths=None,
        confidence_hundredths=0,
        uptime_tenths=None,
        latency_ms=None,
        p50_latency_ms=None,
        p95_latency_ms=None,
        probes=0,
        scored=0,
        excluded=(),
        price_micro_usd=endpoint.quote.micro_usd if endpoint.quote else None,
        price_changes=0,
        payto_changes=0,
        network=endpoint.quote.network if endpoint.quote else None,
        pay_to=endpoint.quote.pay_to if endpoint.quote else None,
        first_seen=endpoint.first_seen,
        last_probed=endpoint.last_probed,
        status=endpoint.status.value,
        computed_at=now,
        verdict="",
        summary="Not probed yet: it is listed and waits for its first check.",
        sources=endpoint.sources,
        advertised_name=endpoint.service_name,
        advertised_description=endpoint.description,
        better_alternatives=better_alternatives,
        policy_version=max(POLICIES),
        simulated=endpoint.simulated,
    )
    if row is None:
        return blank
    score = score_from_json(row.result)
    stats = score.stats
    return replace(
        blank,
        recommendation=score.recommendation,
        grade=score.grade,
        score_tenths=score.score_tenths,
        confidence_hundredths=score.confidence_hundredths,
        uptime_tenths=stats.uptime_tenths,
        latency_ms=stats.avg_latency_ms,
        p50_latency_ms=stats.p50_latency_ms,
        p95_latency_ms=stats.p95_latency_ms,
        probes=stats.probes,
        scored=stats.scored,
        excluded=stats.excluded,
        price_changes=stats.price_changes,
        payto_changes=stats.payto_changes,
        computed_at=row.as_of,
        verdict=stats.verdict or "",
        summary=summary(score),
        policy_version=score.policy_version,
    )


def _flags(score: Score) -> tuple[Flag, ...]:
    return tuple(
        Flag(code=each.code, severity=each.severity.value, message=each.message, since=each.since)
        for each in score.flags
    )


def _bars(sums: Sequence[Rollup], *, today: int) -> tuple[DayBar, ...]:
    """One bar a UTC day for the last 30 days, with zeros where nothing was measured."""
    known = {day.day: day for day in sums}
    return tuple(
        _bar(known.get(day) or Rollup(day=day)) for day in range(today - PAGE_DAYS + 1, today + 1)
    )


def _bar(day: Rollup) -> DayBar:
    return DayBar(
        day=day.day,
        scored=day.scored,
        up=day.up,
        excluded=day.probes - day.scored,
        p50_ms=percentile(day.latency, 50),
        p95_ms=percentile(day.latency, 95),
    )


def _timeline(event: discovery.DiscoveryEvent) -> TimelineEvent:
    show = _dollars if event.event == "price-changed" else str
    return TimelineEvent(
        at=event.at,
        kind=event.event,
        source=event.source,
        before=show(event.before or ""),
        after=show(event.after or ""),
    )


def _dollars(text: str) -> str:
    """An atomic amount of a price event as dollars. The text names its asset only when that
    changed; a bare amount is in the six decimals of native USDC, an unknown token stays as it is.
    """
    amount, _, asset = text.partition(" ")
    known = not asset or any(each.address == asset for each in ASSETS.values())
    return f"${usd_text(int(amount))}" if known and amount.isdigit() else text


def _share(part: int, whole: int) -> int | None:
    return None if not whole else (part * 2000 + whole) // (2 * whole)
