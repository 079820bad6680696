"""An attack on the score, and the simulated endpoint on which attacks are tried."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Final

from docs.gaming_history import EVERY_MS, Behaviour, History, alternate, history, up_until
from tollgauge.core.base.units import DAY_MS, HOUR_MS, MINUTE_MS
from tollgauge.core.probe.exchange import Answer, Fault
from tollgauge.core.score.score import Score
from tollgauge.demo.behaviours import perfect_v2
from tollgauge.demo.seller import DemoRequest
from tollgauge.demo.sellers import SELLERS

START: Final = 20_600 * DAY_MS
NOW: Final = START + 30 * DAY_MS - MINUTE_MS
SELLER: Final = SELLERS[0]
PAYABLE: Final = perfect_v2(SELLER, DemoRequest(method="GET", path=SELLER.path), START).answer
DOWN: Final = Answer(status=503)
FREE: Final = "nothing"


@dataclass(frozen=True, kw_only=True)
class Attack:
    """A trick of a seller and its effect.

    Attributes:
        trick: description of the trick.
        without: score without the trick.
        with_it: score with the trick.
        cost: price of the trick.
        bound: the rule that limits the gain.
        open: True if no rule limits the gain.
    """

    trick: str
    without: Score
    with_it: Score
    cost: str = FREE
    bound: str
    open: bool = False

    @property
    def gain_tenths(self) -> int:
        """The gain in tenths of a point."""
        return points_of(self.with_it) - points_of(self.without)

    def row(self) -> tuple[str, ...]:
        """Return the row of the table."""
        effect = (
            f"{_format(self.without)} → {_format(self.with_it)} ({_format_gain(self.gain_tenths)})"
        )
        return (self.trick, effect, self.cost, self.bound)


def probe_endpoint(behave: Behaviour, *, days: int = 30, daily_after: int | None = None) -> History:
    """Probe an endpoint for `days` days, and only daily after `daily_after` of them."""
    daily = START + (days if daily_after is None else daily_after) * DAY_MS
    return history(
        SELLER.url,
        behave,
        start=START,
        until=START + days * DAY_MS - MINUTE_MS,
        every=lambda at: EVERY_MS if at < daily else DAY_MS,
    )


@cache
def probe_payable(*, days: int = 30) -> History:
    """Probe an endpoint that is always payable."""
    return probe_endpoint(lambda _: PAYABLE, days=days)


@cache
def score_up_a_quarter(down: Answer | Fault) -> Score:
    """Score an endpoint that is payable for 6 of 24 hours and otherwise responds with `down`."""
    return probe_endpoint(alternate_hours(6, 18, down)).best_of_last_day()


def alternate_hours(up: int, down: int, answer: Answer | Fault) -> Behaviour:
    """Alternate between `up` payable hours and `down` hours with another response."""
    return alternate(up * HOUR_MS, down * HOUR_MS, PAYABLE, answer)


def probe_up_until(since: int, down: Answer | Fault, **probed: int) -> History:
    """Probe an endpoint that is payable for `since` ms and never again."""
    return probe_endpoint(up_until(START + since, PAYABLE, down), **probed)


def points_of(computed: Score) -> int:
    """Return a score in tenths of a point."""
    return computed.score_tenths or 0


def _format(computed: Score) -> str:
    return f"{_points(points_of(computed))} {computed.grade} {computed.recommendation}"


def _points(tenths: int) -> str:
    return f"{tenths // 10}.{tenths % 10}"


def _format_gain(tenths: int) -> str:
    return ("−" if tenths < 0 else "+") + _points(abs(tenths))
