"""The examples of guard/examples and the snippets of docs/guard.md, run as they stand."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest
import pytest_asyncio
from tests.support.bundles import Publisher, bundle_of, packed, row_of
from tests.support.paying_clients import node
from tests.support.prepared import command
from tests.support.seller_world import SellerWorld, seller_world
from tests.support.sellers import Record
from tests.support.storefront import WEATHER, storefront

from tollgauge.demo.chain import TestAccount

EXAMPLES = Path(__file__).resolve().parents[2] / "guard" / "examples"
LINES_MAX = 40
ORDERS = ("known", "stranger-cheap", "payto-changed", "avoided")
HOST = "known"
"""The seller on whose host the bundle is as well."""

pytestmark = [
    pytest.mark.node,
    pytest.mark.usefixtures("anvil"),
    pytest.mark.asyncio(loop_scope="module"),
]


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SellerWorld]:
    async with seller_world(tmp_path_factory.mktemp("sellers")) as running:
        yield running


@pytest.fixture(scope="module")
def environment(world: SellerWorld) -> Mapping[str, str]:
    """What the examples read; the bundle is published beside a seller."""
    publisher = Publisher.new()
    body = bundle_of(world, as_of=int(time.time()))
    world.answers["/trust/bundle"] = ({"tollgauge-signature": publisher.sign(body)}, body)
    world.answers["/.well-known/jwks.json"] = ({}, publisher.key_set)
    trusted = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS")
    return {
        "TOLLGAUGE_GUARD_BUNDLE": f"{world.origin(HOST)}/trust/bundle",
        "TOLLGAUGE_GUARD_KEY": publisher.fingerprint,
        **dict.fromkeys(trusted, str(world.ca_file)),
    }


async def run(
    example: str, folder: Path, account: TestAccount, environment: Mapping[str, str], *words: str
) -> str:
    """What an example prints, in a folder and with a home of its own."""
    path = EXAMPLES / example
    program = path.read_text(encoding="utf-8")
    start = [node(), str(path)] if path.suffix == ".mjs" else command("-c", program)
    homes = dict.fromkeys(("XDG_STATE_HOME", "XDG_CACHE_HOME"), str(folder))
    process = await asyncio.create_subprocess_exec(
        *(*start, *words),
        env=os.environ | environment | homes | {"PRIVATE_KEY": account.key},
        cwd=folder,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 0, err.decode()
    return out.decode()


def paid_sellers(world: SellerWorld, account: TestAccount) -> set[str]:
    return {item.seller for item in world.arrived if item.payer == account.address.lower()}


def test_examples_are_short() -> None:
    for path in EXAMPLES.iterdir():
        assert len(path.read_text(encoding="utf-8").splitlines()) < LINES_MAX, path.name


@pytest.mark.parametrize(
    "example", ["httpx_client.py", "requests_client.py", "fetch.mjs", "axios.mjs"]
)
async def test_an_example_pays_the_good_and_says_why_it_refuses_the_others(
    world: SellerWorld, environment: Mapping[str, str], tmp_path: Path, example: str
) -> None:
    account = await world.wallet()
    urls = {label: world.url(label) for label in ORDERS}
    printed = await run(example, tmp_path, account, environment, *urls.values())
    assert paid_sellers(world, account) == {"known", "stranger-cheap"}
    assert sum((await world.paid(account)).values()) == 2
    lines = printed.splitlines()
    assert lines[0] == f'200 {urls["known"]}: {{"seller":"known"}}'.replace(
        '":"', '": "' if example != "axios.mjs" else '":"'
    )
    for label, code in (("payto-changed", "payto-unknown"), ("avoided", "avoid")):
        line = next(line for line in lines if line.startswith(f"refused {urls[label]}: "))
        assert code in line
    if example.endswith(".mjs"):
        assert lines[-1] == "0 payments have no receipt"
    else:
        entries = [line for line in lines if line.startswith("paid ")]
        assert [line.split()[1] for line in entries] == ["10000", "5000"]
        assert all(line.endswith("settled") for line in entries)


async def test_an_agent_asks_about_strangers_and_stops_at_its_budget_of_the_day(
    world: SellerWorld, environment: Mapping[str, str], tmp_path: Path
) -> None:
    account = await world.wallet()
    cheap, dear, known = (
        world.url(label) for label in ("stranger-cheap", "stranger-dear", "known")
    )
    hosts = [f"{known}?n={number}" for number in range(6)]
    others = [world.url("templated"), world.url("older-payto")]
    words = (cheap, dear, *hosts, *others)
    lines = (
        await run("agent_with_daily_budget.py", tmp_path, account, environment, *words)
    ).splitlines()
    assert lines[0].startswith(f"asked about {cheap}: ")
    assert lines[0].endswith("Yes.")
    assert lines[1].startswith(f"paid {cheap}")
    assert any(line.startswith(f"refused {dear}: over-call-cap") for line in lines)
    assert any(line.startswith(f"refused {hosts[5]}: over-host-budget") for line in lines)
    assert sum((await world.paid(account)).values()) == 1 + 5 + 1
    assert paid_sellers(world, account) == {"stranger-cheap", "known", "older-payto"}


async def test_the_tools_of_this_service_are_bought_as_far_as_their_known_price(
    tmp_path: Path,
) -> None:
    publisher, now = Publisher.new(), int(time.time())
    async with storefront() as shop:
        url = f"{shop.url}/mcp"
        record = Record(pay_to=(shop.world.pay_to,), amount=5_000)
        body = packed([row_of(url, record, now)], now)
        file = tmp_path / "trust.bundle"
        file.write_bytes(body)
        file.with_name("trust.bundle.jws").write_text(publisher.sign(body))
        environment = {
            "TOLLGAUGE_GUARD_BUNDLE": str(file),
            "TOLLGAUGE_GUARD_KEY": json.dumps(publisher.jwk),
        }
        before = await shop.income()
        report = json.dumps({"resource": WEATHER})
        bulk = json.dumps({"resources": [WEATHER]})
        words = (url, "x402_trust_score", report, "x402_trust_bulk", bulk)
        printed = await run("mcp_client.py", tmp_path, shop.world.buyer, environment, *words)
        assert await shop.income() - before == 5_000
    assert "refused x402_trust_bulk: price-jump" in printed
    assert printed.splitlines()[-1].endswith("settled")
