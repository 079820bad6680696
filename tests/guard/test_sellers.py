"""The sellers of the guards' tests are real: without a guard the official clients pay them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
import pytest_asyncio
from tests.support.paying_clients import UNGUARDED, Outcomes
from tests.support.seller_world import SellerWorld, seller_world
from tests.support.sellers import PYTHON, SELLERS, After

pytestmark = [
    pytest.mark.usefixtures("anvil"),
    pytest.mark.node,
    pytest.mark.asyncio(loop_scope="module"),
]


@dataclass(frozen=True)
class Round:
    """The outcome of an order to every seller: the client's result, the orders for which a payment
    arrived anywhere, and the number of payments on the chain.
    """

    client: str
    outcomes: Outcomes
    signed: set[str]
    paid: dict[str, int]


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SellerWorld]:
    async with seller_world(tmp_path_factory.mktemp("sellers")) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module", scope="module", params=UNGUARDED)
async def played(request: pytest.FixtureRequest, world: SellerWorld) -> Round:
    payer = await world.wallet()
    labels = [seller.label for seller in SELLERS]
    outcomes = await UNGUARDED[request.param](world, payer, labels)
    return Round(request.param, outcomes, world.list_signed(payer), await world.list_paid(payer))


async def test_without_guard_bad_sellers_are_paid_like_good_ones(played: Round) -> None:
    signed = {seller.label for seller in SELLERS if played.client in seller.signed_by}
    assert played.signed == signed
    assert played.paid.keys() == {seller.label for seller in SELLERS if seller.payable} & signed


async def test_some_sellers_take_the_money_without_delivery(played: Round) -> None:
    moved = f"takes-then-{After.MOVE}"
    expected = {
        f"takes-then-{After.ERROR}": 500,
        f"takes-then-{After.ASK_AGAIN}": 402,
        **dict.fromkeys(f"takes-then-{after}" for after in (After.HANG, After.DROP, After.DRIP)),
    }
    assert {label: played.outcomes[label].status for label in expected} == expected
    assert {label: played.paid[label] for label in expected} == dict.fromkeys(expected, 1)
    # The Python clients pay again where the paid request was redirected to.
    assert played.paid[moved] == (2 if played.client in PYTHON else 1)
    circle = f"takes-then-{After.CIRCLE}"
    assert played.paid[circle] > 20 if played.client in PYTHON else played.paid[circle] == 1
