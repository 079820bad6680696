"""Long results over the connection that crosses to its thread once a statement."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from tollgauge.store.engine import Store
from tollgauge.store.sqlite import PART

NUMBERS = sa.text(
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :last) "
    "SELECT i FROM n"
)


@pytest.mark.parametrize("last", [1, PART - 1, PART, PART + 1, 3 * PART])
async def test_every_row_comes_once_whole_or_as_a_stream(last: int) -> None:
    store = Store.open("sqlite://")
    async with store.read() as tx:
        whole = (await tx.execute(NUMBERS, {"last": last})).scalars().all()
        stream = await tx.stream(NUMBERS, {"last": last})
        parts = [row.i async for row in stream]
    assert whole == parts == list(range(1, last + 1))
    await store.close()


async def test_a_stream_that_is_left_early_leaves_the_connection_usable() -> None:
    store = Store.open("sqlite://")
    async with store.read() as tx:
        stream = await tx.stream(NUMBERS, {"last": 3 * PART})
        first = await stream.fetchone()
        await stream.close()
    async with store.write() as tx:
        await tx.execute(sa.text("CREATE TABLE t (i)"))
        await tx.execute(sa.text("INSERT INTO t VALUES (1), (2)"))
    async with store.read() as tx:
        count = (await tx.execute(sa.text("SELECT count(*) FROM t"))).scalar_one()
    assert first is not None
    assert (first.i, count) == (1, 2)
    await store.close()
