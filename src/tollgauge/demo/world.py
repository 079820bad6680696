"""World: the demo's counterparties, started together and ended together.

A chain with USDC, a facilitator that settles for the service, a market of sellers with a
directory, and a buyer with money. The service itself is not part of it: it meets all of this
through the addresses named here.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tollgauge.core.base.units import Clock
from tollgauge.core.endpoint.identity import Perimeter
from tollgauge.demo.chain import BUYER, Chain, TestAccount, run_chain
from tollgauge.demo.facilitator import run_facilitator
from tollgauge.demo.faults import Faults
from tollgauge.demo.market import DemoMarket, run_market
from tollgauge.demo.seller import payee

BUYER_FUNDS: Final = 25_000_000
"""Atomic USDC that the buyer starts with: 25 dollars."""

PAY_TO: Final = payee("tollgauge demo")
"""Payee of the demo service. Its key does not exist; the service needs none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sellers:
    """Addresses of a running market where nothing can be paid, because it has no chain:
    `async with Sellers.open(clock=…) as world`. `market` knows the sellers, and `faults` are
    switched by hand.
    """

    market: DemoMarket
    faults: Faults

    @property
    def mapped(self) -> dict[str, tuple[str, int]]:
        """Host name to (loopback address, port)."""
        return self.market.mapped

    @property
    def perimeter(self) -> Perimeter:
        """The names that may be probed although they are this machine's."""
        return Perimeter(mapped=frozenset(self.mapped))

    @property
    def ca_file(self) -> Path:
        """PEM of the authority that signed the sellers' certificates."""
        return self.market.ca_file

    @property
    def directory_url(self) -> str:
        """The Bazaar listing."""
        return self.market.directory_url

    @staticmethod
    @contextlib.asynccontextmanager
    async def open(*, clock: Clock, folder: Path | None = None) -> AsyncIterator[Sellers]:
        """Starts the sellers and their directory and ends them with the block. `clock` gives their
        now. `folder` gets the authority's certificate; without one a folder is made, which ends
        with the block.
        """
        faults = Faults()
        async with contextlib.AsyncExitStack() as stack:
            if folder is None:
                temporary = tempfile.TemporaryDirectory(prefix="tollgauge-")
                folder = Path(stack.enter_context(temporary))
            market = await stack.enter_async_context(run_market(clock, folder, faults=faults))
            yield Sellers(market=market, faults=faults)


@dataclass(frozen=True, slots=True, kw_only=True)
class World(Sellers):
    """Addresses of a running world; `async with World.start(clock=…) as world`.

    `pay_to` is the service's own payee, `buyer` a funded account, `chain` the handle on the local
    chain. Payments are taken from `chain_ready` on, which whoever makes the chain's past sets.
    """

    chain: Chain
    facilitator_url: str
    pay_to: str
    buyer: TestAccount
    chain_ready: asyncio.Event

    @property
    def rpc_url(self) -> str:
        """JSON-RPC of the local chain."""
        return self.chain.rpc_url

    @staticmethod
    @contextlib.asynccontextmanager
    async def start(
        *,
        clock: Clock,
        chain_began: int | None = None,
        anvil: Path | None = None,
        folder: Path | None = None,
    ) -> AsyncIterator[World]:
        """Starts everything and ends it with the block. `clock` gives the sellers' now; the chain
        begins at `chain_began` (ms UTC) and waits there for its past, or begins now. `anvil` is
        the chain's program, where it was looked for already.

        Raises ChainError when the local chain is not installed or does not start.
        """
        async with contextlib.AsyncExitStack() as stack:
            chain = await stack.enter_async_context(run_chain(anvil, began=chain_began))
            sellers = await stack.enter_async_context(Sellers.open(clock=clock, folder=folder))
            gas_payer = chain.accounts[0]
            chain_ready = asyncio.Event()
            if chain_began is None:
                chain_ready.set()
            facilitator = run_facilitator(
                rpc_url=chain.rpc_url,
                key=gas_payer.key,
                payees=frozenset({PAY_TO}),
                chain_ready=chain_ready,
            )
            facilitator_url = await stack.enter_async_context(facilitator)
            await chain.mint(BUYER.address, BUYER_FUNDS)
            yield World(
                chain=chain,
                market=sellers.market,
                facilitator_url=facilitator_url,
                pay_to=PAY_TO,
                buyer=BUYER,
                faults=sellers.faults,
                chain_ready=chain_ready,
            )
