"""The demo's counterparties, which start and end together.

They are two chains with USDC, a facilitator that settles for the service, a market of sellers with
a directory, and a buyer with money. The service is not part of it and uses these addresses.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tollgauge.core.base.units import Clock
from tollgauge.core.endpoint.identity import Perimeter
from tollgauge.demo.chain import BUYER, TOKENS, Chain, TestAccount, run_chain
from tollgauge.demo.envelopes import SOLANA
from tollgauge.demo.faults import Faults
from tollgauge.demo.market import DemoMarket, run_market
from tollgauge.demo.seller import payee

if TYPE_CHECKING:  # solders is optional
    from tollgauge.demo.solana_node import SolanaChain

BUYER_FUNDS: Final = 25_000_000
"""Initial balance of the buyer in atomic USDC: 25 dollars."""

PAY_TO: Final = payee("tollgauge demo")
"""Payee of the demo service. Its key does not exist; the service needs none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sellers:
    """A running market without a chain and so without payments.

    Usage: `async with Sellers.open(clock=…) as world`. `faults` are switched manually.
    """

    market: DemoMarket
    faults: Faults

    @property
    def mapped(self) -> dict[str, tuple[str, int]]:
        """Host name to (loopback address, port)."""
        return self.market.mapped

    @property
    def perimeter(self) -> Perimeter:
        """The host names that may be probed although they are on this machine."""
        return Perimeter(mapped=frozenset(self.mapped))

    @property
    def ca_file(self) -> Path:
        """PEM file of the authority that signed the sellers' certificates."""
        return self.market.ca_file

    @property
    def directory_url(self) -> str:
        """URL of the Bazaar listing."""
        return self.market.directory_url

    @staticmethod
    @contextlib.asynccontextmanager
    async def open(*, clock: Clock, folder: Path | None = None) -> AsyncIterator[Sellers]:
        """Run the sellers and their directory until the `with` block ends.

        Args:
            clock: time of the sellers.
            folder: folder for the authority's certificate; a temporary one by default.
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
    """A running world. Usage: `async with World.start(clock=…) as world`.

    Attributes:
        pay_to: payee of the service.
        buyer: a funded account.
        chain: the local chain that looks like Base.
        polygon: the local chain that looks like Polygon.
        solana: the local network that looks like Solana, if requested.
        chain_ready: set when the chain's history is complete; payments are accepted after that.
    """

    chain: Chain
    polygon: Chain
    solana: SolanaChain | None
    facilitator_url: str
    pay_to: str
    buyer: TestAccount
    chain_ready: asyncio.Event

    @property
    def rpc_url(self) -> str:
        """JSON-RPC URL of the local chain that looks like Base."""
        return self.chain.rpc_url

    @property
    def chains(self) -> tuple[Chain, ...]:
        """All local EVM chains."""
        return self.chain, self.polygon

    @property
    def nodes(self) -> dict[str, str]:
        """The URL of each network's node."""
        urls = {chain.network: chain.rpc_url for chain in self.chains}
        return urls | ({SOLANA: self.solana.rpc_url} if self.solana else {})

    @staticmethod
    @contextlib.asynccontextmanager
    async def start(
        *,
        clock: Clock,
        chain_began: int | None = None,
        anvil: Path | None = None,
        solana: bool = False,
        folder: Path | None = None,
    ) -> AsyncIterator[World]:
        """Run everything until the `with` block ends.

        Args:
            clock: time of the sellers.
            chain_began: time of the chain's first block (ms UTC), at which it waits for its
                history; now by default.
            folder: folder for the authority's certificate; a temporary one by default.
            anvil: the chain's program; searched for by default.
            solana: run a network that looks like Solana, which requires the package solders.

        Raises:
            ChainError: anvil is not installed or does not start.
            ImportError: solders is not installed.
        """
        async with contextlib.AsyncExitStack() as stack:
            chain, polygon = [
                await stack.enter_async_context(
                    run_chain(anvil, began=chain_began, network=network)
                )
                for network in TOKENS
            ]
            sellers = await stack.enter_async_context(Sellers.open(clock=clock, folder=folder))
            solana_chain = None
            if solana:
                from tollgauge.demo.solana_node import run_solana

                solana_chain = await stack.enter_async_context(run_solana(clock))
            gas_payer = chain.accounts[0]
            chain_ready = asyncio.Event()
            if chain_began is None:
                chain_ready.set()
            # Imports web3: 0.2 s of CPU time, which a market without a chain does not need.
            from tollgauge.demo.facilitator import run_facilitator

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
                polygon=polygon,
                solana=solana_chain,
                market=sellers.market,
                facilitator_url=facilitator_url,
                pay_to=PAY_TO,
                buyer=BUYER,
                faults=sellers.faults,
                chain_ready=chain_ready,
            )
