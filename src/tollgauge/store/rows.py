"""Convert rows to records (dataclasses and structs) and back, endpoints among them, and build
queries that many tables share.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import msgspec
import sqlalchemy as sa
from sqlalchemy import Connection

from tollgauge.core.endpoint.identity import Endpoint, Listing, site
from tollgauge.core.endpoint.terms import Quote
from tollgauge.db.codec import json_of
from tollgauge.db.schema import endpoint as endpoint_table
from tollgauge.db.schema import metadata, upsert

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

K = TypeVar("K")
R = TypeVar("R")
T = TypeVar("T")

CHUNK: Final = 5_000  # values per statement, below the databases' limits on parameters
_FETCHED: Final = 500  # rows
QUOTE_COLUMNS: Final = ("quote_network", "quote_asset", "quote_amount", "quote_pay_to")
ENDPOINT_COLUMNS: Final = endpoint_table.c[
    (
        *(field.name for field in fields(Endpoint) if field.name != "quote"),
        *QUOTE_COLUMNS,
        "adopted",
    )
]
"""The columns that `to_endpoint` reads, two thirds of all."""


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
    # Reading each column as an attribute takes three times as long.
    columns = row._mapping  # noqa: SLF001 - SQLAlchemy documents it
    return kind(**{name: columns[name] for name in _names(kind, *converted)}, **converted)


@cache
def _names(kind: Any, *without: str) -> tuple[str, ...]:
    if issubclass(kind, msgspec.Struct):
        names = kind.__struct_fields__
    else:
        names = tuple(field.name for field in fields(kind))
    return tuple(name for name in names if name not in without)


def from_endpoint(endpoint: Endpoint) -> dict[str, Any]:
    """Return an endpoint as column values."""
    quote = {
        name: getattr(endpoint.quote, name.removeprefix("quote_"), None) for name in QUOTE_COLUMNS
    }
    return to_columns(endpoint, "quote", site=site(endpoint.host), **quote)


def to_endpoint(row: Any) -> Endpoint:
    """Build an endpoint from a row of its table."""
    status = Listing.UNLISTED if row.adopted else Listing(row.status)
    return from_columns(Endpoint, row, status=status, quote=to_quote(row))


def to_quote(row: Any) -> Quote | None:
    """Return the price in a row, or None."""
    if row.quote_network is None:
        return None
    return Quote(
        network=row.quote_network,
        asset=row.quote_asset,
        amount=row.quote_amount,
        pay_to=row.quote_pay_to,
    )


def chunks(values: Iterable[T], size: int = CHUNK) -> Iterator[list[T]]:
    """Split values into lists that fit into one statement."""
    whole = list(values)
    return (whole[start : start + size] for start in range(0, len(whole), size))


def any_of(column: sa.ColumnElement[Any]) -> sa.ColumnElement[bool]:
    """Return the condition that a column has one of the values that `with_any` passes."""
    return column.in_(sa.bindparam("any_of", type_=column.type, expanding=True))


def with_any(
    tx: Connection, query: sa.Select[Any], values: Iterable[Any], **parameters: Any
) -> Iterator[sa.Row[Any]]:
    """Yield the rows of a query with the condition `any_of`, in as many statements as needed.

    On hot paths the query is a constant of its module: building it for each execution takes
    longer than executing it (docs/decisions/14-no-prepared-statements.md).
    """
    for chunk in chunks(values):
        # Fetching rows one by one, as iteration does, takes twice as long.
        for part in tx.execute(query, {**parameters, "any_of": chunk}).partitions(_FETCHED):
            yield from part


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
    tx.execute(_put(table, tuple(columns[0]), tuple(keep)), columns)


@cache
def _put(table: sa.Table, names: tuple[str, ...], keep: tuple[str, ...]) -> sa.Insert:
    insert = upsert(table)
    keys = [column.name for column in table.primary_key]
    changes = {name: insert.excluded[name] for name in names if name not in (*keys, *keep)}
    return insert.on_conflict_do_update(index_elements=keys, set_=changes)


def add_missing(tx: Connection, table: sa.Table, columns: Sequence[Mapping[str, Any]]) -> None:
    """Insert rows, except those with an existing key."""
    if columns:
        tx.execute(_add_missing(table), columns)


@cache
def _add_missing(table: sa.Table) -> sa.Insert:
    return upsert(table).on_conflict_do_nothing()


def update_each(tx: Connection, table: sa.Table, columns: Sequence[Mapping[str, Any]]) -> None:
    """Update rows by primary key. All mappings have the same names, with the key among them."""
    if not columns:
        return
    parameters = [{f"{name}_": value for name, value in row.items()} for row in columns]
    tx.execute(_update_each(table, tuple(columns[0])), parameters)


@cache
def _update_each(table: sa.Table, names: tuple[str, ...]) -> sa.Update:
    bound = {name: sa.bindparam(f"{name}_", type_=table.c[name].type) for name in names}
    is_row = [column == bound.pop(column.name) for column in table.primary_key]
    return table.update().where(*is_row).values(bound)


def delete_batch(
    tx: Connection,
    table: sa.Table,
    *conditions: sa.ColumnElement[bool],
    order_by: Sequence[sa.ColumnElement[Any]] = (),
    limit: int,
) -> int:
    """Delete up to `limit` rows that meet these conditions; return their number."""
    keys = tuple(table.primary_key)
    # SQLite would scan the table for a tuple of one column.
    key = sa.tuple_(*keys) if len(keys) > 1 else keys[0]
    # Not correlated, although the outer statement is about the same table.
    batch = sa.select(*keys).where(*conditions).order_by(*order_by).limit(limit).correlate(None)
    return tx.execute(table.delete().where(key.in_(batch))).rowcount


def exist(tx: Connection, *conditions: sa.ColumnElement[bool]) -> bool:
    """Return whether any row meets these conditions."""
    query = sa.select(sa.literal(1)).where(*conditions).limit(1)
    return tx.execute(query).first() is not None


def count(tx: Connection, *conditions: sa.ColumnElement[bool]) -> int:
    """Count the rows that meet these conditions."""
    return tx.execute(sa.select(sa.func.count()).where(*conditions)).scalar_one()


def highest(
    tx: Connection, column: sa.ColumnElement[int], *conditions: sa.ColumnElement[bool]
) -> int | None:
    """Return the highest value of a column in the rows that meet these conditions, or None."""
    return tx.execute(sa.select(sa.func.max(column)).where(*conditions)).scalar_one()


def group(pairs: Iterable[tuple[K, T]]) -> dict[K, list[T]]:
    """Return the values of each key, in order."""
    values: dict[K, list[T]] = {}
    for key, value in pairs:
        values.setdefault(key, []).append(value)
    return values


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


class ChainResults(Generic[T]):
    """A table with the results of the latest measurement of each chain, by `key`: a wallet, or an
    endpoint's ID.
    """

    def __init__(self, name: str, key: sa.Column[Any], kind: type[T]) -> None:
        self.table: Final = sa.Table(
            name,
            metadata,
            sa.Column("chain", sa.BigInteger, primary_key=True, autoincrement=False),
            key,
            # When the chain was measured (ms UTC).
            sa.Column("as_of", sa.BigInteger, nullable=False),
            sa.Column("result", json_of(kind), nullable=False),
            sqlite_with_rowid=False,
        )
        self._of_chain: Final = self.table.c.chain == sa.bindparam("chain")
        self._query: Final = sa.select(key, self.table.c.result).where(self._of_chain, any_of(key))
        self._key: Final = key.name

    def load(self, tx: Connection, chain: int, keys: Iterable[Any]) -> dict[Any, T]:
        """Return results by key; keys without a result are left out."""
        return dict(map(tuple, with_any(tx, self._query, keys, chain=chain)))

    def save(
        self, tx: Connection, chain: int, results: Iterable[tuple[Any, T]], *, as_of: int
    ) -> None:
        """Store results of a measurement at `as_of` (ms UTC)."""
        values = [
            {"chain": chain, self._key: key, "as_of": as_of, "result": one} for key, one in results
        ]
        put(tx, self.table, values)

    def drop(self, tx: Connection, chain: int, *, before: int) -> None:
        """Delete results that were not measured again: those from before a time (ms UTC)."""
        old = self.table.c.as_of < before
        tx.execute(self.table.delete().where(self._of_chain, old), {"chain": chain})
