"""Reconciliation on a real chain, on both databases: real sales, unattributed deposits, a
reorganisation and killed indexers.

The oracle is the chain itself.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import httpx
import pytest
import sqlalchemy as sa
from structlog.testing import capture_logs
from tests.support.command_server import command as prepared_command
from tests.support.reconciliation import forget_payment
from tests.support.statements import fetch
from tests.support.token_balance import balance
from tests.support.trace_world import World as Signer
from tests.support.trace_world import encode_call

from tollgauge import app
from tollgauge.clients.peer import public_authorities
from tollgauge.core.base.units import day_of
from tollgauge.db.engine import Store
from tollgauge.demo.buyer import buy
from tollgauge.demo.chain import Chain, run_chain
from tollgauge.demo.envelopes import USDC
from tollgauge.demo.seed import configuration
from tollgauge.demo.serving import serve
from tollgauge.demo.world import World
from tollgauge.jobs.loop_settings import IndexSettings
from tollgauge.store.chain import deposits
from tollgauge.store.ledger import payments, reconciliation
from tollgauge.web import routes as web

pytestmark = pytest.mark.usefixtures("anvil")

WEATHER = "https://weather.example/v1/current"
SETTINGS = IndexSettings(audit=1, volume_every_ms=0, tip_span=7)
PRICE, GIFT, UNSOLD = 5_000, 700, 6_000
A_DAY_S = 86_400


async def batch(signer: Signer, pay_to: str, values: Sequence[int]) -> str:
    """Several authorizations to the service in one transaction of another contract."""
    signed = [signer.sign("Transfer", pay_to, value) for value in values]
    calls = [(USDC, authorization.call("transfer", "vrs")) for authorization in signed]
    return await signer.send(signer.places["Batcher"], signer.batch(calls))


async def gift(chain: Chain, pay_to: str, value: int) -> str:
    """A plain transfer to the service."""
    data = encode_call("transfer(address,uint256)", pay_to, value)
    return await Signer(chain).send(USDC, data, sender=1)


async def pay_without_purchase(signer: Signer, pay_to: str, value: int, form: str = "vrs") -> str:
    """An authorization to the service without a purchase."""
    return await signer.send(USDC, signer.sign("Transfer", pay_to, value).call("transfer", form))


async def run_indexer(service: app.Opened) -> None:
    for _ in range(60):
        tally = await service.round("index-8453")
        if not any(tally.get(name) for name in ("blocks", "filled", "audited", "reorgs")):
            return
    raise AssertionError("the indexer does not come to rest")


async def sum_books(store: Store, pay_to: str, since: int) -> tuple[int, ...]:
    """Return sales, settled, transfers, received, unattributed, awaited and difference, summed over
    the days since a time, because the test may run past midnight.
    """
    days = range(day_of(since), day_of(app.now_ms()) + 1)
    (mine,) = [
        account
        for account in await store.reading(reconciliation.accounts)
        if account.address == pay_to.lower()
    ]
    book_days = [await store.reading(reconciliation.of_day, mine, day) for day in days]
    figures = [
        (
            day.sales,
            day.settled,
            day.transfers,
            day.received,
            day.unattributed,
            day.awaited,
            day.difference,
        )
        for day in book_days
    ]
    return tuple(map(sum, zip(*figures, strict=True)))


def alarms(entries: Sequence[Any]) -> list[str]:
    return [alarm["difference"] for alarm in entries if alarm.get("kind") == "books"]


async def test_reconciliation_shows_sales_unattributed_deposits_and_reorganised_payments(
    database: str,
) -> None:
    began = app.now_ms()
    async with World.start(clock=app.now_ms) as world:
        chain, pay_to = world.chain, world.pay_to
        config = configuration(world, port=0, store_url=database)
        async with app.open_resources(replace(config, index=SETTINGS)) as service:
            await service.round("discover")
            async with serve(web.create(service.server())) as port:
                url = f"http://127.0.0.1:{port}"
                for _ in range(2):
                    await buy(url, WEATHER, account=world.buyer)
                signer = Signer(chain)
                await chain.mint(signer.payer.address, 1_000_000)
                await gift(chain, pay_to, GIFT)
                await pay_without_purchase(signer, pay_to, UNSOLD)
                before = await balance(chain, pay_to)
                await buy(url, WEATHER, account=world.buyer)
            await run_indexer(service)
            stray = GIFT + UNSOLD
            known = (3, 3 * PRICE, 5, 3 * PRICE + stray, stray, 0, 0)
            assert await sum_books(service.store, pay_to, began) == known
            deposits = await service.store.reading(reconciliation.find_unattributed, limit=9)
            assert {(deposit.value, deposit.nonce is None) for deposit in deposits} == {
                (GIFT, True),
                (UNSOLD, False),
            }

            # The block of the third sale is lost, with everything in it.
            await chain.rpc("anvil_reorg", 1, [])
            assert await balance(chain, pay_to) == before
            await chain.rpc("anvil_mine", hex(2))
            await run_indexer(service)
            known = (3, 3 * PRICE, 4, 2 * PRICE + stray, stray, PRICE, 0)
            assert await sum_books(service.store, pay_to, began) == known, (
                "the transfer may still arrive"
            )

            await chain.rpc("evm_increaseTime", 2 * A_DAY_S)
            await chain.rpc("anvil_mine", hex(100))
            service.indexing[8453].reconciled_at = 0
            with capture_logs() as logged:
                await run_indexer(service)
                assert alarms(logged) == [str(-PRICE)], "the lost sale must be reported"
            known = (3, 3 * PRICE, 4, 2 * PRICE + stray, stray, 0, -PRICE)
            assert await sum_books(service.store, pay_to, began) == known


@pytest.mark.parametrize(
    "database", [pytest.param("postgres", marks=pytest.mark.postgres)], indirect=True
)
async def test_payment_that_the_ledger_lost_is_409_and_its_transfer_unattributed(
    database: str,
) -> None:
    async with World.start(clock=app.now_ms) as world:
        config = configuration(world, port=0, store_url=database)
        async with app.open_resources(replace(config, index=SETTINGS)) as service:
            await service.round("discover")
            async with serve(web.create(service.server())) as port:
                url = f"http://127.0.0.1:{port}"
                bought = await buy(url, WEATHER, account=world.buyer)
                (row,) = await service.store.reading(payments.latest, limit=1)
                await service.store.writing(forget_payment, row.id)
                await asyncio.sleep(1.1)  # the chain counts whole seconds
                async with httpx.AsyncClient(verify=public_authorities()) as http:
                    again = await http.post(
                        f"{url}/v1/x402-trust",
                        json={"resource": WEATHER},
                        headers={"PAYMENT-SIGNATURE": row.header},
                    )
            assert (again.status_code, again.json()["code"]) == (409, "payment-settled-unknown")
            assert again.json()["transaction"] == bought.transaction
            await run_indexer(service)
            (deposit,) = await service.store.reading(reconciliation.find_unattributed, limit=9)
            assert (deposit.transaction, deposit.value) == (bought.transaction, PRICE)


INDEXER = """
import asyncio, sys, time
from tollgauge.clients.chain.logs import ChainLogs
from tollgauge.clients.chain.rpc import Node
from tollgauge.jobs import index
from tollgauge.jobs.index_visit import IndexState
from tollgauge.jobs.loop_settings import IndexSettings
from tollgauge.db.engine import Store

