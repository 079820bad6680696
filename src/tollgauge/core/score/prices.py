"""Prices: the usual price of an endpoint, and the changes of its price that count.

A price is compared with the endpoint's usual price, not with the one before: many small steps add
up to an increase, and the end of a discount is not one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Final, NamedTuple

from pydantic import PlainSerializer, WithJsonSchema

from tollgauge.core.base.units import HOUR_MS, known_asset
from tollgauge.core.endpoint.terms import Quote, Text
from tollgauge.core.probe.probe import ProbeResult, statement

USD: Final = "USD"
"""The unit of prices in known stablecoins: 10^-18 dollars."""
HISTORY_MIN_MS: Final = 24 * HOUR_MS
"""Minimum history for a usual price of a network and asset."""
_Scaled = Annotated[
    int,
    PlainSerializer(str),
    WithJsonSchema({"type": "string", "pattern": "^(0|[1-9][0-9]{0,119})$"}),
]
_DIGITS: Final = 18
_JUMP: Final = 2
_TOLERANCE: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """A changed price and the usual price at the time of the change, in one unit."""

    unit: Text
    """`USD` for 10^-18 dollars, otherwise network, space, asset"""
    before: _Scaled | None
    """The price before the change; null in another unit"""
    after: _Scaled
    """The new price"""
    usual: _Scaled | None
    """Time-weighted lower median of the 31 days before; null if nothing is comparable"""
    upper: _Scaled | None
    """Upper quartile of the same"""

    @property
    def is_increase(self) -> bool:
        """Whether the price more than doubled against the usual price and the upper quartile."""
        if self.usual is None or self.upper is None:
            return True
        return self.after > _JUMP * self.usual and self.after > _JUMP * self.upper


class Steps(NamedTuple):
    """The numbers of price changes that count: increases and others."""

    increases: int
    others: int


class _Usual(NamedTuple):
    """A price history of one network and asset: time, lower median, upper quartile."""

    time: int
    median: int
    upper: int


def count_steps(prices: Iterable[Price]) -> Steps:
    """Count the price changes of one source, oldest first.

    A change is an *increase* if the new price is more than twice the usual price and more than
    twice the upper quartile. It is another *counted change* if it differs by more than 10% from
    the usual price and from the price at the last counted change, at first from the first price.
    """
    increases = others = 0
    last: tuple[str, int] | None = None
    for price in prices:
        if last is None and price.before is not None:
            last = price.unit, price.before
        if price.is_increase:
            increases += 1
        elif _differs(price.after, price.usual) and (
            last is None or last[0] != price.unit or _differs(price.after, last[1])
        ):
            others += 1
        else:
            continue
        last = price.unit, price.after
    return Steps(increases, others)


def find_last_jump(changes: Sequence[tuple[int, Price]], *, since: int) -> int | None:
    """Return the time of the last increase after `since` (ms UTC).

    None without one, or if the price has returned to at most twice the usual price at that time.
    `changes` are (time, price), oldest first.
    """
    increase = next((row for row in reversed(changes) if row[1].is_increase), None)
    if increase is None or increase[0] <= since:
        return None
    at, kept = increase
    now = changes[-1][1]
    if kept.usual is None or now.unit != kept.unit or now.after > _JUMP * kept.usual:
        return at
    return None


def changed_price(before: Quote, after: Quote, history: Sequence[ProbeResult], *, at: int) -> Price:
    """Return the price of a change at `at` (ms UTC) with the usual price before it.

    `history` are the probes of the 31 days before, oldest first.
    """
    unit, amount = _comparable(after)
    before_unit, before_amount = _comparable(before)
    seen = _usual_by_asset(history, at=at)
    own = seen.get((after.network, after.asset))
    others = [
        usual.median
        for (network, asset), usual in seen.items()
        if (network, asset) != (after.network, after.asset)
        and _unit(network, asset) == unit
        and usual.time >= HISTORY_MIN_MS
    ]
    median: int | None
    upper: int | None
    if own is not None and (own.time >= HISTORY_MIN_MS or not others):
        median, upper = own.median, own.upper
    elif others:
        median = upper = min(others)
    else:
        median = upper = before_amount if before_unit == unit else None
    return Price(
        unit=unit,
        before=before_amount if before_unit == unit else None,
        after=amount,
        usual=median,
        upper=upper,
    )


def _usual_by_asset(history: Sequence[ProbeResult], *, at: int) -> dict[tuple[str, str], _Usual]:
    """Return the usual price of each network and asset, weighted by the time of each price."""
    times: dict[tuple[str, str], dict[int, int]] = defaultdict(lambda: defaultdict(int))
    counted = [result for result in history if statement(result) is not None and result.at < at]
    ends = [*(result.at for result in counted[1:]), at]
    for result, end in zip(counted, ends, strict=False):
        if result.quote is not None:
            place = result.quote.network, result.quote.asset
            _, amount = _comparable(result.quote)
            times[place][amount] += min(end - result.at, result.holds)
    return {place: _usual(amounts) for place, amounts in times.items() if any(amounts.values())}


def _usual(times: dict[int, int]) -> _Usual:
    """Return the lower median and the upper quartile of amounts, weighted by time."""
    whole = sum(times.values())
    passed, median = 0, None
    for amount in sorted(times):
        passed += times[amount]
        if median is None and 2 * passed >= whole:
            median = amount
        if 4 * passed >= 3 * whole:
            return _Usual(whole, amount if median is None else median, amount)
    raise AssertionError("unreachable: all of the time has passed")


def _unit(network: str, asset: str) -> str:
    return f"{network} {asset}" if known_asset(network, asset) is None else USD


def _comparable(quote: Quote) -> tuple[str, int]:
    """Return the unit of a price, and the amount in this unit."""
    scale = 0 if quote.decimals is None else _DIGITS - quote.decimals
    return _unit(quote.network, quote.asset), quote.amount * 10**scale


def _differs(amount: int, other: int | None) -> bool:
    """Return whether an amount differs by more than 10% from another."""
    return other is None or _TOLERANCE * abs(amount - other) > other
