"""The ecosystem's counts as JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from tollgauge.web.wire.response_model import ResponseModel, iso, micro_usd, permille, tenths
from tollgauge.web.wire.scores import DemandResponse, demand

if TYPE_CHECKING:  # heavy: commands that only judge a report need no database
    from tollgauge.monitor.reports.overview import Ecosystem
    from tollgauge.monitor.statistics import HistogramBin, Statistics


class CountedBinResponse(ResponseModel):
    """How many endpoints have a figure from `atLeast` to below `below` (null without end)."""

    at_least: float
    below: float | None
    count: int


class NameResponse(ResponseModel):
    """How many endpoints have a name; null for all that are not named."""

    name: str | None
    count: int


class DistributionsResponse(ResponseModel):
    """How figures are spread over the `endpoints` that are listed and have a score, as of `asOf`,
    which is at most 15 minutes ago: scores (0 to 100), uptime in 30 days (percent), mean latency
    (milliseconds; `neverUp` have none), prices (dollars; `otherTokens` are not in dollars,
    `notAdvertised` none), recommendations, networks of the prices, and the directories that list
    endpoints.
    """

    as_of: str
    endpoints: int
    scores: list[CountedBinResponse]
    uptime_percent: list[CountedBinResponse]
    latency_ms: list[CountedBinResponse]
    never_up: int
    price_usd: list[CountedBinResponse]
    other_tokens: int
    not_advertised: int
    recommendations: list[NameResponse]
    networks: list[NameResponse]
    directories: list[NameResponse]


class EcosystemResponse(ResponseModel):
    """Counts over everything that is known as of `asOf`, which is at most two minutes ago, and 30
    days of settlements to known payTo addresses (null while no chain is indexed; `indexedShare`
    says how much of those days is); `provenShare` is the share of the volume that payers paid who
    also buy from established sellers, null if that is not measured.
    """

    as_of: str
    listed: int
    delisted: int
    active: int
    reachable_share: float | None
    compliant_share: float | None
    grades: dict[str, int]
    simulated: bool
    volume_usd30d: float | None
    demand: DemandResponse | None
    proven_share: float | None
    receivers30d: int | None
    payers30d: int | None
    indexed_share: float | None
    distributions: DistributionsResponse


def ecosystem(stats: Ecosystem, statistics: Statistics) -> EcosystemResponse:
    """The counts as JSON."""
    sold = stats.demand
    share = None
    if sold is not None and sold.measured and sold.volume:
        share = permille(sold.proven_volume * 1_000 // sold.volume)
    return EcosystemResponse(
        as_of=iso(stats.as_of),
        listed=stats.listed,
        delisted=stats.delisted,
        active=stats.monitored,
        reachable_share=permille(stats.reachable_permille),
        compliant_share=permille(stats.compliant_permille),
        grades=dict(stats.grades),
        simulated=stats.simulated,
        volume_usd30d=None if sold is None else micro_usd(sold.volume),
        demand=demand(sold),
        proven_share=share,
        receivers30d=stats.receivers,
        payers30d=None if sold is None else sold.payers,
        indexed_share=permille(stats.indexed_permille),
        distributions=_distributions(statistics),
    )


def _distributions(counted: Statistics) -> DistributionsResponse:
    return DistributionsResponse(
        as_of=iso(counted.as_of),
        endpoints=counted.endpoints,
        scores=_bins(counted.scores, tenths),
        uptime_percent=_bins(counted.uptimes, tenths),
        latency_ms=_bins(counted.latencies, int),
        never_up=counted.no_latency,
        price_usd=_bins(counted.prices, micro_usd),
        other_tokens=counted.other_tokens,
        not_advertised=counted.no_price,
        recommendations=_names(counted.recommendations),
        networks=_names(counted.networks),
        directories=_names(counted.sources),
    )


def _bins(bins: Iterable[HistogramBin], write: Callable[[int], float]) -> list[CountedBinResponse]:
    return [
        CountedBinResponse(
            at_least=write(row.least),
            below=None if row.below is None else write(row.below),
            count=row.count,
        )
        for row in bins
    ]


def _names(counts: Iterable[tuple[str, int]]) -> list[NameResponse]:
    return [NameResponse(name=name or None, count=count) for name, count in counts]
