"""Small facts by name, and turns: work that only one process may do at a time."""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tollgauge.store import schema, upsert

_M: Final = schema.meta


async def get(tx: AsyncConnection, key: str) -> str | None:
    """The value of a key, or None."""
    return (await tx.execute(sa.select(_M.c.value).where(_M.c.key == key))).scalar_one_or_none()


async def put(tx: AsyncConnection, key: str, value: str) -> None:
    """Set the value of a key."""
    row = upsert.insert(tx, _M).values(key=key, value=value)
    await tx.execute(row.on_conflict_do_update(index_elements=["key"], set_={"value": value}))


async def drop(tx: AsyncConnection, key: str) -> None:
    """Forget a key."""
    await tx.execute(_M.delete().where(_M.c.key == key))


async def take_turn(tx: AsyncConnection, name: str) -> None:
    """Wait until no other transaction has this turn, and keep it until this one ends."""
    key = f"turn:{name}"
    row = upsert.insert(tx, _M).values(key=key, value="")
    await tx.execute(row.on_conflict_do_nothing())
    await tx.execute(sa.select(_M.c.key).where(_M.c.key == key).with_for_update())
