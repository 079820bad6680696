"""The local chain: Base's ID, USDC at its address, and no process left behind."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
import pytest_asyncio
from tests.support.command_server import command
from tests.support.token_balance import balance

from tollgauge.clients.peer import public_authorities
from tollgauge.demo.anvil import ChainError, find_anvil
from tollgauge.demo.chain import Chain, run_chain
from tollgauge.demo.envelopes import USDC

_HOLDER = """
import asyncio
from tollgauge.demo.chain import run_chain
async def main():
    async with run_chain() as chain:
        print(chain.rpc_url, flush=True)
        await asyncio.sleep(60)
asyncio.run(main())
"""


pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def chain() -> AsyncIterator[Chain]:
    async with run_chain() as running:
        yield running


async def test_chain_has_the_id_of_base(chain: Chain) -> None:
    assert int(await chain.rpc("eth_chainId"), 16) == 8453


async def test_token_has_the_signing_domain_of_native_usdc_on_base(chain: Chain) -> None:
    domain = await chain.rpc("eth_call", {"to": USDC, "data": "0x3644e515"}, "latest")
    assert domain == "0x02fa7265e7c5d81118673727957699e4d68f74cd74b7db77da710fe8a2c7834f"


async def test_minting_adds_exactly_the_amount(chain: Chain) -> None:
    address = chain.accounts[1].address
    await chain.mint(address, 1_234_567)
    await chain.mint(address, 1)
    assert await balance(chain, address) == 1_234_568
    assert await balance(chain, chain.accounts[2].address) == 0


async def test_accounts_are_those_that_the_node_funds(chain: Chain) -> None:
    funded = await chain.rpc("eth_accounts")
    assert [account.address.lower() for account in chain.accounts] == funded[:5]


async def test_rejected_call_raises_an_error_that_names_it(chain: Chain) -> None:
    with pytest.raises(ChainError, match="eth_nonsense"):
        await chain.rpc("eth_nonsense")


async def test_two_chains_run_concurrently(chain: Chain) -> None:
    async with run_chain() as other:
        await other.mint(other.accounts[3].address, 5)
        assert await balance(chain, other.accounts[3].address) == 0


async def test_chain_stops_at_the_end_of_the_block() -> None:
    async with run_chain() as running:
        url = running.rpc_url
    assert not await _answers(url)


async def test_states_of_many_blocks_are_removed_with_the_chain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    async with run_chain() as running:
        await running.rpc("anvil_mine", hex(600))
        assert any(files for _, _, files in os.walk(tmp_path))
    assert not any(names or files for _, names, files in os.walk(tmp_path))


async def test_chain_stops_when_its_owner_is_killed() -> None:
    holder = _holder()
    assert holder.stdout is not None
    with holder.stdout:
        url = (await asyncio.to_thread(holder.stdout.readline)).strip()
        assert await _answers(url)
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    deadline = time.monotonic() + 30
    while await _answers(url):
        assert time.monotonic() < deadline, "the chain outlived its owner"
        await asyncio.sleep(0.02)


async def test_missing_binary_is_reported_with_a_remedy(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TOLLGAUGE_ANVIL", str(tmp_path / "anvil"))
    with pytest.raises(ChainError, match="is not a file") as caught:
        find_anvil()
    assert "make setup" in caught.value.hint


async def test_binary_that_is_not_a_node_is_reported_with_its_output(tmp_path: Path) -> None:
    impostor = tmp_path / "anvil"
    impostor.write_text("#!/bin/sh\necho 'no such chain' >&2\nexit 3\n")
    impostor.chmod(0o755)
    with pytest.raises(ChainError, match="no such chain"):
        async with run_chain(impostor):
            pass


def _holder() -> subprocess.Popen[str]:
    return subprocess.Popen(command("-c", _HOLDER), stdout=subprocess.PIPE, text=True)


async def _answers(url: str) -> bool:
    async with httpx.AsyncClient(trust_env=False, verify=public_authorities()) as client:
        try:
            call = {"jsonrpc": "2.0", "id": 1, "method": "eth_chainId", "params": []}
            return (await client.post(url, json=call)).status_code == 200
        except httpx.TransportError:
            return False
