"""Budgets with concurrent calls, and the journal after a client was killed."""

from __future__ import annotations

import asyncio
import json
import signal
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from dataclasses import asdict
from pathlib import Path

import pytest
import pytest_asyncio
from tests.support.command_server import command
from tests.support.guarded_clients import (
    Setup,
    guarded_httpx,
    guarded_requests,
    setup_of,
)
from tests.support.paying_clients import (
    ask,
    ask_with_requests,
    node_answer,
    node_order,
    payer_in_threads,
    payer_of,
    run_node,
    send_order,
    start_node,
)
from tests.support.paying_process import HELD
from tests.support.seller_world import FUNDS, SellerWorld, seller_world
from tests.support.sellers import KNOWN_PRICE, TAKERS
from tests.support.token_balance import balance
from tests.support.trace_world import request_trace, trace_service

from tollgauge.demo.chain import TestAccount
from tollgauge_guard.journal import Journal
from tollgauge_guard.payment import Payment

pytestmark = [
    pytest.mark.usefixtures("anvil"),
    pytest.mark.node,
    pytest.mark.asyncio(loop_scope="module"),
]

CALLS = 50
AFFORDABLE = 7


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SellerWorld]:
    async with seller_world(tmp_path_factory.mktemp("sellers")) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def service(world: SellerWorld) -> AsyncIterator[str]:
    async with trace_service(world) as address:
        yield address


def orders(world: SellerWorld) -> dict[str, str]:
    """Return different requests, so that only budgets stop them."""
    return {f"order {number}": f"{world.url('known')}?n={number}" for number in range(CALLS)}


@pytest.mark.usefixtures("one_day")
async def test_concurrent_tasks_do_not_exceed_a_budget(world: SellerWorld, tmp_path: Path) -> None:
    payer = await world.wallet()
    setup = setup_of(world, tmp_path, max_day=AFFORDABLE * KNOWN_PRICE)
    async with guarded_httpx(world, payer_of(payer), setup) as http:
        calls = [ask(http, url, order) for order, url in orders(world).items()]
        outcomes = await asyncio.gather(*calls)
    assert sum((await world.list_paid(payer)).values()) == AFFORDABLE
    codes = [outcome.code for outcome in outcomes]
    assert codes.count("over-day-budget") == CALLS - AFFORDABLE


@pytest.mark.usefixtures("one_day")
async def test_concurrent_threads_do_not_exceed_a_budget(
    world: SellerWorld, tmp_path: Path
) -> None:
    payer = await world.wallet()
    setup = setup_of(world, tmp_path, max_host_day=AFFORDABLE * KNOWN_PRICE)
    with guarded_requests(payer_in_threads(payer), setup) as session:
        calls = [
            asyncio.to_thread(ask_with_requests, session, world, url, order)
            for order, url in orders(world).items()
        ]
        outcomes = await asyncio.gather(*calls)
    assert sum((await world.list_paid(payer)).values()) == AFFORDABLE
    codes = [outcome.code for outcome in outcomes]
    assert codes.count("over-host-budget") == CALLS - AFFORDABLE


@pytest.mark.usefixtures("one_day")
@pytest.mark.parametrize("library", ["fetch", "axios"])
async def test_concurrent_promises_do_not_exceed_a_budget(
    world: SellerWorld, tmp_path: Path, library: str
) -> None:
    payer = await world.wallet()
    setup = setup_of(world, tmp_path, max_day=AFFORDABLE * KNOWN_PRICE)
    guard = {"guard": setup.for_node(), "together": True}
    outcomes = await run_node(world, payer, orders(world), library, **guard)
    assert sum((await world.list_paid(payer)).values()) == AFFORDABLE
    codes = [outcome.code for outcome in outcomes.values()]
    assert codes.count("over-day-budget") == CALLS - AFFORDABLE


async def test_request_without_a_good_answer_is_paid_once(
    world: SellerWorld, tmp_path: Path
) -> None:
    payer = await world.wallet()
    url = world.url("takes-then-ask-again")
    async with guarded_httpx(world, payer_of(payer), setup_of(world, tmp_path)) as http:
        outcomes = [await ask(http, url, "storm") for _ in range(6)]
    assert all(outcome.code in ("", "payment-unresolved") for outcome in outcomes)
    assert await world.list_paid(payer) == {"storm": 1}
    mine = [item for item in world.arrived if item.payer == payer.address.lower()]
    assert len({item.nonce for item in mine}) == 1


