"""JSON of the ecosystem statistics."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Annotated, Any, Final

from pydantic import BeforeValidator

from tollgauge.core.base.units import network_of
from tollgauge.monitor.statistics import FACILITATOR, OFFERS, SHARE_KINDS
from tollgauge.web.wire.response_model import (
    Chance,
    Day,
    Dollars,
    ResponseModel,
    Time,
    from_attribute,
    micro_usd,
    tenths,
)
from tollgauge.web.wire.scores import DemandResponse

if TYPE_CHECKING:
    from tollgauge.core.score.income import PeriodFigures
    from tollgauge.monitor.reports.overview import Ecosystem
    from tollgauge.monitor.statistics import HistogramBin, Statistics
    from tollgauge.store.chain.periods import ChainPeriods
    from tollgauge.store.endpoints.ranking import WeekShares


BRIEF_NAMES: Final = 3
"""Names per list in an answer to an agent."""
_BRIEF_CHARACTERS: Final = 41
"""Characters of such a name: a network with its reference of 32 characters fits."""
_BINS: Final = ("scores", "uptime_percent", "latency_ms", "price_usd")
_NAMES: Final = (
    *("networks", "directories", "schemes", "offered_networks", "extensions", "versions"),
)


class CountedBinResponse(ResponseModel):
    """Number of endpoints with a value from `atLeast` to below `below` (null: no upper limit)."""

    at_least: float
    below: float | None
    count: int


class NameResponse(ResponseModel):
    """Number of endpoints per name; a null name counts all others."""

    name: str | None
    count: int


def _names(counts: Iterable[tuple[str, int]]) -> list[NameResponse]:
    return [NameResponse(name=name or None, count=count) for name, count in counts]


_Names = Annotated[list[NameResponse], BeforeValidator(_names)]


class DistributionsResponse(ResponseModel):
    """Distributions over all listed endpoints with a score, updated every 15 minutes: scores (0 to
    100), 30-day uptime (percent), average latency (milliseconds), prices (dollars),
    recommendations, payment networks, and directories. `neverUp` endpoints have no latency,
    `otherTokens` have a price in another token, and `notAdvertised` have no price. `offers`
    endpoints sent a readable 402; `schemes`, `offeredNetworks` and `extensions` count those that
    name each in their last one, so that an endpoint can count several times; `versions` are of
    x402.
    """

    as_of: Time
    endpoints: int
    scores: list[CountedBinResponse]
    uptime_percent: list[CountedBinResponse]
    latency_ms: list[CountedBinResponse]
    never_up: int = from_attribute("no_latency")
    price_usd: list[CountedBinResponse]
    other_tokens: int
    not_advertised: int = from_attribute("no_price")
    recommendations: _Names
    networks: _Names
    directories: _Names = from_attribute("sources")
    offers: int
    schemes: _Names
    offered_networks: _Names
    extensions: _Names
    versions: _Names


class FacilitatorShareResponse(ResponseModel):
    """Settlements that an address submitted; a null address counts all others."""

    network: str
    address: str | None
    settlements: int


class WeekResponse(ResponseModel):
    """The last counts of a week, which begins on Monday (UTC). `offers` endpoints with a score sent
    a readable 402; `schemes`, `networks`, `extensions` and `versions` (of x402) count those that
    name each in their last one. `facilitators` counts settlements of the seven complete days before
    `countedAt`, as far as their submitters were looked up.
    """

    week: Day
    counted_at: Time
    offers: int
    schemes: list[NameResponse]
    networks: list[NameResponse]
    extensions: list[NameResponse]
    versions: list[NameResponse]
    facilitators: list[FacilitatorShareResponse]


class SharesResponse(ResponseModel):
    """Weekly counts, newest first."""

    weeks: list[WeekResponse]


class PeriodFiguresResponse(ResponseModel):
    """Payments of a period to sellers from others: their number, volume, buyers and sellers, and
    the buyers that also buy from established sellers, with their net spending. These two are null
    if they are not measured.
    """

    settlements: int
    volume_usd: Dollars = from_attribute("volume")
    buyers: int
    sellers: int
    proven_buyers: int | None
    proven_volume_usd: Dollars | None = from_attribute("proven_volume")


class PeriodResponse(ResponseModel):
    """The last `days` complete UTC days, and as many days before them (`previous`), null if these
    were not measured.
    """

    days: int
    current: PeriodFiguresResponse
    previous: PeriodFiguresResponse | None


class SettlementDayResponse(ResponseModel):
    """Payments of one UTC day."""

    day: Day
    settlements: int = from_attribute("transfers")
    volume_usd: Dollars = from_attribute("volume")
    proven_volume_usd: Dollars | None = from_attribute("proven_volume")


class FacilitatorResponse(ResponseModel):
    """Payments that one address submitted. `configured` addresses are signers of this service's
    facilitator.
    """

    address: str
    configured: bool
    settlements: int
    volume_usd: Dollars = from_attribute("volume")
    buyers: int


class FacilitatorPeriodResponse(ResponseModel):
    """All payments of the last `days` complete UTC days by the address that submitted their
    transaction, usually a facilitator's. `lookedUpShare` of the `settlements` were looked up, the
    newest first (null without settlements); the other figures cover only these. `top` has the
    addresses with the most settlements, out of `submitters`.
    """

    days: int
    settlements: int
    looked_up_share: float | None
    submitters: int
    top: list[FacilitatorResponse]


class NetworkSettlementsResponse(ResponseModel):
    """Settlements on a network up to the UTC day `lastDay`, each of the last 30 days, oldest
    first, and the facilitators that submitted them.
    """

    network: str
    last_day: Day
    periods: list[PeriodResponse]
    by_day: list[SettlementDayResponse]
    facilitators: list[FacilitatorPeriodResponse]


class EcosystemResponse(ResponseModel):
    """Counts over all known endpoints, updated every two minutes, and settlements to known payTo
    addresses in the last 30 days. Settlement figures are null if no chain is indexed;
    `indexedShare` is the share of the 30 days that is indexed. `provenShare` is the share of the
    volume from payers that also buy from established sellers; null if it is not measured.
    `settlements` has the complete UTC days of each indexed network.
    """

    as_of: Time
    listed: int
    delisted: int
    active: int = from_attribute("monitored")
    reachable_share: Chance | None = from_attribute("reachable_permille")
    compliant_share: Chance | None = from_attribute("compliant_permille")
    grades: Annotated[dict[str, int], BeforeValidator(dict)]
    simulated: bool
    volume_usd30d: Dollars | None
    demand: DemandResponse | None
    proven_share: Chance | None
    receivers30d: int | None = from_attribute("receivers")
    payers30d: int | None
    indexed_share: Chance | None = from_attribute("indexed_permille")
    settlements: list[NetworkSettlementsResponse]
    distributions: DistributionsResponse


def ecosystem(stats: Ecosystem, statistics: Statistics) -> EcosystemResponse:
    """Build the JSON of the statistics."""
    sold = stats.demand
    share = None
    if sold is not None and sold.measured and sold.volume:
        share = sold.proven_volume * 1_000 // sold.volume
    return EcosystemResponse.build(
        stats,
        volume_usd30d=None if sold is None else sold.volume,
        proven_share=share,
        payers30d=None if sold is None else sold.payers,
        settlements=[
            network_settlements(chain, measured=sold is not None and sold.measured)
            for chain in stats.periods
        ],
        distributions=_distributions(statistics),
    )


def brief_ecosystem(stats: EcosystemResponse) -> EcosystemResponse:
    """Return the statistics without single days, facilitators, rare names and empty bins, for an
    agent's context.
    """
    settled = [
        row.model_copy(update={"by_day": [], "facilitators": []}) for row in stats.settlements
    ]
    counts = stats.distributions
    lists: dict[str, object] = {name: _brief_names(getattr(counts, name)) for name in _NAMES}
    lists |= {name: [row for row in getattr(counts, name) if row.count] for name in _BINS}
    return stats.model_copy(
        update={
            "settlements": settled,
            "distributions": counts.model_copy(update=lists),
        }
    )


def _brief_names(counts: list[NameResponse]) -> list[NameResponse]:
    """Sum up the counts after the first ones."""
    first, rest = counts[:BRIEF_NAMES], counts[BRIEF_NAMES:]
    named = [
        NameResponse(name=row.name and row.name[:_BRIEF_CHARACTERS], count=row.count)
        for row in first
    ]
    others = [NameResponse(name=None, count=sum(row.count for row in rest))] if rest else []
    return [*named, *others]


def network_settlements(chain: ChainPeriods, *, measured: bool) -> NetworkSettlementsResponse:
    """Build the settlements of a network; proven figures are null unless `measured`."""
    unproven: dict[str, Any] = {} if measured else {"proven_volume_usd": None}
    unproven_buyers = {} if measured else {"proven_buyers": None}

    def build(period: PeriodFigures) -> PeriodFiguresResponse:
        return PeriodFiguresResponse.build(period, **unproven, **unproven_buyers)

    return NetworkSettlementsResponse.build(
        chain,
        network=network_of(chain.chain),
        periods=[
            PeriodResponse(
                days=row.days,
                current=build(row.current),
                previous=None if row.previous is None else build(row.previous),
            )
            for row in chain.comparisons
        ],
        by_day=[SettlementDayResponse.build(one, **unproven) for one in chain.by_day],
    )


def shares(weeks: Iterable[WeekShares]) -> SharesResponse:
    """Build the JSON of weekly counts."""
    return SharesResponse(weeks=[_week(week) for week in weeks])


def _week(counted: WeekShares) -> WeekResponse:
    by_kind: dict[str, list[tuple[str, int]]] = {}
    for one in counted.shares:
        by_kind.setdefault(one.kind, []).append((one.name, one.count))
    lists = {f"{kind}s": _names(by_kind.get(kind, ())) for kind in SHARE_KINDS}
    facilitators = []
    for name, count in by_kind.get(FACILITATOR, ()):
        network, _, address = name.partition(" ")
        facilitators.append(
            FacilitatorShareResponse(network=network, address=address or None, settlements=count)
        )
    return WeekResponse.build(
        counted,
        offers=sum(count for _, count in by_kind.get(OFFERS, ())),
        facilitators=facilitators,
        **lists,
    )


def _distributions(counted: Statistics) -> DistributionsResponse:
    return DistributionsResponse.build(
        counted,
        scores=_bins(counted.scores, tenths),
        uptime_percent=_bins(counted.uptimes, tenths),
        latency_ms=_bins(counted.latencies, int),
        price_usd=_bins(counted.prices, micro_usd),
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
