"""Scoring: gather the evidence of endpoints, score it, save the scores.

The score itself is a function of the evidence alone (core/score/scoring); the loop (jobs/score) and
the paid reports (monitor/reports) use the same steps. The evidence of a batch is gathered in as
many statements as that of one endpoint.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from sqlalchemy import Connection

from tollgauge.core.base.errors import TollgaugeError
from tollgauge.core.base.text import injection_suspected
from tollgauge.core.base.units import DAY_MS, WINDOW_MS, chain_of
from tollgauge.core.endpoint.identity import Endpoint, Listing, site
from tollgauge.core.endpoint.terms import Quote
from tollgauge.core.lists.rated_endpoint import extract_figures
from tollgauge.core.probe.schedule import NORMAL, Cadence, interval_ms
from tollgauge.core.score.evidence import (
    ChainEvidence,
    ChainSums,
    Evidence,
    EvidenceError,
    LatestState,
    to_json,
)
from tollgauge.core.score.score import Score, ScoreError, score_to_json
from tollgauge.core.score.scoring import score
from tollgauge.db.engine import Store
from tollgauge.monitor import terms
from tollgauge.store import rows
from tollgauge.store.chain import volumes
from tollgauge.store.chain.volumes import NO_COVERAGE, Coverage
from tollgauge.store.endpoints import endpoints, listings
from tollgauge.store.probes import window
from tollgauge.store.schedule import hosts
from tollgauge.store.scores import scores
from tollgauge.store.scores.scores import ScoreRow

NEW_PATH_MS: Final = 7 * DAY_MS
"""For so long a new path is not taken for better than its site."""
SAME_CRAWL_MS: Final = DAY_MS
TOGETHER: Final = 100
"""How many endpoints are scored together: their evidence is read at once, and their scores are
saved in one transaction."""
AT_ONCE: Final = 20
"""Scores that are computed before others of this process get their turn: some two milliseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoringResult:
    """What came of scoring a batch: the rows that were saved, and by endpoint's id why others
    cannot be scored.
    """

    rows: list[ScoreRow] = field(default_factory=list)
    failed: dict[str, TollgaugeError] = field(default_factory=dict)


async def score_and_save(
    store: Store, endpoint_ids: Sequence[str], *, cadence: Cadence, now: int
) -> ScoringResult:
    """Score endpoints from their evidence as of now, and save the scores. One that cannot be scored
    stops none of the others; unknown ids are left out.

    New paths come last, because the scores of their sites' other paths are part of their evidence.
    """
    outcome = ScoringResult()
    known = await store.reading(endpoints.get_many, endpoint_ids)
    of_age: dict[bool, list[Endpoint]] = {False: [], True: []}
    for endpoint in known.values():
        of_age[_is_new(endpoint, as_of=now)].append(endpoint)
    for group in of_age.values():
        for batch in rows.chunks(group, TOGETHER):
            await _score_batch(store, batch, outcome, cadence=cadence, now=now)
    return outcome


async def _score_batch(
    store: Store, batch: Sequence[Endpoint], outcome: ScoringResult, *, cadence: Cadence, now: int
) -> None:
    """Score some endpoints and save the scores in one transaction."""
    scored_rows: list[ScoreRow] = []
    gathered = await store.reading(gather_many, batch, as_of=now, cadence=cadence)
    for number, (id_, evidence) in enumerate(gathered.items(), start=1):
        try:
            scored_rows.append(scored(id_, evidence))
        except (EvidenceError, ScoreError) as error:
            outcome.failed[id_] = error
        if number % AT_ONCE == 0:
            await asyncio.sleep(0)  # others of this process get their turn
    await store.writing(scores.save_many, scored_rows)
    outcome.rows.extend(scored_rows)


def compute(
    tx: Connection, endpoint: Endpoint, *, as_of: int, cadence: Cadence
) -> tuple[Score, ScoreRow]:
    """The score of an endpoint from its evidence as of an instant, and the row to save.

    Raises EvidenceError and ScoreError for evidence that cannot be scored.
    """
    evidence = gather(tx, endpoint, as_of=as_of, cadence=cadence)
    computed = score(evidence)
    return computed, _row(endpoint.id, evidence, computed)


def scored(endpoint_id: str, evidence: Evidence) -> ScoreRow:
    """The row of an endpoint's score. Raises EvidenceError and ScoreError."""
    return _row(endpoint_id, evidence, score(evidence))


def _row(endpoint_id: str, evidence: Evidence, computed: Score) -> ScoreRow:
    return ScoreRow(
        endpoint_id=endpoint_id,
        as_of=computed.as_of,
        policy_version=computed.policy_version,
        score_tenths=computed.score_tenths,
        evidence=to_json(evidence),
        result=score_to_json(computed),
        figures=extract_figures(computed),
    )


def gather(
    tx: Connection, endpoint: Endpoint, *, as_of: int, cadence: Cadence = NORMAL
) -> Evidence:
    """Everything that a score of `endpoint` may depend on, as of `as_of`."""
    return gather_many(tx, (endpoint,), as_of=as_of, cadence=cadence)[endpoint.id]


