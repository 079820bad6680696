"""Filter and Sort: which endpoints a list or a search shows, and in which order a list has them.

core/similarity/columns applies both to every endpoint at once; `Filter.admits` judges one.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tollgauge.core.endpoint.identity import Listing

GRADES: Final = "ABCDF"
"""Best first."""


class Sort(StrEnum):
    """An order of a list; what has no figure comes last.

    Best score first, then confidence; cheapest first; most uptime first; fastest first; the
    latest first; by address (host, then path).
    """

    SCORE = "score"
    PRICE = "price"
    UPTIME = "uptime"
    LATENCY = "latency"
    NEWEST = "newest"
    NAME = "name"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What an endpoint is sorted and filtered by. `score_tenths` and `uptime_tenths` are tenths,
    `confidence_hundredths` hundredths, `latency_ms` milliseconds, `price` millionths of a dollar,
    `first_seen` ms UTC; None where nothing was measured or advertised.
    """

    id: str
    resource: str
    host: str
    status: Listing
    network: str | None = None
    recommendation: str = "unverified"
    grade: str | None = None
    score_tenths: int | None = None
    confidence_hundredths: int = 0
    uptime_tenths: int | None = None
    latency_ms: int | None = None
    price: int | None = None
    first_seen: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """What must be true of every endpoint that is shown; None and an empty text admit any.

    `grades` are the letters that are admitted, `max_price` the most that a call may cost, in
    millionths of a dollar: an endpoint without a price in dollars is not admitted then.
    """

    status: Listing | None = Listing.LISTED
    host: str | None = None
    network: str | None = None
    recommendation: str | None = None
    grades: str = ""
    max_price: int | None = None

    def admits(self, figures: Figures) -> bool:
        """Whether an endpoint is shown."""
        price = figures.price
        return (
            self.status in (None, figures.status)
            and self.host in (None, figures.host)
            and self.network in (None, figures.network)
            and self.recommendation in (None, figures.recommendation)
            and (not self.grades or (figures.grade or "-") in self.grades)
            and (self.max_price is None or (price is not None and price <= self.max_price))
        )


def at_least(grade: str) -> str:
    """The letters of a grade and of all better ones."""
    return GRADES[: GRADES.index(grade) + 1]
