"""Small values by key, and turns: work that only one transaction may do at a time."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy import Connection

from tollgauge.db.schema import meta as meta_table
from tollgauge.db.schema import upsert


def get(tx: Connection, key: str) -> str | None:
    """The value of a key, or None."""
    query = sa.select(meta_table.c.value).where(meta_table.c.key == key)
    return tx.execute(query).scalar_one_or_none()


def put(tx: Connection, key: str, value: str) -> None:
    """Set the value of a key."""
    statement = upsert(meta_table).values(key=key, value=value)
    tx.execute(statement.on_conflict_do_update(index_elements=["key"], set_={"value": value}))


def keep(tx: Connection, key: str, value: str) -> None:
    """Set the value of a key that has none."""
    statement = upsert(meta_table).values(key=key, value=value)
    tx.execute(statement.on_conflict_do_nothing())


def drop(tx: Connection, key: str) -> None:
    """Remove a key."""
    tx.execute(meta_table.delete().where(meta_table.c.key == key))


def take_turn(tx: Connection, name: str) -> None:
    """Wait until no other transaction has the turn `name`, and keep it until this one ends."""
    key = f"turn:{name}"
    keep(tx, key, "")
    tx.execute(sa.select(meta_table.c.key).where(meta_table.c.key == key).with_for_update())
