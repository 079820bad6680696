"""Scoring: gather the evidence of an endpoint, score it, save the score.

The score itself is a function of the evidence alone (core/scoring); the loop (jobs/score) and the
paid reports (monitor/reports) use the same steps.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Final

from sqlalchemy import Connection

from tollgauge.core.endpoint import Endpoint, Listing
from tollgauge.core.evidence import RECENT_MS, ChainEvidence, Evidence, LatestState, to_json
from tollgauge.core.policy import POLICY_1, Policy
from tollgauge.core.schedule import NORMAL, Cadence, interval_ms
from tollgauge.core.score import OtherScore, Score, score_to_json
from tollgauge.core.scoring import score
from tollgauge.core.site import site
from tollgauge.core.text import injection_suspected
from tollgauge.core.units import DAY_MS, WINDOW_MS
from tollgauge.db import meta
from tollgauge.db.engine import Store
from tollgauge.monitor import discovery
from tollgauge.store.chain import volumes
from tollgauge.store.endpoints import endpoints, hosts, scores
from tollgauge.store.endpoints.scores import ScoreRow
from tollgauge.store.probes import window

POLICY_2_SINCE: Final = "policy-2-since"
"""The key of the instant from which on this database has scores of policy 2; it is set where there
were scores of policy 1 before (db/migrations, version 0016).
"""
BOTH_MS: Final = 30 * DAY_MS
"""For how long scores name what the policy before gives too."""
NEW_PATH_MS: Final = 7 * DAY_MS
"""For so long a new path is not taken for better than its site."""
SAME_CRAWL_MS: Final = DAY_MS


async def score_and_save(
    store: Store, endpoint: Endpoint, *, cadence: Cadence, now: int
) -> ScoreRow:
    """Score an endpoint from its evidence as of now, and save the score.

    Raises EvidenceError and ScoreError for evidence that cannot be scored.
    """
    evidence, previous = await store.reading(_gather, endpoint, as_of=now, cadence=cadence)
    row = scored(endpoint.id, evidence, previous=previous)
    await store.writing(scores.save, row)
    return row


def compute(
    tx: Connection, endpoint: Endpoint, *, as_of: int, cadence: Cadence
) -> tuple[Score, ScoreRow]:
    """The score of an endpoint from its evidence as of an instant, and the row to save. Raises
    as `score_and_save`.
    """
    evidence, previous = _gather(tx, endpoint, as_of=as_of, cadence=cadence)
    result = _score(evidence, previous)
    return result, _row(endpoint.id, evidence, result)


def scored(endpoint_id: str, evidence: Evidence, *, previous: Policy | None = None) -> ScoreRow:
    """The row of an endpoint's score under the newest policy, with what the `previous` one gives
    if that is wanted.
    """
    return _row(endpoint_id, evidence, _score(evidence, previous))


def _score(evidence: Evidence, previous: Policy | None) -> Score:
    newest = score(evidence)
    if previous is None:
        return newest
    other = score(evidence, previous)
    return replace(
        newest,
        previous=OtherScore(
            policy_version=other.policy_version,
            score_tenths=other.score_tenths,
            grade=other.grade,
        ),
    )


def _gather(
    tx: Connection, endpoint: Endpoint, *, as_of: int, cadence: Cadence
) -> tuple[Evidence, Policy | None]:
    """The evidence of an endpoint, and the policy before while the newest is new here."""
    evidence = gather(tx, endpoint, as_of=as_of, cadence=cadence)
    since = meta.get(tx, POLICY_2_SINCE)
    is_new = since is not None and as_of < int(since) + BOTH_MS
    return evidence, POLICY_1 if is_new else None


def _row(endpoint_id: str, evidence: Evidence, computed: Score) -> ScoreRow:
    """The row of a score that was computed from evidence."""
    stats = computed.stats
    document = to_json(evidence)
    return ScoreRow(
        endpoint_id=endpoint_id,
        as_of=computed.as_of,
        policy_version=computed.policy_version,
        score_tenths=computed.score_tenths,
        grade=computed.grade,
        recommendation=computed.recommendation,
        confidence_hundredths=computed.confidence_hundredths,
        uptime_tenths=stats.uptime_tenths,
        compliant=stats.scored > 0 and 2 * stats.compliant >= stats.scored,
        evidence=document,
        digest=hashlib.sha256(document).hexdigest(),
        result=score_to_json(computed),
        payable_24h_permille=computed.payable_24h_permille,
    )


def gather(
    tx: Connection, endpoint: Endpoint, *, as_of: int, cadence: Cadence = NORMAL
) -> Evidence:
    """Everything that a score of `endpoint` may depend on, as of `as_of`."""
    host = hosts.get(tx, endpoint.host)
    seen = window.read(tx, endpoint.id, as_of=as_of, recent_ms=RECENT_MS)
    return Evidence(
        resource=endpoint.resource,
        as_of=as_of,
        first_seen=endpoint.first_seen,
        listed=endpoint.status is not Listing.DELISTED,
        templated=endpoint.templated,
        wildcard=bool(host.wildcard),
        site_median_tenths=_site_median(tx, endpoint, as_of=as_of),
        injection=injection_suspected(f"{endpoint.service_name}\n{endpoint.description}"),
        quote=endpoint.quote,
        days=seen.days,
        recent=seen.recent,
        last=seen.last,
        envelope=seen.envelope,
        changes=discovery.changes(tx, endpoint.id, since=as_of - WINDOW_MS, until=as_of),
        chain=_chain(tx, endpoint, as_of=as_of),
        state=_state(seen.state, endpoint),
        interval=interval_ms(endpoint, cadence, now=as_of, round_ms=host.round_ms),
    )


def _state(latest: LatestState | None, endpoint: Endpoint) -> LatestState | None:
    """The latest state, with whether it is a failure that is being asked again."""
    if latest is None or latest.payable or endpoint.unconfirmed_at is None:
        return latest
    return replace(latest, unconfirmed=True)


def _site_median(tx: Connection, endpoint: Endpoint, *, as_of: int) -> int | None:
    """What a new path of a site that is known for longer is measured by, None for any other: paths
    that came within SAME_CRAWL_MS are as new as this one.
    """
    if as_of - endpoint.first_seen >= NEW_PATH_MS:
        return None
    before = endpoint.first_seen - SAME_CRAWL_MS
    return scores.site_median(tx, site(endpoint.host), before=before)


def _chain(tx: Connection, endpoint: Endpoint, *, as_of: int) -> ChainEvidence | None:
    """Settlements to the advertised payTo in the window, as far as they are indexed."""
    if endpoint.quote is None:
        return None
    network, pay_to = endpoint.quote.network, endpoint.quote.pay_to
    sharing = endpoints.count_hosts_sharing(tx, network, pay_to)
    shared = ChainEvidence(network=network, pay_to=pay_to, shared_hosts=max(sharing, 1))
    chain = volumes.chain_of(network)
    if chain is None:
        return shared
    covered = volumes.coverage(tx, chain, pay_to, as_of=as_of)
    if covered is None:
        return shared
    return replace(
        shared,
        indexed_ms=covered.indexed_ms,
        indexed_to_block=covered.to_block,
        indexed_to=covered.to_at,
        sums=volumes.sums(tx, chain, pay_to, as_of=as_of),
    )
