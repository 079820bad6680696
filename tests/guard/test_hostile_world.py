"""The official clients with a guard among good and bad sellers: the bad get no signature, the good
are all paid. Without the guard the bad are paid as well (test_sellers.py).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from tests.support.guarded_clients import GUARDED, setup_of
from tests.support.seller_world import SellerWorld, seller_world
from tests.support.sellers import BAD, GOOD, MOVES_TO, TAKERS, After

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


@pytest.mark.parametrize("client", GUARDED)
async def test_the_good_are_paid_and_the_bad_get_no_signature(
    world: SellerWorld, tmp_path: Path, client: str
) -> None:
    payer = await world.wallet()
    labels = [seller.label for seller in (*GOOD, *BAD)]
    outcomes = await GUARDED[client](world, payer, labels, setup_of(world, tmp_path))
    good = {seller.label for seller in GOOD}
    assert world.signed(payer) == good, outcomes
    assert await world.paid(payer) == dict.fromkeys(good, 1)
    assert {outcomes[label].status for label in good} == {200}
    for seller in BAD:
        # A client that cannot sign the offer may fail before it asks the guard.
        codes = seller.refusals if client in seller.signed_by else seller.refusals | {""}
        assert outcomes[seller.label].code in codes, (seller.label, outcomes[seller.label])


@pytest.mark.parametrize("client", GUARDED)
async def test_a_seller_that_keeps_the_money_gets_one_payment_and_sends_nobody_elsewhere(
    world: SellerWorld, tmp_path: Path, client: str
) -> None:
    payer = await world.wallet()
    labels = [seller.label for seller in TAKERS]
    await GUARDED[client](world, payer, labels, setup_of(world, tmp_path))
    assert await world.paid(payer) == dict.fromkeys(labels, 1)
    mine = [item for item in world.arrived if item.payer == payer.address.lower()]
    assert f"takes-then-{After.MOVE}" in {item.order for item in mine}
    assert MOVES_TO not in {item.seller for item in mine}
