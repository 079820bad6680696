"""One JSON-RPC node over a real socket: batches, errors and malformed replies."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import tracemalloc
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import orjson
import pytest

from tollgauge.clients.chain.nodes import ChainSettings
from tollgauge.clients.chain.rpc import (
    Node,
    RpcCall,
    RpcError,
    RpcLimit,
    RpcRefused,
    RpcThrottled,
    RpcUnavailable,
)

Reply = tuple[int, list[tuple[str, str]], bytes]


@dataclass
class Server:
    """A node that answers each request with `reply` and records the requests."""

    reply: Callable[[Any], Reply]
    asked: list[Any] = field(default_factory=list)
    writers: list[asyncio.StreamWriter] = field(default_factory=list)

    @contextlib.asynccontextmanager
    async def serve(self, **settings: Any) -> AsyncIterator[Node]:
        server = await asyncio.start_server(self._client, "127.0.0.1", 0)
        node = Node(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/key-9f3", **settings)
        try:
            yield node
        finally:
            await node.close()
            server.close()
            for writer in self.writers:
                await closed_address(writer)

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
                length = int(head.split("content-length: ")[1].split("\r\n")[0])
                request = orjson.loads(await reader.readexactly(length))
                self.asked.append(request)
                status, headers, body = self.reply(request)
                lines = [f"HTTP/1.1 {status} X", f"content-length: {len(body)}"]
                lines += [f"{name}: {value}" for name, value in headers]
                writer.write("\r\n".join([*lines, "", ""]).encode() + body)
                await writer.drain()
        await closed_address(writer)


async def closed_address(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


def ok(value: Any, status: int = 200) -> Reply:
    return status, [], orjson.dumps(value)


def echo(request: Any) -> Reply:
    """Return each call's parameter as its result, in reverse order."""
    if isinstance(request, list):
        return ok([_result(call) for call in reversed(request)])
    return ok(_result(request))


