"""Gather the evidence of endpoints, score it and save the scores.

A score is a pure function of the evidence (core/score/scoring). The loop (jobs/score) and paid
reports (monitor/reports) use the same steps. The evidence of a batch is gathered with as many
statements as that of one endpoint.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from sqlalchemy import Connection

from tollgauge.core.base.errors import TollgaugeError
from tollgauge.core.base.text import is_injection_suspected
from tollgauge.core.base.units import DAY_MS, WINDOW_MS, chain_number, day_of
from tollgauge.core.endpoint.identity import Endpoint, Listing, site
from tollgauge.core.endpoint.terms import indexable_addresses
from tollgauge.core.lists.rated_endpoint import extract_figures
from tollgauge.core.probe.outcome import Outcome, buyer_text
from tollgauge.core.probe.schedule import NORMAL, Cadence, interval_ms
from tollgauge.core.score.evidence import ChainEvidence, DemandEvidence, Evidence, LatestState
from tollgauge.core.score.evidence_document import EvidenceError, to_json
from tollgauge.core.score.score import Score, ScoreError, score_to_json
from tollgauge.core.score.scoring import score
from tollgauge.db.engine import Store
from tollgauge.monitor import terms
from tollgauge.store import rows
from tollgauge.store.chain import volumes, wallets
from tollgauge.store.chain.volumes import NO_COVERAGE, Coverage
from tollgauge.store.endpoints import endpoints, listings
from tollgauge.store.endpoints import seller_file_states as seller_files
from tollgauge.store.probes import window
from tollgauge.store.schedule import hosts
from tollgauge.store.scores import scores
from tollgauge.store.scores.scores import ScoreRow, SitePath

NEW_PATH_MS: Final = 7 * DAY_MS  # age of a new path, and maximum age of other paths' last probe
RETIRED_MS: Final = 30 * DAY_MS  # a retired path limits new paths of its site for this time
SITE_PATHS_MIN: Final = 2
VALIDATES_FIRST: Final = "validates-before-402"
SAME_CRAWL_MS: Final = DAY_MS
BATCH_SIZE: Final = 100  # endpoints read, and scores saved, per transaction


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoringResult:
    """The saved rows of a batch, and the errors of endpoints that cannot be scored, by ID."""

    rows: list[ScoreRow] = field(default_factory=list)
    failed: dict[str, TollgaugeError] = field(default_factory=dict)


async def score_and_save(
    store: Store, endpoint_ids: Sequence[str], *, cadence: Cadence, now: int
) -> ScoringResult:
    """Score endpoints from their evidence as of now and save the scores.

    An endpoint that cannot be scored does not affect the others; unknown IDs are left out. New
    paths come last, because the scores of their sites' other paths are part of their evidence.
    """
    outcome = ScoringResult()
    known = await store.reading(endpoints.get_many, endpoint_ids)
    of_age: dict[bool, list[Endpoint]] = {False: [], True: []}
    for endpoint in known.values():
        of_age[_is_new(endpoint, as_of=now)].append(endpoint)
    for group in of_age.values():
        for batch in rows.chunks(group, BATCH_SIZE):
            scored = await store.reading(_score_batch, batch, cadence=cadence, now=now)
            await store.writing(scores.save_many, scored.rows)
            outcome.rows.extend(scored.rows)
            outcome.failed.update(scored.failed)
    return outcome


def _score_batch(
    tx: Connection, batch: Sequence[Endpoint], *, cadence: Cadence, now: int
) -> ScoringResult:
    """Score endpoints one after another, each while its evidence is in the processor's cache."""
    outcome = ScoringResult()
    gathered = gather_each(tx, batch, as_of=now, cadence=cadence)
    for endpoint, evidence in zip(batch, gathered, strict=True):
        try:
            outcome.rows.append(score_evidence(endpoint.id, evidence))
        except (EvidenceError, ScoreError) as error:
            outcome.failed[endpoint.id] = error
    return outcome


def compute(
    tx: Connection, endpoint: Endpoint, *, as_of: int, cadence: Cadence
) -> tuple[Score, ScoreRow]:
    """Score an endpoint from its evidence as of a time (ms UTC); return the score and the row to
    save.

    Raises:
        EvidenceError: The evidence cannot be read.
        ScoreError: The evidence cannot be scored.
    """
    evidence = gather(tx, endpoint, as_of=as_of, cadence=cadence)
    computed = score(evidence)
    return computed, _row(endpoint.id, evidence, computed)


