"""Small facts by name, and turns: work that only one process may do at a time."""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa
from sqlalchemy import Connection

from tollgauge.db import schema, upsert
from tollgauge.db.transaction import step

_M: Final = schema.meta


@step
def get(tx: Connection, key: str) -> str | None:
    """The value of a key, or None."""
    return tx.execute(sa.select(_M.c.value).where(_M.c.key == key)).scalar_one_or_none()


@step
def put(tx: Connection, key: str, value: str) -> None:
    """Set the value of a key."""
    row = upsert.insert(tx, _M).values(key=key, value=value)
    tx.execute(row.on_conflict_do_update(index_elements=["key"], set_={"value": value}))


@step
def keep(tx: Connection, key: str, value: str) -> None:
    """Set the value of a key that has none."""
    row = upsert.insert(tx, _M).values(key=key, value=value)
    tx.execute(row.on_conflict_do_nothing())


@step
def drop(tx: Connection, key: str) -> None:
    """Forget a key."""
    tx.execute(_M.delete().where(_M.c.key == key))


@step
def take_turn(tx: Connection, name: str) -> None:
    """Wait until no other transaction has this turn, and keep it until this one ends."""
    key = f"turn:{name}"
    keep(tx, key, "")
    tx.execute(sa.select(_M.c.key).where(_M.c.key == key).with_for_update())
