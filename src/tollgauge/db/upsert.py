"""INSERT … ON CONFLICT, the one statement that the two databases spell through their own class."""

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
    """An INSERT that is built once, by the name of the dialect."""
    return {
        "sqlite": finish(sqlite.insert(table)),
        "postgresql": finish(postgresql.insert(table)),
    }