def gather_many(
    tx: Connection, gathered_for: Sequence[Endpoint], *, as_of: int, cadence: Cadence
) -> dict[str, Evidence]:
    """What the scores of endpoints depend on as of an instant, by id."""
    ids = [endpoint.id for endpoint in gathered_for]
    states = hosts.get_many(tx, {endpoint.host for endpoint in gathered_for})
    windows = window.read_many(tx, ids, as_of=as_of)
    events = listings.events_of(tx, ids, since=as_of - WINDOW_MS, until=as_of)
    medians = _site_medians(tx, gathered_for, as_of=as_of)
    chains = _chains(tx, gathered_for, as_of=as_of)
    gathered: dict[str, Evidence] = {}
    for endpoint in gathered_for:
        host, seen = states.get(endpoint.host), windows[endpoint.id]
        gathered[endpoint.id] = Evidence(
            resource=endpoint.resource,
            as_of=as_of,
            first_seen=endpoint.first_seen,
            listed=endpoint.status is not Listing.DELISTED,
            templated=endpoint.templated,
            wildcard=host is not None and bool(host.wildcard),
            site_median_tenths=medians.get(endpoint.id),
            injection=injection_suspected(f"{endpoint.service_name}\n{endpoint.description}"),
            quote=endpoint.quote,
            days=seen.days,
            recent=seen.recent,
            last=seen.last,
            envelope=seen.envelope,
            changes=terms.changes_among(events.get(endpoint.id, ())),
            chain=chains.get(endpoint.id),
            state=_state(seen.state, endpoint),
            pay_to_varies=endpoint.pay_to_varies,
            forms=endpoint.forms or _forms_of_quote(endpoint.quote),
            interval=interval_ms(
                endpoint, cadence, now=as_of, round_ms=0 if host is None else host.round_ms
            ),
        )
    return gathered


def _forms_of_quote(quote: Quote | None) -> tuple[str, ...]:
    """The form of payment of an endpoint whose envelope was not seen yet, if its network has only
    forms that are not read.
    """
    if quote is None or chain_of(quote.network) is not None or " " in quote.network:
        return ()
    return (f"{quote.network} exact",)


def _state(latest: LatestState | None, endpoint: Endpoint) -> LatestState | None:
    """The latest state; of a failure, when the first in a row was and whether it is being asked
    again.
    """
    if latest is None or latest.payable:
        return latest
    since = endpoint.failing_since
    return replace(
        latest,
        unconfirmed=endpoint.unconfirmed_at is not None,
        since=since if since is not None and since < latest.at else None,
    )


def _site_medians(
    tx: Connection, gathered_for: Sequence[Endpoint], *, as_of: int
) -> dict[str, int | None]:
    """What new paths of sites that are known for longer are measured by, by endpoint's id: paths
    that came within SAME_CRAWL_MS are as new as these.
    """
    new: dict[str, list[Endpoint]] = {}
    for endpoint in gathered_for:
        if _is_new(endpoint, as_of=as_of):
            new.setdefault(site(endpoint.host), []).append(endpoint)
    medians: dict[str, int | None] = {}
    for name, paths in new.items():
        before = {path.id: path.first_seen - SAME_CRAWL_MS for path in paths}
        known = scores.site_medians(tx, name, before=set(before.values()))
        medians |= {id_: known[instant] for id_, instant in before.items()}
    return medians


def _is_new(endpoint: Endpoint, *, as_of: int) -> bool:
    return as_of - endpoint.first_seen < NEW_PATH_MS


def _chains(
    tx: Connection, gathered_for: Sequence[Endpoint], *, as_of: int
) -> dict[str, ChainEvidence]:
    """Settlements to the advertised payTo in the window, as far as they are indexed, by endpoint's
    id.
    """
    quotes = {
        endpoint.id: endpoint.quote for endpoint in gathered_for if endpoint.quote is not None
    }
    by_network: dict[str, set[str]] = {}
    for quote in quotes.values():
        by_network.setdefault(quote.network, set()).add(quote.pay_to)
    shared: dict[tuple[str, str], ChainEvidence] = {}
    for network, pay_tos in by_network.items():
        indexed = _indexed(tx, network, pay_tos, as_of=as_of)
        for pay_to, hosts_sharing in endpoints.hosts_sharing(tx, network, list(pay_tos)).items():
            coverage, sums = indexed.get(pay_to, (NO_COVERAGE, None))
            shared[network, pay_to] = ChainEvidence(
                network=network,
                pay_to=pay_to,
                indexed_ms=coverage.indexed_ms,
                indexed_to_block=coverage.to_block,
                indexed_to=coverage.to_at,
                shared_hosts=max(hosts_sharing, 1),
                sums=sums,
            )
    return {id_: shared[quote.network, quote.pay_to] for id_, quote in quotes.items()}


def _indexed(
    tx: Connection, network: str, pay_tos: Collection[str], *, as_of: int
) -> dict[str, tuple[Coverage, ChainSums]]:
    """What is indexed of the settlements to addresses on a network; others are left out."""
    chain = chain_of(network)
    if chain is None:
        return {}
    covered = volumes.coverages(tx, chain, list(pay_tos), as_of=as_of)
    sums = volumes.sums_of(tx, chain, list(covered), as_of=as_of)
    return {pay_to: (coverage, sums[pay_to]) for pay_to, coverage in covered.items()}