def score_evidence(endpoint_id: str, evidence: Evidence) -> ScoreRow:
    """Score evidence and return the row to save.

    Raises:
        EvidenceError: The evidence cannot be read.
        ScoreError: The evidence cannot be scored.
    """
    return _row(endpoint_id, evidence, score(evidence))


def _row(endpoint_id: str, evidence: Evidence, computed: Score) -> ScoreRow:
    return ScoreRow(
        endpoint_id=endpoint_id,
        as_of=computed.as_of,
        policy_version=computed.policy_version,
        score_tenths=computed.score_tenths,
        evidence=to_json(evidence),
        result=score_to_json(computed),
        figures=extract_figures(computed, evidence.resource),
    )


def gather(
    tx: Connection, endpoint: Endpoint, *, as_of: int, cadence: Cadence = NORMAL
) -> Evidence:
    """Gather everything that a score of `endpoint` depends on, as of `as_of`."""
    return next(gather_each(tx, (endpoint,), as_of=as_of, cadence=cadence))


def gather_each(
    tx: Connection, gathered_for: Sequence[Endpoint], *, as_of: int, cadence: Cadence
) -> Iterator[Evidence]:
    """Yield the evidence of each endpoint, as of a time (ms UTC)."""
    ids = [endpoint.id for endpoint in gathered_for]
    states = hosts.get_many(tx, {endpoint.host for endpoint in gathered_for})
    windows = window.read_each(tx, ids, as_of=as_of)
    events = listings.events_of(tx, ids, since=as_of - WINDOW_MS, until=as_of)
    medians = _site_medians(tx, gathered_for, as_of=as_of)
    chains = _chains(tx, gathered_for, as_of=as_of)
    anchors = volumes.anchors_of(tx)
    for endpoint, seen in zip(gathered_for, windows, strict=True):
        host = states.get(endpoint.host)
        of_endpoint = chains.get(endpoint.id, ())
        yield Evidence(
            resource=endpoint.resource,
            as_of=as_of,
            first_seen=endpoint.first_seen,
            listed=endpoint.status is not Listing.DELISTED,
            templated=endpoint.templated,
            wildcard=host is not None and bool(host.wildcard),
            site_median_tenths=medians.get(endpoint.id),
            injection=is_injection_suspected(f"{endpoint.service_name}\n{endpoint.description}"),
            quote=endpoint.quote,
            days=seen.days,
            last=seen.last,
            envelope=seen.envelope,
            changes=terms.changes_among(events.get(endpoint.id, ())),
            chain=of_endpoint[0] if of_endpoint else None,
            other_chains=of_endpoint[1:],
            state=_state(seen.state, endpoint),
            anchors=anchors,
            pay_to_varies=endpoint.pay_to_varies,
            forms=endpoint.forms,
            interval=interval_ms(
                endpoint, cadence, now=as_of, round_ms=0 if host is None else host.round_ms
            ),
        )


def _state(latest: LatestState | None, endpoint: Endpoint) -> LatestState | None:
    """Add to the latest state when it began and, for a failure, whether it is being confirmed."""
    if latest is None or latest.payable:
        return latest and replace(latest, payable_since=endpoint.payable_since)
    since = endpoint.failing_since
    return replace(
        latest,
        unconfirmed=endpoint.unconfirmed_at is not None,
        since=since if since is not None and since < latest.at else None,
        payable_since=endpoint.payable_since,
    )


