"""The transfers that the indexer finds on a local chain."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import sqlalchemy as sa
from tests.support.statements import fetch
from tests.support.trace_world import NETWORK, World

from tollgauge.clients.chain.logs import ChainLogs
from tollgauge.clients.chain.rpc import Node
from tollgauge.core.endpoint.identity import Endpoint, parse_resource
from tollgauge.core.endpoint.terms import Quote
from tollgauge.db.engine import Store
from tollgauge.demo.envelopes import USDC
from tollgauge.jobs import index
from tollgauge.jobs.index_visit import IndexState
from tollgauge.jobs.loop_settings import IndexSettings
from tollgauge.store.chain import transfers
from tollgauge.store.endpoints import endpoints


class Row(NamedTuple):
    """A stored transfer; hex is in lower case."""

    transaction: str
    wallet: str
    other: str
    incoming: bool
    value: int


@asynccontextmanager
async def indexed_store(
    world: World, sellers: Sequence[str], path: Path, *, final: bool = False
) -> AsyncIterator[tuple[Store, int]]:
    """Index the chain for these payTo addresses; yield the store and the time of the newest block
    (ms UTC). `final` blocks are read in ranges, others one by one by hash.
    """
    store = Store.open(f"sqlite:///{path}")
    settings = IndexSettings(audit=1, finality=0 if final else 900, volume_every_ms=0)
    logs = ChainLogs([Node(world.chain.rpc_url)], chain_id=8453, token=USDC, settings=settings)
    try:
        for number, seller in enumerate(sellers):
            await store.writing(endpoints.insert, _endpoint(number, seller))
        block = await world.chain.rpc("eth_getBlockByNumber", "latest", False)
        now = 1_000 * int(block["timestamp"], 16)
        state = IndexState()
        for _ in range(20):
            tally: Any = await index.run(
                store, logs, state, settings=settings, clock=lambda: now + 1
            )
            if not any(tally.get(name) for name in ("blocks", "filled", "audited", "unreachable")):
                break
        else:
            raise AssertionError("the indexer does not come to rest")
        yield store, now + 1
    finally:
        await logs.close()
        await store.close()


async def index_world(
    world: World, sellers: Sequence[str], empty: Path, folder: Path, *, final: bool = False
) -> list[Row]:
    """Return the transfers that are stored after indexing the chain, in its order."""
    path = Path(shutil.copy(empty, folder / f"index-{final}.db"))
    async with indexed_store(world, sellers, path, final=final) as (store, _):
        return await stored_rows(store)


async def stored_transfers(store: Store) -> list[Any]:
    """Return the rows of the table, in its order."""
    table = transfers.transfer
    query = sa.select(table).order_by(table.c.number, table.c.log_index)
    return list((await fetch(store, query)).all())


async def stored_rows(store: Store) -> list[Row]:
    return [
        Row(
            "0x" + row.transaction.hex(),
            "0x" + row.wallet.hex(),
            "0x" + row.other.hex(),
            row.incoming,
            int(row.value),
        )
        for row in await stored_transfers(store)
    ]


def _endpoint(number: int, seller: str) -> Endpoint:
    resource = parse_resource(f"https://seller-{number}.dev/pay")
    return Endpoint(
        id=resource.id,
        resource=resource.url,
        host=resource.host,
        first_seen=0,
        last_seen=0,
        quote=Quote(network=NETWORK, asset=USDC.lower(), amount=1_000, pay_to=seller.lower()),
        quote_at=0,
    )