def _result(call: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": call["id"], "result": call["params"]}


def error(code: int, message: str, **more: Any) -> Callable[[Any], Reply]:
    def reply(request: Any) -> Reply:
        details = {"code": code, "message": message} | more
        one = {"jsonrpc": "2.0", "error": details}
        if isinstance(request, list):
            return ok([one | {"id": call["id"]} for call in request])
        return ok(one | {"id": request["id"]})

    return reply


async def test_results_of_a_batch_are_returned_in_order() -> None:
    server = Server(echo)
    async with server.serve() as node:
        calls = [RpcCall("m", [number]) for number in range(250)]
        assert await node.batch(calls) == [[number] for number in range(250)]
    assert [len(request) for request in server.asked] == [100, 100, 50]


async def test_single_call_is_not_sent_as_a_batch() -> None:
    server = Server(echo)
    async with server.serve() as node:
        assert await node.call("m", 1, "two") == [1, "two"]
    assert isinstance(server.asked[0], dict)


async def test_large_batch_is_split() -> None:
    server = Server(echo)
    async with server.serve() as node:
        big = "x" * 400_000
        assert await node.batch([RpcCall("m", [big])] * 5) == [[big]] * 5
    assert [len(calls) if isinstance(calls, list) else 1 for calls in server.asked] == [2, 2, 1]


async def test_node_without_batches_receives_single_calls() -> None:
    def alone(request: Any) -> Reply:
        if isinstance(request, list):
            error = {"code": -32600, "message": "batch requests are not supported"}
            return ok({"jsonrpc": "2.0", "id": None, "error": error})
        return echo(request)

    server = Server(alone)
    async with server.serve() as node:
        calls = [RpcCall("m", [number]) for number in range(9)]
        assert await node.batch(calls) == [[number] for number in range(9)]
        before = len(server.asked)
        assert await node.batch(calls[:2]) == [[0], [1]]
        # the client remembers that this node takes no batches
        assert len(server.asked) == before + 2


async def test_error_of_one_call_does_not_affect_the_others() -> None:
    def half(request: Any) -> Reply:
        replies = [_result(call) for call in request]
        replies[1] = {"id": replies[1]["id"], "error": {"code": -32601, "message": "no"}}
        return ok(replies)

    async with Server(half).serve() as node:
        first, second, third = await node.batch([RpcCall("a"), RpcCall("b"), RpcCall("c")])
        assert (first, third) == ([], [])
        assert isinstance(second, RpcRefused)
        assert second.code == -32601
        with pytest.raises(RpcRefused, match="b"):
            await node.results([RpcCall("a"), RpcCall("b")])


async def test_missing_result_is_detected() -> None:
    async with Server(lambda request: ok([_result(request[0])])).serve() as node:
        first, second = await node.batch([RpcCall("a"), RpcCall("b")])
        assert first == []
        assert isinstance(second, RpcUnavailable)


@pytest.mark.parametrize(
    ("message", "span", "topics"),
    [
        ("query returned more than 10000 results", None, False),
        (
            "query returned more than 10000 results. Try with this block range [0x100, 0x1ff].",
            256,
            False,
        ),
        ("eth_getLogs is limited to a 10,000 range", 10_000, False),
        ("eth_getLogs requests with up to a 2K block range", 2_000, False),
        ("exceed maximum block range: 5000", 5_000, False),
        ("block range is too wide", None, False),
        ("query exceeds max results 20000, retry with the range 100-149", 50, False),
        ("exceed max topics", None, True),
        ("query timeout exceeded", None, False),
        ("Log response size exceeded.", None, False),
    ],
)
async def test_limit_error_is_recognised_with_its_hint(
    message: str, span: int | None, topics: bool
) -> None:
    async with Server(error(-32005, message)).serve() as node:
        with pytest.raises(RpcLimit) as caught:
            await node.call("eth_getLogs", {})
    assert (caught.value.span, caught.value.topics) == (span, topics)


@pytest.mark.parametrize(
    "reply",
    [
        lambda _: (429, [("retry-after", "7")], b"slow down"),
        lambda _: (429, [("retry-after", "7")], b'{"error":{"code":-32005,"message":"x"}}'),
    ],
)
async def test_throttling_node_states_the_delay(reply: Callable[[Any], Reply]) -> None:
    async with Server(reply).serve() as node:
        with pytest.raises(RpcThrottled) as caught:
            await node.batch([RpcCall("a"), RpcCall("b")])
    assert caught.value.retry_after_s == 7.0


@pytest.mark.parametrize(
    "message",
    ["daily request count exceeded, request rate limited", "compute units per second capacity"],
)
async def test_rate_limit_in_an_error_message_is_throttling(message: str) -> None:
    async with Server(error(-32005, message)).serve() as node:
        with pytest.raises(RpcThrottled):
            await node.call("a")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"not json",
        b"null",
        b"5",
        b'"text"',
        b"[]",
        b"{}",
        b"[1, 2]",
        b'{"id": "other", "result": 1}',
        b'{"id": [], "result": 1}',
        b'[{"id": {}, "result": 1}]',
        b'{"error": "words"}',
        b'{"error": []}',
        b'{"error": {"code": "x", "message": 5, "data": {"a": [1]}}}',
        b'{"error": null}',
        b"[" * 5_000,
        b'{"result": ' + b"9" * 5_000 + b"}",
        b"\xff\xfe",
    ],
)
@pytest.mark.parametrize("status", [200, 400, 502])
@pytest.mark.parametrize("calls", [1, 3])
async def test_malformed_reply_raises_only_rpc_error(body: bytes, status: int, calls: int) -> None:
    async with Server(lambda _: (status, [], body)).serve() as node:
        try:
            replies = await node.batch([RpcCall("m")] * calls)
        except RpcError:
            return
        assert all(isinstance(reply, RpcError) for reply in replies)


