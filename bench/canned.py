"""A JSON-RPC node for measurements, with an endless chain of USDC settlements as prepared bytes.

It runs in a separate process (`python -m bench.canned`), so that its cost is not counted as the
indexer's. Block n contains `pairs` settlements, each a transaction with two logs; payers and
wallets are derived from n. Replies have the format of a real node. `bench_grow` adds blocks to the
head, and `bench_traffic` returns the numbers of requests, calls and bytes so far.
"""

from __future__ import annotations

import asyncio
import hashlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import orjson

from tollgauge.core.chain.settlement import AUTHORIZATION_USED, TRANSFER

TOKEN: Final = "0x833589fcd6edb6e08f4c7c32d4f71b54bda02913"  # noqa: S105 (a contract)
CHAIN_ID: Final = 8453
BLOCK_SECONDS: Final = 2
UNFINAL: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """The chain: `blocks` initial blocks with `pairs` settlements each, from `payers` to `wallets`.

    `began` is in Unix seconds.
    """

    blocks: int
    pairs: int
    wallets: int
    payers: int
    began: int
    chain_id: int = CHAIN_ID
    block_ms: int = 1_000 * BLOCK_SECONDS


def wallet(number: int) -> str:
    """Return the topic of a wallet: an address as a 32-byte word."""
    return "0x" + 24 * "0" + hashlib.sha256(b"wallet %d" % number).hexdigest()[:40]


def payer(number: int) -> str:
    """Return the topic of a payer."""
    return "0x" + 24 * "0" + hashlib.sha256(b"payer %d" % number).hexdigest()[:40]


@lru_cache(maxsize=65_536)
def block_hash(number: int) -> str:
    """Return the hash of a block."""
    return "0x" + hashlib.sha256(b"block %d" % number).hexdigest()


def settlements(world: World, number: int) -> Iterator[tuple[str, bytes, str, bytes]]:
    """Yield the settlements of a block.

    Each is the payer's topic, the AuthorizationUsed log, the wallet's topic and the Transfer log;
    logs are JSON.
    """
    for index in range(world.pairs):
        place = number * world.pairs + index
        who, whom = payer(place * 7 % world.payers), wallet(place % world.wallets)
        common = (
            f'"address":"{TOKEN}","blockHash":"{block_hash(number)}",'
            f'"blockNumber":"{hex(number)}","blockTimestamp":"{hex(at(world, number))}",'
            f'"transactionHash":"0x{place:064x}","transactionIndex":"{hex(index)}",'
            '"removed":false'
        )
        used = (
            f'{{{common},"logIndex":"{hex(2 * index)}","data":"0x",'
            f'"topics":["{AUTHORIZATION_USED}","{who}","0x{place:064x}"]}}'
        )
        moved = (
            f'{{{common},"logIndex":"{hex(2 * index + 1)}","data":"0x{place % 10_000:064x}",'
            f'"topics":["{TRANSFER}","{who}","{whom}"]}}'
        )
        yield who, used.encode(), whom, moved.encode()


def at(world: World, number: int) -> int:
    """Return the time of a block in seconds."""
    return world.began + number * world.block_ms // 1_000


class Canned:
    """The node's answers."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.head = world.blocks
        self.traffic = [0, 0, 0]
        self._blocks: dict[int, tuple[tuple[str, bytes, str, bytes], ...]] = {}
        self._numbers = {block_hash(number): number for number in range(world.blocks + 1)}

    def answer(self, body: bytes) -> bytes:
        """Return the reply to a request or a batch of requests."""
        asked = orjson.loads(body)
        calls = [asked] if isinstance(asked, dict) else asked
        replies = b",".join(map(self._one, calls))
        reply = replies if isinstance(asked, dict) else b"[" + replies + b"]"
        for place, count in enumerate((1, len(calls), len(body) + len(reply))):
            self.traffic[place] += count
        return reply

    def _one(self, call: dict[str, Any]) -> bytes:
        result = self._result(call["method"], call["params"])
        return b'{"jsonrpc":"2.0","id":%d,"result":%b}' % (call["id"], result)

    def _result(self, method: str, params: list[Any]) -> bytes:
        if method == "eth_getLogs":
            return b"[" + b",".join(self._logs(params[0])) + b"]"
        if method == "eth_getBlockByNumber":
            tags = {"latest": self.head, "finalized": max(0, self.head - UNFINAL)}
            number = tags.get(params[0])
            return self._header(int(params[0], 16) if number is None else number)
        if method == "bench_traffic":
            return orjson.dumps(self.traffic)
        if method == "bench_grow":
            for number in range(self.head + 1, self.head + params[0] + 1):
                self._numbers[block_hash(number)] = number
            self.head += params[0]
        return orjson.dumps(hex(self.world.chain_id if method == "eth_chainId" else self.head))

    def _header(self, number: int) -> bytes:
        return orjson.dumps(
            {
                "number": hex(number),
                "hash": block_hash(number),
                "parentHash": block_hash(number - 1),
                "timestamp": hex(at(self.world, number)),
            }
        )

    def _logs(self, where: dict[str, Any]) -> Iterator[bytes]:
        event, *rest = where["topics"]
        if isinstance(event, list):
            return  # no contract settles payments in this world
        wanted = set(rest[-1])
        if event == TRANSFER and len(rest) == 1:
            return  # nothing leaves the wallets of this world
        for number in self._span(where):
            for who, used, whom, moved in self._block(number):
                if event == TRANSFER and whom in wanted:
                    yield moved
                elif event != TRANSFER and who in wanted:
                    yield used

    def _span(self, where: dict[str, Any]) -> range:
        if "blockHash" in where:
            number = self._numbers[where["blockHash"]]
            return range(number, number + 1)
        return range(max(1, int(where["fromBlock"], 16)), int(where["toBlock"], 16) + 1)

    def _block(self, number: int) -> tuple[tuple[str, bytes, str, bytes], ...]:
        if number not in self._blocks:
            if len(self._blocks) > 50_000:
                self._blocks.clear()
            self._blocks[number] = tuple(settlements(self.world, number))
        return self._blocks[number]


async def serve(canned: Canned) -> None:
    """Print a free loopback port and serve it until standard input ends."""

    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = head.lower().split(b"content-length: ")[1].split(b"\r\n")[0]
                body = canned.answer(await reader.readexactly(int(length)))
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body))
                writer.write(body)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(client, "127.0.0.1", 0)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.read)
    server.close()


if __name__ == "__main__":
    asyncio.run(serve(Canned(World(**orjson.loads(sys.argv[1])))))
