"""Small values by key, and turns: work that only one transaction may do at a time."""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa
from sqlalchemy import Connection

from tollgauge.db import upsert
from tollgauge.db.prepared import Prepared
from tollgauge.db.schema import meta as meta_table

_VALUE: Final = Prepared(
    sa.select(meta_table.c.value).where(meta_table.c.key == sa.bindparam("key"))
)


def get(tx: Connection, key: str) -> str | None:
    """The value of a key, or None."""
    row = _VALUE.first(tx, {"key": key})
    return None if row is None else str(row.value)


def put(tx: Connection, key: str, value: str) -> None:
    """Set the value of a key."""
    statement = upsert.insert(tx, meta_table).values(key=key, value=value)
    tx.execute(statement.on_conflict_do_update(index_elements=["key"], set_={"value": value}))


def keep(tx: Connection, key: str, value: str) -> None:
    """Set the value of a key that has none."""
    statement = upsert.insert(tx, meta_table).values(key=key, value=value)
    tx.execute(statement.on_conflict_do_nothing())


def drop(tx: Connection, key: str) -> None:
    """Remove a key."""
    tx.execute(meta_table.delete().where(meta_table.c.key == key))


def take_turn(tx: Connection, name: str) -> None:
    """Wait until no other transaction has the turn `name`, and keep it until this one ends."""
    key = f"turn:{name}"
    keep(tx, key, "")
    tx.execute(sa.select(meta_table.c.key).where(meta_table.c.key == key).with_for_update())
