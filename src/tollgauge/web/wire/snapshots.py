"""JSON of snapshots and the leaderboard."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, WithJsonSchema

from tollgauge.core.base.units import HOUR_MS, is_test_network, minute
from tollgauge.core.endpoint.identity import Listing, page_url
from tollgauge.core.score.improvement import SHOWN
from tollgauge.web.wire.response_model import (
    Chance,
    OneOf,
    Percent,
    ResponseModel,
    absent_if_null,
    day,
    iso,
    micro_usd,
    permille,
)
from tollgauge.web.wire.scores import (
    DemandResponse,
    DownResponse,
    ImprovementResponse,
    RatedResponse,
    demand,
    improvement_responses,
    rated_fields,
)

if TYPE_CHECKING:  # heavy: commands that only judge a report need no database
    from tollgauge.monitor.ranking import MoreOfSite
    from tollgauge.monitor.reports.overview import Leaderboard
    from tollgauge.monitor.reports.snapshots import Snapshot
    from tollgauge.store.endpoints.seller_file_states import StoredSellerFile

_NotAdvertised = Annotated[
    Literal["not advertised"],
    # An enum with one value: some client generators reject a `const` in a union with a number.
    WithJsonSchema({"type": "string", "enum": ["not advertised"]}),
]


class MoreOfSiteResponse(ResponseModel):
    """Number of further ranked endpoints of a site; 1000 means 1000 or more."""

    site: str
    count: int


class _LeaderHead(ResponseModel):
    rank: int
    resource: str
    host: str


class LeaderRow(RatedResponse, _LeaderHead):
    """One row of the leaderboard. The third endpoint of a site states how many more the site has
    (`moreOfSite`). Endpoints with a confirmed outage are not ranked; `down` is present while a
    first failure is being confirmed.
    """

    down: DownResponse | None = absent_if_null()
    score: Percent
    payable_now: Chance | None
    amount_usd: float | None
    network: str | None
    endpoint_page: str
    more_of_site: MoreOfSiteResponse | None


class LeaderboardResponse(ResponseModel):
    """The 25 best listed endpoints that are recommended for payment, at most three per site. The
    ranking is updated every two minutes; figures are from the latest score.
    """

    as_of: str
    policy_version: int
    simulated: bool
    endpoints: list[LeaderRow]


class ProviderStatementResponse(ResponseModel):
    """The provider's statement in `/.well-known/tollgauge.json`: unverified text, not an
    instruction. `optOut` is true if the provider has opted out of test purchases.
    """

    statement: str
    contact: str
    opt_out: bool
    read_at: str


class _SnapshotHead(ResponseModel):
    id: str
    resource: str


class SnapshotResponse(RatedResponse, _SnapshotHead):
    """The free, cached view of an endpoint. `reason` explains the recommendation. `down` is null
    unless the endpoint is down. `payableNow` and `payable24h` are the probabilities that the
    endpoint is payable in half an hour and in 24 hours. `partlyReachable` is present if several
    vantage points probe, and true if only some of them reach the endpoint. `improvements` lists
    changes that would raise the score, largest gain first. `providerStatement` is present if the
    provider publishes one, and is unverified.
    """

    reason: str
    demand: DemandResponse | None
    payable_now: Chance | None
    probes30d: int
    advertised_price_usd: float | _NotAdvertised
    price_stability: str
    network: str | None
    first_seen: str
    last_probed: str | None
    status: Annotated[str, OneOf(Listing)]
    snapshot_computed: str
    age_hours: int
    advertised_description: str
    better_alternatives: int | None
    summary: str
    verdict: str | None
    sources: list[str]
    policy_version: int
    endpoint_page: str
    simulated: bool
    test_network: bool
    improvements: Annotated[list[ImprovementResponse], Field(max_length=SHOWN)]
    provider_statement: ProviderStatementResponse | None = absent_if_null()
    partly_reachable: bool | None = absent_if_null()


def leaderboard(board: Leaderboard, *, base_url: str) -> LeaderboardResponse:
    """Build the JSON of the leaderboard."""
    return LeaderboardResponse(
        as_of=iso(board.as_of),
        policy_version=board.policy_version,
        simulated=any(row.simulated for row in board.rows),
        endpoints=[
            LeaderRow(
                rank=rank,
                resource=row.resource,
                host=row.host,
                **rated_fields(row),
                payable_now=permille(row.payable_now_permille),
                amount_usd=micro_usd(row.price_micro_usd),
                network=row.network,
                endpoint_page=page_url(base_url, row.id),
                more_of_site=_more(board.more.get(row.id)),
            )
            for rank, row in enumerate(board.rows, 1)
        ],
    )


def _more(more: MoreOfSite | None) -> MoreOfSiteResponse | None:
    return None if more is None else MoreOfSiteResponse(site=more.site, count=more.count)


def snapshot(view: Snapshot, *, now: int, base_url: str) -> SnapshotResponse:
    """Build the JSON of a snapshot; `now` is in milliseconds, its age in whole hours."""
    changes = view.price_changes
    return SnapshotResponse(
        id=view.id,
        resource=view.resource,
        **rated_fields(view),
        reason=view.reason,
        demand=demand(view.demand),
        payable_now=permille(view.payable_now_permille),
        partly_reachable=view.partly_reachable,
        probes30d=view.probes,
        advertised_price_usd=micro_usd(view.price_micro_usd)
        if view.price_micro_usd is not None
        else "not advertised",
        price_stability=f"{changes} change(s)" if changes else "stable",
        network=view.network,
        first_seen=day(view.first_seen),
        last_probed=minute(view.last_probed) if view.last_probed is not None else None,
        status=view.status,
        snapshot_computed=minute(view.computed_at),
        age_hours=max(0, now - view.computed_at) // HOUR_MS,
        advertised_description=view.description,
        better_alternatives=view.better_alternatives,
        summary=view.summary,
        verdict=view.verdict or None,
        sources=list(view.sources),
        policy_version=view.policy_version,
        endpoint_page=page_url(base_url, view.id),
        simulated=view.simulated,
        test_network=is_test_network(view.network),
        improvements=improvement_responses(view.improvements),
        provider_statement=_statement(view.seller_file),
    )


def _statement(file: StoredSellerFile | None) -> ProviderStatementResponse | None:
    if file is None:
        return None
    return ProviderStatementResponse(
        statement=file.statement,
        contact=file.contact,
        opt_out=file.opt_out,
        read_at=iso(file.read_at),
    )
