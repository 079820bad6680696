"""Read snapshots of an endpoint and of a host's endpoints, and the probe interval of an
endpoint.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import orjson
from msgspec.structs import asdict, replace
from sqlalchemy import Connection

from tollgauge.core.base.units import HOUR_MS, MINUTE_MS
from tollgauge.core.endpoint.buyers_reports import BuyersReports
from tollgauge.core.endpoint.terms import FormReading
from tollgauge.core.lists.rated_endpoint import RatedEndpoint
from tollgauge.core.probe.attribution import VantageState, partly_reachable
from tollgauge.core.score.advice import UNPROBED, summary
from tollgauge.core.score.evidence_document import from_stored
from tollgauge.core.score.improvement import Improvement, improvements
from tollgauge.core.score.policy import POLICY
from tollgauge.core.score.score import Score, score_from_json
from tollgauge.store.endpoints import buyers_reports, rated_endpoints
from tollgauge.store.endpoints import seller_file_states as seller_files
from tollgauge.store.endpoints.seller_file_states import StoredSellerFile
from tollgauge.store.probes import change_rows, vantages
from tollgauge.store.probes.change_rows import Incident
from tollgauge.store.schedule.hosts import HostState
from tollgauge.store.scores import scores
from tollgauge.store.scores.scores import ScoreRow

PROVIDER_ROWS: Final = 100  # page size
PROVIDER_CHANGES: Final = 30


class Snapshot(RatedEndpoint, frozen=True, kw_only=True):
    """The free, cached view of one endpoint: its figures, and further results of its latest score.

    The defaults are those of an endpoint without a score. `reason` explains the recommendation.
    `is_payable` is the state at the last check. `partly_reachable`: some vantages reach it now and
    others do not; None if only one watches. `buyers_reports` is None without any. Only
    `read_detailed` reads `improvements` and `seller_file`, the seller's own statement.
    """

    reason: str = ""
    is_payable: bool | None = None
    p50_latency_ms: int | None = None
    p95_latency_ms: int | None = None
    probes: int = 0
    scored: int = 0
    excluded: tuple[tuple[str, int], ...] = ()
    price_changes: int = 0
    payto_changes: int = 0
    coverage: Mapping[str, Mapping[str, FormReading]] = {}
    computed_at: int
    verdict: str = ""
    summary: str = UNPROBED
    better_alternatives: int | None = None
    policy_version: int = POLICY.version
    partly_reachable: bool | None = None
    buyers_reports: BuyersReports | None = None
    improvements: tuple[Improvement, ...] = ()
    seller_file: StoredSellerFile | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """A page of one host's endpoints, best first. `after` is the ID of the last endpoint of the
    previous page, None on the first page; `next_after` that of the last of this page, None on the
    last page. `reasons` explain recommendations other than proceed, by ID. `changes` are the newest
    ones of the host, on the first page. `seller_file` is the seller's own statement.
    """

    host: str
    rows: tuple[RatedEndpoint, ...]
    after: str | None = None
    next_after: str | None = None
    reasons: Mapping[str, str] = field(default_factory=dict)
    changes: tuple[Incident, ...] = ()
    seller_file: StoredSellerFile | None = None


def snapshot(tx: Connection, endpoint_id: str, *, now: int) -> Snapshot | None:
    """Read the cached view of one endpoint; None if it is unknown or not public."""
    endpoint = rated_endpoints.get_public(tx, endpoint_id)
    if endpoint is None:
        return None
    states = vantages.states(tx, (endpoint_id,)).get(endpoint_id, ())
    return read_snapshot(tx, endpoint, scores.result(tx, endpoint_id), states, now=now)


def read_detailed(tx: Connection, endpoint_id: str, *, now: int) -> Snapshot | None:
    """Read a snapshot with improvements and the seller's statement."""
    endpoint = rated_endpoints.get_public(tx, endpoint_id)
    if endpoint is None:
        return None
    row = scores.get(tx, endpoint_id)
    score = None if row is None else score_from_json(row.result)
    states = vantages.states(tx, (endpoint_id,)).get(endpoint_id, ())
    return replace(
        read_snapshot(tx, endpoint, score, states, now=now),
        improvements=find_improvements(row, score),
        seller_file=seller_files.get(tx, endpoint.host),
    )


def read_snapshot(
    tx: Connection,
    endpoint: RatedEndpoint,
    score: Score | None,
    states: Sequence[VantageState],
    *,
    now: int,
) -> Snapshot:
    """Build the snapshot of an endpoint with its latest score, adding its count of better
    alternatives and the comparison of its vantages (`states`).
    """
    better = rated_endpoints.count_better(tx, (endpoint.id,)).get(endpoint.id)
    return replace(
        build_snapshot(endpoint, score, now=now),
        better_alternatives=better,
        partly_reachable=partly_reachable(states, now=now) if states else None,
        buyers_reports=buyers_reports.counts(tx, (endpoint.id,)).get(endpoint.id),
    )


def build_snapshot(endpoint: RatedEndpoint, score: Score | None, *, now: int) -> Snapshot:
    """Build the snapshot of an endpoint with its latest score, or without one."""
    known = asdict(endpoint)
    if score is None:
        return Snapshot(**known, computed_at=now)
    stats = score.stats
    return Snapshot(
        **known,
        reason=score.reason,
        is_payable=score.is_payable,
        p50_latency_ms=stats.p50_latency_ms,
        p95_latency_ms=stats.p95_latency_ms,
        probes=stats.probes,
        scored=stats.scored,
        excluded=stats.excluded,
        price_changes=stats.price_changes,
        payto_changes=stats.payto_changes,
        coverage=score.coverage,
        computed_at=score.as_of,
        verdict=stats.verdict or "",
        summary=summary(score),
        policy_version=score.policy_version,
    )


def find_improvements(row: ScoreRow | None, score: Score | None) -> tuple[Improvement, ...]:
    """Return the changes that would raise a score, computed from the evidence in its row. This
    takes as long as computing the score several times.
    """
    return () if row is None else improvements(from_stored(row.evidence), now=score)


def provider(tx: Connection, host: str, after: str | None = None) -> Provider | None:
    """Read a page of one host's public endpoints; None if there is none."""
    listed = rated_endpoints.of_host(tx, host, after=after, limit=PROVIDER_ROWS + 1)
    if not listed:
        return None
    rows = listed[:PROVIDER_ROWS]
    doubtful = [row.id for row in rows if row.recommendation != "proceed"]
    return Provider(
        host=host,
        rows=rows,
        after=after,
        next_after=rows[-1].id if len(listed) > PROVIDER_ROWS else None,
        reasons={id_: score.reason for id_, score in scores.results(tx, doubtful).items()},
        changes=() if after else change_rows.public(tx, host=host, limit=PROVIDER_CHANGES),
        seller_file=seller_files.get(tx, host),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """The probe interval of an endpoint that shares its host's or site's budget with others."""

    every_ms: int
    sharing: int

    @property
    def reason(self) -> str:
        """The interval and its reason in a sentence."""
        hours = self.every_ms >= HOUR_MS
        number = round(self.every_ms / (HOUR_MS if hours else MINUTE_MS))
        every = f"{number} {'h' if hours else 'min'}"
        return f"Probed every {every}: {self.sharing:,} endpoints share its host's probe budget."


def pace(host: HostState, row: ScoreRow | None) -> Pace | None:
    """Return the pace in a score's evidence; None without a score and at the normal interval."""
    if not host.sharing or row is None:
        return None
    return Pace(every_ms=orjson.loads(row.evidence)["interval"], sharing=host.sharing)
