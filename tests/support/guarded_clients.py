"""The official clients with a guard."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.support.bundles import Publisher, bundle_of
from tests.support.paying_clients import (
    Outcomes,
    ask_each,
    ask_each_with_requests,
    payer_in_threads,
    payer_of,
    run_node,
    urls_of,
)
from tests.support.seller_world import SellerWorld
from x402 import x402Client, x402ClientSync

from tollgauge.demo.chain import TestAccount
from tollgauge_guard import GuardedClient, Policy, guarded
from tollgauge_guard.requests_client import GuardedSession


@dataclass(frozen=True)
class Setup:
    """The settings of a guard: a bundle (a file with its signature file, or an address), the key, a
    journal, and a policy.
    """

    bundle: str
    key: Mapping[str, str] | str
    journal: Path
    cache: Path
    policy: Mapping[str, Any] = field(default_factory=dict)

    def for_python(self) -> dict[str, Any]:
        """Return the arguments of the Python guard."""
        return {
            "bundle": self.bundle,
            "key": self.key,
            "policy": Policy(**self.policy),
            "journal": self.journal,
            "cache": self.cache,
        }

    def for_node(self) -> dict[str, Any]:
        """Return the options of the TypeScript guard, with a journal in its own file."""
        policy = {}
        for name, value in self.policy.items():
            first, *rest = name.split("_")
            is_money = name in {"max_call", "max_host_day", "max_day", "unknown_max"}
            policy[first + "".join(map(str.capitalize, rest))] = str(value) if is_money else value
        return {
            "bundle": self.bundle,
            "key": self.key,
            "journal": f"{self.journal}.node",
            "cache": f"{self.cache}.bundle",
            "policy": policy,
        }


Pay = Callable[[SellerWorld, TestAccount, Sequence[str], Setup], Coroutine[None, None, Outcomes]]


def setup_of(world: SellerWorld, folder: Path, **policy: Any) -> Setup:
    """A fresh bundle of all sellers that have a record, and a new journal."""
    publisher = Publisher.new()
    body = bundle_of(world, as_of=int(time.time()))
    file = folder / "trust.bundle"
    file.write_bytes(body)
    file.with_name(f"{file.name}.jws").write_text(publisher.sign(body))
    return Setup(str(file), publisher.jwk, folder / "journal.sqlite", folder / "cache", policy)


def guarded_httpx(world: SellerWorld, client: x402Client, setup: Setup) -> GuardedClient:
    """Return a guarded httpx client that pays with an official client."""
    return guarded(
        client,
        **setup.for_python(),
        verify=ssl.create_default_context(cafile=world.ca_file),
        follow_redirects=True,
        trust_env=False,
    )


def guarded_requests(client: x402ClientSync, setup: Setup) -> GuardedSession:
    """Return a guarded requests session that pays with an official client."""
    return guarded(client, **setup.for_python())


async def pay_with_httpx(
    world: SellerWorld, account: TestAccount, labels: Sequence[str], setup: Setup
) -> Outcomes:
    """Guarded httpx."""
    async with guarded_httpx(world, payer_of(account), setup) as http:
        return await ask_each(http, world, labels)


async def pay_with_requests(
    world: SellerWorld, account: TestAccount, labels: Sequence[str], setup: Setup
) -> Outcomes:
    """Guarded requests, in a thread."""
    with guarded_requests(payer_in_threads(account), setup) as session:
        return await asyncio.to_thread(ask_each_with_requests, session, world, labels)


def pay_with_node(library: str) -> Pay:
    """Guarded `@x402/fetch` or `@x402/axios`."""

    async def pay(
        world: SellerWorld, account: TestAccount, labels: Sequence[str], setup: Setup
    ) -> Outcomes:
        orders = urls_of(world, labels)
        return await run_node(world, account, orders, library, guard=setup.for_node())

    return pay


GUARDED: Final[Mapping[str, Pay]] = {
    "httpx": pay_with_httpx,
    "requests": pay_with_requests,
    "fetch": pay_with_node("fetch"),
    "axios": pay_with_node("axios"),
}
