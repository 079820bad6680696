"""Ethereum nodes on loopback that look like Base and Polygon with native USDC.

Anvil runs as chain 8453 or 137 with one block per transaction. The demo dollar (token/) has the
address of native USDC. A node ends with this process, even if this process is killed. The
facilitator sends the transactions that transfer money by authorization on Base.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from importlib import resources
from operator import itemgetter
from pathlib import Path
from typing import IO, Any, Final

import httpx

from tollgauge.clients.peer import public_authorities
from tollgauge.core.base.signature import derive_address
from tollgauge.core.base.units import evm_chain_id
from tollgauge.demo.anvil import ChainError, find_anvil
from tollgauge.demo.envelopes import BASE, POLYGON, POLYGON_USDC, USDC
from tollgauge.web.settings import LOOPBACK

NETWORK: Final = BASE
CHAIN_NAME: Final = "tollgauge demo chain"
TOKENS: Final = {BASE: USDC, POLYGON: POLYGON_USDC}
"""The address of USDC on each of the demo's chains."""

_KEYS: Final = (
    "0xac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80",
    "0x59c6995e998f97a5a0044966f0945389dc9e86dae88c7a8412f4603b6b78690d",
    "0x5de4111afa1a4b94908f83103eb1f1706367c2e68ca870fc3fb9a804cdab365a",
    "0x7c852118294e51e653712a81e05800f419141751be58f605c371e15141b007a6",
    "0x47e179ec197488593b187f80a00eb0da91f1b9d0b13f8733639f19c30a34926a",
)
"""The first keys of anvil's public mnemonic (`test test … junk`). They have no value on other
chains.
"""

