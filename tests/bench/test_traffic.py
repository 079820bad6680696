"""The load of `bench paid` and the stub counterparties of the service."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

import orjson
from x402.schemas import SettleResponse, VerifyResponse

from bench import counterparties, traffic

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@contextlib.asynccontextmanager
async def server(serve: Serve) -> AsyncIterator[int]:
    writers: list[asyncio.StreamWriter] = []

    async def handle_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        await serve(reader, writer)

    running = await asyncio.start_server(handle_connection, "127.0.0.1", 0)
    try:
        yield running.sockets[0].getsockname()[1]
    finally:
        running.close()
        for writer in writers:
            writer.close()
        await asyncio.gather(*(writer.wait_closed() for writer in writers), return_exceptions=True)


async def in_parts(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer every request, a few bytes at a time."""
    with contextlib.suppress(asyncio.IncompleteReadError):
        while True:
            await reader.readuntil(b"\r\n\r\n")
            whole = (
                b"HTTP/1.1 402 Payment Required\r\nRetry-After: 5\r\nContent-Length: 4\r\n\r\nbody"
            )
            for start in range(0, len(whole), 7):
                writer.write(whole[start : start + 7])
                await writer.drain()
                await asyncio.sleep(0)


async def never(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()


async def test_response_in_parts_is_one_response() -> None:
    async with server(in_parts) as port:
        connection = await traffic.Connection.to(port)
        for _ in range(2):
            reply = await connection.ask(traffic.get("/"))
            assert (reply.status, reply.body, reply.headers["retry-after"]) == (402, b"body", "5")
        connection.close()


async def test_every_request_is_sent_once_for_any_number_of_connections() -> None:
    async with server(in_parts) as port:
        requests = iter([traffic.get(f"/{number}") for number in range(25)])
        seen = await traffic.run(port, requests, connections=4)
    assert seen.statuses == {402: 25}
    assert len(seen.seconds) == 25


async def test_requests_unanswered_at_the_deadline_are_not_counted() -> None:
    async with server(never) as port:
        until = asyncio.get_running_loop().time() - 1
        seen = await traffic.run(port, iter([traffic.get("/")] * 3), connections=1, until=until)
    assert not seen.seconds


def test_percentile_is_a_measured_value() -> None:
    seen = traffic.Seen(seconds=[number / 1_000 for number in range(1, 101)])
    assert [seen.percentile_ms(at) for at in (0, 500, 990, 1_000)] == [1.0, 51.0, 100.0, 100.0]


def test_stub_facilitator_answers_in_x402_format() -> None:
    signed = {"from": "0x" + "cd" * 20, "nonce": "0x" + "11" * 32}
    body = orjson.dumps({"paymentPayload": {"payload": {"authorization": signed}}})
    verified = VerifyResponse.model_validate(orjson.loads(counterparties.reply(b"/verify", body)))
    settled = SettleResponse.model_validate(orjson.loads(counterparties.reply(b"/settle", body)))
    assert verified.is_valid
    assert settled.success
    assert (settled.network, len(settled.transaction)) == (counterparties.NETWORK, 66)
