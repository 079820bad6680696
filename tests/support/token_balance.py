"""The balance of an account in the chain's token at USDC's address, and chains that tests share."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from tollgauge.demo.chain import Chain, word
from tollgauge.demo.envelopes import USDC


async def balance(chain: Chain, address: str) -> int:
    """Return the atomic USDC of an address."""
    call = {"to": USDC, "data": "0x70a08231" + word(int(address, 16))}
    return int(await chain.rpc("eth_call", call, "latest"), 16)


@contextlib.asynccontextmanager
async def at_snapshot(chain: Chain) -> AsyncIterator[None]:
    """Restore the chain's state at the end of the block."""
    snapshot = await chain.rpc("evm_snapshot")
    yield
    assert await chain.rpc("evm_revert", snapshot)
