"""The examples of guard/examples and the snippets of docs/guard.md, run as they stand."""

from __future__ import annotations

import asyncio
import json
import os
import re
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest
import pytest_asyncio
from tests.support.bundles import Publisher, bundle_of, encode_bundle, row_of
from tests.support.command_server import command, program
from tests.support.paying_clients import node
from tests.support.seller_world import SellerWorld, seller_world
from tests.support.sellers import Record
from tests.support.storefront import WEATHER, storefront

from tollgauge.demo.chain import TestAccount
from tollgauge_guard import Code

EXAMPLES = Path(__file__).resolve().parents[2] / "guard" / "examples"
PAGE = (EXAMPLES.parents[1] / "docs" / "guard.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SHELL = [body for language, body in BLOCK.findall(PAGE) if language == "sh"]
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
    """Return the variables of the examples. The bundle is published next to a seller."""
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
    """Run an example in a separate folder and home, and return its output."""
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


async def test_examples_are_short() -> None:
    for path in EXAMPLES.iterdir():
        assert len(path.read_text(encoding="utf-8").splitlines()) < LINES_MAX, path.name


@pytest.mark.parametrize(
    "example", ["httpx_client.py", "requests_client.py", "fetch.mjs", "axios.mjs"]
)
async def test_example_pays_good_sellers_and_prints_reasons_of_refusals(
    world: SellerWorld, environment: Mapping[str, str], tmp_path: Path, example: str
) -> None:
    account = await world.wallet()
    urls = {label: world.url(label) for label in ORDERS}
    printed = await run(example, tmp_path, account, environment, *urls.values())
    assert paid_sellers(world, account) == {"known", "stranger-cheap"}
    assert sum((await world.list_paid(account)).values()) == 2
    lines = printed.splitlines()
    first, _, answer = lines[0].partition(": ")
    assert (first, json.loads(answer)) == (f"200 {urls['known']}", {"seller": "known"})
    for label, code in (("payto-changed", "payto-unknown"), ("avoided", "avoid")):
        line = next(line for line in lines if line.startswith(f"refused {urls[label]}: "))
        assert code in line
    if example.endswith(".mjs"):
        assert lines[-1] == "0 payments have no answer"
    else:
        entries = [line for line in lines if line.startswith("paid ")]
        assert [line.split()[1] for line in entries] == ["10000", "5000"]
        assert all(line.endswith("delivered") for line in entries)


@pytest.mark.usefixtures("one_day")
async def test_agent_asks_about_unknown_endpoints_and_stops_at_its_budgets(
    world: SellerWorld, environment: Mapping[str, str], tmp_path: Path
) -> None:
    account = await world.wallet()
    cheap, dear = world.url("stranger-cheap"), world.url("stranger-dear")
    known = [f"{world.url('known')}?n={number}" for number in range(6)]
    other = [f"{world.url('older-payto')}?n={number}" for number in range(5)]
    words = (cheap, dear, *known, *other)
    printed = await run("agent_with_daily_budget.py", tmp_path, account, environment, *words)
    asked, paid, *lines = printed.splitlines()
    assert asked.startswith(f"asked about {cheap}: ")
    assert asked.endswith(" Yes.")
    assert paid.startswith(f"paid {cheap}")
    refused = [line.removeprefix("refused ") for line in lines if line.startswith("refused ")]
    assert [line.split(": ")[:2] for line in refused] == [
        [dear, "over-call-cap"],
        [known[5], "over-host-budget"],
        [other[4], "over-day-budget"],
    ]
    assert sum((await world.list_paid(account)).values()) == 1 + 5 + 4


async def test_tools_of_this_service_are_bought_up_to_their_known_price(
    tmp_path: Path,
) -> None:
    publisher, now = Publisher.new(), int(time.time())
    async with storefront() as shop:
        url = f"{shop.url}/mcp"
        record = Record(pay_to=(shop.world.pay_to,), amount=5_000)
        addresses = [shop.world.pay_to.lower()]
        body = encode_bundle([row_of(url, record, now, addresses)], now, payTo=addresses)
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
    assert printed.splitlines()[-1].endswith("delivered")


async def test_page_contains_the_examples_unchanged() -> None:
    shown = dict(BLOCK.findall(PAGE))
    assert shown["python"] == (EXAMPLES / "httpx_client.py").read_text(encoding="utf-8")
    assert shown["js"] == (EXAMPLES / "fetch.mjs").read_text(encoding="utf-8")


async def test_page_lists_every_code_in_order_of_the_rules() -> None:
    _, _, table = PAGE.partition("| code | when | it |")
    codes, _, _ = table.partition("\n\n")
    cells = re.findall(r"^\| (`[^|]*) \|", codes, re.MULTILINE)
    assert re.findall(r"`([a-z-]+)`", " ".join(cells)) == [*Code]


async def test_commands_of_the_page_run(
    world: SellerWorld, environment: Mapping[str, str], tmp_path: Path
) -> None:
    guard = program(tmp_path / "bin", "tollgauge-guard", "-m", "tollgauge_guard.cli")
    local, asked = SHELL
    homes = dict.fromkeys(("XDG_STATE_HOME", "XDG_CACHE_HOME"), str(tmp_path))
    path = f"{guard.parent}:{os.environ['PATH']}"
    for label, code in (("known", 0), ("avoided", 1)):
        check, journal = local.splitlines()
        variables = {**environment, **homes, "PATH": path, "RESOURCE": world.url(label)}
        assert (await shell(check, variables))[0] == code
        assert await shell(journal, variables) == (
            0,
            "Every payment was answered, or its purchase has ended.\n",
        )
    async with storefront() as shop:
        variables = {"TOLLGAUGE_URL": shop.url, "RESOURCE": WEATHER}
        ended, printed = await shell(asked, variables)
    assert (ended, json.loads(printed)["resource"]) == (0, WEATHER)


async def shell(text: str, variables: Mapping[str, str]) -> tuple[int | None, str]:
    """Exit code and output of a command."""
    process = await asyncio.create_subprocess_exec(
        *("sh", "-euc", text),
        env=os.environ | variables,
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await asyncio.wait_for(process.communicate(), 60)
    return process.returncode, out.decode()
