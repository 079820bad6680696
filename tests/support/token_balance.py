"""The balance of an account in the chain's token at USDC's address."""

from __future__ import annotations

from tollgauge.demo.chain import Chain, word
from tollgauge.demo.envelopes import USDC


async def balance(chain: Chain, address: str) -> int:
    """Return the atomic USDC of an address."""
    call = {"to": USDC, "data": "0x70a08231" + word(int(address, 16))}
    return int(await chain.rpc("eth_call", call, "latest"), 16)
