"""Probes of MCP servers that misbehave, through egress over real TLS: each has one outcome."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import trustme

from tollgauge.clients.egress.client import Egress
from tollgauge.clients.egress.request import EgressSettings
from tollgauge.clients.x402 import exchange
from tollgauge.core.endpoint.identity import Endpoint, tool_url
from tollgauge.core.lint.judge import lint
from tollgauge.core.lint.mcp import ResponseScanner
from tollgauge.core.lint.rule import ANSWERS
from tollgauge.core.probe.exchange import Answer, Exchange, Fault
from tollgauge.core.probe.outcome import Outcome
from tollgauge.core.probe.probe import judge

HOST = "tools.example.com"
DEADLINE_MS = 8_000
TERMS: dict[str, Any] = ANSWERS["tool"].body["result"]["structuredContent"]
PAYMENT = {
    "isError": True,
    "structuredContent": TERMS,
    "content": [{"type": "text", "text": json.dumps(TERMS)}],
}
TOOLS = {"tools": [{"name": "weather", "inputSchema": {"type": "object"}}]}
HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {}}
RESULTS = {"initialize": HELLO, "tools/list": TOOLS, "tools/call": PAYMENT}

Write = Callable[[bytes], Awaitable[None]]


def head(kind: str = "application/json", status: str = "200 OK", more: str = "") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nConnection: close\r\n{more}\r\n".encode()


def message(id_: object, result: object) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": id_, "result": result}).encode()


def event(data: bytes) -> bytes:
    return b"event: message\r\ndata: " + data + b"\r\n\r\n"


class Server:
    """An MCP server that answers correctly, except as a test changes it."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.open: set[asyncio.Task[None]] = set()

    async def answer(self, method: str, request: dict[str, Any], write: Write) -> None:
        await write(head() + message(request.get("id"), RESULTS.get(method, {})))

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.open.add(task)

        async def write(data: bytes) -> None:
            writer.write(data)
            await writer.drain()

        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            text = await reader.readuntil(b"\r\n\r\n")
            lines = dict(line.split(": ", 1) for line in text.decode().split("\r\n")[1:-2])
            length = int({name.lower(): value for name, value in lines.items()}["content-length"])
            request = json.loads(await reader.readexactly(length))
            self.asked.append(request["method"])
            await self.answer(request["method"], request, write)
        writer.close()


@contextlib.asynccontextmanager
async def egress_to(server: Server, folder: Path) -> AsyncIterator[Egress]:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder / "ca.pem")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert(HOST).configure_cert(context)
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0, ssl=context)
    port = listener.sockets[0].getsockname()[1]
    egress = Egress(
        EgressSettings(
            mapped={HOST: ("127.0.0.1", port)},
            ca_file=str(folder / "ca.pem"),
            deadline_ms=DEADLINE_MS,
        )
    )
    egress.start()
    yield egress
    await egress.close()
    listener.close()
    for task in server.open:
        task.cancel()
    await asyncio.gather(*server.open, return_exceptions=True)


async def probe(server: Server, folder: Path) -> Exchange:
    resource = tool_url(f"https://{HOST}/mcp", "weather")
    endpoint = Endpoint(id="x", resource=resource, host=HOST, first_seen=0, last_seen=0)
    async with egress_to(server, folder) as egress:
        return (await exchange(egress, endpoint, now=1)).exchange


def outcome(probed: Exchange) -> str:
    return judge(probed, lint(probed)).outcome


class OpenStream(Server):
    """Answers in events, and keeps each stream open afterwards."""

    async def answer(self, method: str, request: dict[str, Any], write: Write) -> None:
        if "id" not in request:
            await super().answer(method, request, write)
            return
        await write(head("text/event-stream"))
        await write(event(message(99, {"another": "request"})))
        await write(event(message(request["id"], RESULTS[method])))
        await asyncio.Event().wait()


async def test_stream_that_stays_open_is_read_up_to_the_response(tmp_path: Path) -> None:
    server = OpenStream()
    probed = await probe(server, tmp_path)
    verdict = lint(probed)
    assert (verdict.payable, verdict.findings) == (True, ())
    assert isinstance(probed.result, Answer)
    assert not probed.result.truncated
    assert probed.timings.total < DEADLINE_MS
    assert server.asked == ["initialize", "notifications/initialized", "tools/list", "tools/call"]


async def test_endless_stream_without_the_response_is_a_timeout(tmp_path: Path) -> None:
    class Endless(Server):
        async def answer(self, method: str, request: dict[str, Any], write: Write) -> None:
            if method != "tools/call":
                await super().answer(method, request, write)
                return
            await write(head("text/event-stream"))
            while True:
                await write(b": still here\n\n")
                await asyncio.sleep(0.5)

    assert outcome(await probe(Endless(), tmp_path)) == Outcome.TIMEOUT


async def test_stream_of_other_messages_is_cut_and_not_mcp(tmp_path: Path) -> None:
    class Flood(Server):
        async def answer(self, method: str, request: dict[str, Any], write: Write) -> None:
            if method != "tools/call":
                await super().answer(method, request, write)
                return
            await write(head("text/event-stream"))
            for _ in range(20):
                await write(event(message(7, {"text": "x" * 60_000})))
            await asyncio.Event().wait()

    assert outcome(await probe(Flood(), tmp_path)) == Outcome.BROKEN


