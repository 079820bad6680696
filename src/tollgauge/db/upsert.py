"""INSERT … ON CONFLICT, for which SQLAlchemy has a class for each database."""

from __future__ import annotations

from collections.abc import Callable

import sqlalchemy as sa
from sqlalchemy import Connection
from sqlalchemy.dialects import postgresql, sqlite

Upsert = sqlite.Insert | postgresql.Insert


def insert(tx: Connection, table: sa.Table) -> Upsert:
    """An INSERT that knows `on_conflict_do_nothing` and `on_conflict_do_update`."""
    if tx.dialect.name == "sqlite":
        return sqlite.insert(table)
    return postgresql.insert(table)


def either(table: sa.Table, finish: Callable[[Upsert], Upsert]) -> dict[str, Upsert]:
    """The same INSERT for each database, by its name (db/prepared); `finish` adds the rest."""
    return {
        "sqlite": finish(sqlite.insert(table)),
        "postgresql": finish(postgresql.insert(table)),
    }
