"""JSON of the ecosystem statistics and of the calibration."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Annotated, Any, Final

from pydantic import BeforeValidator

from tollgauge.core.base.units import DAY_MS, iso_day
from tollgauge.core.calibration.calibration import (
    DAY,
    KEPT,
    NEXT,
    NOW,
    Sums,
    groups,
    qualities,
    reliability,
)
from tollgauge.web.wire.response_model import (
    Chance,
    Dollars,
    ResponseModel,
    Time,
    from_attribute,
    micro_usd,
    tenths,
)
from tollgauge.web.wire.scores import DemandResponse

if TYPE_CHECKING:
    from tollgauge.monitor.calibration import Calibration
    from tollgauge.monitor.reports.overview import Ecosystem
    from tollgauge.monitor.statistics import HistogramBin, Statistics
    from tollgauge.store.chain.periods import ChainPeriods, PeriodFigures


BRIEF_NAMES: Final = 3
"""Names per list in an answer to an agent."""
_BRIEF_CHARACTERS: Final = 41
"""Characters of such a name: a network with its reference of 32 characters fits."""
_BINS: Final = ("scores", "uptime_percent", "latency_ms", "price_usd")
_NAMES: Final = ("networks", "directories", "schemes", "offered_networks", "extensions")


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
    name each in their last one, so that an endpoint can count several times.
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

    day: str
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
    last_day: str
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

    return NetworkSettlementsResponse(
        network=f"eip155:{chain.chain}",
        last_day=iso_day(chain.last_day * DAY_MS),
        periods=[
            PeriodResponse(
                days=row.days,
                current=build(row.current),
                previous=None if row.previous is None else build(row.previous),
            )
            for row in chain.comparisons
        ],
        by_day=[
            SettlementDayResponse.build(one, day=iso_day(one.day * DAY_MS), **unproven)
            for one in chain.by_day
        ],
        facilitators=[
            FacilitatorPeriodResponse.build(
                period, looked_up_share=share(period.settlements, period.looked_up).share
            )
            for period in chain.facilitators
        ],
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


_Millionths = Annotated[float, BeforeValidator(lambda value: value / 1_000_000)]
_TenThousandths = Annotated[float, BeforeValidator(lambda value: value / 10_000)]


class QualityResponse(ResponseModel):
    """Accuracy of a forecaster. Lower is better for the Brier score and the log loss, higher for
    the AUC. The AUC is null if all outcomes are equal.
    """

    name: str
    count: int
    brier: _Millionths = from_attribute("brier_millionths")
    log_loss: _Millionths = from_attribute("log_loss_millionths")
    auc: _TenThousandths | None = from_attribute("auc_e4")


class BinResponse(ResponseModel):
    """Forecasts from `low` to below `high`: their mean, and the observed share with its 95% Wilson
    interval. These are null, with a `note`, if there are too few forecasts.
    """

    low: Chance
    high: Chance
    count: int
    mean: Chance | None
    came_true: Chance | None
    least: Chance | None
    most: Chance | None
    note: str


class HorizonResponse(ResponseModel):
    """Forecasts of one horizon compared with the baselines, and their reliability table."""

    count: int
    forecasters: list[QualityResponse]
    reliability: list[BinResponse]


class GroupResponse(ResponseModel):
    """Share of endpoints of a grade, recommendation or age that were payable at the next probe and
    after one day.
    """

    name: str
    count: int
    payable_next: _TenThousandths | None = from_attribute("next_e4")
    payable_after_day: _TenThousandths | None = from_attribute("day_e4")


class ShareResponse(ResponseModel):
    """A share and the number that it is a share of."""

    count: int
    share: float | None


class FiguresResponse(ResponseModel):
    """Results of one policy; `kept` is the number of stored forecasts, evaluated or not."""

    policy_version: int
    kept: int
    payable_now: HorizonResponse
    payable_24h: HorizonResponse
    recommendations: list[GroupResponse]
    grades: list[GroupResponse]
    ages: list[GroupResponse]
    failures_graded_a_or_b: ShareResponse


_Day = Annotated[str, BeforeValidator(lambda day: iso_day(day * DAY_MS))]
"""A date, from the number of a UTC day."""


class CalibrationResponse(ResponseModel):
    """Accuracy of the forecasts of the last 30 days, by policy. `firstDay` and `lastDay` are null
    until the first forecast is evaluated, two days after it was made.
    """

    as_of: Time
    first_day: _Day | None
    last_day: _Day | None
    policies: list[FiguresResponse]


def figures(sums: Sums, policy_version: int) -> FiguresResponse:
    """Build the results of one policy."""
    graded = sums.of(NEXT, "grade")
    missed = {grade: count - hits for grade, (count, hits) in graded.items()}
    return FiguresResponse.build(
        policy_version=policy_version,
        kept=sums.of(KEPT.horizon, KEPT.measure).get(KEPT.value, (0, 0))[0],
        payable_now=_horizon(sums, NOW),
        payable_24h=_horizon(sums, DAY),
        recommendations=groups(sums, "recommendation"),
        grades=groups(sums, "grade"),
        ages=groups(sums, "age"),
        failures_graded_a_or_b=share(sum(missed.values()), missed.get("A", 0) + missed.get("B", 0)),
    )


def calibration(report: Calibration, *, now: int) -> CalibrationResponse:
    """Build the JSON of the calibration, newest policy first."""
    return CalibrationResponse.build(
        report,
        as_of=now,
        policies=[figures(sums, version) for version, sums in sorted(report.sums.items())[::-1]],
    )


def _horizon(sums: Sums, horizon: str) -> HorizonResponse:
    rows = qualities(sums, horizon)
    return HorizonResponse.build(
        count=rows[0].count if rows else 0,
        forecasters=rows,
        reliability=[
            BinResponse.build(row, note="not enough data" if row.mean is None else "")
            for row in reliability(sums, horizon)
        ],
    )


def share(count: int, part: int) -> ShareResponse:
    """Build the share of `part` in `count`; null if `count` is 0."""
    return ShareResponse(count=count, share=part / count if count else None)