@pytest.mark.parametrize(
    ("id_", "expected"),
    [(lambda _: 99, Outcome.BROKEN), (lambda _: None, Outcome.BROKEN), (str, Outcome.BROKEN)],
)
async def test_response_with_another_id_is_not_the_response(
    tmp_path: Path, id_: Callable[[object], object], expected: Outcome
) -> None:
    class Wrong(Server):
        async def answer(self, method: str, request: dict[str, Any], write: Write) -> None:
            await write(head() + message(id_(request.get("id")), RESULTS.get(method, {})))

    assert outcome(await probe(Wrong(), tmp_path)) == expected


async def test_long_session_id_is_not_sent_back(tmp_path: Path) -> None:
    class Long(Server):
        async def answer(self, method: str, request: dict[str, Any], write: Write) -> None:
            more = f"Mcp-Session-Id: {'s' * 2_000}\r\n"
            await write(head(more=more) + message(request.get("id"), RESULTS.get(method, {})))

    server = Long()
    assert outcome(await probe(server, tmp_path)) == Outcome.BROKEN
    assert server.asked == ["initialize"]


async def test_session_id_of_a_megabyte_ends_the_probe(tmp_path: Path) -> None:
    class Huge(Server):
        async def answer(self, method: str, request: dict[str, Any], write: Write) -> None:
            more = f"Mcp-Session-Id: {'s' * 1_000_000}\r\n"
            await write(head(more=more) + message(request.get("id"), RESULTS.get(method, {})))

    server = Huge()
    assert outcome(await probe(server, tmp_path)) == Outcome.BROKEN
    assert server.asked == ["initialize"]


async def test_response_that_is_only_sent_on_the_get_stream_is_not_mcp(tmp_path: Path) -> None:
    class Accepted(Server):
        async def answer(self, method: str, request: dict[str, Any], write: Write) -> None:
            if method != "tools/call":
                await super().answer(method, request, write)
                return
            await write(head(status="202 Accepted"))

    server = Accepted()
    probed = await probe(server, tmp_path)
    assert outcome(probed) == Outcome.BROKEN
    assert server.asked[-1] == "tools/call"


async def test_redirect_is_not_followed(tmp_path: Path) -> None:
    class Moved(Server):
        async def answer(self, method: str, request: dict[str, Any], write: Write) -> None:
            await write(
                head(status="307 Temporary Redirect", more="Location: https://127.0.0.1/\r\n")
            )

    server = Moved()
    assert outcome(await probe(server, tmp_path)) == Outcome.REDIRECT
    assert server.asked == ["initialize"]


async def test_long_list_of_tools_is_read_for_a_few_pages(tmp_path: Path) -> None:
    class Pages(Server):
        async def answer(self, method: str, request: dict[str, Any], write: Write) -> None:
            result = RESULTS.get(method, {})
            if method == "tools/list":
                result = {"tools": [], "nextCursor": "again"}
            await write(head() + message(request.get("id"), result))

    server = Pages()
    probed = await probe(server, tmp_path)
    assert server.asked.count("tools/list") == 3
    assert lint(probed).payable  # the list's end is unknown, and the tool sells


async def test_list_of_tools_above_the_size_limit_does_not_prevent_the_call(tmp_path: Path) -> None:
    class Huge(Server):
        async def answer(self, method: str, request: dict[str, Any], write: Write) -> None:
            result: object = RESULTS.get(method, {})
            if method == "tools/list":
                schema = {"type": "object", "description": "x" * 2_000_000}
                result = {"tools": [{"name": "weather", "inputSchema": schema}]}
            await write(head() + message(request.get("id"), result))

    assert lint(await probe(Huge(), tmp_path)).findings == ()


async def test_payment_wall_in_front_of_the_server_is_reported(tmp_path: Path) -> None:
    class Wall(Server):
        async def answer(self, method: str, request: dict[str, Any], write: Write) -> None:
            await write(head(status="402 Payment Required") + json.dumps(TERMS).encode())

    probed = await probe(Wall(), tmp_path)
    verdict = lint(probed)
    assert not verdict.payable
    assert {finding.rule for finding in verdict.findings} == {"tool-envelope"}


async def test_server_without_a_handshake_is_called_in_the_stateless_revision(
    tmp_path: Path,
) -> None:
    class Stateless(Server):
        async def answer(self, method: str, request: dict[str, Any], write: Write) -> None:
            meta = request["params"].get("_meta", {})
            if meta.get("io.modelcontextprotocol/protocolVersion") != "2026-07-28":
                error = {"code": -32601, "message": "initialize is not known"}
                body = json.dumps({"jsonrpc": "2.0", "id": request["id"], "error": error})
                await write(head(status="400 Bad Request") + body.encode())
                return
            await write(head() + message(request["id"], RESULTS[method]))

    server = Stateless()
    assert lint(await probe(server, tmp_path)).payable
    assert server.asked == ["initialize", "tools/list", "tools/call"]


async def test_closed_connection_is_a_fault(tmp_path: Path) -> None:
    class Closed(Server):
        async def answer(self, method: str, request: dict[str, Any], write: Write) -> None:
            return

    assert isinstance((await probe(Closed(), tmp_path)).result, Fault)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1_000])
def test_scanner_finds_the_response_whatever_the_parts_are(size: int) -> None:
    stream = event(b"not json") + b": comment\n\n" + event(message(4, {"a": "\n\n"}))
    scanner = ResponseScanner(4)
    parts = [stream[at : at + size] for at in range(0, len(stream), size)]
    assert [scanner.feed(part) for part in parts] == [*[False] * (len(parts) - 1), True]