@pytest.mark.parametrize("label", ["takes-then-error", "takes-then-drop"])
async def test_lost_answer_is_requested_again_with_same_payment(
    world: SellerWorld, tmp_path: Path, label: str
) -> None:
    payer = await world.wallet()
    async with guarded_httpx(world, payer_of(payer), setup_of(world, tmp_path)) as http:
        for _ in range(3):
            await ask(http, world.url(label), "again")
    mine = [item for item in world.arrived if item.payer == payer.address.lower()]
    assert len(mine) == 3
    assert len({item.nonce for item in mine}) == 1
    assert await world.list_paid(payer) == {"again": 1}


async def test_journal_contains_every_payment_and_only_received_receipts(
    world: SellerWorld, tmp_path: Path
) -> None:
    payer, setup = await world.wallet(), setup_of(world, tmp_path)
    async with guarded_httpx(world, payer_of(payer), setup) as http:
        for seller in TAKERS:
            await ask(http, world.url(seller.label), seller.label)
        entries = http.guard.journal.payments()
    mine = {item.nonce for item in world.arrived if item.payer == payer.address.lower()}
    assert {str(entry.nonce) for entry in entries if entry.settlement is None} == mine


async def start(
    world: SellerWorld, account: TestAccount, setup: Setup, label: str, *, holds: bool = False
) -> Process:
    """A program that pays a seller."""
    files = {"journal": str(setup.journal), "cache": str(setup.cache)}
    order = {
        "url": world.url(label),
        "ca_file": str(world.ca_file),
        "account": asdict(account),
        "setup": asdict(setup) | files,
        "holds": holds,
    }
    words = command("-m", "tests.support.paying_process", json.dumps(order))
    return await asyncio.create_subprocess_exec(*words, stdout=PIPE)


async def wait_for_payment(world: SellerWorld, account: TestAccount) -> None:
    """Wait until the chain shows a payment of an account."""
    async with asyncio.timeout(30):
        while await balance(world.chain, account.address) == FUNDS:  # noqa: ASYNC110 - no event
            await asyncio.sleep(0.02)


def find_unsettled(setup: Setup) -> Payment:
    (entry,) = Journal(setup.journal).find_unresolved()
    return entry


async def test_after_kill_journal_contains_the_payment_and_trace_its_outcome(
    world: SellerWorld, service: str, tmp_path: Path
) -> None:
    account, setup = await world.wallet(), setup_of(world, tmp_path)
    process = await start(world, account, setup, "takes-then-hang")
    await wait_for_payment(world, account)
    process.send_signal(signal.SIGKILL)
    await process.wait()
    entry = find_unsettled(setup)
    assert (entry.payer, entry.amount) == (account.address.lower(), KNOWN_PRICE)
    answer = await request_trace(
        service, world, payer=entry.payer, nonce=str(entry.nonce), network="eip155:8453"
    )
    assert answer["authorization"]["used"] is True
    assert (answer["payee"], answer["amount"]) == (entry.pay_to, str(entry.amount))


async def test_after_kill_typescript_journal_contains_the_payment(
    world: SellerWorld, tmp_path: Path
) -> None:
    account, setup = await world.wallet(), setup_of(world, tmp_path)
    orders = {"killed": world.url("takes-then-hang")}
    process = await start_node(world)
    await send_order(process, node_order(account, orders, "fetch", guard=setup.for_node()))
    await wait_for_payment(world, account)
    process.send_signal(signal.SIGKILL)
    await process.wait()
    (arrival,) = [item for item in world.arrived if item.payer == account.address.lower()]
    (entry,) = await node_answer(
        world, node_order(account, {}, "fetch", guard=setup.for_node(), unresolved=True)
    )
    assert (entry["nonce"], entry["payer"]) == (arrival.nonce, arrival.payer)
    assert (entry["payTo"], entry["amount"]) == (arrival.pay_to.lower(), str(arrival.value))


async def test_unsent_payment_of_killed_client_is_listed_and_not_settled(
    world: SellerWorld, service: str, tmp_path: Path
) -> None:
    account, setup = await world.wallet(), setup_of(world, tmp_path)
    process = await start(world, account, setup, "known", holds=True)
    assert process.stdout is not None
    line = await asyncio.wait_for(process.stdout.readline(), 30)
    assert line.decode().strip() == HELD
    process.send_signal(signal.SIGKILL)
    await process.wait()
    entry = find_unsettled(setup)
    assert entry.resource == world.url("known")
    answer = await request_trace(
        service, world, payer=entry.payer, nonce=str(entry.nonce), network="eip155:8453"
    )
    assert (answer["status"], answer["authorization"]["used"]) == ("not-found", False)
    assert await world.list_paid(account) == {}
