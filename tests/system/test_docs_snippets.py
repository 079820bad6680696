"""The programs of the docs page, run unchanged: each buys the product that it documents."""

from __future__ import annotations

import asyncio
import html
import json
import os
import re
import shlex
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import httpx
import pytest
import pytest_asyncio
from tests.support.command_server import command as prepared_command
from tests.support.node_programs import Run, open_node
from tests.support.prices import BULK, PRICES, RENEW, TRACE, TRUST, WATCH
from tests.support.programs import require
from tests.support.rated_endpoints import add_better_alternative
from tests.support.storefront import WEATHER, Storefront, storefront

from tollgauge.clients.peer import public_authorities
from tollgauge.core.base.units import parse_dollars
from tollgauge.demo.buyer import buy
from tollgauge.web.pages.docs import AUTHORIZATION
from tollgauge.web.pages.snippets import Language
from tollgauge.web.paid.products.trace import EXAMPLE as TRACE_EXAMPLE
from tollgauge.web.wire.watch_models import EXAMPLE_ID

ARTICLE = re.compile(r'<article class="route">.*?<span class="code">(.*?)</span>(.*?)</art', re.S)
FIGURE = re.compile(r"<figcaption>(\w+)</figcaption>\s*<pre[^>]*><code>(.*?)</code>", re.S)

LARGER_TIERS = set(BULK.values()) - {BULK[10]}

pytestmark = [
    pytest.mark.usefixtures("anvil"),
    pytest.mark.node,
    pytest.mark.asyncio(loop_scope="module"),
]


@dataclass(frozen=True)
class Page:
    """The snippets of the page: `programs` and `lost` by language, `routes` by path, then "curl"
    or "MCP".
    """

    text: str
    programs: Mapping[str, str]
    routes: Mapping[str, Mapping[str, str]]
    lost: Mapping[str, str]
    trace: str
    transaction: str

    def program(self, language: str, url: str, order: str) -> str:
        """Return the program for another route, edited as the page describes; with MCP `url` is the
        tool and `order` its arguments.
        """
        names = {"TypeScript": ("const url", "const order"), "MCP": ("TOOL", "ARGUMENTS")}
        url_name, order_name = names.get(language, ("URL", "ORDER"))
        program = assign(self.programs[language], url_name, json.dumps(url))
        return assign(program, order_name, order)


def assign(program: str, name: str, value: str) -> str:
    """Return a program with another value of a constant."""
    before, _, rest = program.partition(f"\n{name} = ")
    old, _, after = rest.partition("\n")
    assert old, name
    return f"{before}\n{name} = {value}{';' * old.endswith(';')}\n{after}"


@pytest.fixture(scope="module", autouse=True)
def needs_anvil_and_node() -> None:
    for program in ("node", "curl"):
        require(program)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def shop() -> AsyncIterator[Storefront]:
    async with storefront() as running:
        yield running


def figures(text: str) -> dict[str, str]:
    return {name: html.unescape(program) for name, program in FIGURE.findall(text)}


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def page(shop: Storefront) -> Page:
    """The page of a service that has scored one endpoint, which the examples use."""
    bought = await buy(shop.url, WEATHER, account=shop.world.buyer)
    async with httpx.AsyncClient(timeout=30, trust_env=False, verify=public_authorities()) as http:
        text = (await http.get(f"{shop.url}/docs")).text
    await add_better_alternative(shop.service.store, WEATHER, now=shop.service.clock())
    lost, _, trace = text.partition('id="lost"')[2].partition('id="money"')
    paid = text.partition('id="paid"')[2].partition('id="lost"')[0]
    routes = {path: figures(rest) for path, rest in ARTICLE.findall(paid)}
    programs = figures(paid.partition("<article")[0])
    trace = figures(trace)["curl"]
    return Page(text, programs, routes, figures(lost), trace, bought.transaction)