_LISTENING: Final = re.compile(rb"Listening on 127\.0\.0\.1:(\d+)")
_START_SECONDS: Final = 20.0
_STOP_SECONDS: Final = 3.0
_MINED_SECONDS: Final = 60.0
_ANSWER_SECONDS: Final = 60.0
"""Timeout of a call on a busy machine: a long history is created in one call."""
_POLL_SECONDS: Final = 0.005
_TIED: Final = (
    "import ctypes,os,signal,sys;"
    "ctypes.CDLL(None).prctl(1,signal.SIGKILL) if sys.platform=='linux' else 0;"
    "os.getppid()==int(sys.argv[1]) or sys.exit(1);"
    "os.execv(sys.argv[2],sys.argv[2:])"
)
"""Requests a signal at the death of the parent (PR_SET_PDEATHSIG) and executes the program in
argv[2:]. A fork hook is not safe in a process with threads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TestAccount:
    """An account of the local chain. Its key is public knowledge."""

    address: str
    key: str

    __test__ = False  # pytest collects classes by name


ACCOUNTS: Final = tuple(
    TestAccount(address=derive_address(bytes.fromhex(key.removeprefix("0x"))), key=key)
    for key in _KEYS
)


BUYER: Final = ACCOUNTS[1]
"""The account that buys in the demo."""


class Chain:
    """A running local chain."""

    def __init__(self, rpc_url: str, client: httpx.AsyncClient, network: str = NETWORK) -> None:
        self.rpc_url = rpc_url
        self.network = network
        self.token = TOKENS[network]
        self.accounts = ACCOUNTS
        self._client = client

    async def rpc(self, method: str, *params: object) -> Any:
        """Return the result of a JSON-RPC call. Raises ChainError if the node returns an error."""
        return (await self.batch([(method, params)]))[0]

    async def batch(self, calls: Sequence[tuple[str, Sequence[object]]]) -> list[Any]:
        """Send JSON-RPC calls in one batch and return their results in order.

        Raises ChainError if the node returns an error.
        """
        requests = [
            {"jsonrpc": "2.0", "id": place, "method": method, "params": params}
            for place, (method, params) in enumerate(calls)
        ]
        replies = (await self._client.post(self.rpc_url, json=requests)).json()
        for reply in replies:
            if "error" in reply:
                method, why = calls[reply["id"]][0], reply["error"].get("message")
                raise ChainError(f"The local chain refused {method}: {why}")
        return [reply["result"] for reply in sorted(replies, key=itemgetter("id"))]

    @contextlib.asynccontextmanager
    async def by_hand(self) -> AsyncIterator[None]:
        """Inside the block, transactions wait for `mine`."""
        await self.rpc("evm_setAutomine", False)  # noqa: FBT003 (wire value)
        try:
            yield
        finally:
            await self.rpc("evm_setAutomine", True)  # noqa: FBT003 (wire value)

    async def send(self, transactions: Sequence[dict[str, Any]]) -> list[str]:
        """Send transactions of unlocked senders and return their hashes."""
        return await self.batch([("eth_sendTransaction", [call]) for call in transactions])

    async def mine(self, *, at: int | None = None) -> None:
        """Mine a block at `at` (ms UTC; later than the previous block), or now."""
        await self.rpc("evm_mine", *([] if at is None else [at // 1000]))

    async def check(self, sent: Sequence[str]) -> None:
        """Wait until transactions are in blocks. Raises ChainError if one of them reverted."""
        async with asyncio.timeout(_MINED_SECONDS):
            while True:
                receipts = await self.batch([("eth_getTransactionReceipt", [tx]) for tx in sent])
                if None not in receipts:
                    break
                await asyncio.sleep(_POLL_SECONDS)
        if any(receipt["status"] != "0x1" for receipt in receipts):
            raise ChainError("A transaction reverted on the local chain.")

    async def mint(self, address: str, amount: int) -> None:
        """Mint atomic USDC for an address."""
        data = "0x40c10f19" + word(int(address, 16)) + word(amount)
        call = {"from": self.accounts[-1].address, "to": self.token, "data": data}
        transaction = await self.rpc("eth_sendTransaction", call)
        await self.check([transaction])


@contextlib.asynccontextmanager
async def run_chain(
    binary: Path | None = None, *, began: int | None = None, network: str = NETWORK
) -> AsyncIterator[Chain]:
    """Run a chain with USDC until the `with` block ends.

    Args:
        binary: the anvil binary; by default the result of `find_anvil`.
        began: time of the first block (ms UTC); now by default. The chain's clock keeps its
            distance from the system clock until a block gets a later time.
        network: a network of `TOKENS`.

    Raises:
        ChainError: anvil is missing or does not start.
    """
    # Anvil writes states of old blocks to disk (gigabytes in an hour of fast blocks) and leaves
    # them there if it is ended by a signal.
    states = tempfile.TemporaryDirectory(prefix="tollgauge-chain-", ignore_cleanup_errors=True)
    with states as folder, tempfile.TemporaryFile() as log:
        process = _spawn(binary or find_anvil(), log, folder=folder, began=began, network=network)
        try:
            async with httpx.AsyncClient(
                timeout=_ANSWER_SECONDS, trust_env=False, verify=public_authorities()
            ) as client:
                chain = Chain(await _rpc_url(process, log), client, network)
                await chain.rpc("anvil_setLoggingEnabled", False)  # noqa: FBT003 (wire value)
                await chain.rpc("anvil_setCode", chain.token, runtime_code())
                yield chain
        finally:
            await asyncio.to_thread(_stop, process)


def runtime_code() -> str:
    """Return the compiled code of the demo dollar: hex with 0x."""
    return str(artefact()["runtime"])


def artefact() -> dict[str, Any]:
    """Return the compiled demo dollar: `compiler`, `runtime`, `abi`."""
    text = resources.files("tollgauge.demo").joinpath("token/DemoUSDC.json").read_text()
    return dict(json.loads(text))


def _spawn(
    binary: Path, log: IO[bytes], *, folder: str, began: int | None, network: str
) -> subprocess.Popen[bytes]:
    """Start anvil on a free port, with its states in `folder`, in an environment that contains only
    HOME.
    """
    chain_id = str(evm_chain_id(network))
    anvil = [str(binary), "--chain-id", chain_id, "--host", LOOPBACK, "--port", "0"]
    anvil += ["--cache-path", folder]
    if began is not None:
        anvil += ["--timestamp", str(began // 1000)]
    command = [sys.executable, "-I", "-S", "-c", _TIED, str(os.getpid()), *anvil]
    return subprocess.Popen(  # noqa: S603 (our binary and arguments)
        command,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        start_new_session=True,  # not interrupted by Ctrl-C: the chain must end after its users
    )


async def _rpc_url(process: subprocess.Popen[bytes], log: IO[bytes]) -> str:
    # Anvil prints its address after it has started to listen.
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_START_SECONDS):
            while process.poll() is None:
                if match := _LISTENING.search(_text(log)):
                    return f"http://{LOOPBACK}:{match[1].decode()}"
                await asyncio.sleep(_POLL_SECONDS)
    tail = _text(log)[-400:].decode(errors="replace").strip()
    raise ChainError(f"The local chain did not start: {tail or 'no output'}")


def _text(log: IO[bytes]) -> bytes:
    return os.pread(log.fileno(), 64 * 1024, 0)


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def word(value: int) -> str:
    """Encode a number as a word of the ABI: 32 bytes in hex."""
    return f"{value:064x}"
