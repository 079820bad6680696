"""Columns: every public endpoint's figures, a column each, to filter and sort all of them at once.

Rules:
- a filter of any kind looks at every endpoint: at 100,000 that takes less than a millisecond, where
  a database would need an index for each pair of filter and order;
- an order is total: endpoints with equal figures are in the order of their ids;
- a cursor is the figure and the id (in the order of addresses the address) of the last endpoint
  that was shown. So a page begins behind it, whatever came or went meanwhile.

Columns are built once and never changed. What they name is read again before it is shown
(monitor/endpoint_pages).
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from tollgauge.core.base.errors import TollgaugeError
from tollgauge.core.directory.endpoint_filter import Figures, Filter, Sort

Mask = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]

NOTHING: Final = 10**18 - 1
"""The key of an endpoint without a figure: it comes last."""
_CURSOR: Final = re.compile(r"(-?[0-9]{1,18})~(.{1,2048})", re.ASCII)


class CursorError(TollgaugeError):
    """A text that is no cursor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """The ids of one page of a list. `total` endpoints match the filter, `before` of them are on
    earlier pages. `next` and `previous` are cursors: None where there is no such page, and an empty
    `previous` is the first page.
    """

    ids: tuple[str, ...]
    total: int
    before: int
    next: str | None
    previous: str | None


@dataclass(frozen=True, slots=True)
class _Order:
    """One order: places of endpoints, the keys of those, ascending, and the texts that decide
    between equal keys, by place.
    """

    places: Ints
    keys: Longs
    texts: Sequence[str]

    def behind(self, cursor: str) -> int:
        """How many places the order has up to a cursor. Raises CursorError."""
        parts = _CURSOR.fullmatch(cursor)
        if parts is None:
            raise CursorError("This is no cursor of a list.")
        key, text = int(parts[1]), parts[2]
        low, high = (int(np.searchsorted(self.keys, key, side)) for side in ("left", "right"))
        return bisect_right(self.places, text, low, high, key=lambda place: self.texts[place])

    def cursor(self, at: int) -> str:
        """The cursor of the endpoint at a position of the order."""
        return f"{self.keys[at]}~{self.texts[self.places[at]]}"


class Columns:
    """Endpoints by their places, in the order in which they were given."""

    def __init__(self, rows: Sequence[Figures | None]) -> None:
        """`None` keeps the place of an endpoint that no list shows."""
        # Tuples of texts: the garbage collector does not look through them.
        self._ids: Final = tuple([row.id if row else "" for row in rows])
        self._shown: Final[Mask] = np.array([row is not None for row in rows], np.bool_)
        self._status: Final = _Words([row.status if row else None for row in rows])
        self._host: Final = _Words([row.host if row else None for row in rows])
        self._network: Final = _Words([row.network if row else None for row in rows])
        self.networks: Final = self._network.frequent()
        """The networks of the endpoints, the most frequent first."""
        self._recommendation: Final = _Words([row.recommendation if row else None for row in rows])
        self._grade: Final = _Words([row.grade if row else None for row in rows])
        self._price: Final[Longs] = _keys(rows, lambda row: row.price)
        by_id = _ranks(self._ids)
        self._orders: Final[dict[Sort, _Order]] = {
            sort: _order(_keys(rows, _KEYS[sort]), self._ids, by_id)
            for sort in Sort
            if sort is not Sort.NAME
        }
        names = tuple([row.resource if row else "" for row in rows])
        self._orders[Sort.NAME] = _order(_keys(rows, _KEYS[Sort.NAME]), names, _ranks(names))

    def matching(self, wanted: Filter) -> Mask:
        """Which places a filter admits."""
        mask = self._shown.copy()
        for words, value in (
            (self._status, wanted.status),
            (self._host, wanted.host),
            (self._network, wanted.network),
            (self._recommendation, wanted.recommendation),
        ):
            if value is not None:
                mask &= words.are(value)
        if wanted.grades:
            mask &= np.logical_or.reduce([self._grade.are(letter) for letter in wanted.grades])
        if wanted.max_price is not None:
            mask &= self._price <= min(wanted.max_price, NOTHING - 1)
        return mask

    def page(self, wanted: Filter, sort: Sort, *, after: str = "", limit: int) -> Page:
        """A page of a list: those behind a cursor, from the start without one. Raises
        CursorError.
        """
        order = self._orders[sort]
        matching = self.matching(wanted)[order.places]
        positions = np.flatnonzero(matching)
        before = int(np.count_nonzero(matching[: order.behind(after)])) if after else 0
        end = before + limit
        return Page(
            ids=tuple(self._ids[order.places[at]] for at in positions[before:end]),
            total=len(positions),
            before=before,
            next=order.cursor(positions[end - 1]) if end < len(positions) else None,
            previous=_previous(order, positions, before - limit) if before else None,
        )


class _Words:
    """A column of texts, as numbers."""

    def __init__(self, values: Sequence[str | None]) -> None:
        self._numbers: Final[dict[str | None, int]] = {None: -1}
        numbers = [self._numbers.setdefault(value, len(self._numbers) - 1) for value in values]
        self._column: Final[Ints] = np.array(numbers, np.int32)

    def are(self, value: str) -> Mask:
        """Where the column has a text."""
        mask: Mask = self._column == self._numbers.get(value, -2)
        return mask

    def frequent(self) -> tuple[str, ...]:
        """Its texts, the most frequent first."""
        counts = np.bincount(self._column[self._column >= 0], minlength=len(self._numbers))
        known = [word for word in self._numbers if word is not None]
        return tuple(sorted(known, key=lambda word: (-counts[self._numbers[word]], word)))


_KEYS: Final[dict[Sort, Callable[[Figures], int | None]]] = {
    Sort.SCORE: lambda row: (
        None
        if row.score_tenths is None
        else -(row.score_tenths * 1_000 + row.confidence_hundredths)
    ),
    Sort.PRICE: lambda row: row.price,
    Sort.UPTIME: lambda row: None if row.uptime_tenths is None else -row.uptime_tenths,
    Sort.LATENCY: lambda row: row.latency_ms,
    Sort.NEWEST: lambda row: -row.first_seen,
    Sort.NAME: lambda _row: 0,
}
"""What each order goes by, the least first."""


def _keys(rows: Sequence[Figures | None], key: Callable[[Figures], int | None]) -> Longs:
    keys = [None if row is None else key(row) for row in rows]
    return np.array([NOTHING if key is None else min(key, NOTHING - 1) for key in keys], np.int64)


def _ranks(texts: Sequence[str]) -> Ints:
    """The place of each text among all, by place."""
    ranks = np.empty(len(texts), np.int32)
    ranks[sorted(range(len(texts)), key=texts.__getitem__)] = np.arange(len(texts))
    return ranks


def _order(keys: Longs, texts: Sequence[str], ranks: Ints) -> _Order:
    """The order by keys, then by texts, whose ranks are at hand."""
    places = np.lexsort((ranks, keys)).astype(np.int32)
    return _Order(places, keys[places], texts)


def _previous(order: _Order, positions: npt.NDArray[np.intp], first: int) -> str:
    """The cursor of the page that begins with the match number `first`."""
    return order.cursor(positions[first - 1]) if first > 0 else ""