async def run(shop: Storefront, language: str, program: str, **more: str) -> str:
    """Run a program with the interpreter of its language; return its output."""
    if language == Language.CURL:
        command = ["sh", "-euc", program.replace("curl -i", "curl -s")]
    else:
        command = prepared_command("-c", program)
    process = await asyncio.create_subprocess_exec(
        *command,
        env=os.environ | {"PRIVATE_KEY": shop.world.buyer.key, **more},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 0, (program, err.decode())
    return out.decode()


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def run_in_node(
    shop: Storefront, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Run]:
    folder = tmp_path_factory.mktemp("node")
    async with open_node(folder, PRIVATE_KEY=shop.world.buyer.key) as run_next:
        yield run_next


@pytest.fixture(params=[Language.PYTHON, Language.TYPESCRIPT])
def language(request: pytest.FixtureRequest) -> Language:
    language: Language = request.param
    return language


@pytest.fixture
def run_program(shop: Storefront, language: Language, run_in_node: Run) -> Run:
    """A function that runs programs of the language."""
    return run_in_node if language == Language.TYPESCRIPT else partial(run, shop, language)


def read_curl(command: str) -> tuple[str, str]:
    """Return the URL and the body of a command."""
    words = shlex.split(command.replace("\\\n", " "))
    return words[2], words[-1]


def fill_in(program: str, page: Page, watch_id: str) -> str:
    """Return a program with the values that its reader must enter: a transaction, a watch's ID."""
    program = program.replace(TRACE_EXAMPLE["txHash"], page.transaction)
    return program.replace("{id}", watch_id).replace(EXAMPLE_ID, watch_id)


async def test_every_paid_route_is_shown(page: Page) -> None:
    assert set(page.routes) == set(PRICES) - LARGER_TIERS
    assert set(page.programs) == set(Language)
    assert WEATHER in page.programs[Language.PYTHON]


async def test_larger_tiers_are_listed_with_the_smallest(page: Page) -> None:
    article = page.text.partition('id="post-v1-x402-trust-bulk-10"')[2].partition("</article>")[0]
    for path in LARGER_TIERS:
        assert f"{path}</span> <span" in article


@pytest.mark.parametrize("language", [Language.PYTHON, Language.TYPESCRIPT, Language.MCP])
async def test_program_buys_every_route_at_its_price(
    shop: Storefront, page: Page, language: Language, run_program: Run
) -> None:
    watch_id = ""
    for path, snippets in page.routes.items():
        before = await shop.income()
        if language == Language.MCP:
            url, _, order = snippets["MCP"].partition(" ")
        else:
            url, order = read_curl(snippets["curl"])
        program = fill_in(page.program(language, url, order), page, watch_id)
        answer: Any = json.loads(await run_program(program))
        assert await shop.income() - before == parse_dollars(PRICES[path]), path
        if path == TRUST:
            assert (answer["resource"], answer["score"] is None) == (WEATHER, False)
        if path == TRACE:
            assert answer["ledger"]["route"] == TRUST
        if path == WATCH:
            watch_id = answer["watch_id"]
        if path == RENEW:
            assert answer["watch_id"] == watch_id


async def test_curl_shows_the_terms_of_every_route_without_charge(
    shop: Storefront, page: Page
) -> None:
    before = await shop.income()
    for path, snippets in page.routes.items():
        terms = json.loads(await run(shop, Language.CURL, snippets["curl"]))
        assert terms["accepts"][0]["amount"] == str(parse_dollars(PRICES[path]))
    assert await shop.income() == before


async def test_client_that_stores_its_payment_pays_once_for_a_late_response(
    shop: Storefront, page: Page, language: Language, run_program: Run
) -> None:
    before = await shop.income()
    shop.stall.pending = 1
    answer = json.loads(await run_program(page.lost[language]))
    assert answer["resource"] == WEATHER
    assert shop.stall.pending == 0
    assert await shop.income() - before == parse_dollars(PRICES[TRUST])


async def test_trace_of_a_signed_payment_states_the_purchase(
    shop: Storefront, page: Page, language: Language, run_program: Run
) -> None:
    (row,) = [row for row in await shop.load_settled() if row.transaction == page.transaction]
    program = page.program(language, *read_curl(page.trace))
    program = program.replace(AUTHORIZATION["payer"], row.payer)
    program = program.replace(AUTHORIZATION["nonce"], row.nonce)
    answer = json.loads(await run_program(program))
    assert answer["authorization"]["used"]
    assert answer["txHash"] == page.transaction
    assert (answer["ledger"]["route"], answer["ledger"]["status"]) == (TRUST, "settled")


async def test_curl_fetches_the_response_again_with_the_same_payment(
    shop: Storefront, page: Page
) -> None:
    (payment,) = [
        row.header for row in await shop.load_settled() if row.transaction == page.transaction
    ]
    before = await shop.income()
    printed = await run(shop, Language.CURL, page.lost[Language.CURL], PAYMENT=payment)
    assert json.loads(printed)["resource"] == WEATHER
    assert await shop.income() == before
