"""The load of `bench serve` and its baseline application."""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import AsyncIterator

import pytest
from starlette.types import Message

from bench.bare import Bare
from bench.serve import CONNECTIONS, load

REQUEST = b"GET / HTTP/1.1\r\nHost: t\r\n\r\n"
HEAD = b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n"


@contextlib.asynccontextmanager
async def serve_answers(*parts: bytes) -> AsyncIterator[tuple[int, list[int]]]:
    """Start a server that sends each response in the given parts; yield its port and a counter."""
    counts = [0]
    writers: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                await reader.readuntil(b"\r\n\r\n")
                counts[0] += 1
                for part in parts:
                    writer.write(part)
                    await writer.drain()
                    await asyncio.sleep(0.001)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    yield server.sockets[0].getsockname()[1], counts
    server.close()
    await asyncio.gather(*(writer.wait_closed() for writer in writers), return_exceptions=True)


@pytest.mark.parametrize("parts", [(HEAD + b"123456789",), (HEAD + b"123", b"456", b"789")])
async def test_counts_complete_responses_however_they_are_split(parts: tuple[bytes, ...]) -> None:
    async with serve_answers(*parts) as (port, counts):
        count = await load(port, REQUEST, 200, 0.5)
        await asyncio.sleep(0.01)
        assert count > 0
        assert counts[0] - CONNECTIONS <= count <= counts[0]


async def test_unexpected_status_fails_the_benchmark() -> None:
    async with serve_answers(b"HTTP/1.1 429 Too Many Requests\r\ncontent-length: 0\r\n\r\n") as (
        port,
        _,
    ):
        with pytest.raises(RuntimeError, match="429"):
            await load(port, REQUEST, 200, 5)


async def test_bare_application_sends_configured_response() -> None:
    app, sent = Bare(), list[Message]()

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        raise AssertionError("a bare application reads nothing")

    body = base64.b64encode(b"hello").decode()
    app.obey({"do": "answer", "status": 304, "headers": [["etag", '"a"']], "body": body})
    await app({"type": "http"}, receive, send)
    start, end = sent
    assert (start["status"], start["headers"], end["body"]) == (304, [(b"etag", b'"a"')], b"hello")
