"""Trust reports: of a live probe, and of an endpoint as it was scored last; and the scores of many
endpoints.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sqlalchemy import Connection

from tollgauge.core.endpoint.identity import Endpoint
from tollgauge.core.probe.probe import ProbeResult
from tollgauge.core.probe.schedule import Cadence
from tollgauge.core.probe.vantage import VantageState, partly_reachable
from tollgauge.core.score.policy import POLICY
from tollgauge.core.score.score import Score, score_from_json
from tollgauge.monitor import ranking, scoring
from tollgauge.monitor.ranking import Role
from tollgauge.monitor.reports.snapshots import Pace, pace
from tollgauge.store.endpoints import endpoints
from tollgauge.store.probes import probes, vantages
from tollgauge.store.probes.latest import LatestProbe
from tollgauge.store.schedule import hosts
from tollgauge.store.scores import scores
from tollgauge.store.scores.scores import ScoreRow


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustReport:
    """Everything a trust report says. `row` is the score as it is stored, with the canonical text
    of the evidence and its digest; `probe` the live probe, or the last one known; `pace` how often
    it is probed, None for as usual; `vantages` what each of several vantages saw last, the primary
    one first; `named_at` when a sold report named the evidence last (ms UTC), None if that is not
    known.
    """

    endpoint: Endpoint
    score: Score
    row: ScoreRow
    probe: ProbeResult | None
    pace: Pace | None = None
    vantages: tuple[VantageState, ...] = ()
    named_at: int | None = None

    @property
    def partly_reachable(self) -> bool:
        """Whether some vantages reached the endpoint when this was computed, and others did not."""
        return partly_reachable(self.vantages, now=self.row.as_of)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """An endpoint and its latest score, None while it has none. `row` is a score that was computed
    just now, as it is to be stored; None for one that was stored before.
    """

    endpoint: Endpoint
    score: Score | None
    row: ScoreRow | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A sample report of the preview, with its rank in the scored population (1 is the best)."""

    role: Role
    rank: int
    report: TrustReport


def live(
    tx: Connection, endpoint: Endpoint, probe: ProbeResult, *, cadence: Cadence, now: int
) -> TrustReport:
    """The report of an endpoint that was probed just now, scored from its evidence as of now."""
    score, row = scoring.compute(tx, endpoint, as_of=now, cadence=cadence)
    return _report(tx, endpoint, score, row, probe)


def scored_last(tx: Connection, endpoint_ids: Iterable[str]) -> dict[str, Scored]:
    """Endpoints with their latest scores, by id, public or not; unknown ids are left out."""
    known = endpoints.get_many(tx, endpoint_ids)
    latest = scores.results(tx, known)
    return {
        id_: Scored(endpoint=endpoint, score=latest.get(id_)) for id_, endpoint in known.items()
    }


def scored_again(tx: Connection, endpoint: Endpoint, *, cadence: Cadence, now: int) -> Scored:
    """An endpoint scored from its stored evidence as of now. Raises EvidenceError and ScoreError
    for evidence that cannot be scored.
    """
    score, row = scoring.compute(tx, endpoint, as_of=now, cadence=cadence)
    return Scored(endpoint=endpoint, score=score, row=row)


def shared(tx: Connection, latest: LatestProbe, probe: ProbeResult) -> TrustReport | None:
    """The report of a probe that was scored already; None while the latest score of its endpoint
    was not computed from it, and for an unknown endpoint.
    """
    endpoint, row = latest.endpoint, latest.score
    if endpoint is None or row is None:
        return None
    newest_evidence = max(probe.at, endpoint.last_seen, endpoint.quote_at or 0)
    if row.policy_version != POLICY.version or row.as_of < newest_evidence:
        return None
    score = score_from_json(row.result)
    if score.stats.last_probed != probe.at:
        return None
    return TrustReport(
        endpoint=endpoint,
        score=score,
        row=row,
        probe=probe,
        pace=pace(latest.host, row),
        vantages=_vantages(tx, endpoint) if latest.seen_by_vantages else (),
        named_at=latest.named_at,
    )


def preview(tx: Connection, *, now: int) -> tuple[Sample, ...]:
    """Sample reports of the best, the median and the worst endpoint by score, as they were ranked
    at most two minutes ago; fewer while the scored population is smaller.
    """
    samples = []
    for example in ranking.current(tx, now=now).examples:
        endpoint = endpoints.get(tx, example.endpoint_id)
        row = scores.get(tx, example.endpoint_id)
        if endpoint is not None and row is not None:
            report = _cached(tx, endpoint, row)
            samples.append(Sample(role=example.role, rank=example.rank, report=report))
    return tuple(samples)


def evidence_of(tx: Connection, digest: str, *, now: int) -> bytes | None:
    """The evidence document of a digest that a sold report names, or a sample of the preview."""
    document = scores.get_evidence(tx, digest)
    if document is not None:
        return document
    for example in ranking.current(tx, now=now).examples:
        row = scores.get(tx, example.endpoint_id)
        if row is not None and row.digest == digest:
            return row.evidence
    return None


def _cached(tx: Connection, endpoint: Endpoint, row: ScoreRow) -> TrustReport:
    """The report of an endpoint as it was scored last."""
    at = endpoint.last_probed or 0
    last = probes.history(tx, endpoint.id, since=at - 1, until=at)
    return _report(tx, endpoint, score_from_json(row.result), row, last[-1] if last else None)


def _report(
    tx: Connection, endpoint: Endpoint, score: Score, row: ScoreRow, probe: ProbeResult | None
) -> TrustReport:
    return TrustReport(
        endpoint=endpoint,
        score=score,
        row=row,
        probe=probe,
        pace=pace(hosts.get(tx, endpoint.host), row),
        vantages=_vantages(tx, endpoint),
    )


def _vantages(tx: Connection, endpoint: Endpoint) -> tuple[VantageState, ...]:
    return vantages.states(tx, (endpoint.id,)).get(endpoint.id, ())
