"""One column per figure of every endpoint, to filter and sort all of them in one pass.

A filter reads every endpoint: 100,000 take less than a millisecond, whereas a database would need
an index for each pair of filter and order. Orders are total: endpoints with equal keys are in the
order of their IDs. Columns are built once and never changed; the rows of a page are read again
before they are shown (monitor/lists).
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tollgauge.core.base.errors import TollgaugeError
from tollgauge.core.lists.rated_endpoint import (
    CONDITIONS,
    SORT_KEYS,
    Comparison,
    Filter,
    RatedEndpoint,
    Sort,
)

Mask = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]

NOTHING: Final = 10**18 - 1
"""The key of an endpoint without the figure: it comes last."""
_CURSOR: Final = re.compile(r"(-?[0-9]{1,18})~(.{1,2048})", re.ASCII)


class CursorError(TollgaugeError):
    """A text that is not a cursor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """The IDs of one page of a list.

    Attributes:
        total: Endpoints that match the filter.
        before: Matching endpoints on earlier pages.
        next, previous: Cursors; None without such a page. An empty `previous` is the first page.
    """

    ids: tuple[str, ...]
    total: int
    before: int
    next: str | None
    previous: str | None


@dataclass(frozen=True, slots=True)
class _Order:
    """One order: indices of endpoints, their keys in ascending order, and the texts that break
    ties, by index.
    """

    places: Ints
    keys: Longs
    texts: Sequence[str]

    def behind(self, cursor: str) -> int:
        """Return the number of positions up to a cursor. Raises CursorError."""
        parts = _CURSOR.fullmatch(cursor)
        if parts is None:
            raise CursorError("This is not a cursor of a list.")
        key, text = int(parts[1]), parts[2]
        low, high = (int(np.searchsorted(self.keys, key, side)) for side in ("left", "right"))
        return bisect_right(self.places, text, low, high, key=lambda place: self.texts[place])

    def cursor(self, at: int) -> str:
        """Return the cursor of the endpoint at a position."""
        return f"{self.keys[at]}~{self.texts[self.places[at]]}"


class Columns:
    """The figures of endpoints, by their index in the given order."""

    def __init__(self, rows: Sequence[RatedEndpoint]) -> None:
        # Tuples of strings: the garbage collector does not traverse them.
        self._ids: Final = tuple([row.id for row in rows])
        self._public: Final[Mask] = np.array([row.public for row in rows], np.bool_)
        self._columns: Final[dict[str, _Texts | _Numbers]] = {
            condition.field: _COLUMN_TYPES[condition.comparison](
                [getattr(row, condition.field) for row in rows]
            )
            for condition in CONDITIONS.values()
        }
        public = [row.network for row in rows if row.public and row.network is not None]
        self.networks: Final = tuple(
            name for name, _ in sorted(Counter(public).items(), key=lambda one: (-one[1], one[0]))
        )
        """The networks of the public endpoints, the most frequent first."""
        by_id = _ranks(self._ids)
        names = tuple([row.resource for row in rows])
        self._orders: Final[dict[Sort, _Order]] = {
            sort: _order(_keys(map(key, rows)), self._ids, by_id)
            for sort, key in SORT_KEYS.items()
            if sort is not Sort.NAME
        }
        self._orders[Sort.NAME] = _order(
            _keys(map(SORT_KEYS[Sort.NAME], rows)), names, _ranks(names)
        )

    def match(self, wanted: Filter) -> Mask:
        """Return which indices a filter admits; only public endpoints are admitted."""
        mask = self._public.copy()
        for condition, value in wanted.conditions():
            mask &= self._columns[condition.field].match(value)
        return mask

    def page(self, wanted: Filter, sort: Sort, *, after: str = "", limit: int) -> Page:
        """Return a page of a list: the endpoints after a cursor, or the first ones. Raises
        CursorError.
        """
        order = self._orders[sort]
        matching = self.match(wanted)[order.places]
        positions = np.flatnonzero(matching)
        before = int(np.count_nonzero(matching[: order.behind(after)])) if after else 0
        end = before + limit
        return Page(
            ids=tuple(self._ids[order.places[at]] for at in positions[before:end]),
            total=len(positions),
            before=before,
            next=order.cursor(positions[end - 1]) if end < len(positions) else None,
            # The cursor before the previous page; empty if that is the first page.
            previous=(order.cursor(positions[before - limit - 1]) if before > limit else "")
            if before
            else None,
        )


class _Texts:
    """A column of strings, as numbers. A condition matches one string, or any of several."""

    def __init__(self, values: Iterable[str | None], *, several: bool = False) -> None:
        self._several: Final = several
        self._numbers: Final[dict[str | None, int]] = {None: -1}
        numbers = [self._numbers.setdefault(value, len(self._numbers) - 1) for value in values]
        self._column: Final[Ints] = np.array(numbers, np.int32)

    def match(self, wanted: str) -> Mask:
        """Return which indices have the string; with `several`, one of its letters."""
        texts = wanted if self._several else (wanted,)
        numbers = [self._numbers.get(text, -2) for text in texts]
        return np.isin(self._column, numbers)


class _Numbers:
    """A column of numbers. A condition matches those up to a limit; with `at_least`, from it on."""

    def __init__(self, values: Iterable[int | None], *, at_least: bool = False) -> None:
        self._column: Final = _keys(values)
        self._at_least: Final = at_least

    def match(self, limit: int) -> Mask:
        """Return which indices have a number within the limit."""
        bound = min(limit, NOTHING - 1)
        mask: Mask = self._column <= bound
        if self._at_least:
            mask = (self._column >= bound) & (self._column < NOTHING)
        return mask


_COLUMN_TYPES: Final[dict[Comparison, Callable[[Iterable[Any]], _Texts | _Numbers]]] = {
    Comparison.EQUALS: _Texts,
    Comparison.ONE_OF: partial(_Texts, several=True),
    Comparison.AT_MOST: _Numbers,
    Comparison.AT_LEAST: partial(_Numbers, at_least=True),
}


def _keys(values: Iterable[int | None]) -> Longs:
    keys = [NOTHING if value is None else min(value, NOTHING - 1) for value in values]
    return np.array(keys, np.int64)


def _ranks(texts: Sequence[str]) -> Ints:
    """Return the rank of each text among all, by index."""
    ranks = np.empty(len(texts), np.int32)
    ranks[sorted(range(len(texts)), key=texts.__getitem__)] = np.arange(len(texts))
    return ranks


def _order(keys: Longs, texts: Sequence[str], ranks: Ints) -> _Order:
    """Return the order by keys, then by texts, whose ranks are given."""
    places = np.lexsort((ranks, keys)).astype(np.int32)
    return _Order(places, keys[places], texts)
