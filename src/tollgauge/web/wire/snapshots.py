"""JSON of snapshots and the leaderboard."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema

from tollgauge.core.base.units import HOUR_MS, is_test_network, iso_day, minute
from tollgauge.core.endpoint.identity import Listing, Transport, page_url
from tollgauge.core.score.improvement import SHOWN
from tollgauge.web.wire.response_model import (
    NULL_IF_EMPTY,
    Chance,
    Dollars,
    OneOf,
    Percent,
    ResponseModel,
    Time,
    absent_if_null,
    from_attribute,
    micro_usd,
)
from tollgauge.web.wire.scores import (
    BuyersReportsResponse,
    Coverage,
    DemandResponse,
    DownResponse,
    ImprovementResponse,
    RatedResponse,
)

if TYPE_CHECKING:  # heavy: commands that only judge a report need no database
    from tollgauge.monitor.reports.overview import Leaderboard
    from tollgauge.monitor.reports.snapshots import Snapshot

_Minute = Annotated[str, BeforeValidator(minute)]
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
    score: Percent = from_attribute("score_tenths")
    payable_now: Chance | None = from_attribute("payable_now_permille")
    amount_usd: Dollars | None = from_attribute("price_micro_usd")
    network: str | None
    endpoint_page: str
    more_of_site: MoreOfSiteResponse | None


class LeaderboardResponse(ResponseModel):
    """The 25 best listed endpoints that are recommended for payment, at most three per site. The
    ranking is updated every two minutes; figures are from the latest score.
    """

    as_of: Time
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
    read_at: Time


class _SnapshotHead(ResponseModel):
    id: str
    resource: str


class SnapshotResponse(RatedResponse, _SnapshotHead):
    """The free, cached view of an endpoint. `reason` explains the recommendation. `down` is null
    unless the endpoint is down. `payableNow` and `payable24h` are the probabilities that the
    endpoint is payable in half an hour and in 24 hours. `partlyReachable` is present if several
    vantage points probe, and true if only some of them reach the endpoint. `improvements` lists
    changes that would raise the score, largest gain first. `providerStatement` is present if the
    provider publishes one, and is unverified. `buyersReports` is present if payers reported whether
    the endpoint delivered.
    """

    reason: str
    demand: DemandResponse | None
    coverage: Coverage
    payable_now: Chance | None = from_attribute("payable_now_permille")
    probes30d: int = from_attribute("probes")
    advertised_price_usd: float | _NotAdvertised
    price_stability: str
    network: str | None
    transport: Annotated[str, OneOf(Transport)]
    first_seen: Annotated[str, BeforeValidator(iso_day)]
    last_probed: _Minute | None
    status: Annotated[str, OneOf(Listing)]
    snapshot_computed: _Minute = from_attribute("computed_at")
    age_hours: int
    advertised_description: str = from_attribute("description")
    better_alternatives: int | None
    summary: str
    verdict: Annotated[str | None, NULL_IF_EMPTY]
    sources: list[str]
    policy_version: int
    endpoint_page: str
    simulated: bool
    test_network: bool
    improvements: Annotated[list[ImprovementResponse], Field(max_length=SHOWN)]
    provider_statement: ProviderStatementResponse | None = absent_if_null("seller_file")
    partly_reachable: bool | None = absent_if_null()
    buyers_reports: BuyersReportsResponse | None = absent_if_null()


def leaderboard(board: Leaderboard, *, base_url: str) -> LeaderboardResponse:
    """Build the JSON of the leaderboard."""
    return LeaderboardResponse.build(
        board,
        simulated=any(row.simulated for row in board.rows),
        endpoints=[
            LeaderRow.build(
                row,
                rank=rank,
                endpoint_page=page_url(base_url, row.id),
                more_of_site=board.more.get(row.id),
            )
            for rank, row in enumerate(board.rows, 1)
        ],
    )


def snapshot(view: Snapshot, *, now: int, base_url: str) -> SnapshotResponse:
    """Build the JSON of a snapshot; `now` is in milliseconds, its age in whole hours."""
    changes, price = view.price_changes, view.price_micro_usd
    return SnapshotResponse.build(
        view,
        advertised_price_usd="not advertised" if price is None else micro_usd(price),
        price_stability=f"{changes} change(s)" if changes else "stable",
        age_hours=max(0, now - view.computed_at) // HOUR_MS,
        endpoint_page=page_url(base_url, view.id),
        test_network=is_test_network(view.network),
    )
