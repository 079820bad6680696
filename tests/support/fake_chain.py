"""A chain of one token, and nodes that tell of it over HTTP: honestly, late, or not at all.

The chain knows for every transfer whether an authorization made it, so what an indexer should
find follows from the blocks without any of the code under test.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import random
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import orjson

TOKEN = "0x833589fcd6edb6e08f4c7c32d4f71b54bda02913"
OTHER_TOKEN = "0x" + "99" * 20
TRANSFER = "0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef"
USED = "0x98de503528ee59b575ef0c0a2576a82497bfc029a5685b209e9ec333479b10a5"
CANCELED = "0x1cdd46ff242716cdaa72d159d339a485b3438398348d68f09d7c8c0a59353d81"
START = 1_760_000_000
BLOCK_SECONDS = 2
FINAL_DEPTH = 40


def address(name: str) -> bytes:
    return hashlib.sha256(name.encode()).digest()[:20]


WALLETS = tuple(address(f"wallet {n}") for n in range(5))
PAYERS = tuple(address(f"payer {n}") for n in range(6))
STRANGER = address("stranger")


class Move(NamedTuple):
    """A transfer as the chain knows it."""

    sender: bytes
    receiver: bytes
    value: int
    authorized: bool


@dataclass(frozen=True)
class Log:
    token: str
    topics: tuple[str, ...]
    data: str


@dataclass(frozen=True)
class Tx:
    """Logs in order, and which of them are transfers of the token."""

    logs: tuple[Log, ...]
    moves: tuple[tuple[int, Move], ...]  # (offset of the log, transfer)


@dataclass(frozen=True)
class Block:
    number: int
    hash: bytes
    parent: bytes
    at: int  # seconds
    txs: tuple[Tx, ...]
    logs: tuple[dict[str, Any], ...]

    def header(self) -> dict[str, Any]:
        return {
            "number": hex(self.number),
            "hash": "0x" + self.hash.hex(),
            "parentHash": "0x" + self.parent.hex(),
            "timestamp": hex(self.at),
            "transactions": [],
        }


def pad(value: bytes) -> str:
    return "0x" + value.hex().rjust(64, "0")


class Writer:
    """Writes transactions; every nonce is new."""

    def __init__(self, dice: random.Random) -> None:
        self.dice = dice

    def nonce(self) -> str:
        return "0x" + self.dice.randbytes(32).hex()

    def move(self, sender: bytes, receiver: bytes, value: int) -> Log:
        return Log(TOKEN, (TRANSFER, pad(sender), pad(receiver)), f"0x{value:064x}")

    def used(self, payer: bytes) -> Log:
        return Log(TOKEN, (USED, pad(payer), self.nonce()), "0x")

    def payment(self, *pairs: tuple[bytes, bytes, int]) -> Tx:
        """Any number of payments by authorization in one transaction."""
        logs: list[Log] = []
        moves = []
        for sender, receiver, value in pairs:
            logs += [self.used(sender), self.move(sender, receiver, value)]
            moves.append((len(logs) - 1, Move(sender, receiver, value, authorized=True)))
        return Tx(tuple(logs), tuple(moves))

    def plain(self, sender: bytes, receiver: bytes, value: int) -> Tx:
        move = Move(sender, receiver, value, authorized=False)
        return Tx((self.move(sender, receiver, value),), ((0, move),))

    def detour(self, payer: bytes, wallet: bytes, value: int) -> Tx:
        """An authorization pays a stranger, then the same payer sends money in the plain way."""
        logs = (
            self.used(payer),
            self.move(payer, STRANGER, value),
            Log(OTHER_TOKEN, (TRANSFER, pad(payer), pad(wallet)), f"0x{1:064x}"),
            self.move(payer, wallet, value + 1),
        )
        return Tx(
            logs,
            (
                (1, Move(payer, STRANGER, value, authorized=True)),
                (3, Move(payer, wallet, value + 1, authorized=False)),
            ),
        )

    def cancelled(self, payer: bytes, wallet: bytes, value: int) -> Tx:
        """A cancelled authorization right before a plain transfer."""
        cancel = Log(TOKEN, (CANCELED, pad(payer), self.nonce()), "0x")
        move = Move(payer, wallet, value, authorized=False)
        return Tx((cancel, self.move(payer, wallet, value)), ((1, move),))

    def any(self) -> Tx:
        dice = self.dice
        payer, wallet = dice.choice(PAYERS), dice.choice(WALLETS)
        value = dice.choice((0, 1, 5_000, dice.randrange(10**9), 2**80 + 1, 2**256 - 1))
        kind = dice.randrange(10)
        if kind < 4:
            return self.payment((payer, wallet, value))
        if kind == 4:
            pairs = [
                (dice.choice(PAYERS), dice.choice((*WALLETS, STRANGER)), dice.randrange(10**6))
                for _ in range(dice.randrange(2, 6))
            ]
            return self.payment(*pairs)
        if kind == 5:
            return self.plain(payer, wallet, value)
        if kind == 6:
            return self.plain(wallet, dice.choice((*PAYERS, STRANGER)), value)
        if kind == 7:
            return self.detour(payer, wallet, dice.randrange(10**6))
        if kind == 8:
            return self.cancelled(payer, wallet, value)
        return self.payment((wallet, dice.choice(WALLETS), value))


class FakeChain:
    """The chain that counts; nodes may lag behind it or stay on a fork of it."""

    def __init__(self, seed: int, *, stamped: bool = False) -> None:
        self.dice = random.Random(seed)
        self.write = Writer(self.dice)
        self.stamped = stamped
        genesis = Block(0, self.dice.randbytes(32), bytes(32), START, (), ())
        self.blocks: list[Block] = [genesis]
        self.receipts: dict[str, dict[str, Any]] = {}
        self.final = 0

    @property
    def head(self) -> Block:
        return self.blocks[-1]

    def mine(self, *txs: Tx) -> Block:
        number, block_hash = len(self.blocks), self.dice.randbytes(32)
        at = START + number * BLOCK_SECONDS
        logs: list[dict[str, Any]] = []
        for tx in txs:
            transaction = "0x" + self.dice.randbytes(32).hex()
            own = [
                {
                    "address": log.token,
                    "topics": list(log.topics),
                    "data": log.data,
                    "blockHash": "0x" + block_hash.hex(),
                    "blockNumber": hex(number),
                    "transactionHash": transaction,
                    "transactionIndex": "0x0",
                    "logIndex": hex(len(logs) + offset),
                    "removed": False,
                }
                | ({"blockTimestamp": hex(at)} if self.stamped else {})
                for offset, log in enumerate(tx.logs)
            ]
            self.receipts[transaction] = {"transactionHash": transaction, "logs": own}
            logs += own
        block = Block(number, block_hash, self.head.hash, at, tuple(txs), tuple(logs))
        self.blocks.append(block)
        return block

    def mine_some(self, blocks: int, *, txs: int = 2) -> None:
        for _ in range(blocks):
            self.mine(*(self.write.any() for _ in range(self.dice.randrange(txs + 1))))

    def reorg(self, depth: int, blocks: int) -> None:
        """Replaces the last `depth` blocks by `blocks` others; some transactions stay. What a node
        called final stays as well.
        """
        depth = min(depth, self.head.number - self.final)
        if depth < 1:
            return
        gone = self.blocks[-depth:]
        del self.blocks[-depth:]
        for index in range(blocks):
            stay = list(gone[index].txs) if index < len(gone) else []
            self.dice.shuffle(stay)
            self.mine(*stay[: self.dice.randrange(len(stay) + 1)], self.write.any())

    def expected(self, wallets: Sequence[bytes]) -> set[tuple[Any, ...]]:
        """What an indexer of these wallets should hold, from the blocks alone."""
        found = set()
        for block in self.blocks:
            place = 0
            for tx in block.txs:
                for offset, move in tx.moves:
                    key = (block.number, block.hash, place + offset)
                    at = block.at * 1_000
                    if move.receiver in wallets and move.authorized:
                        found.add((*key, move.receiver, move.sender, True, move.value, at))
                    if move.sender in wallets and move.sender != move.receiver:
                        found.add((*key, move.sender, move.receiver, False, move.value, at))
                place += len(tx.logs)
        return found

    def deposits(self, own: bytes) -> set[tuple[Any, ...]]:
        """Everything that came to an address of ours, and whether an authorization brought it."""
        found = set()
        for block in self.blocks:
            place = 0
            for tx in block.txs:
                for offset, move in tx.moves:
                    if move.receiver == own:
                        key = (block.number, block.hash, place + offset, move.sender, move.value)
                        found.add((*key, move.authorized, block.at * 1_000))
                place += len(tx.logs)
        return found


@dataclass
class Mood:
    """How a node behaves; shares are of calls or requests."""

    lag: int = 0
    lie_empty: float = 0.0
    lie_partly: float = 0.0
    duplicate: float = 0.0
    throttle: float = 0.0
    garbage: float = 0.0
    cut: float = 0.0
    range_max: int | None = None
    results_max: int | None = None
    topics_max: int | None = None
    batch_max: int | None = None
    fork: list[Block] | None = None
    finalized: bool = True


@dataclass
class FakeNode:
    """A node over HTTP. `calls` counts methods, `largest_topics` the longest list it was sent."""

    chain: FakeChain
    seed: int = 0
    mood: Mood = field(default_factory=Mood)
    calls: dict[str, int] = field(default_factory=dict)
    largest_topics: int = 0
    methods_with_pending: int = 0

    def __post_init__(self) -> None:
        self.dice = random.Random(self.seed)

    @property
    def blocks(self) -> list[Block]:
        blocks = self.mood.fork if self.mood.fork is not None else self.chain.blocks
        return blocks[: max(1, len(blocks) - self.mood.lag)]

    def answer(self, body: bytes) -> tuple[int, bytes]:
        if self.dice.random() < self.mood.throttle:
            return 429, b'{"jsonrpc":"2.0","error":{"code":429,"message":"slow down"}}'
        request = orjson.loads(body)
        if isinstance(request, list):
            if self.mood.batch_max is not None and len(request) > self.mood.batch_max:
                error = {"code": -32600, "message": "batch too large"}
                return 200, orjson.dumps({"jsonrpc": "2.0", "id": None, "error": error})
            replies = [self.reply(each) for each in request]
            self.dice.shuffle(replies)
            text = orjson.dumps(replies)
        else:
            text = orjson.dumps(self.reply(request))
        if self.dice.random() < self.mood.garbage:
            return 200, self.dice.choice(
                (b"<html>502</html>", b"[]", b"{}", b"null", b"[null]", text[: len(text) // 2])
            )
        return 200, text

    def reply(self, call: dict[str, Any]) -> dict[str, Any]:
        method, params = call["method"], call["params"]
        self.calls[method] = self.calls.get(method, 0) + 1
        if b"pending" in orjson.dumps(params):
            self.methods_with_pending += 1
        try:
            return {"jsonrpc": "2.0", "id": call["id"], "result": self.result(method, params)}
        except RefusedError as error:
            told = {"code": error.code, "message": str(error)}
            return {"jsonrpc": "2.0", "id": call["id"], "error": told}

    def result(self, method: str, params: list[Any]) -> Any:
        blocks = self.blocks
        if method == "eth_chainId":
            return hex(8453)
        if method == "eth_blockNumber":
            return hex(blocks[-1].number)
        if method == "eth_getBlockByNumber":
            return self.block(params[0])
        if method == "eth_getTransactionReceipt":
            return self.chain.receipts.get(params[0])
        if method == "eth_getLogs":
            return self.logs(params[0])
        raise RefusedError(-32601, "the method does not exist")

    def block(self, tag: str) -> dict[str, Any] | None:
        blocks = self.blocks
        if tag == "latest":
            return blocks[-1].header()
        if tag == "finalized":
            if not self.mood.finalized:
                raise RefusedError(-32602, "unknown tag")
            final = blocks[max(0, len(blocks) - 1 - FINAL_DEPTH)]
            self.chain.final = max(self.chain.final, final.number)
            return final.header()
        number = int(tag, 16)
        return blocks[number].header() if number < len(blocks) else None

    def logs(self, where: dict[str, Any]) -> list[dict[str, Any]]:
        self.check_limits(where)
        if "blockHash" in where:
            span = [block for block in self.blocks if "0x" + block.hash.hex() == where["blockHash"]]
            if not span:
                raise RefusedError(-32000, "unknown block")
        else:
            span = self.blocks[int(where["fromBlock"], 16) : int(where["toBlock"], 16) + 1]
        found = [log for block in span for log in block.logs if matches(log, where)]
        if self.mood.results_max is not None and len(found) > self.mood.results_max:
            raise RefusedError(-32005, f"query returned more than {self.mood.results_max} results")
        return self.as_told(found)

    def check_limits(self, where: dict[str, Any]) -> None:
        for words in where["topics"]:
            if isinstance(words, list):
                self.largest_topics = max(self.largest_topics, len(words))
                if self.mood.topics_max is not None and len(words) > self.mood.topics_max:
                    raise RefusedError(-32602, "exceed max topics")
        most = self.mood.range_max
        if most is not None and "fromBlock" in where:
            first, last = int(where["fromBlock"], 16), int(where["toBlock"], 16)
            if last - first + 1 > most:
                hint = f"; this block range should work: [{hex(first)}, {hex(first + most - 1)}]"
                words = f"up to a {most} block range{self.dice.choice(('', hint))}"
                raise RefusedError(-32600, words)

    def as_told(self, found: list[dict[str, Any]]) -> list[dict[str, Any]]:
        if self.dice.random() < self.mood.lie_empty:
            return []
        if self.dice.random() < self.mood.lie_partly:
            found = [log for log in found if self.dice.random() < 0.5]
        if found and self.dice.random() < self.mood.duplicate:
            found = found + self.dice.sample(found, 1)
        return found

    @contextlib.asynccontextmanager
    async def served(self) -> AsyncIterator[str]:
        """Yields the node's URL."""
        writers: set[asyncio.StreamWriter] = set()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writers.add(writer)
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                while await self.one(reader, writer):
                    pass
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        try:
            yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        finally:
            server.close()
            for writer in writers:
                writer.close()
            await asyncio.sleep(0)

    async def one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = await reader.readuntil(b"\r\n\r\n")
        fields = dict(
            line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:] if b": " in line
        )
        body = await reader.readexactly(int(fields[b"content-length"]))
        if self.dice.random() < self.mood.cut:
            return False
        status, text = self.answer(body)
        lines = f"HTTP/1.1 {status} X\r\ncontent-length: {len(text)}\r\n\r\n"
        writer.write(lines.encode() + text)
        await writer.drain()
        return True


class RefusedError(Exception):
    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def matches(log: dict[str, Any], where: dict[str, Any]) -> bool:
    if log["address"] != where["address"]:
        return False
    for place, wanted in enumerate(where["topics"]):
        if wanted is None:
            continue
        if place >= len(log["topics"]):
            return False
        allowed = wanted if isinstance(wanted, list) else [wanted]
        if log["topics"][place] not in allowed:
            return False
    return True
