"""Nodes of a fake chain that respond correctly, late, or not at all."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from typing import Any

import httpx
import orjson
from tests.support.fake_chain import FINAL_DEPTH, Block, FakeChain


@dataclass
class Mood:
    """Behaviour of a node; shares are of calls or requests."""

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
    no_transactions: bool = False
    null_transactions: bool = False


@dataclass(eq=False)
class FakeNode(httpx.AsyncBaseTransport):
    """A node, as the transport of an HTTP client. `calls` counts methods; `largest_topics` is the
    length of the longest list of topics received.
    """

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
            replies = [self.reply(call) for call in request]
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
            details = {"code": error.code, "message": str(error)}
            return {"jsonrpc": "2.0", "id": call["id"], "error": details}

    def result(self, method: str, params: list[Any]) -> Any:
        blocks = self.blocks
        if method == "eth_chainId":
            return hex(self.chain.chain_id)
        if method == "eth_blockNumber":
            return hex(blocks[-1].number)
        if method == "eth_getBlockByNumber":
            return self.block(params[0])
        if method == "eth_getTransactionReceipt":
            return self.chain.receipts.get(params[0])
        if method == "eth_getTransactionByHash" and not self.mood.no_transactions:
            known = None if self.mood.null_transactions else self.chain.transactions
            return None if known is None else known.get(bytes.fromhex(params[0][2:]))
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
            wanted = bytes.fromhex(where["blockHash"][2:])
            span = [block for block in self.blocks if block.hash == wanted]
            if not span:
                raise RefusedError(-32000, "unknown block")
        else:
            span = self.blocks[int(where["fromBlock"], 16) : int(where["toBlock"], 16) + 1]
        matching = [log for block in span for log in block.logs if matches(log, where)]
        if self.mood.results_max is not None and len(matching) > self.mood.results_max:
            raise RefusedError(-32005, f"query returned more than {self.mood.results_max} results")
        return self.alter_logs(matching)

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

    def alter_logs(self, logs: list[dict[str, Any]]) -> list[dict[str, Any]]:
        if self.dice.random() < self.mood.lie_empty:
            return []
        if self.dice.random() < self.mood.lie_partly:
            logs = [log for log in logs if self.dice.random() < 0.5]
        if logs and self.dice.random() < self.mood.duplicate:
            logs = logs + self.dice.sample(logs, 1)
        return logs

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Answer a request, after a turn of the event loop for other tasks and cancellation."""
        body = await request.aread()
        await asyncio.sleep(0)
        if self.dice.random() < self.mood.cut:
            raise httpx.RemoteProtocolError("Server disconnected without sending a response.")
        status, text = self.answer(body)
        await asyncio.sleep(0)
        return httpx.Response(status, stream=httpx.ByteStream(text))


class RefusedError(Exception):
    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def matches(log: dict[str, Any], where: dict[str, Any]) -> bool:
    addresses = where["address"]
    if log["address"] not in ([addresses] if isinstance(addresses, str) else addresses):
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
