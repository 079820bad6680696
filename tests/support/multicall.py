"""Multicall3 on a local chain: the bytecode in viem, at its address on all chains."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from tests.support.programs import ROOT
from tests.support.trace_world import World

MULTICALL3: Final = "0xcA11bde05977b3631167028862bE2a173976CA11"
_SOURCE: Final = ROOT / "node_modules/viem/constants/contracts.ts"


async def open_multicall(world: World) -> None:
    """Place the contract."""
    source = _SOURCE.read_text(encoding="utf-8")
    found = re.search(r"multicall3Bytecode =\s*'(0x[0-9a-f]+)'", source)
    assert found is not None
    call = {"from": world.sender(), "data": found[1]}
    receipt = await world.receipt(await world.chain.rpc("eth_sendTransaction", call))
    code = await world.chain.rpc("eth_getCode", receipt["contractAddress"], "latest")
    await world.chain.rpc("anvil_setCode", MULTICALL3, code)


async def send_together(world: World, calls: Sequence[tuple[str, str]]) -> str:
    """Send calls (target, call data) in one transaction; each of them may fail."""
    return await world.send(MULTICALL3, world.batch(calls))