async def main() -> None:
    settings = IndexSettings(audit=1, volume_every_ms=0, span=3, tip_span=2)
    store = Store.open(sys.argv[1])
    logs = ChainLogs([Node(sys.argv[2])], chain_id=8453, token=sys.argv[3],
                     settings=settings)
    state = IndexState()
    print("ready", flush=True)
    while True:
        await index.run(store, logs, state, settings=settings, pay_to=sys.argv[4],
                        clock=lambda: time.time_ns() // 1_000_000)
        print("round", flush=True)

asyncio.run(main())
"""


async def payment_of(store: Store) -> list[tuple[str, int, bool]]:
    rows = (await fetch(store, sa.select(deposits.deposit))).all()
    return sorted((row.transaction, int(row.value), row.nonce is not None) for row in rows)


async def test_killed_indexers_repeat_and_miss_nothing(database: str, store: Store) -> None:
    async with run_chain() as chain:
        signer = Signer(chain)
        await signer.open()
        pay_to = signer.sender(3)
        command = prepared_command("-c", INDEXER, database, chain.rpc_url, USDC, pay_to)
        sent: dict[str, list[tuple[int, bool]]] = {}
        sent[await batch(signer, pay_to, (31, 32, 33))] = [(31, True), (32, True), (33, True)]
        for turn in range(2):
            process = await asyncio.create_subprocess_exec(
                *command, stdout=subprocess.PIPE, env={**os.environ}
            )
            assert process.stdout is not None
            try:
                for value in range(4):
                    if value == 1:
                        await process.stdout.readline()
                    sent[await gift(chain, pay_to, 10 + value)] = [(10 + value, False)]
                    transaction = await pay_without_purchase(
                        signer, pay_to, 20 + value, ("vrs", "bytes")[value % 2]
                    )
                    sent[transaction] = [(20 + value, True)]
                if turn == 1:
                    await chain.rpc("anvil_reorg", 3, [])
                await process.stdout.readline()
            finally:
                process.send_signal(signal.SIGKILL)
                await process.wait()
        process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
        assert process.stdout is not None
        try:
            expected = []
            for tx, rows in sent.items():
                receipt = await chain.rpc("eth_getTransactionReceipt", tx)
                if receipt is not None and receipt["status"] == "0x1":
                    expected += [(tx, *row) for row in rows]
            booked: list[tuple[str, int, bool]] = []
            while await process.stdout.readline():
                last, booked = booked, await payment_of(store)
                if len(booked) >= len(expected) and last == booked:
                    break
        finally:
            process.kill()
            await process.wait()
        assert 2 * 8 <= len(expected) < 3 + 2 * 8, "the reorganisation dropped some"
        assert booked == sorted(expected)
        assert await balance(chain, pay_to) == sum(value for _, value, _ in expected)
