"""Snapshots: the cached view of one endpoint, and of a host's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from sqlalchemy import Connection

from tollgauge.core.endpoint.identity import Endpoint, Listing
from tollgauge.core.probe.vantage import VantageState, partly_reachable
from tollgauge.core.score.improvement import Improvement
from tollgauge.core.score.policy import POLICY
from tollgauge.core.score.score import Down, Score, score_from_json
from tollgauge.core.score.verdict import UNPROBED, summary
from tollgauge.monitor.reports.improvements import improvements_of
from tollgauge.store.endpoints import public
from tollgauge.store.endpoints import seller_file_states as seller_files
from tollgauge.store.endpoints.seller_file_states import StoredSellerFile
from tollgauge.store.lists import alternative_counts, endpoint_list
from tollgauge.store.lists.endpoint_list import ListedEndpoint
from tollgauge.store.probes import vantages
from tollgauge.store.scores import scores

PROVIDER_ROWS: Final = 100
"""How many endpoints of a host one page has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointRow:
    """One endpoint in a list.

    The defaults are those of an endpoint that has no score. `uptime_tenths` is tenths of a
    percent. `latency_ms` is the exact mean, rounded half up; None when every probe failed.
    `price_micro_usd` is None when no price in a known dollar is advertised. `down` is the outage of
    an endpoint that is down.
    """

    id: str
    resource: str
    host: str
    recommendation: str = "unverified"
    grade: str | None = None
    score_tenths: int | None = None
    confidence_hundredths: int = 0
    uptime_tenths: int | None = None
    latency_ms: int | None = None
    price_micro_usd: int | None
    network: str | None
    pay_to: str | None
    simulated: bool = False
    down: Down | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot(EndpointRow):
    """The free, cached view of one endpoint.

    `sources` are the directories that list it now. Texts under `advertised_` are the provider's own
    and untrusted. `reason` is why the recommendation is what it is; the chances of being payable
    are None before anything was measured, and so is `is_payable`: whether it could be paid when it
    was last checked. `partly_reachable` says that some vantages reach it now and others do not,
    None where only one watches. `improvements` is empty where nobody asked for it (`detailed`),
    and so is `seller_file` None: what the seller says of itself.
    """

    reason: str = ""
    payable_now_permille: int | None = None
    payable_24h_permille: int | None = None
    is_payable: bool | None = None
    p50_latency_ms: int | None = None
    p95_latency_ms: int | None = None
    probes: int = 0
    scored: int = 0
    excluded: tuple[tuple[str, int], ...] = ()
    price_changes: int = 0
    payto_changes: int = 0
    first_seen: int
    last_probed: int | None
    status: str
    computed_at: int
    verdict: str = ""
    summary: str = UNPROBED
    sources: tuple[str, ...]
    advertised_name: str
    advertised_description: str
    better_alternatives: int | None
    policy_version: int
    partly_reachable: bool | None = None
    improvements: tuple[Improvement, ...] = ()
    seller_file: StoredSellerFile | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """A page of one host's endpoints, best first. `after` is the id of the last endpoint of the
    page before, None on the first page; `next_after` that of the last of this page, None where no
    more follow. `seller_file` is what the host says of itself, None where it says nothing.
    """

    host: str
    rows: tuple[EndpointRow, ...]
    after: str | None = None
    next_after: str | None = None
    seller_file: StoredSellerFile | None = None


def snapshot(tx: Connection, endpoint_id: str, *, now: int) -> Snapshot | None:
    """The cached view of one endpoint, None when it is unknown or not public."""
    endpoint = public.get(tx, endpoint_id)
    if endpoint is None:
        return None
    states = vantages.states(tx, (endpoint_id,)).get(endpoint_id, ())
    return read_snapshot(tx, endpoint, scores.result(tx, endpoint_id), states, now=now)


