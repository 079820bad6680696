"""Named leases: one worker at a time for work that is not claimed row by row."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Connection, String, Table, or_, update

from tollgauge.db.schema import metadata, upsert

lease = Table(
    "lease",
    metadata,
    Column("name", String(64), primary_key=True),
    Column("owner", String(64), nullable=False),
    Column("until", BigInteger, nullable=False),
)


def take(tx: Connection, name: str, *, owner: str, now: int, ttl_ms: int) -> bool:
    """Take or keep a lease until `now + ttl_ms`; False while another owner holds it."""
    tx.execute(upsert(lease).values(name=name, owner=owner, until=0).on_conflict_do_nothing())
    result = tx.execute(
        update(lease)
        .where(lease.c.name == name, or_(lease.c.owner == owner, lease.c.until <= now))
        .values(owner=owner, until=now + ttl_ms)
    )
    return result.rowcount == 1


def give_back(tx: Connection, name: str, *, owner: str) -> None:
    """End a lease early; nothing happens unless `owner` holds it."""
    tx.execute(update(lease).where(lease.c.name == name, lease.c.owner == owner).values(until=0))
