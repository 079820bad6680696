"""Convert rows to records (dataclasses and structs) and back, and build queries that many tables
share.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from functools import cache
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec
import sqlalchemy as sa
from sqlalchemy import Connection

from tollgauge.db.schema import upsert

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

R = TypeVar("R")
T = TypeVar("T")

CHUNK: Final = 5_000  # values per statement, below the databases' limits on parameters


def to_columns(
    record: DataclassInstance | msgspec.Struct, /, *without: str, **converted: Any
) -> dict[str, Any]:
    """Return a record's fields as column values, except those in `without`, with `converted` values
    added.
    """
    names = _names(type(record), *without, *converted)
    return {name: getattr(record, name) for name in names} | converted


def from_columns(kind: Callable[..., R], row: Any, /, **converted: Any) -> R:
    """Build a record from the columns of a row, with `converted` values for the other fields."""
    columns = row._asdict()  # reading a column as an attribute takes four times as long
    return kind(**{name: columns[name] for name in _names(kind, *converted)}, **converted)


@cache
def _names(kind: Any, *without: str) -> tuple[str, ...]:
    if issubclass(kind, msgspec.Struct):
        names = kind.__struct_fields__
    else:
        names = tuple(field.name for field in fields(kind))
    return tuple(name for name in names if name not in without)


def chunks(values: Iterable[T], size: int = CHUNK) -> Iterator[list[T]]:
    """Split values into lists that fit into one statement."""
    whole = list(values)
    return (whole[start : start + size] for start in range(0, len(whole), size))


def with_any(
    tx: Connection, query: sa.Select[Any], column: sa.ColumnElement[Any], values: Iterable[Any]
) -> Iterator[sa.Row[Any]]:
    """Yield a query's rows whose column has any of these values, in as many statements as
    needed.
    """
    for chunk in chunks(values):
        yield from tx.execute(query.where(column.in_(chunk)))


def put(
    tx: Connection,
    table: sa.Table,
    columns: Sequence[Mapping[str, Any]],
    *,
    keep: Collection[str] = (),
) -> None:
    """Insert rows. An existing row with the same primary key is updated, except for the columns in
    `keep`.
    """
    if not columns:
        return
    insert = upsert(table)
    keys = [column.name for column in table.primary_key]
    changes = {n: insert.excluded[n] for n in columns[0] if n not in (*keys, *keep)}
    tx.execute(insert.on_conflict_do_update(index_elements=keys, set_=changes), columns)


def exist(tx: Connection, *conditions: sa.ColumnElement[bool]) -> bool:
    """Return whether any row meets these conditions."""
    query = sa.select(sa.literal(1)).where(*conditions).limit(1)
    return tx.execute(query).first() is not None


def least(
    column: sa.ColumnElement[int], value: int | sa.ColumnElement[int]
) -> sa.ColumnElement[int]:
    """Return the smaller of a column and a value. Only PostgreSQL has LEAST."""
    return sa.case((column < value, column), else_=value)


def greatest(
    column: sa.ColumnElement[Any], value: int | sa.ColumnElement[int]
) -> sa.ColumnElement[Any]:
    """Return the greater of a column and a value, or the value if the column is NULL."""
    return sa.case((column > value, column), else_=value)


def execute_many(tx: Connection, statement: str, values: Sequence[tuple[Any, ...]]) -> None:
    """Execute a statement with `{}` for each value many times.

    This bypasses SQLAlchemy's conversion of values, which takes three times as long as the
    database.
    """
    marks = placeholders(tx, statement.count("{}"))
    tx.exec_driver_sql(statement.format(*marks), list(values))


def placeholders(tx: Connection, count: int) -> list[str]:
    """Return `count` placeholders in the syntax of the database's driver."""
    if tx.dialect.name == "sqlite":
        return ["?"] * count
    return [f"${place}" for place in range(1, count + 1)]
