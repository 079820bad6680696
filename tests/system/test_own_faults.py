"""Faults of the service as a client sees them: no traceback, and no payment without a response."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import sqlite3
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.support.command_server import command as prepared_command
from tests.support.http_service import (
    NOW,
    PAY_TO,
    WEATHER,
    WEATHER_ID,
    Running,
    configuration,
    fill,
    forget,
    grow_old,
    open_service,
)
from tests.support.processes import free_port
from tests.support.unsigned_payment import payment

from tollgauge.clients.peer import public_authorities
from tollgauge.core.sale.payment import decode
from tollgauge.store.ledger import payments
from tollgauge.web.edge.cache import FRESH_SECONDS
from tollgauge.web.edge.health import EVERY_MS

READS = (
    "/trust/leaderboard",
    "/trust/stats",
    f"/trust/snapshot/{WEATHER_ID}",
    "/v1/x402-trust-preview",
    "/",
    f"/endpoint/{WEATHER_ID}",
    "/readyz",
)


@pytest.fixture
async def running(tmp_path: Path, market_database: Callable[[Path], str]) -> AsyncIterator[Running]:
    url = market_database(tmp_path / "service.db")
    async with open_service(configuration(store_url=url)) as service:
        yield service


@contextlib.asynccontextmanager
async def remove_database(running: Running, path: Path) -> AsyncIterator[None]:
    """Replace the database by a folder, so that it cannot be opened."""
    await running.service.store.close()
    away = take_away(path)
    yield
    await running.service.store.close()
    put_back(away, path)


def take_away(path: Path) -> Path:
    away = path.rename(path.with_suffix(".away"))
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    path.mkdir()
    return away


def put_back(away: Path, path: Path) -> None:
    path.rmdir()
    away.rename(path)


async def test_reads_are_503_while_the_database_is_gone_and_recover(
    running: Running, tmp_path: Path
) -> None:
    async with remove_database(running, tmp_path / "service.db"):
        for path in READS:
            answer = await running.get(path)
            assert (answer.status_code, answer.json()["code"]) == (503, "store-unavailable"), path
            assert int(answer.headers["retry-after"]) > 0
            assert answer.headers["cache-control"] == "no-store"
            assert "service.db" not in answer.text
            assert "sqlite" not in answer.text.lower()
        assert (await running.get("/healthz")).status_code == 200
        assert (await running.get("/lint")).status_code == 200
        methodology = await running.get("/methodology")
        assert methodology.status_code == 200
        assert "its database is unavailable" in methodology.text
    running.clock.now += EVERY_MS
    for path in READS:
        assert (await running.get(path)).status_code == 200


async def test_cached_reads_continue_while_the_database_is_gone(
    running: Running, tmp_path: Path
) -> None:
    for path in READS[:-1]:
        assert (await running.get(path)).status_code == 200
    grow_old(running.app, FRESH_SECONDS)
    async with remove_database(running, tmp_path / "service.db"):
        for path in READS[:-1]:
            assert (await running.get(path)).status_code == 200, path


async def test_paid_route_is_503_before_any_payment_while_the_database_is_gone(
    running: Running, tmp_path: Path
) -> None:
    async with remove_database(running, tmp_path / "service.db"):
        unpaid = await running.http.post("/v1/x402-trust")
        assert unpaid.status_code == 402
        answer = await running.buy({"resource": WEATHER}, payment())
        assert (answer.status_code, answer.json()["code"]) == (503, "store-unavailable")
        assert int(answer.headers["retry-after"]) > 0
    assert await running.service.store.reading(payments.get, decode(payment()).id) is None


async def test_silent_facilitator_is_503_and_releases_the_payment(running: Running) -> None:
    for _ in range(2):
        answer = await running.buy({"resource": WEATHER}, payment())
        assert (answer.status_code, answer.json()["code"]) == (503, "facilitator-unavailable")
        assert "Nothing was charged" in answer.json()["detail"]


async def test_invalid_input_is_rejected_before_the_payment_is_examined(running: Running) -> None:
    cases: tuple[tuple[bytes, int, str], ...] = (
        (b"", 400, "json-invalid"),
        (b"{", 400, "json-invalid"),
        (b"[" * 30_000, 400, "json-invalid"),
        (b'{"resource": "https://a.example.com/", "resource": "x"}', 400, "json-invalid"),
        (b"[]", 422, "invalid-input"),
        (b"{}", 422, "invalid-input"),
        (b'{"resource": null}', 422, "invalid-input"),
        (b'{"resource": "http://example.com/"}', 422, "resource-not-https"),
        (b'{"resource": "https://10.0.0.1/"}', 422, "resource-not-public"),
    )
    for body, status, code in cases:
        answer = await running.http.post(
            "/v1/x402-trust", content=body, headers={"PAYMENT-SIGNATURE": payment()}
        )
        assert (answer.status_code, answer.json()["code"]) == (status, code), body[:40]
    assert await running.service.store.reading(payments.latest, limit=5) == ()


async def test_payment_of_other_terms_is_402_with_the_reason(
    running: Running,
) -> None:
    cases: tuple[dict[str, str], ...] = (
        {"to": "0x" + "99" * 20},
        {"value": "4999"},
        {"validBefore": str(NOW // 1000 - 1)},
    )
    for signed in cases:
        answer = await running.buy({"resource": WEATHER}, payment(**signed))
        assert answer.status_code == 402, signed
        assert answer.json()["error"] != "PAYMENT-SIGNATURE header is required"
        assert "payment-required" in answer.headers


async def test_internal_error_does_not_expose_the_exception(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rename a column that routes read, so that the driver raises its own error."""
    path = tmp_path / "broken.db"
    async with open_service(configuration(store_url=f"sqlite:///{path}")) as running:
        with contextlib.closing(sqlite3.connect(path)) as direct:
            direct.execute("ALTER TABLE endpoint RENAME COLUMN host TO gone")
            direct.commit()
        for accept in ("*/*", "text/html"):
            for route in ("/trust/leaderboard", "/v1/x402-trust-preview", "/"):
                answer = await running.get(route, headers={"accept": accept})
                assert answer.status_code == 500
                for word in ("no such column", "sqlite", "Traceback", "SELECT", "OperationalError"):
                    assert word not in answer.text, word
                assert "default-src 'none'" in answer.headers["content-security-policy"]
                assert answer.headers["cache-control"] == "no-store"
        problem = (await running.get("/trust/leaderboard")).json()
        assert problem["code"] == "internal"
        posted = await running.http.post("/v1/x402-trust-preview")
        assert (posted.status_code, posted.json()["code"]) == (500, "internal")
    logged = capsys.readouterr()
    assert "request.fail" in logged.out + logged.err
    assert "where=ranking.py:" in logged.out + logged.err, "ours, not the driver's"
    assert "no such column" not in logged.out + logged.err


