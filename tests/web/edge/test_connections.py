"""Slow clients and crowds of them, over sockets: deadlines, caps, and who still gets through."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.command_server import command as prepared_command
from tests.support.edge_server import HEALTH, SHORT_MS, STATS, Server, run_edge, settings
from tests.support.http_service import WEATHER
from tests.support.processes import free_port
from tests.support.unsigned_payment import payment

from tollgauge.web.edge.connections import ConnectionSettings


async def test_connection_without_a_request_is_closed_at_the_head_deadline() -> None:
    async with run_edge(settings(head_ms=SHORT_MS)) as server:
        silent, half = await server.client(), await server.client()
        half.send(b"GET /healthz HTTP/1.1\r\nhost: t\r\n")
        assert await silent.until_closed() == b""
        assert (await half.until_closed()).startswith(b"HTTP/1.1 408 Request Timeout\r\n")


async def test_slow_head_does_not_extend_its_deadline() -> None:
    async with run_edge(settings(head_ms=SHORT_MS)) as server:
        client = await server.client()
        client.send(b"GET /healthz HTTP/1.1\r\nhost: t\r\nx: ")

        async def drip() -> None:
            while not client.writer.is_closing():
                client.send(b"a")
                await asyncio.sleep(SHORT_MS / 10_000)

        dripping = asyncio.create_task(drip())
        assert (await client.until_closed()).startswith(b"HTTP/1.1 408")
        dripping.cancel()


async def test_body_has_a_separate_deadline() -> None:
    async with run_edge(settings(body_ms=SHORT_MS)) as server:
        client = await server.client()
        client.send(
            b"POST /v1/x402-trust-preview HTTP/1.1\r\nhost: t\r\ncontent-length: 9\r\n\r\n{"
        )
        assert (await client.until_closed()).startswith(b"HTTP/1.1 408")


async def test_rest_of_a_rejected_body_has_the_body_deadline() -> None:
    async with run_edge(settings(body_ms=SHORT_MS)) as server:
        client = await server.client()
        client.send(b"POST /v1/x402-trust HTTP/1.1\r\nhost: t\r\ncontent-length: 99999\r\n\r\n{")
        seen = await client.until_closed()
        assert seen.startswith(b"HTTP/1.1 413")
        assert b"HTTP/1.1 408" not in seen, "one answer a request"


async def test_idle_connection_is_closed_at_its_deadline() -> None:
    async with run_edge(settings(idle_ms=SHORT_MS)) as server:
        client = await server.client()
        for _ in range(3):
            assert (await client.ask(HEALTH)).startswith(b"HTTP/1.1 200")
        assert await client.until_closed() == b""


async def test_empty_lines_do_not_extend_the_idle_deadline() -> None:
    async with run_edge(settings(head_ms=SHORT_MS)) as server:
        client = await server.client()
        await client.ask(HEALTH)
        client.send(b"\r\n")
        assert (await client.until_closed()).startswith(b"HTTP/1.1 408")


async def test_each_request_on_a_kept_connection_has_a_head_deadline() -> None:
    async with run_edge(settings(head_ms=SHORT_MS)) as server:
        client = await server.client()
        for _ in range(3):  # in all longer than the deadline of one
            await client.ask(HEALTH)
            await asyncio.sleep(SHORT_MS / 2_000)
        client.send(HEALTH[:-2])
        assert (await client.until_closed()).startswith(b"HTTP/1.1 408")


async def test_client_that_does_not_read_is_disconnected() -> None:
    request = b"GET /openapi.json HTTP/1.1\r\nhost: t\r\n\r\n"
    async with run_edge(settings(idle_ms=SHORT_MS)) as server:
        await (await server.client()).ask(request)  # the first request builds the document
        with socket.socket() as deaf:
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            deaf.connect(("127.0.0.1", server.port))
            asked = 400
            await asyncio.to_thread(deaf.sendall, request * asked)
            await asyncio.sleep(SHORT_MS / 1_000 + 1)
            deaf.settimeout(60)  # the kernel asks ever more rarely whether it reads again
            answers = await asyncio.to_thread(read_all, deaf)
        assert 0 < answers.count(b"HTTP/1.1 200") < asked


def read_all(connection: socket.socket) -> bytes:
    received = bytearray()
    with contextlib.suppress(ConnectionError):
        while piece := connection.recv(1 << 20):
            received += piece
    return bytes(received)


async def test_slow_response_has_no_connection_deadline() -> None:
    async with silent_facilitator() as facilitator:
        short = ConnectionSettings(head_ms=SHORT_MS, body_ms=SHORT_MS, idle_ms=SHORT_MS)
        async with run_edge(short, facilitator=facilitator) as server:
            client = await server.client()
            assert (await client.ask(sale())).startswith(b"HTTP/1.1 503")


async def test_longest_waiting_connection_is_closed_at_the_address_cap(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with run_edge(settings(per_address=4)) as server:
        other = await server.client("127.0.0.3")
        crowd = [await server.client("127.0.0.2") for _ in range(10)]
        for client in crowd[:6]:
            assert await client.until_closed() == b""
        assert await server.healthy("127.0.0.2"), "from the same address"
        assert await server.healthy("127.0.0.3")
        assert (await crowd[-1].ask(HEALTH)).startswith(b"HTTP/1.1 200")
        assert not other.closed
    logged = "".join(capsys.readouterr())
    assert logged.count("connections.full") == 1, "not a line for each"
    assert "server.connections.per_address" in logged
    assert "127.0.0.2" in logged


async def test_trusted_proxy_has_no_address_cap() -> None:
    async with run_edge(settings(per_address=4), proxies=("127.0.0.2",)) as server:
        crowd = [await server.client("127.0.0.2") for _ in range(10)]
        for client in crowd:
            assert (await client.ask(HEALTH)).startswith(b"HTTP/1.1 200")


async def test_closed_connection_is_not_counted() -> None:
    async with run_edge(settings(per_address=2)) as server:
        for _ in range(10):
            kept = await server.client()
            gone = await server.client()
            await gone.ask(STATS)
            gone.writer.close()
            await kept.ask(STATS)
            kept.writer.close()
            await asyncio.sleep(0.05)
        first, second = await server.client(), await server.client()
        for client in (first, second):
            assert (await client.ask(HEALTH)).startswith(b"HTTP/1.1 200")


async def test_health_routes_respond_while_all_connections_are_busy() -> None:
    async with (
        silent_facilitator() as facilitator,
        run_edge(settings(per_address=2), facilitator=facilitator) as server,
    ):
        buyers = [await server.client() for _ in range(2)]
        sales = [asyncio.create_task(buyer.ask(sale(n))) for n, buyer in enumerate(buyers)]
        assert (await (await server.client("127.0.0.9")).ask(STATS)).startswith(b"HTTP/1.1 200")
        await asyncio.sleep(0.5)
        turned_away = await server.client()
        head = await turned_away.ask(STATS)
        assert head.startswith(b"HTTP/1.1 503")
        assert b"retry-after: 1\r\n" in head
        assert b"connection: close\r\n" in head
        assert await server.healthy()
        for answer in await asyncio.gather(*sales):
            assert answer.startswith(b"HTTP/1.1 503"), "answered, by the silence of the other"
        for buyer in buyers:
            buyer.writer.close()
        await asyncio.sleep(0.1)
        assert (await (await server.client()).ask(STATS)).startswith(b"HTTP/1.1 200")


def sale(number: int = 0) -> bytes:
    """A paid request that waits for the facilitator."""
    body = b'{"resource": "%s"}' % WEATHER.encode()
    lines = (
        b"POST /v1/x402-trust HTTP/1.1",
        b"host: t",
        b"payment-signature: "
        + payment(nonce=f"0x{number + 1:064x}", validBefore=str(int(time.time()) + 300)).encode(),
        b"content-length: %d" % len(body),
    )
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


@contextlib.asynccontextmanager
async def silent_facilitator() -> AsyncIterator[str]:
    """Takes connections and never answers."""
    opened: list[asyncio.StreamWriter] = []

    async def keep(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        opened.append(writer)

    server = await asyncio.start_server(keep, "127.0.0.1", 0)
    yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    for writer in opened:
        writer.close()
    server.close()


DESCRIPTORS = 256
CROWDS = 600


RUN = f"""
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, ({DESCRIPTORS}, {DESCRIPTORS}))
from tollgauge.cli import main
main()
"""
"""With descriptors for half of the crowd."""


@contextlib.asynccontextmanager
async def process(tmp_path: Path, **environment: str) -> AsyncIterator[tuple[int, Any]]:
    """`tollgauge run` with few descriptors."""
    port = free_port()
    log = tmp_path / "log"
    with log.open("wb") as errors:
        started = await asyncio.create_subprocess_exec(
            *prepared_command("-c", RUN, "run"),
            stderr=errors,
            cwd=tmp_path,
            env={
                "DATABASE_URL": f"sqlite:///{tmp_path / 'served.db'}",
                "TOLLGAUGE_SERVER_PORT": str(port),
                "TOLLGAUGE_SERVER_ADMIN_PORT": "0",
                **environment,
            },
        )
    try:
        async with asyncio.timeout(60):
            while b"tollgauge serves" not in log.read_bytes():
                assert started.returncode is None, log.read_text()
                await asyncio.sleep(0.05)
        yield port, log
    finally:
        started.terminate()
        await started.wait()


@pytest.mark.parametrize("addresses", [1, 100])
async def test_service_survives_more_half_open_connections_than_descriptors(
    tmp_path: Path, addresses: int
) -> None:
    async with process(tmp_path) as (port, log), contextlib.AsyncExitStack() as stack:
        server = Server(port, stack)
        crowd = [await server.client(f"127.0.1.{n % addresses + 1}") for n in range(CROWDS)]
        assert await server.healthy("127.0.0.1")
        assert await server.healthy("127.0.1.1"), "from an address of the crowd"
        await asyncio.sleep(0.2)
        held = sum(not client.closed for client in crowd)
        assert 0 < held <= DESCRIPTORS // 2
        assert log.read_text().count("connections.full") == 1
        stats = await server.client("127.0.0.1")
        assert (await stats.ask(STATS)).startswith(b"HTTP/1.1 200"), "the database has its files"
