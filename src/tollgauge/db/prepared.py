"""Prepared statements: those of every sale, compiled once and run by the driver itself.

Building a statement, compiling it and converting its rows takes SQLAlchemy many times as long as
the databases need to find a row by its key. SQLAlchemy still decides the SQL of each database, and
how a column's values are converted.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import Connection

from tollgauge.db import driver

NO_VALUES: Final[Mapping[str, Any]] = {}
_SIZES: Final = (1, 10, 100)
"""How many values a statement of PreparedAny takes; what is missing is the last one again."""

Query = sa.Select[Any] | sa.CompoundSelect[Any]
Statement = Query | sa.Insert | sa.Update | sa.Delete
_Convert = Callable[[Any], Any] | None
_Conversions = tuple[tuple[int, Callable[[Any], Any]], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Compiled:
    """A statement as one driver takes it: `parameters` are their names in their order, `defaults`
    the values that stand in the statement itself, `row_type` the named tuple of a row.
    `argument_conversions` and `conversions` are those of the arguments and of a row's values that
    need one, by their places.
    """

    text: str
    parameters: tuple[str, ...]
    argument_conversions: _Conversions
    defaults: Mapping[str, Any]
    row_type: Any
    conversions: _Conversions

    def arguments(self, values: Mapping[str, Any]) -> list[Any]:
        """The values in the order of the parameters. Raises KeyError if one is missing."""
        known = {**self.defaults, **values} if self.defaults else values
        arguments = [known[name] for name in self.parameters]
        for place, convert in self.argument_conversions:
            if (value := arguments[place]) is not None:
                arguments[place] = convert(value)
        return arguments

    def row(self, driver_row: Any) -> Any:
        """A row of the driver as a named tuple, converted."""
        values = list(driver_row)
        for place, convert in self.conversions:
            values[place] = convert(values[place])
        return self.row_type._make(values)


class Prepared:
    """A statement, or one for each database by its name."""

    def __init__(self, statement: Statement | Mapping[str, Statement]) -> None:
        self._statement: Final = statement
        self._compiled: dict[tuple[str, ...], _Compiled] = {}

    def rows(self, tx: Connection, values: Mapping[str, Any]) -> list[Any]:
        """The rows of a SELECT, as named tuples."""
        compiled = self._for(tx, values)
        driver_rows = driver.fetch(tx, compiled.text, compiled.arguments(values))
        if not compiled.conversions:
            return list(map(compiled.row_type._make, driver_rows))
        return [compiled.row(driver_row) for driver_row in driver_rows]

    def first(self, tx: Connection, values: Mapping[str, Any]) -> Any:
        """The first row of a SELECT, or None."""
        return next(iter(self.rows(tx, values)), None)

    def run(self, tx: Connection, values: Mapping[str, Any]) -> int:
        """Run an INSERT, UPDATE or DELETE; the number of rows that it changed."""
        compiled = self._for(tx, values)
        return driver.execute(tx, compiled.text, compiled.arguments(values))

    def run_each(self, tx: Connection, values: Sequence[Mapping[str, Any]]) -> None:
        """Insert several rows at once, each with the same columns."""
        if not values:
            return
        compiled = self._for(tx, values[0])
        driver.execute_many(tx, compiled.text, [compiled.arguments(row) for row in values])

    def _for(self, tx: Connection, values: Mapping[str, Any]) -> _Compiled:
        """The statement for the database of a transaction. An UPDATE sets the columns that have a
        value.
        """
        key = (tx.dialect.name, *values)
        compiled = self._compiled.get(key)
        if compiled is None:
            compiled = self._compiled[key] = self._compile(tx.dialect, list(values))
        return compiled

    def _compile(self, dialect: sa.Dialect, names: list[str]) -> _Compiled:
        statement = self._statement
        if isinstance(statement, Mapping):
            statement = statement[dialect.name]
        sql: Any = statement.compile(dialect=dialect, column_keys=names)
        columns = tuple(statement.selected_columns) if isinstance(statement, Query) else ()
        return _Compiled(
            text=str(sql),
            parameters=tuple(sql.positiontup),
            argument_conversions=tuple(
                (place, convert)
                for place, name in enumerate(sql.positiontup)
                if (convert := _to_driver(sql.binds[name].type, dialect)) is not None
            ),
            defaults={name: bind.value for name, bind in sql.binds.items() if not bind.required},
            row_type=namedtuple("Row", [str(column.key) for column in columns]),  # noqa: PYI024 - the names are known here only
            conversions=tuple(
                (place, convert)
                for place, column in enumerate(columns)
                if (convert := _from_driver(column.type, dialect)) is not None
            ),
        )


class PreparedAny:
    """A SELECT that takes any number of values: `statement` makes it from their parameters, which
    are of a type.
    """

    def __init__(
        self,
        statement: Callable[[list[sa.BindParameter[Any]]], Query],
        column_type: sa.types.TypeEngine[Any] | type[sa.types.TypeEngine[Any]] = sa.Text,
    ) -> None:
        self._of_size: Final = {
            size: Prepared(
                statement([sa.bindparam(name, type_=column_type) for name in _names(size)])
            )
            for size in _SIZES
        }

    def rows(
        self, tx: Connection, any_of: Sequence[Any], values: Mapping[str, Any] = NO_VALUES
    ) -> list[Any]:
        """The rows, as named tuples, however many values there are."""
        size = next((size for size in _SIZES if size >= len(any_of)), _SIZES[-1])
        names = _names(size)
        rows: list[Any] = []
        for start in range(0, len(any_of), size):
            chunk = list(any_of[start : start + size])
            chunk += chunk[-1:] * (size - len(chunk))
            rows += self._of_size[size].rows(tx, {**values, **dict(zip(names, chunk, strict=True))})
        return rows


@cache
def _names(size: int) -> tuple[str, ...]:
    return tuple(f"any_{number}" for number in range(size))


def _to_driver(column_type: sa.types.TypeEngine[Any], dialect: sa.Dialect) -> _Convert:
    return column_type.dialect_impl(dialect).bind_processor(dialect)


def _from_driver(column_type: sa.types.TypeEngine[Any], dialect: sa.Dialect) -> _Convert:
    return column_type.dialect_impl(dialect).result_processor(dialect, None)
