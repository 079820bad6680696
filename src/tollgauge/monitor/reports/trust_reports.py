"""Build trust reports, from a live probe or from the latest score, and read scores of many
endpoints.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sqlalchemy import Connection

from tollgauge.core.chain.shared_pay_to import SharedPayTo
from tollgauge.core.endpoint.buyers_reports import BuyersReports
from tollgauge.core.endpoint.identity import Endpoint
from tollgauge.core.probe.attribution import VantageState, partly_reachable
from tollgauge.core.probe.probe import ProbeResult
from tollgauge.core.probe.schedule import Cadence
from tollgauge.core.score.policy import POLICY
from tollgauge.core.score.score import Score, score_from_json
from tollgauge.monitor import ranking, scoring
from tollgauge.monitor.ranking import Role
from tollgauge.monitor.reports.snapshots import Pace, pace
from tollgauge.store.chain import shared_pay_tos
from tollgauge.store.endpoints import buyers_reports, endpoints
from tollgauge.store.probes import probes, vantages
from tollgauge.store.schedule import hosts
from tollgauge.store.schedule.hosts import HostState
from tollgauge.store.scores import scores
from tollgauge.store.scores.scores import ScoreRow


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustReport:
    """The content of a trust report.

    - `row` is the stored score with the canonical evidence text and its digest.
    - `probe` is the live probe or the last one known.
    - `pace` is set if the endpoint is probed less often than usual.
    - `vantages` contains the last result of each vantage, the primary one first.
    - `buyers_reports` is None without any, `shared_pay_to` unless other endpoints name its payTo.
    """

    endpoint: Endpoint
    score: Score
    row: ScoreRow
    probe: ProbeResult | None
    pace: Pace | None = None
    vantages: tuple[VantageState, ...] = ()
    buyers_reports: BuyersReports | None = None
    shared_pay_to: SharedPayTo | None = None

    @property
    def partly_reachable(self) -> bool:
        """Whether only some vantages reached the endpoint when the score was computed."""
        return partly_reachable(self.vantages, now=self.row.as_of)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """An endpoint and its latest score, or None. `row` is set for a score that was just computed
    and must be stored.
    """

    endpoint: Endpoint
    score: Score | None
    row: ScoreRow | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A sample report for the preview, with its rank (1 is the best)."""

    role: Role
    rank: int
    report: TrustReport


def live(
    tx: Connection, endpoint: Endpoint, probe: ProbeResult, *, cadence: Cadence, now: int
) -> TrustReport:
    """Score an endpoint that was just probed and return its report."""
    score, row = scoring.compute(tx, endpoint, as_of=now, cadence=cadence)
    return _report(tx, endpoint, score, row, probe, hosts.get(tx, endpoint.host))


def load_scored(tx: Connection, endpoint_ids: Iterable[str]) -> dict[str, Scored]:
    """Return endpoints with their latest scores by ID, whether public or not. Unknown IDs are left
    out.
    """
    known = endpoints.get_many(tx, endpoint_ids)
    latest = scores.results(tx, known)
    return {
        id_: Scored(endpoint=endpoint, score=latest.get(id_)) for id_, endpoint in known.items()
    }


def rescore(tx: Connection, endpoint: Endpoint, *, cadence: Cadence, now: int) -> Scored:
    """Score an endpoint from its stored evidence as of now.

    Raises:
        EvidenceError: The evidence cannot be read.
        ScoreError: The evidence cannot be scored.
    """
    score, row = scoring.compute(tx, endpoint, as_of=now, cadence=cadence)
    return Scored(endpoint=endpoint, score=score, row=row)


def read_shared(
    tx: Connection, endpoint: Endpoint, host: HostState, probe: ProbeResult
) -> TrustReport | None:
    """Return the report of a probe that was already scored.

    None if the endpoint's latest score was not computed from this probe.
    """
    row = scores.get(tx, endpoint.id)
    if row is None:
        return None
    newest_evidence = max(probe.at, endpoint.last_seen, endpoint.quote_at or 0)
    if row.policy_version != POLICY.version or row.as_of < newest_evidence:
        return None
    score = score_from_json(row.result)
    if score.stats.last_probed != probe.at:
        return None
    return _report(tx, endpoint, score, row, probe, host)


def preview(tx: Connection, *, now: int) -> tuple[Sample, ...]:
    """Return sample reports of the best, median and worst endpoint; fewer for a tiny population.
    The ranking is at most two minutes old.
    """
    samples = []
    for example in ranking.current(tx, now=now).examples:
        endpoint = endpoints.get(tx, example.endpoint_id)
        row = scores.get(tx, example.endpoint_id)
        if endpoint is not None and row is not None:
            report = _read_latest_report(tx, endpoint, row)
            samples.append(Sample(role=example.role, rank=example.rank, report=report))
    return tuple(samples)


def find_evidence(tx: Connection, digest: str, *, now: int) -> bytes | None:
    """Return the evidence document that a sold report or a preview sample cites by digest."""
    document = scores.get_evidence(tx, digest)
    if document is not None:
        return document
    for example in ranking.current(tx, now=now).examples:
        row = scores.get(tx, example.endpoint_id)
        if row is not None and row.digest == digest:
            return row.evidence
    return None


def _read_latest_report(tx: Connection, endpoint: Endpoint, row: ScoreRow) -> TrustReport:
    """Return the report of an endpoint's latest score."""
    at = endpoint.last_probed or 0
    last = probes.history(tx, endpoint.id, since=at - 1, until=at)
    probe = last[-1] if last else None
    score, host = score_from_json(row.result), hosts.get(tx, endpoint.host)
    return _report(tx, endpoint, score, row, probe, host)


def _report(
    tx: Connection,
    endpoint: Endpoint,
    score: Score,
    row: ScoreRow,
    probe: ProbeResult | None,
    host: HostState,
) -> TrustReport:
    return TrustReport(
        endpoint=endpoint,
        score=score,
        row=row,
        probe=probe,
        pace=pace(host, row),
        vantages=vantages.states(tx, (endpoint.id,)).get(endpoint.id, ()),
        buyers_reports=buyers_reports.counts(tx, (endpoint.id,)).get(endpoint.id),
        shared_pay_to=shared_pay_tos.get(tx, endpoint.id, endpoint.quote),
    )
