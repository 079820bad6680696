"""The sellers of the guards' tests are real: without a guard the official clients pay them."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from tests.support.paying_clients import UNGUARDED
from tests.support.seller_world import SellerWorld, seller_world
from tests.support.sellers import BAD, GOOD, PYTHON, TAKERS, After

from tollgauge.demo.anvil import ChainError, find_anvil

pytestmark = [pytest.mark.node, pytest.mark.asyncio(loop_scope="module")]


@pytest.fixture(scope="module", autouse=True)
def needs_anvil() -> None:
    try:
        find_anvil()
    except ChainError as error:
        pytest.skip(f"{error} {error.hint}")


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SellerWorld]:
    async with seller_world(tmp_path_factory.mktemp("sellers")) as running:
        yield running


@pytest.mark.parametrize("client", UNGUARDED)
async def test_without_a_guard_the_bad_are_paid_like_the_good(
    world: SellerWorld, client: str
) -> None:
    payer = await world.wallet()
    sellers = (*GOOD, *BAD)
    await UNGUARDED[client](world, payer, [seller.label for seller in sellers])
    signed = {seller.label for seller in sellers if client in seller.signed_by}
    payable = {seller.label for seller in sellers if seller.payable}
    assert world.signed(payer) == signed
    assert await world.paid(payer) == dict.fromkeys(signed & payable, 1)


@pytest.mark.parametrize("client", UNGUARDED)
async def test_some_take_the_money_and_deliver_nothing(world: SellerWorld, client: str) -> None:
    payer = await world.wallet()
    outcomes = await UNGUARDED[client](world, payer, [seller.label for seller in TAKERS])
    paid = {seller.label: 1 for seller in TAKERS}
    if client in PYTHON:  # pays again where the paid request was redirected to
        paid[f"takes-then-{After.MOVE}"] = 2
    assert await world.paid(payer) == paid
    statuses = {label: outcome.status for label, outcome in outcomes.items()}
    moved = 200 if client in PYTHON else 402
    assert statuses == {
        f"takes-then-{After.ERROR}": 500,
        f"takes-then-{After.ASK_AGAIN}": 402,
        f"takes-then-{After.MOVE}": moved,
        **dict.fromkeys(f"takes-then-{after}" for after in (After.HANG, After.DROP, After.DRIP)),
    }
