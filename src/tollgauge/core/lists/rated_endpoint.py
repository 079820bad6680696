"""The read model of an endpoint, and the filters and orders of lists.

Reports, snapshots, pages, lists, searches and bundles read the same type, `RatedEndpoint`. The
figures of its latest score are columns of the endpoint's row (`FIGURES` in db/schema), so lists do
not read scores.
"""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import msgspec

from tollgauge.core.base.units import day_of, is_test_network
from tollgauge.core.endpoint.identity import Listing, Transport, transport_of
from tollgauge.core.endpoint.terms import Quote
from tollgauge.core.score.advice import PAYABLE
from tollgauge.core.score.score import Down, Score, ShownDemand

GRADES: Final = "ABCDF"
"""Best first."""
_COUNT_MAX: Final = 9_999
_HASH_SIZE: Final = 1_000
"""A rank key has seven digits for the score and its low end, four each for payers and days, and
three for the hash: 18 digits, which are a BIGINT.
"""


class ScoreFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of a score that rank, filter and describe its endpoint.

    The defaults are those of an endpoint without a score. `uptime_tenths` is tenths of a percent.
    `latency_ms` is the exact mean, rounded half up; None if every probe failed. `compliant`: at
    least half of the scored probes were. `down` is the outage of an endpoint that is down, `demand`
    describes the seller's payers. `rank_key` orders endpoints by score (`compute_rank_key`).
    """

    scored_at: int | None = None
    score_tenths: int | None = None
    rank_key: int | None = None
    confidence_hundredths: int = 0
    recommendation: str = "unverified"
    grade: str | None = None
    uptime_tenths: int | None = None
    compliant: bool = False
    latency_ms: int | None = None
    payable_now_permille: int | None = None
    payable_24h_permille: int | None = None
    demand: ShownDemand | None = None
    down: Down | None = None

    @property
    def proven_payers(self) -> int | None:
        """The number of payers who also buy from established sellers; None if it is unknown."""
        return self.demand.proven_payers if self.demand else None


class RatedEndpoint(ScoreFigures, frozen=True, kw_only=True):
    """An endpoint with its price and the figures of its latest score.

    `sources` are the directories that list it now. `service_name` and `description` are the
    provider's own words and untrusted. `public`: anyone may see it (store/endpoints/endpoints).
    """

    id: str
    resource: str
    host: str
    status: Listing = Listing.LISTED
    first_seen: int
    last_probed: int | None = None
    simulated: bool = False
    public: bool = True
    quote: Quote | None = None
    sources: tuple[str, ...] = ()
    service_name: str = ""
    description: str = ""

    @property
    def price_micro_usd(self) -> int | None:
        """The advertised price; None unless it is in a known dollar token."""
        return self.quote.micro_usd if self.quote else None

    @property
    def transport(self) -> Transport:
        """The protocol by which it is called."""
        return transport_of(self.resource)

    @property
    def network(self) -> str | None:
        """The network of the price."""
        return self.quote.network if self.quote else None

    @property
    def pay_to(self) -> str | None:
        """The advertised payTo; None if it is unknown or empty."""
        return (self.quote.pay_to or None) if self.quote else None

    @property
    def offered(self) -> bool:
        """Whether it may be an alternative to others: listed, scored and payable, not on a test
        network and without a confirmed outage.
        """
        return (
            self.status is Listing.LISTED
            and self.score_tenths is not None
            and self.recommendation in PAYABLE
            and not (self.down is not None and self.down.confirmed)
            and not is_test_network(self.network)
        )


def extract_figures(score: Score, resource: str) -> ScoreFigures:
    """Return the figures that are stored with a score of a resource."""
    stats = score.stats
    return ScoreFigures(
        scored_at=score.as_of,
        score_tenths=score.score_tenths,
        rank_key=compute_rank_key(score, resource),
        confidence_hundredths=score.confidence_hundredths,
        recommendation=score.recommendation,
        grade=score.grade,
        uptime_tenths=stats.uptime_tenths,
        compliant=stats.scored > 0 and 2 * stats.compliant >= stats.scored,
        latency_ms=stats.avg_latency_ms,
        payable_now_permille=score.payable_now_permille,
        payable_24h_permille=score.payable_24h_permille,
        demand=score.demand,
        down=score.down,
    )


def compute_rank_key(score: Score, resource: str) -> int | None:
    """Return a number that orders endpoints from the worst to the best; None without a score.

    Equal scores are ordered by the lower end of the range, proven payers (up to 9,999), days since
    first seen (up to 9,999) and a hash of URL and day, so that no seller is always the first of
    many equal ones.
    """
    if score.score_tenths is None or score.low_tenths is None:
        return None
    day = day_of(score.as_of)
    digest = hashlib.sha256(f"{resource} {day}".encode()).digest()
    key = score.score_tenths * 1_001 + score.low_tenths
    for count in (score.demand.proven_payers if score.demand else 0, score.stats.observed_days):
        key = key * (_COUNT_MAX + 1) + min(count, _COUNT_MAX)
    return key * _HASH_SIZE + int.from_bytes(digest[:8]) % _HASH_SIZE


class Sort(StrEnum):
    """An order of a list; endpoints without the figure come last.

    Best score first (`compute_rank_key`); cheapest first; most uptime first; fastest first; the
    latest first; by address (host, then path).
    """

    SCORE = "score"
    PRICE = "price"
    UPTIME = "uptime"
    LATENCY = "latency"
    NEWEST = "newest"
    NAME = "name"


SORT_FIGURES: Final[dict[Sort, tuple[str, int]]] = {
    Sort.SCORE: ("rank_key", -1),
    Sort.PRICE: ("price_micro_usd", 1),
    Sort.UPTIME: ("uptime_tenths", -1),
    Sort.LATENCY: ("latency_ms", 1),
    Sort.NEWEST: ("first_seen", -1),
}
"""The figure of each order; -1: the highest comes first. Only the address decides by name."""


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """The conditions of a list; None and an empty string admit every endpoint.

    `grades` are the admitted letters. `max_price` is in millionths of a dollar; it excludes
    endpoints without a price in dollars. `min_proven_payers` excludes endpoints whose payers are
    not known.
    """

    status: Listing | None = Listing.LISTED
    host: str | None = None
    transport: str | None = None
    network: str | None = None
    recommendation: str | None = None
    grades: str = ""
    max_price: int | None = None
    min_proven_payers: int | None = None

    def conditions(self) -> list[tuple[Condition, Any]]:
        """Return the conditions of this filter with their values."""
        values = ((condition, getattr(self, name)) for name, condition in CONDITIONS.items())
        return [(condition, value) for condition, value in values if value not in (None, "")]

    def admits(self, endpoint: RatedEndpoint) -> bool:
        """Return whether an endpoint meets all conditions."""
        return all(condition.admits(endpoint, value) for condition, value in self.conditions())


class Comparison(StrEnum):
    """How a condition compares a field of an endpoint with its value."""

    EQUALS = "equals"
    ONE_OF = "one-of"
    AT_MOST = "at-most"
    AT_LEAST = "at-least"


_COMPARE: Final[dict[Comparison, Callable[[Any, Any], bool]]] = {
    Comparison.EQUALS: operator.eq,
    Comparison.ONE_OF: lambda value, values: value in values,
    Comparison.AT_MOST: operator.le,
    Comparison.AT_LEAST: operator.ge,
}


@dataclass(frozen=True, slots=True)
class Condition:
    """The condition of one field of `Filter` on one field of `RatedEndpoint`."""

    field: str
    comparison: Comparison

    def admits(self, endpoint: RatedEndpoint, value: Any) -> bool:
        """Return whether an endpoint meets the condition; false if it lacks the figure."""
        figure = getattr(endpoint, self.field)
        return figure is not None and _COMPARE[self.comparison](figure, value)


CONDITIONS: Final = {
    "status": Condition("status", Comparison.EQUALS),
    "host": Condition("host", Comparison.EQUALS),
    "transport": Condition("transport", Comparison.EQUALS),
    "network": Condition("network", Comparison.EQUALS),
    "recommendation": Condition("recommendation", Comparison.EQUALS),
    "grades": Condition("grade", Comparison.ONE_OF),
    "max_price": Condition("price_micro_usd", Comparison.AT_MOST),
    "min_proven_payers": Condition("proven_payers", Comparison.AT_LEAST),
}
"""The conditions by field of `Filter`. core/lists/columns applies them to all endpoints in one
pass.
"""


def grades_from(grade: str) -> str:
    """Return the letters of a grade and of all better ones."""
    return GRADES[: GRADES.index(grade) + 1]