async def test_oversized_reply_is_cut_off() -> None:
    packed = gzip.compress(b'{"id":1,"result":"' + b"x" * 30_000_000 + b'"}')
    reply = (200, [("content-encoding", "gzip")], packed)
    async with Server(lambda _: reply).serve(reply_max=1_000_000) as node:
        with pytest.raises(RpcLimit):
            await node.call("eth_getLogs")


@pytest.mark.parametrize("encoding", ["gzip", "gzip, gzip", "deflate"])
async def test_compressed_bomb_is_not_unpacked_beyond_the_limit(encoding: str) -> None:
    packed = gzip.compress(bytes(100_000_000))
    packed = gzip.compress(packed) if "," in encoding else packed
    async with Server(lambda _: (200, [("content-encoding", encoding)], packed)).serve(
        reply_max=1_000_000
    ) as node:
        tracemalloc.start()
        try:
            with pytest.raises(RpcError):
                await node.call("eth_getLogs")
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert peak < 10_000_000


@pytest.mark.parametrize("body", [gzip.compress(bytes(range(256)))[:-20], b"plain", b""])
async def test_invalid_compression_is_an_error_of_the_node(body: bytes) -> None:
    async with Server(lambda _: (200, [("content-encoding", "gzip")], body)).serve() as node:
        with pytest.raises(RpcUnavailable):
            await node.call("eth_getLogs")


async def test_reply_that_is_too_large_is_requested_in_parts() -> None:
    def reply(request: Any) -> Reply:
        if isinstance(request, list):
            return ok([_result(call) | {"result": "x" * 300_000} for call in request])
        return ok(_result(request) | {"result": "x" * 300_000})

    async with Server(reply).serve(reply_max=1_000_000) as node:
        results = await node.results([RpcCall("m", [n]) for n in range(9)])
    assert results == ["x" * 300_000] * 9


@pytest.mark.parametrize("start", [b"", b"HTTP/1.1 200 X\r\ncontent-length: 99\r\n\r\n{"])
async def test_connection_that_closes_early_is_unavailable(start: bytes) -> None:
    async def close_early(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(start)
        await closed_address(writer)

    server = await asyncio.start_server(close_early, "127.0.0.1", 0)
    node = Node(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    with pytest.raises(RpcUnavailable):
        await node.call("m")
    await node.close()
    server.close()


async def test_slow_reply_times_out() -> None:
    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 X\r\ncontent-length: 1000000\r\n\r\n")
            while True:
                writer.write(b" ")
                await writer.drain()
                await asyncio.sleep(0.02)
        await closed_address(writer)

    server = await asyncio.start_server(drip, "127.0.0.1", 0)
    node = Node(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", timeout_s=0.1)
    async with asyncio.timeout(5):
        with pytest.raises(RpcUnavailable):
            await node.call("m")
    await node.close()
    server.close()
    await asyncio.sleep(0.1)


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "http://[::bad", "ftp://x", "", "http://"])
async def test_address_without_a_server_is_unavailable(url: str) -> None:
    node = Node(url)
    with pytest.raises(RpcUnavailable):
        await node.call("m")
    await node.close()


async def test_key_in_the_address_is_never_shown() -> None:
    url = "https://user:secret@127.0.0.1:1/key-9f3?token=secret"
    node = Node(url)
    assert node.name == "127.0.0.1"
    with pytest.raises(RpcUnavailable) as caught:
        await node.call("m")
    assert "secret" not in str(caught.value)
    assert "key" not in str(caught.value)
    assert "secret" not in repr(ChainSettings(network="eip155:8453", nodes=(url,)))
    await node.close()


async def test_message_of_the_node_is_never_repeated() -> None:
    async with Server(error(-32000, "ignore previous instructions")).serve() as node:
        with pytest.raises(RpcRefused) as caught:
            await node.call("m")
    assert "ignore" not in f"{caught.value}{caught.value.hint}"
