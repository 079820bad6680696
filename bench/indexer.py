"""An index of a canned chain, for measurements."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson

from bench import CHECKOUT
from bench.canned import TOKEN, World, wallet
from tollgauge.clients.chain.logs import ChainLogs
from tollgauge.clients.chain.rpc import Node
from tollgauge.core.base.units import network_of
from tollgauge.core.endpoint.identity import Endpoint, parse_resource
from tollgauge.core.endpoint.terms import KnownOffer, Quote
from tollgauge.db.engine import Store
from tollgauge.jobs.loop_settings import IndexSettings
from tollgauge.store.endpoints import endpoints


def quiet_settings() -> IndexSettings:
    """Return settings without the work that is measured elsewhere."""
    return IndexSettings(round_ms=10**9, volume_every_ms=10**12, sample_every_ms=0)


@contextlib.asynccontextmanager
async def open_indexer(world: World, settings: IndexSettings) -> AsyncIterator[tuple[Any, ...]]:
    """Open a store with the world's wallets, a client of its node, and a function that adds
    blocks.
    """
    command = [sys.executable, "-m", "bench.canned", orjson.dumps(world).decode()]
    with (
        tempfile.TemporaryDirectory() as folder,
        subprocess.Popen(  # noqa: S603, ASYNC220 (our program; once)
            command, cwd=CHECKOUT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process,
    ):
        assert process.stdin is not None  # noqa: S101 (PIPE above)
        assert process.stdout is not None  # noqa: S101 (PIPE above)
        port = await asyncio.to_thread(process.stdout.readline)
        node = Node(f"http://127.0.0.1:{port.strip()}", timeout_s=60)
        chain = ChainLogs([node], chain_id=world.chain_id, token=TOKEN, settings=settings)
        store = Store.open(f"sqlite:///{Path(folder) / 'bench.db'}")
        try:
            await store.migrate()
            await _list_sellers(store, world)

            async def grow(blocks: int) -> None:
                await node.call("bench_grow", blocks)

            async def traffic() -> list[int]:
                return list(await node.call("bench_traffic"))

            yield store, chain, grow, traffic
        finally:
            await chain.close()
            await store.close()
            process.stdin.close()


def make_seller(number: int, quote: Quote, offers: tuple[KnownOffer, ...] = ()) -> Endpoint:
    """Return the endpoint of a seller."""
    resource = parse_resource(f"https://seller-{number}.tollgauge.dev/pay")
    return Endpoint(
        id=resource.id,
        resource=resource.url,
        host=resource.host,
        first_seen=0,
        last_seen=0,
        quote=quote,
        quote_at=0,
        offers=offers,
    )


async def _list_sellers(store: Store, world: World) -> None:
    """Insert one endpoint per wallet."""
    rows = []
    network = network_of(world.chain_id)
    for number in range(world.wallets):
        pay_to = "0x" + wallet(number)[26:]
        quote = Quote(network=network, asset=TOKEN, amount=5_000, pay_to=pay_to)
        rows.append(make_seller(number, quote))
    for start in range(0, len(rows), 1_000):
        await store.writing(endpoints.insert, *rows[start : start + 1000])