async def test_empty_database_answers_every_free_route() -> None:
    async with open_service(configuration()) as running:
        board = (await running.get("/trust/leaderboard")).json()
        assert board["endpoints"] == []
        assert (await running.get("/v1/x402-trust-preview")).json() == {"samples": []}
        stats = (await running.get("/trust/stats")).json()
        assert (stats["listed"], stats["reachableShare"]) == (0, None)
        for path in ("/", "/leaderboard", "/docs", "/methodology"):
            assert (await running.get(path)).status_code == 200
        assert (await running.get(f"/trust/snapshot/{WEATHER_ID}")).status_code == 404


async def test_server_without_a_payto_states_that_sales_are_not_configured() -> None:
    config = configuration()
    async with open_service(replace(config, sale=replace(config.sale, pay_to=""))) as running:
        answer = await running.http.post("/v1/x402-trust")
        assert (answer.status_code, answer.json()["code"]) == (503, "not-for-sale")
        assert (await running.get("/openapi.json")).status_code == 200


async def test_content_is_scored_while_it_is_read() -> None:
    """The in-memory store has one connection, which readers and writers share."""
    async with open_service(configuration()) as running:
        reading = asyncio.create_task(keep_reading(running))
        await fill(running, days=1)
        reading.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await reading
        forget(running.app)  # The last computed result may be older than the last scores.
        assert len((await running.get("/trust/leaderboard")).json()["endpoints"]) == 25


async def keep_reading(running: Running) -> None:
    while True:
        forget(running.app)
        assert (await running.get("/trust/leaderboard")).status_code == 200
        await asyncio.sleep(0.1)


SERVER = """
import asyncio, os, sys
from tollgauge import app, process
from tollgauge.config import load
from tollgauge.web.settings import listen

async def main():
    sys.setrecursionlimit(100_000)  # as the EVM libraries do when they are imported
    config = load(None, os.environ)
    with listen(config.server, serve=True) as listeners:
        async with app.open_resources(config) as service:
            def ready():
                print(sys.getrecursionlimit(), flush=True)
            await process.run(service, listeners, on_ready=ready)

asyncio.run(main())
"""