def _site_medians(
    tx: Connection, gathered_for: Sequence[Endpoint], *, as_of: int
) -> dict[str, int | None]:
    """Return the limit of each new path by the other paths of its site, by endpoint ID.

    Paths that appeared within SAME_CRAWL_MS are equally new and do not limit each other.
    """
    new: dict[str, list[Endpoint]] = {}
    for endpoint in gathered_for:
        if _is_new(endpoint, as_of=as_of):
            new.setdefault(site(endpoint.host), []).append(endpoint)
    medians: dict[str, int | None] = {}
    for name, paths in new.items():
        before = {path.id: path.first_seen - SAME_CRAWL_MS for path in paths}
        known = scores.site_paths(
            tx, name, before=max(before.values()), probed_since=as_of - RETIRED_MS
        )
        rated = _rate_paths(tx, known, as_of=as_of)
        for id_, limit in before.items():
            older = sorted(tenths for first_seen, tenths in rated if first_seen < limit)
            medians[id_] = older[(len(older) - 1) // 2] if len(older) >= SITE_PATHS_MIN else None
    return medians


def _rate_paths(tx: Connection, known: Sequence[SitePath], *, as_of: int) -> list[tuple[int, int]]:
    """Return the paths that limit new ones as (first seen, score in tenths).

    A retired path (404, 410 or delisted) counts for RETIRED_MS with its score of the day before, so
    that a 404 cannot remove a bad record. Paths that validate before answering 402 do not count.
    """
    retired_at = {path.id: at for path in known if (at := _find_retirement(path)) is not None}
    closed = window.recent_days(tx, list(retired_at))
    rated = []
    for path in known:
        at = retired_at.get(path.id)
        if at is None:
            lately = path.last_probed > as_of - NEW_PATH_MS
            if lately and VALIDATES_FIRST not in path.flags:
                rated.append((path.first_seen, path.score_tenths))
        elif at > as_of - RETIRED_MS:
            days = closed[path.id].days if path.id in closed else ()
            scored = (one.score for one in days if one.day < day_of(at) and one.score)
            last = list(scored)[-1:]
            rated.append((path.first_seen, last[0].tenths if last else path.score_tenths))
    return rated


def _find_retirement(path: SitePath) -> int | None:
    """Return when a path was retired, or None."""
    not_found = path.outage_reason == buyer_text(Outcome.NOT_FOUND)
    times = (path.delisted_at, path.failing_since if not_found else None)
    return min((at for at in times if at is not None), default=None)


def _is_new(endpoint: Endpoint, *, as_of: int) -> bool:
    return as_of - endpoint.first_seen < NEW_PATH_MS


def _chains(
    tx: Connection, gathered_for: Sequence[Endpoint], *, as_of: int
) -> dict[str, tuple[ChainEvidence, ...]]:
    """Return the indexed settlements in the window to the addresses that endpoints offer, by
    endpoint ID: to that of the quote first, then to others on indexed networks.
    """
    pairs: dict[str, list[tuple[str, str]]] = {}
    for endpoint in gathered_for:
        if endpoint.quote is not None:
            quoted = (endpoint.quote.network, endpoint.quote.pay_to)
            others = indexable_addresses(endpoint.offers).keys() - {quoted}
            pairs[endpoint.id] = [quoted, *sorted(others)]
    chains: dict[tuple[str, str], ChainEvidence] = {}
    lists: dict[tuple[str, str], tuple[str, ...]] = {}
    offered = {pair for of_one in pairs.values() for pair in of_one}
    for network, pay_tos in rows.group(offered).items():
        of_network = _chains_of(tx, network, sorted(pay_tos), as_of=as_of)
        chains |= {(network, chain.pay_to): chain for chain in of_network}
        found = seller_files.site_lists(tx, network, pay_tos, as_of=as_of)
        lists |= {(network, pay_to): item.sites for pay_to, item in found.items()}
    return {
        endpoint.id: tuple(
            _of_site(chains[pair], site(endpoint.host), lists.get(pair, ()))
            for number, pair in enumerate(pairs[endpoint.id])
            if number == 0 or chains[pair].indexed_to is not None
        )
        for endpoint in gathered_for
        if endpoint.id in pairs
    }


def _chains_of(
    tx: Connection, network: str, pay_tos: Sequence[str], *, as_of: int
) -> Iterator[ChainEvidence]:
    """Yield the settlements to each address on a network, with the site that the address belongs
    to.
    """
    covered: dict[str, Coverage] = {}
    demands: dict[str, DemandEvidence] = {}
    owners: dict[str, str] = {}
    if (chain := chain_number(network)) is not None:
        covered = volumes.coverages(tx, chain, pay_tos, as_of=as_of)
        demands = volumes.demands_of(tx, chain, list(covered), as_of=as_of)
        owners = wallets.sites_of(tx, chain, pay_tos)
    for pay_to, hosts_sharing in endpoints.hosts_sharing(tx, network, pay_tos).items():
        coverage = covered.get(pay_to, NO_COVERAGE)
        yield ChainEvidence(
            network=network,
            pay_to=pay_to,
            indexed_ms=coverage.indexed_ms,
            indexed_to_block=coverage.to_block,
            indexed_to=coverage.to_at,
            shared_hosts=max(hosts_sharing, 1),
            demand=demands.get(pay_to),
            owner=owners.get(pay_to),
        )


def _of_site(chain: ChainEvidence, named_by: str, listed: Sequence[str]) -> ChainEvidence:
    """Return the settlements as evidence of the site `named_by`.

    The sites that the payTo `listed` share its demand; without a list it belongs to the owner.
    `owner` is set only if it is another site, whose demand is removed.
    """
    if named_by in listed:
        return replace(chain, owner=None, shares=len(listed))
    owner = listed[0] if listed else chain.owner
    if owner is None or owner == named_by:
        return replace(chain, owner=None)
    return replace(chain, owner=owner, demand=None)
