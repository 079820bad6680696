"""Rows ↔ dataclasses, and the queries that many tables share, on both databases."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy import Connection

from tollgauge.db import schema
from tollgauge.db.engine import Store
from tollgauge.store import rows
from tollgauge.store.schedule.hosts import HostState

HOST = HostState(host="a.com", wildcard=True, wildcard_at=7, free_at=8, lease_until=9)


async def test_dataclass_is_read_back_as_written(store: Store) -> None:
    def read_state(tx: Connection) -> HostState:
        tx.execute(schema.host.insert(), rows.to_columns(HOST, "lease_until"))
        query = sa.select(schema.host, sa.literal(9).label("lease_until"))
        return rows.from_columns(HostState, tx.execute(query).one())

    assert await store.writing(read_state) == HOST


async def test_fields_are_left_out_or_converted() -> None:
    columns = rows.to_columns(HOST, "wildcard", "wildcard_at", host="b.com", lease_owner="one")
    numbers = {"free_at": 8, "lease_until": 9, "round_ms": 0, "sharing": 0}
    assert columns == {"host": "b.com", "lease_owner": "one", **numbers}


async def test_with_any_accepts_any_number_of_values(store: Store) -> None:
    names = [f"{number}.com" for number in range(2 * rows.CHUNK + 1)]

    def list_known(tx: Connection) -> list[str]:
        hosts = [{"host": host} for host in (names[0], names[-1], "other.com")]
        tx.execute(schema.host.insert(), hosts)
        query = sa.select(schema.host.c.host).where(rows.any_of(schema.host.c.host))
        return [row.host for row in rows.with_any(tx, query, names)]

    assert await store.writing(list_known) == [names[0], names[-1]]


async def test_put_replaces_only_the_given_columns(store: Store) -> None:
    def state(tx: Connection) -> HostState:
        rows.put(tx, schema.host, [{"host": "a.com", "free_at": 1, "wildcard_at": 1}])
        rows.put(tx, schema.host, [{"host": "a.com", "wildcard_at": 2}])
        rows.put(tx, schema.host, [])
        return rows.from_columns(HostState, tx.execute(sa.select(schema.host)).one(), lease_until=0)

    assert await store.writing(state) == HostState(host="a.com", free_at=1, wildcard_at=2)


async def test_exist_returns_whether_a_row_matches(store: Store) -> None:
    await store.writing(rows.put, schema.host, [{"host": "a.com", "free_at": 5}])
    assert await store.reading(rows.exist, schema.host.c.host == "a.com", schema.host.c.free_at > 4)
    assert not await store.reading(rows.exist, schema.host.c.free_at > 5)


async def test_least_and_greatest_compare_column_and_value(store: Store) -> None:
    def both(tx: Connection) -> tuple[int, int, int]:
        tx.execute(schema.host.insert(), {"host": "a.com", "free_at": 5})
        columns = schema.host.c
        least, greatest, known = tx.execute(
            sa.select(
                rows.least(columns.free_at, 4),
                rows.greatest(columns.free_at, 4),
                rows.greatest(columns.wildcard_at, 3),
            )
        ).one()
        return least, greatest, known

    assert await store.writing(both) == (4, 5, 3)