def detailed(tx: Connection, endpoint_id: str, *, now: int) -> Snapshot | None:
    """As `snapshot`, with what would raise the score, and what the seller says of itself."""
    endpoint = public.get(tx, endpoint_id)
    if endpoint is None:
        return None
    row = scores.get(tx, endpoint_id)
    score = None if row is None else score_from_json(row.result)
    states = vantages.states(tx, (endpoint_id,)).get(endpoint_id, ())
    return replace(
        read_snapshot(tx, endpoint, score, states, now=now),
        improvements=improvements_of(row, score),
        seller_file=seller_files.get(tx, endpoint.host),
    )


def read_snapshot(
    tx: Connection,
    endpoint: Endpoint,
    score: Score | None,
    states: Sequence[VantageState],
    *,
    now: int,
) -> Snapshot:
    """The snapshot of an endpoint with its latest score, its count of better alternatives, and
    what each of several vantages saw last (`states`).
    """
    better = alternative_counts.counts(tx, (endpoint.id,)).get(endpoint.id)
    return replace(
        snapshot_of(endpoint, score, now=now, better_alternatives=better),
        partly_reachable=partly_reachable(states, now=now) if states else None,
    )


def provider(tx: Connection, host: str, after: str | None = None) -> Provider | None:
    """A page of one host's public endpoints (store/lists/endpoint_list); None when there are
    none.
    """
    listed = endpoint_list.of_host(tx, host, after=after, limit=PROVIDER_ROWS + 1)
    if not listed:
        return None
    rows = tuple(map(row_of, listed[:PROVIDER_ROWS]))
    more = len(listed) > PROVIDER_ROWS
    return Provider(
        host=host,
        rows=rows,
        after=after,
        next_after=rows[-1].id if more else None,
        seller_file=seller_files.get(tx, host),
    )


def row_of(listed: ListedEndpoint) -> EndpointRow:
    """An endpoint of the store's lists as a row."""
    quote = listed.quote
    return EndpointRow(
        id=listed.id,
        resource=listed.resource,
        host=listed.host,
        recommendation=listed.ranked_recommendation or "unverified",
        grade=listed.ranked_grade,
        score_tenths=listed.ranked_score,
        confidence_hundredths=listed.ranked_confidence or 0,
        uptime_tenths=listed.ranked_uptime,
        latency_ms=listed.ranked_latency,
        price_micro_usd=quote.micro_usd if quote else None,
        network=quote.network if quote else None,
        pay_to=quote.pay_to if quote else None,
        simulated=listed.simulated,
        down=listed.down,
    )


def snapshot_of(
    endpoint: Endpoint, score: Score | None, *, now: int, better_alternatives: int | None = None
) -> Snapshot:
    """The snapshot of an endpoint and its latest score, None while it has none. The count of
    better alternatives is None until it was counted.
    """
    snapshot = _without_score(endpoint, now=now, better_alternatives=better_alternatives)
    if score is None:
        return snapshot
    stats = score.stats
    return replace(
        snapshot,
        recommendation=score.recommendation,
        grade=score.grade,
        score_tenths=score.score_tenths,
        reason=score.reason,
        payable_now_permille=score.payable_now_permille,
        payable_24h_permille=score.payable_24h_permille,
        is_payable=score.is_payable,
        down=score.down,
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
        computed_at=score.as_of,
        verdict=stats.verdict or "",
        summary=summary(score),
        policy_version=score.policy_version,
    )


def _without_score(endpoint: Endpoint, *, now: int, better_alternatives: int | None) -> Snapshot:
    quote = endpoint.quote
    return Snapshot(
        id=endpoint.id,
        resource=endpoint.resource,
        host=endpoint.host,
        price_micro_usd=quote.micro_usd if quote else None,
        network=quote.network if quote else None,
        pay_to=quote.pay_to if quote else None,
        first_seen=endpoint.first_seen,
        last_probed=endpoint.last_probed,
        status=endpoint.status.value,
        computed_at=now,
        sources=() if endpoint.status is Listing.UNLISTED else endpoint.sources,
        advertised_name=endpoint.service_name,
        advertised_description=endpoint.description,
        better_alternatives=better_alternatives,
        policy_version=POLICY.version,
        simulated=endpoint.simulated,
    )
