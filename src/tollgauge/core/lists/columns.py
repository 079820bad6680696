"""One column per figure of every endpoint, to filter and sort all of them in one pass.

A filter reads every endpoint: 100,000 take less than a millisecond, whereas a database would need
an index for each pair of filter and order. Orders are total: endpoints with equal keys are in the
order of their IDs. Columns are built once and never changed; the rows of a page are read again
before they are shown (monitor/lists).
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tollgauge.core.base.errors import TollgaugeError
from tollgauge.core.lists.rated_endpoint import (
    CONDITIONS,
    SORT_FIGURES,
    Comparison,
    Condition,
    Filter,
    RatedEndpoint,
    Sort,
)

Mask = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]

NOTHING: Final = 10**18 - 1
"""The value of an endpoint without the figure: it comes last."""
_CURSOR: Final = re.compile(r"(-?[0-9]{1,18})~(.{1,2048})", re.ASCII)
_COMPARED: Final = frozenset({Comparison.AT_MOST, Comparison.AT_LEAST})
_SIMILARITY: Final = ("score_tenths", "payable_24h_permille")  # core/similarity ranks by them too
_NUMBERS: Final = {
    *(condition.field for condition in CONDITIONS.values() if condition.comparison in _COMPARED),
    *(figure for figure, _ in SORT_FIGURES.values()),
    *_SIMILARITY,
}
_TEXTS: Final = {condition.field for condition in CONDITIONS.values()} - _NUMBERS | {"pay_to"}


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
    """One order: indices of endpoints in ascending order of their keys, then of their texts. Keys
    and texts are by index.
    """

    indices: Ints
    keys: Longs
    texts: Sequence[str]

    def behind(self, cursor: str) -> int:
        """Return the number of positions up to a cursor. Raises CursorError."""
        parts = _CURSOR.fullmatch(cursor)
        if parts is None:
            raise CursorError("This is not a cursor of a list.")
        keys, key, text = self.keys[self.indices], int(parts[1]), parts[2]
        low, high = (int(np.searchsorted(keys, key, side)) for side in ("left", "right"))
        return bisect_right(self.indices, text, low, high, key=lambda index: self.texts[index])

    def cursor(self, at: int) -> str:
        """Return the cursor of the endpoint at a position."""
        index = self.indices[at]
        return f"{self.keys[index]}~{self.texts[index]}"


class ColumnBuilder:
    """Collects the figures of endpoints, so that their objects need not be in memory together."""

    def __init__(self) -> None:
        self.ids: Final[list[str]] = []
        self.resources: Final[list[str]] = []
        self.public: Final = bytearray()
        self.offered: Final = bytearray()
        self.numbers: Final = {name: array("q") for name in _NUMBERS}
        self.texts: Final = {name: array("i") for name in _TEXTS}
        self.codes: Final[dict[str, dict[str | None, int]]] = {name: {None: -1} for name in _TEXTS}

    def add(self, rows: Iterable[RatedEndpoint]) -> None:
        """Add endpoints."""
        for row in rows:
            self.ids.append(row.id)
            self.resources.append(row.resource)
            self.public.append(row.public)
            self.offered.append(row.offered)
            for name, column in self.numbers.items():
                value = getattr(row, name)
                column.append(NOTHING if value is None else min(value, NOTHING - 1))
            for name, column in self.texts.items():
                codes = self.codes[name]
                column.append(codes.setdefault(getattr(row, name), len(codes) - 1))


class Columns:
    """The figures of endpoints, by their index in the order in which they were added.

    Attributes:
        offered: Which of them may be alternatives to others.
        id_ranks: Their ranks by ID.
        numbers: Columns by the name of their figure; NOTHING if an endpoint has none.
        texts, codes: Columns of strings, as numbers, and the number of each string; -1 is None.
        networks: The networks of the public endpoints, the most frequent first.
    """

    def __init__(self, built: ColumnBuilder) -> None:
        # Tuples of strings: the garbage collector does not traverse them.
        self.ids: Final = tuple(built.ids)
        self._public: Final[Mask] = np.frombuffer(built.public, np.bool_)
        self.offered: Final[Mask] = np.frombuffer(built.offered, np.bool_)
        self.numbers: Final[dict[str, Longs]] = {
            name: np.frombuffer(column, np.int64) for name, column in built.numbers.items()
        }
        self.texts: Final[dict[str, Ints]] = {
            name: np.frombuffer(column, np.int32) for name, column in built.texts.items()
        }
        self.codes: Final = built.codes
        self.networks: Final = self._count_networks()
        self.id_ranks: Final = _rank_texts(self.ids)
        resources = tuple(built.resources)
        self._orders: Final = {
            sort: _build_order(_build_keys(self.numbers[figure], sign), self.ids, self.id_ranks)
            for sort, (figure, sign) in SORT_FIGURES.items()
        }
        nothing = np.zeros(len(self.ids), np.int64)
        self._orders[Sort.NAME] = _build_order(nothing, resources, _rank_texts(resources))

    def match(self, wanted: Filter) -> Mask:
        """Return which indices a filter admits; only public endpoints are admitted."""
        mask = self._public.copy()
        for condition, value in wanted.conditions():
            mask &= self._match(condition, value)
        return mask

    def page(self, wanted: Filter, sort: Sort, *, after: str = "", limit: int) -> Page:
        """Return a page of a list: the endpoints after a cursor, or the first ones. Raises
        CursorError.
        """
        order = self._orders[sort]
        matching = self.match(wanted)[order.indices]
        positions = np.flatnonzero(matching)
        before = int(np.count_nonzero(matching[: order.behind(after)])) if after else 0
        end = before + limit
        # The cursor before the previous page; empty if that is the first page.
        previous = order.cursor(positions[before - limit - 1]) if before > limit else ""
        return Page(
            ids=tuple(self.ids[order.indices[at]] for at in positions[before:end]),
            total=len(positions),
            before=before,
            next=order.cursor(positions[end - 1]) if end < len(positions) else None,
            previous=previous if before else None,
        )

    def _match(self, condition: Condition, value: Any) -> Mask:
        """Return which indices meet a condition; those without the figure do not."""
        if condition.comparison not in _COMPARED:
            codes, texts = self.codes[condition.field], self.texts[condition.field]
            one_of = value if condition.comparison is Comparison.ONE_OF else (value,)
            return np.isin(texts, [codes.get(text, -2) for text in one_of])
        numbers, bound = self.numbers[condition.field], min(value, NOTHING - 1)
        mask: Mask = numbers <= bound
        if condition.comparison is Comparison.AT_LEAST:
            mask = (numbers >= bound) & (numbers < NOTHING)
        return mask

    def _count_networks(self) -> tuple[str, ...]:
        codes, networks = self.codes["network"], self.texts["network"]
        counts = np.bincount(networks[self._public] + 1, minlength=len(codes))
        names = [(-counts[code + 1], name) for name, code in codes.items() if name is not None]
        return tuple(name for count, name in sorted(names) if count)


def _build_keys(numbers: Longs, sign: int) -> Longs:
    return np.where(numbers == NOTHING, NOTHING, sign * numbers) if sign < 0 else numbers


def _rank_texts(texts: Sequence[str]) -> Ints:
    """Return the rank of each text among all, by index."""
    ranks = np.empty(len(texts), np.int32)
    ranks[sorted(range(len(texts)), key=texts.__getitem__)] = np.arange(len(texts))
    return ranks


def _build_order(keys: Longs, texts: Sequence[str], ranks: Ints) -> _Order:
    """Return the order by keys, then by texts, whose ranks are given."""
    return _Order(np.lexsort((ranks, keys)).astype(np.int32), keys, texts)
