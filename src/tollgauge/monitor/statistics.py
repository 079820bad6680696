"""Distribution of scores, uptime, latency, prices and offers over all ranked endpoints.

For a large population a worker computes them periodically (jobs/score) and requests read the stored
result. For a small one each request computes them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pydantic import TypeAdapter
from sqlalchemy import Connection

from tollgauge.core.base.units import MINUTE_MS, network_of
from tollgauge.core.endpoint.terms import scheme_of
from tollgauge.db.meta import CachedValue
from tollgauge.monitor.ranking import COUNTED_MAX
from tollgauge.store.chain import periods
from tollgauge.store.endpoints import crawls, ranking
from tollgauge.store.endpoints.ranking import NO_BIN, Share

# Edges of the histogram bins.
SCORES: Final = tuple(range(100, 1_000, 100))  # tenths of a point
UPTIMES: Final = (1, 500, 900, 950, 990, 995, 1_000)  # permille
LATENCIES: Final = (100, 250, 500, 1_000, 2_000, 5_000)  # ms
PRICES: Final = (1_000, 5_000, 10_000, 50_000, 100_000, 1_000_000, 10_000_000)  # millionths of $
OFFERS: Final = "offers"
SHARE_KINDS: Final = ("scheme", "network", "extension", "version")
FACILITATOR: Final = "facilitator"
_WEEK_DAYS: Final = 7
NAMES_MAX: Final = 12  # networks and directories named; the rest is summed up


@dataclass(frozen=True, slots=True)
class HistogramBin:
    """Number of endpoints with a value from `least` up to but excluding `below`; None is
    unbounded.
    """

    least: int
    below: int | None
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """Distribution of the ranked endpoints at `as_of` (ms UTC).

    Bins have the units of the edges above. `no_latency` counts endpoints that were not up in 30
    days, `no_price` those without a price and `other_tokens` those whose price is not in dollars.
    `networks` counts networks of prices; `sources` counts directories, including endpoints without
    a score. `offers` endpoints sent a readable envelope; `schemes`, `offered_networks` and
    `extensions` count those whose last one names each at least once, `versions` those by its x402
    version. All are sorted by count and end with the sum of the remaining ones under an empty name.
    """

    as_of: int
    endpoints: int
    scores: tuple[HistogramBin, ...]
    uptimes: tuple[HistogramBin, ...]
    latencies: tuple[HistogramBin, ...]
    no_latency: int
    prices: tuple[HistogramBin, ...]
    other_tokens: int
    no_price: int
    recommendations: tuple[tuple[str, int], ...]
    networks: tuple[tuple[str, int], ...]
    sources: tuple[tuple[str, int], ...]
    offers: int = 0
    schemes: tuple[tuple[str, int], ...] = ()
    offered_networks: tuple[tuple[str, int], ...] = ()
    extensions: tuple[tuple[str, int], ...] = ()
    versions: tuple[tuple[str, int], ...] = ()


_CACHED: Final = CachedValue(
    key="statistics",
    form=TypeAdapter(Statistics),
    refresh_ms=5 * MINUTE_MS,
    use_ms=15 * MINUTE_MS,
)
is_due: Final = _CACHED.is_due


def current(tx: Connection, *, now: int) -> Statistics:
    """Return the stored statistics if they are fresh enough, otherwise computed ones."""
    return _CACHED.usable(tx, now=now) or count(tx, now=now)


def count(tx: Connection, *, now: int) -> Statistics:
    """Compute the statistics."""
    return Statistics(
        as_of=now,
        **_count_scores(tx),
        **_count_prices(tx),
        **_count_offers(tx),
        sources=_most(crawls.count_listed(tx)),
    )


def _count_scores(tx: Connection) -> dict[str, Any]:
    scores: Counter[int] = Counter()
    uptimes: Counter[int] = Counter()
    recommendations: Counter[str] = Counter()
    for score, uptime, recommendation, number in ranking.by_figures(
        tx, scores=SCORES, uptimes=UPTIMES
    ):
        scores[score] += number
        uptimes[uptime] += number
        recommendations[recommendation] += number
    return {
        "endpoints": scores.total(),
        "scores": _bins(SCORES, scores),
        "uptimes": _bins(UPTIMES, uptimes),
        "recommendations": tuple(recommendations.most_common()),
    }


def _count_prices(tx: Connection) -> dict[str, Any]:
    prices: Counter[int] = Counter()
    latencies: Counter[int] = Counter()
    networks: Counter[str] = Counter()
    other_tokens = no_price = 0
    for quote, latency, number in ranking.by_price(tx, latencies=LATENCIES):
        latencies[latency] += number
        if quote is None:
            no_price += number
            continue
        networks[quote.network] += number
        if quote.micro_usd is None:
            other_tokens += number
        else:
            prices[bisect_right(PRICES, quote.micro_usd)] += number
    return {
        "latencies": _bins(LATENCIES, latencies),
        "no_latency": latencies[NO_BIN],
        "prices": _bins(PRICES, prices),
        "other_tokens": other_tokens,
        "no_price": no_price,
        "networks": _most(networks),
    }


def _count_offers(tx: Connection) -> dict[str, Any]:
    offers = 0
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for forms, extensions, version, number in ranking.by_offer(tx):
        if not forms:
            continue
        offers += number
        # An endpoint counts once per name, however many of its offers have that name.
        for kind, names in (
            ("schemes", map(scheme_of, forms)),
            ("offered_networks", (form.rpartition(" ")[0] for form in forms)),
            ("extensions", extensions),
            ("versions", [str(version)] if version else ()),
        ):
            counts[kind].update(dict.fromkeys(names, number))
    return {"offers": offers} | {kind: _most(counter) for kind, counter in counts.items()}


def keep(tx: Connection, counted: Statistics) -> None:
    """Store the statistics of a large population (monitor/ranking.COUNTED_MAX), otherwise remove
    them. Once per hour, store the shares of the week.
    """
    _CACHED.keep(tx, counted, worthwhile=counted.endpoints > COUNTED_MAX)
    if ranking.are_shares_due(tx, now=counted.as_of):
        ranking.save_shares(tx, _shares(tx, counted), now=counted.as_of)


def _shares(tx: Connection, counted: Statistics) -> Iterator[Share]:
    """Yield the counts of endpoints that sent an envelope, and the settlements of the last seven
    complete days by facilitator.
    """
    yield Share(OFFERS, "", counted.offers)
    named = (counted.schemes, counted.offered_networks, counted.extensions, counted.versions)
    for kind, counts in zip(SHARE_KINDS, named, strict=True):
        yield from (Share(kind, name, count) for name, count in counts)
    for chain in periods.load_published(tx):
        for period in chain.facilitators:
            if period.days == _WEEK_DAYS:
                others = period.looked_up - sum(row.settlements for row in period.top)
                network = network_of(chain.chain)
                for row in period.top:
                    yield Share(FACILITATOR, f"{network} {row.address}", row.settlements)
                yield Share(FACILITATOR, f"{network} ", others)


def _bins(edges: Sequence[int], counts: Counter[int]) -> tuple[HistogramBin, ...]:
    limits = zip((0, *edges), (*edges, None), strict=True)
    return tuple(HistogramBin(least, below, counts[at]) for at, (least, below) in enumerate(limits))


def _most(counts: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    """Return the most frequent names with their counts, and the sum of the rest under an empty
    name.
    """
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    rest = sum(count for _, count in ordered[NAMES_MAX:])
    return (*ordered[:NAMES_MAX], *([("", rest)] if rest else []))
