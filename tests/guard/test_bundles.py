"""What guarded clients pay while the bundle is old, forged, withheld, or the service is gone."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio
from tests.support.bundles import Publisher, bundle_of
from tests.support.guarded_clients import GUARDED, Setup, guarded_httpx
from tests.support.paying_clients import ask_each, payer_of
from tests.support.seller_world import SellerWorld, seller_world

pytestmark = [
    pytest.mark.usefixtures("anvil"),
    pytest.mark.node,
    pytest.mark.asyncio(loop_scope="module"),
]

HOUR = 3_600
ORDERS = ("known", "price-a-little-up", "stranger-cheap", "avoided")
FRESH = {"known": "", "price-a-little-up": "", "stranger-cheap": "", "avoided": "avoid"}
"""The code by which each order is refused; empty if it is paid."""
NONE = dict.fromkeys(ORDERS, "bundle-old")
HOST = "known"
"""The seller on whose host the service is reached as well."""
CLIENTS = ("httpx", "fetch")


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SellerWorld]:
    async with seller_world(tmp_path_factory.mktemp("sellers")) as running:
        yield running


@pytest.fixture(scope="module")
def publisher() -> Publisher:
    return Publisher.new()


@pytest.fixture
def setup(
    world: SellerWorld, publisher: Publisher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Setup:
    """A guard that fetches its bundle, and knows the key by its fingerprint."""
    monkeypatch.setenv("SSL_CERT_FILE", str(world.ca_file))
    world.answers.clear()
    address = f"{world.origin(HOST)}/trust/bundle"
    return Setup(address, publisher.fingerprint, tmp_path / "journal.sqlite", tmp_path / "cache")


def publish(
    world: SellerWorld,
    publisher: Publisher,
    *,
    hours_old: int = 0,
    signer: Publisher | None = None,
    variant: str = "all",
) -> None:
    """Serve a bundle, signed by the publisher or by another key, and the publisher's key."""
    body = bundle_of(world, as_of=int(time.time()) - hours_old * HOUR, variant=variant)
    signature = (signer or publisher).sign(body, kid=publisher.fingerprint)
    world.answers["/trust/bundle"] = ({"tollgauge-signature": signature}, body)
    world.answers["/.well-known/jwks.json"] = ({}, publisher.key_set)


async def refusals(world: SellerWorld, setup: Setup, client: str) -> dict[str, str]:
    """By which code each order was refused, empty for those that the chain shows as paid."""
    payer = await world.wallet()
    outcomes = await GUARDED[client](world, payer, ORDERS, setup)
    paid = await world.list_paid(payer)
    assert paid.keys() == world.list_signed(payer)
    for label in ORDERS:
        assert (outcomes[label].status == 200) == (label in paid), outcomes
    return {label: outcomes[label].code for label in ORDERS}


@pytest.mark.parametrize("client", CLIENTS)
async def test_published_bundle_is_pinned_by_fingerprint_and_cached_for_offline_use(
    world: SellerWorld, publisher: Publisher, setup: Setup, client: str
) -> None:
    publish(world, publisher)
    assert await refusals(world, setup, client) == FRESH
    world.answers.clear()
    assert await refusals(world, setup, client) == FRESH


@pytest.mark.parametrize("client", CLIENTS)
async def test_without_any_bundle_nothing_is_paid(
    world: SellerWorld, setup: Setup, client: str
) -> None:
    assert await refusals(world, setup, client) == NONE


async def test_fail_open_pays_unknown_endpoints_a_cent_without_a_bundle(
    world: SellerWorld, setup: Setup
) -> None:
    open_setup = replace(setup, policy={"fail_open": True})
    expected = FRESH | {"price-a-little-up": "unknown-resource", "avoided": ""}
    assert await refusals(world, open_setup, "httpx") == expected


@pytest.mark.parametrize("client", CLIENTS)
async def test_forged_bundle_is_not_used_and_later_good_one_is(
    world: SellerWorld, publisher: Publisher, setup: Setup, client: str
) -> None:
    publish(world, publisher, signer=Publisher.new())
    assert await refusals(world, setup, client) == NONE
    publish(world, publisher)
    assert await refusals(world, setup, client) == FRESH


async def test_forged_bundle_does_not_fail_open(
    world: SellerWorld, publisher: Publisher, setup: Setup
) -> None:
    publish(world, publisher)
    assert await refusals(world, setup, "httpx") == FRESH
    publish(world, publisher, signer=Publisher.new())
    open_setup = replace(setup, policy={"fail_open": True})
    assert await refusals(world, open_setup, "httpx") == FRESH


@pytest.mark.parametrize(
    ("hours", "code"), [(49, "bundle-stale"), (24 * 7 + 1, "bundle-old")], ids=["stale", "old"]
)
@pytest.mark.parametrize("client", CLIENTS)
async def test_old_bundle_permits_no_endpoint_and_keeps_its_refusals(
    world: SellerWorld, publisher: Publisher, setup: Setup, client: str, hours: int, code: str
) -> None:
    publish(world, publisher, hours_old=hours)
    assert await refusals(world, setup, client) == FRESH | {"price-a-little-up": code}


@pytest.mark.parametrize("client", CLIENTS)
async def test_list_of_bad_endpoints_is_not_accepted_as_whole_bundle(
    world: SellerWorld, publisher: Publisher, setup: Setup, client: str
) -> None:
    publish(world, publisher, variant="avoid")
    assert await refusals(world, setup, client) == NONE


@pytest.mark.parametrize("attack", ["forged", "older"])
async def test_running_client_keeps_its_bundle_when_a_worse_one_is_served(
    world: SellerWorld, publisher: Publisher, setup: Setup, attack: str
) -> None:
    publish(world, publisher)
    assert await refusals(world, setup, "httpx") == FRESH
    if attack == "forged":
        publish(world, publisher, signer=Publisher.new())
    else:
        publish(world, publisher, hours_old=24 * 8)
    fetched = bundles_fetched(world)
    async with guarded_httpx(world, payer_of(await world.wallet()), setup) as http:
        await ask_each(http, world, ["stranger-cheap"])
        async with asyncio.timeout(30):
            while bundles_fetched(world) == fetched:  # noqa: ASYNC110 - the guard has no event
                await asyncio.sleep(0.02)
        await asyncio.sleep(0.2)  # until the answer is read and judged
        outcomes = await ask_each(http, world, ORDERS)
    assert {label: outcome.code for label, outcome in outcomes.items()} == FRESH


def bundles_fetched(world: SellerWorld) -> int:
    return sum(request.target == "/trust/bundle" for _, request in world.asked)
