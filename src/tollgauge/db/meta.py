"""Small values by key, turns and leases: coordination between transactions and processes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

import orjson
import sqlalchemy as sa
from pydantic import TypeAdapter, ValidationError
from sqlalchemy import BigInteger, Column, Connection, String, Table, or_, update

from tollgauge.db.schema import meta as meta_table
from tollgauge.db.schema import metadata, upsert

_VALUE: Final = sa.select(meta_table.c.value).where(meta_table.c.key == sa.bindparam("key"))


def get(tx: Connection, key: str) -> str | None:
    """Return the value of a key, or None."""
    return tx.execute(_VALUE, {"key": key}).scalar_one_or_none()


def put(tx: Connection, key: str, value: str) -> None:
    """Set the value of a key."""
    statement = upsert(meta_table).values(key=key, value=value)
    tx.execute(statement.on_conflict_do_update(index_elements=["key"], set_={"value": value}))


def keep(tx: Connection, key: str, value: str) -> None:
    """Set the value of a key unless it has one."""
    statement = upsert(meta_table).values(key=key, value=value)
    tx.execute(statement.on_conflict_do_nothing())


def drop(tx: Connection, key: str) -> None:
    """Delete a key."""
    tx.execute(meta_table.delete().where(meta_table.c.key == key))


def take_turn(tx: Connection, name: str) -> None:
    """Wait for the turn `name` and hold it until the transaction ends."""
    # A row lock serialises the transactions; the row is created at the first use.
    key = f"turn:{name}"
    keep(tx, key, "")
    tx.execute(sa.select(meta_table.c.key).where(meta_table.c.key == key).with_for_update())


T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedValue(Generic[T]):
    """A value stored under a key, with the time of its computation in `as_of` (ms UTC).

    It is computed again after `refresh_ms` and used for at most `use_ms`. A value that another
    version wrote is ignored if it cannot be decoded.
    """

    key: str
    form: TypeAdapter[T]
    refresh_ms: int
    use_ms: int

    def usable(self, tx: Connection, *, now: int) -> T | None:
        """Return the stored value, or None if it is missing or too old."""
        value: Any = self._read_value(tx)
        return value if value is not None and value.as_of > now - self.use_ms else None

    def is_due(self, tx: Connection, *, now: int) -> bool:
        """Return whether a worker should compute the value again."""
        value: Any = self._read_value(tx)
        return value is None or value.as_of <= now - self.refresh_ms

    def keep(self, tx: Connection, value: T, *, worthwhile: bool) -> None:
        """Store a value if that is worthwhile; otherwise delete the stored one."""
        if worthwhile:
            put(tx, self.key, orjson.dumps(value).decode())
        else:
            drop(tx, self.key)

    def _read_value(self, tx: Connection) -> T | None:
        text = get(tx, self.key)
        try:
            return None if text is None else self.form.validate_json(text)
        except ValidationError:
            return None


lease = Table(
    "lease",
    metadata,
    Column("name", String(64), primary_key=True),
    Column("owner", String(64), nullable=False),
    Column("until", BigInteger, nullable=False),
)


def take_lease(tx: Connection, name: str, *, owner: str, now: int, ttl_ms: int) -> bool:
    """Take or renew a lease until `now + ttl_ms`. False while another owner holds it."""
    tx.execute(upsert(lease).values(name=name, owner=owner, until=0).on_conflict_do_nothing())
    result = tx.execute(
        update(lease)
        .where(lease.c.name == name, or_(lease.c.owner == owner, lease.c.until <= now))
        .values(owner=owner, until=now + ttl_ms)
    )
    return result.rowcount == 1


def end_lease(tx: Connection, name: str, *, owner: str) -> None:
    """End a lease early if `owner` holds it."""
    tx.execute(update(lease).where(lease.c.name == name, lease.c.owner == owner).values(until=0))
