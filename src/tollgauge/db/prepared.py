"""Prepared: the statements of every sale, compiled once and run by the driver itself.

Building a statement, compiling it and making its rows costs many times what the databases take
for a row by its key. SQLAlchemy still says what a statement is called in each database, and how a
column's values go in and come out.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import asyncpg
import sqlalchemy as sa
from sqlalchemy import Connection
from sqlalchemy.util import await_only

from tollgauge.db.errors import StoreUnavailable

Statement = sa.Select[Any] | sa.Insert | sa.Update
_Convert = Callable[[Any], Any] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Compiled:
    """A statement as one driver takes it: `parameters` in their order, with what converts each;
    the values that stand in the statement itself; what makes a row, and converts its columns.
    """

    text: str
    parameters: tuple[tuple[str, _Convert], ...]
    given: Mapping[str, Any]
    row: Any
    columns: tuple[_Convert, ...]

    def arguments(self, values: Mapping[str, Any]) -> list[Any]:
        """The values in the order of the parameters. Raises KeyError where one is missing."""
        found = []
        for name, convert in self.parameters:
            value = values[name] if name in values else self.given[name]
            found.append(value if convert is None or value is None else convert(value))
        return found

    def made(self, found: Any) -> Any:
        """A row as the driver found it, converted."""
        pairs = zip(self.columns, found, strict=True)
        return self.row._make(
            value if convert is None else convert(value) for convert, value in pairs
        )


class Prepared:
    """A statement, or one for each database by its name."""

    def __init__(self, statement: Statement | Mapping[str, Statement]) -> None:
        self._statement: Final = statement
        self._compiled: dict[tuple[str, ...], _Compiled] = {}

    def rows(self, tx: Connection, values: Mapping[str, Any]) -> list[Any]:
        """The rows that a SELECT finds, as named tuples."""
        made = self._of(tx, values)
        driver: Any = tx.connection.dbapi_connection
        arguments = made.arguments(values)
        if tx.dialect.name == "sqlite":
            found = driver.execute(made.text, arguments).fetchall()
        else:
            found = _awaited(driver.driver_connection, "fetch", made.text, arguments)
        return [made.made(each) for each in found]

    def first(self, tx: Connection, values: Mapping[str, Any]) -> Any:
        """The first row that a SELECT finds, or None."""
        return next(iter(self.rows(tx, values)), None)

    def run(self, tx: Connection, values: Mapping[str, Any]) -> int:
        """Insert or change; the number of rows that were."""
        made = self._of(tx, values)
        driver: Any = tx.connection.dbapi_connection
        arguments = made.arguments(values)
        if tx.dialect.name == "sqlite":
            return int(driver.execute(made.text, arguments).rowcount)
        status = _awaited(driver.driver_connection, "execute", made.text, arguments)
        return int(status.rpartition(" ")[2])

    def run_each(self, tx: Connection, values: Sequence[Mapping[str, Any]]) -> None:
        """Insert several rows at once, each with the same columns."""
        if not values:
            return
        made = self._of(tx, values[0])
        driver: Any = tx.connection.dbapi_connection
        arguments = [made.arguments(each) for each in values]
        if tx.dialect.name == "sqlite":
            driver.executemany(made.text, arguments)
        else:
            _awaited(driver.driver_connection, "executemany", made.text, [arguments])

    def _of(self, tx: Connection, values: Mapping[str, Any]) -> _Compiled:
        """As the database of a transaction takes it; an UPDATE changes what has a value."""
        key = (tx.dialect.name, *values)
        made = self._compiled.get(key)
        if made is None:
            made = self._compiled[key] = self._compile(tx.dialect, list(values))
        return made

    def _compile(self, dialect: sa.Dialect, names: list[str]) -> _Compiled:
        chosen = self._statement
        if isinstance(chosen, Mapping):
            chosen = chosen[dialect.name]
        made: Any = chosen.compile(dialect=dialect, column_keys=names)
        columns = tuple(chosen.selected_columns) if isinstance(chosen, sa.Select) else ()
        return _Compiled(
            text=str(made),
            parameters=tuple(
                (name, _in(made.binds[name].type, dialect)) for name in made.positiontup
            ),
            given={name: bind.value for name, bind in made.binds.items() if not bind.required},
            row=namedtuple("Row", [str(each.key) for each in columns]),  # noqa: PYI024 - made here
            columns=tuple(_out(each.type, dialect) for each in columns),
        )


def _in(kind: sa.types.TypeEngine[Any], dialect: sa.Dialect) -> _Convert:
    return kind.dialect_impl(dialect).bind_processor(dialect)


def _out(kind: sa.types.TypeEngine[Any], dialect: sa.Dialect) -> _Convert:
    return kind.dialect_impl(dialect).result_processor(dialect, None)


def _awaited(driver: Any, method: str, text: str, arguments: list[Any]) -> Any:
    """What the driver makes of a statement. Raises StoreUnavailable when the connection is lost."""
    try:
        return await_only(getattr(driver, method)(text, *arguments))
    except (asyncpg.InterfaceError, OSError) as error:
        if not driver.is_closed():
            raise
        raise StoreUnavailable("the connection was lost") from error
