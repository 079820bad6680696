"""The official clients with a guard among good and bad sellers: the bad get no signature, the good
are all paid. Without the guard the bad are paid as well.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
import pytest_asyncio
from tests.support.guarded_clients import GUARDED, setup_of
from tests.support.paying_clients import UNGUARDED, Outcomes
from tests.support.seller_world import Arrival, SellerWorld, seller_world
from tests.support.sellers import BAD, GOOD, MOVES_TO, PYTHON, SELLERS, TAKERS, After

pytestmark = [
    pytest.mark.usefixtures("anvil"),
    pytest.mark.node,
    pytest.mark.asyncio(loop_scope="module"),
]

LABELS = [seller.label for seller in SELLERS]
PERMIT2_PAYERS = ("httpx", "requests", "fetch", "axios")
"""Clients whose guard reads Permit2 payments."""


@dataclass(frozen=True)
class Round:
    """The outcome of an order to every seller: the client's result, the received payments, and the
    payments on the chain.
    """

    client: str
    outcomes: Outcomes
    arrived: list[Arrival]
    paid: dict[str, int]


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SellerWorld]:
    async with seller_world(tmp_path_factory.mktemp("sellers")) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module", scope="module", params=GUARDED)
async def played(
    request: pytest.FixtureRequest, world: SellerWorld, tmp_path_factory: pytest.TempPathFactory
) -> Round:
    payer = await world.wallet()
    setup = setup_of(world, tmp_path_factory.mktemp(request.param))
    outcomes = await GUARDED[request.param](world, payer, LABELS, setup)
    mine = [item for item in world.arrived if item.payer == payer.address.lower()]
    return Round(request.param, outcomes, mine, await world.list_paid(payer))


@pytest_asyncio.fixture(loop_scope="module", scope="module", params=UNGUARDED)
async def unguarded(request: pytest.FixtureRequest, world: SellerWorld) -> Round:
    payer = await world.wallet()
    outcomes = await UNGUARDED[request.param](world, payer, LABELS)
    mine = [item for item in world.arrived if item.payer == payer.address.lower()]
    return Round(request.param, outcomes, mine, await world.list_paid(payer))


async def test_good_sellers_are_paid_once_and_bad_ones_get_no_signature(played: Round) -> None:
    honest = {seller.label for seller in GOOD}
    expected = honest | {seller.label for seller in TAKERS}
    # The contracts of Permit2 are not on this chain, so this payment is sent and not settled.
    sent = expected | ({"permit2"} if played.client in PERMIT2_PAYERS else set())
    assert {item.order for item in played.arrived} == sent, played.outcomes
    assert played.paid == dict.fromkeys(expected, 1)
    assert {played.outcomes[label].status for label in honest} == {200}


async def test_each_bad_seller_is_refused_by_its_rule(played: Round) -> None:
    for seller in BAD:
        if seller.label == "permit2" and played.client in PERMIT2_PAYERS:
            continue
        # A client that cannot sign the offer may fail before it asks the guard.
        can_sign = played.client in seller.signed_by
        codes = seller.refusals if can_sign else seller.refusals | {""}
        assert played.outcomes[seller.label].code in codes, (seller.label, played.outcomes)


async def test_payment_does_not_follow_the_seller_s_redirect(played: Round) -> None:
    assert f"takes-then-{After.MOVE}" in {item.seller for item in played.arrived}
    assert MOVES_TO not in {item.seller for item in played.arrived}


async def test_without_guard_bad_sellers_are_paid_like_good_ones(unguarded: Round) -> None:
    signed = {seller.label for seller in SELLERS if unguarded.client in seller.signed_by}
    assert {item.order for item in unguarded.arrived} == signed
    assert unguarded.paid.keys() == {seller.label for seller in SELLERS if seller.payable} & signed


async def test_without_guard_some_sellers_take_the_money_without_delivery(
    unguarded: Round,
) -> None:
    moved = f"takes-then-{After.MOVE}"
    expected = {
        f"takes-then-{After.ERROR}": 500,
        f"takes-then-{After.ASK_AGAIN}": 402,
        **dict.fromkeys(f"takes-then-{after}" for after in (After.HANG, After.DROP, After.DRIP)),
    }
    assert {label: unguarded.outcomes[label].status for label in expected} == expected
    assert {label: unguarded.paid[label] for label in expected} == dict.fromkeys(expected, 1)
    # The Python clients pay again where the paid request was redirected to.
    is_python = unguarded.client in PYTHON
    assert unguarded.paid[moved] == (2 if is_python else 1)
    circle = f"takes-then-{After.CIRCLE}"
    assert unguarded.paid[circle] > 20 if is_python else unguarded.paid[circle] == 1