@contextlib.asynccontextmanager
async def run_service(tmp_path: Path) -> AsyncIterator[tuple[asyncio.subprocess.Process, int, str]]:
    """Run the service as a separate process on uvicorn."""
    port = free_port()
    process = await asyncio.create_subprocess_exec(
        *prepared_command("-c", SERVER),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={
            "DATABASE_URL": f"sqlite:///{tmp_path / 'served.db'}",
            "TOLLGAUGE_SERVER_PORT": str(port),
            "TOLLGAUGE_SERVER_ADMIN_PORT": "0",
            "TOLLGAUGE_SALE_PAY_TO": PAY_TO,
            "TOLLGAUGE_FACILITATOR_URL": "http://127.0.0.1:9",
        },
    )
    assert process.stdout is not None
    try:
        line = (await asyncio.wait_for(process.stdout.readline(), 120)).decode()
        yield process, port, line
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        out, err = await process.communicate()
        sys.stderr.write((out + err).decode())


async def raw(port: int, *parts: bytes) -> bytes:
    """Send raw bytes to a server; return its response."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    with contextlib.suppress(ConnectionError):
        for part in parts:
            writer.write(part)
            await writer.drain()
    answer = b""
    with contextlib.suppress(ConnectionError):
        answer = await asyncio.wait_for(reader.read(65_536), 60)
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()
    return answer


def post(body: bytes, *headers: bytes, length: int | None = None) -> bytes:
    lines = [b"POST /v1/x402-trust HTTP/1.1", b"host: t", *headers]
    if length is not None:
        lines.append(b"content-length: %d" % length)
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def hostile() -> Iterator[tuple[str, tuple[bytes, ...], bytes]]:
    """Requests that are meant to cause failures, and the status of each."""
    nested = b"[" * 120_000
    deep_header = base64.b64encode(b"[" * 12_000)
    good = b"PAYMENT-SIGNATURE: " + payment().encode()
    yield "nested body", (post(nested, good, length=len(nested)),), b"413"
    yield "nested body that fits", (post(nested[:60_000], good, length=60_000),), b"400"
    yield "objects", (post(b'{"a":' * 10_000, good, length=50_000),), b"400"
    chunk = b"%x\r\n%b\r\n" % (len(nested), nested)
    chunked = post(chunk + b"0\r\n\r\n", good, b"transfer-encoding: chunked")
    yield "nested body in a chunk", (chunked,), b"413"
    yield "nested header", (post(b"", b"PAYMENT-SIGNATURE: " + b"[" * 120_000, length=0),), b"431"
    yield "deep header", (post(b"", b"PAYMENT-SIGNATURE: " + deep_header, length=0),), b"400"
    yield "other header", (post(b"", b"x-junk: " + b"j" * 120_000, length=0),), b"431"
    yield "long URL", (b"GET /" + b"a" * 60_000 + b" HTTP/1.1\r\nhost: t\r\n\r\n",), b"414"
    yield "odd path", (b"GET /%ff%00/\xc3\xa9 HTTP/1.1\r\nhost: t\r\n\r\n",), b"4"
    two_hosts = b"GET /healthz HTTP/1.1\r\nhost: t\r\nhost: other\r\n\r\n"
    yield "two hosts", (two_hosts,), b"400"
    yield "the same host twice", (two_hosts.replace(b"other", b"t"),), b"400"
    yield "two hosts before a preflight", (two_hosts.replace(b"GET", b"OPTIONS"),), b"400"
    yield "no host", (b"GET /healthz HTTP/1.1\r\n\r\n",), b"400"
    yield "no host in HTTP/1.0", (b"GET /healthz HTTP/1.0\r\n\r\n",), b"200"
    yield "no HTTP", (b"\x16\x03\x01\x02\x00\x01\x00",), b"400"


async def test_server_survives_hostile_requests(tmp_path: Path) -> None:
    async with run_service(tmp_path) as (process, port, line):
        assert int(line) <= 3_000
        for name, parts, status in hostile():
            answer = await raw(port, *parts)
            assert answer[9 : 9 + len(status)] == status, (name, answer[:200])
            assert process.returncode is None, name
        async with httpx.AsyncClient(timeout=30, verify=public_authorities()) as http:
            health = await http.get(f"http://127.0.0.1:{port}/healthz")
            assert health.status_code == 200
            forged: dict[str, Any] = {"x-forwarded-for": "203.0.113.5"}
            stats = await http.get(f"http://127.0.0.1:{port}/trust/stats", headers=forged)
            assert stats.status_code == 200
        process.terminate()
        assert await asyncio.wait_for(process.wait(), 60) == 0
