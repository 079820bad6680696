"""The official x402 clients, unguarded, sent to one seller after another."""

from __future__ import annotations

import asyncio
import json
import os
import ssl
from asyncio.subprocess import PIPE, Process
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx
import requests
from eth_account import Account
from tests.support.programs import report_missing, require
from tests.support.seller_world import ORDER, SellerWorld
from tests.support.sellers import After, Json
from x402 import x402Client, x402ClientSync
from x402.http.clients.httpx import x402_httpx_transport
from x402.http.clients.requests import x402_requests
from x402.mechanisms.evm.exact.register import register_exact_evm_client
from x402.mechanisms.evm.signers import EthAccountSigner

from tollgauge.demo.chain import TestAccount

SECONDS: Final = 20
"""Response timeout of a client: long, because the machine may be busy."""

_LINE_BYTES_MAX: Final = 1 << 20
_ROOT: Final = Path(__file__).resolve().parents[2]
SCRIPT: Final = Path(__file__).with_name("paying_client.mjs")


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of an order: a status, or why the client gave up; `code` is the guard's."""

    status: int | None
    error: str = ""
    code: str = ""

    @staticmethod
    def describe_failure(error: Exception) -> Outcome:
        return Outcome(None, f"{type(error).__name__}: {error}", str(getattr(error, "code", "")))


Outcomes = dict[str, Outcome]
Pay = Callable[[SellerWorld, TestAccount, Sequence[str]], Awaitable[Outcomes]]


def payer_of(account: TestAccount) -> x402Client:
    """Return the official client without its own limit, so that only a guard decides."""
    client = x402Client().set_spend_controls(False)
    return register_exact_evm_client(client, EthAccountSigner(Account.from_key(account.key)))


def payer_in_threads(account: TestAccount) -> x402ClientSync:
    """The same for blocking clients."""
    client = x402ClientSync().set_spend_controls(False)
    return register_exact_evm_client(client, EthAccountSigner(Account.from_key(account.key)))


def trusting_transport(world: SellerWorld) -> httpx.AsyncHTTPTransport:
    """Return a transport that trusts the authority of the sellers' certificates."""
    return httpx.AsyncHTTPTransport(verify=ssl.create_default_context(cafile=world.ca_file))


def patience(order: str) -> float:
    """Return the timeout of an order in seconds: short for the seller that never answers."""
    return 2.0 if order == f"takes-then-{After.HANG}" else SECONDS


async def ask(http: httpx.AsyncClient, url: str, order: str) -> Outcome:
    """Send one request; return its result."""
    try:
        answer = await http.get(url, headers={ORDER: order}, timeout=patience(order))
        return Outcome(answer.status_code)
    except Exception as error:  # noqa: BLE001 - whatever ends an order is its outcome
        return Outcome.describe_failure(error)


async def ask_each(http: httpx.AsyncClient, world: SellerWorld, labels: Sequence[str]) -> Outcomes:
    """Send an order to each seller, one after the other."""
    return {label: await ask(http, world.url(label), label) for label in labels}


def ask_with_requests(
    session: requests.Session, world: SellerWorld, url: str, order: str
) -> Outcome:
    """Send one request with requests, which blocks."""
    session.trust_env, session.verify = False, str(world.ca_file)
    try:
        answer = session.get(url, headers={ORDER: order}, timeout=patience(order))
        return Outcome(answer.status_code)
    except Exception as error:  # noqa: BLE001 - whatever ends an order is its outcome
        return Outcome.describe_failure(error)


def ask_each_with_requests(
    session: requests.Session, world: SellerWorld, labels: Sequence[str]
) -> Outcomes:
    """Send an order to each seller, one after the other."""
    return {label: ask_with_requests(session, world, world.url(label), label) for label in labels}


async def pay_with_httpx(
    world: SellerWorld, account: TestAccount, labels: Sequence[str]
) -> Outcomes:
    """The official httpx transport."""
    transport = x402_httpx_transport(payer_of(account), trusting_transport(world))
    client = httpx.AsyncClient(transport=transport, follow_redirects=True, trust_env=False)
    async with client as http:
        return await ask_each(http, world, labels)


async def pay_with_requests(
    world: SellerWorld, account: TestAccount, labels: Sequence[str]
) -> Outcomes:
    """The official adapter for requests, in a thread."""
    with x402_requests(payer_in_threads(account)) as session:
        return await asyncio.to_thread(ask_each_with_requests, session, world, labels)


def pay_with_node(library: str) -> Pay:
    """`@x402/fetch` or `@x402/axios`."""

    async def pay(world: SellerWorld, account: TestAccount, labels: Sequence[str]) -> Outcomes:
        return await run_node(world, account, urls_of(world, labels), library)

    return pay


def urls_of(world: SellerWorld, labels: Sequence[str]) -> dict[str, str]:
    """Send an order to each seller, by its name."""
    return {label: world.url(label) for label in labels}


async def run_node(
    world: SellerWorld,
    account: TestAccount,
    orders: Mapping[str, str],
    library: str,
    **settings: object,
) -> Outcomes:
    """Return the results of orders (name to URL) with a TypeScript client, which gets further
    `settings`.
    """
    answer = await node_answer(world, node_order(account, orders, library, **settings))
    return {label: Outcome(*outcome) for label, *outcome in answer}


def node_order(
    account: TestAccount, orders: Mapping[str, str], library: str, **settings: object
) -> Json:
    """Return the input of the TypeScript client."""
    return {
        "library": library,
        "key": account.key,
        "orders": [[name, url, patience(name) * 1_000] for name, url in orders.items()],
        **settings,
    }


async def node_answer(world: SellerWorld, order: Json, script: Path = SCRIPT) -> Any:
    """Return the answer of a TypeScript program, which the world keeps for later orders."""
    if script not in world.programs:
        world.programs[script] = await start_node(world, script)
    process = world.programs[script]
    await send_order(process, order)
    assert process.stdout is not None
    line = await asyncio.wait_for(process.stdout.readline(), 90)
    assert line, f"{script.name} has ended"
    return json.loads(line)


async def start_node(world: SellerWorld, script: Path = SCRIPT) -> Process:
    """Start a TypeScript program that trusts the authority of the sellers' certificates."""
    return await asyncio.create_subprocess_exec(
        *(node(), "--disable-warning=ExperimentalWarning", str(script)),
        env=os.environ | {"NODE_EXTRA_CA_CERTS": str(world.ca_file)},
        stdin=PIPE,
        stdout=PIPE,
        limit=_LINE_BYTES_MAX,
    )


async def send_order(process: Process, order: Json) -> None:
    """Write an order to the program's standard input."""
    assert process.stdin is not None
    process.stdin.write(json.dumps(order).encode() + b"\n")
    await process.stdin.drain()


def node() -> str:
    """Return the program's path in the folder of the locked npm packages."""
    if not (_ROOT / "node_modules/@x402/fetch").is_dir():
        report_missing("the locked npm packages are missing: run `make setup`")
    return require("node")


UNGUARDED: Final[dict[str, Pay]] = {
    "httpx": pay_with_httpx,
    "requests": pay_with_requests,
    "fetch": pay_with_node("fetch"),
    "axios": pay_with_node("axios"),
}
