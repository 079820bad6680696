"""Cached answers, pipelined requests and clients that hang up, over real sockets."""

from __future__ import annotations

import asyncio
import re
import sys

import pytest
from structlog.testing import capture_logs
from tests.support.edge_server import HEALTH, SHORT_MS, STATS, run_edge, settings

MODELS = b"GET /v1/models HTTP/1.1\r\nhost: t\r\n%b\r\n"
NOWHERE = b"GET /nowhere HTTP/1.1\r\nhost: t\r\n\r\n"
PIPELINED = sys.getrecursionlimit() + 100
"""More requests than functions can be nested."""


def remove_date(head: bytes) -> bytes:
    return re.sub(rb"\r\ndate: [^\r]*", b"", head)


@pytest.mark.parametrize("line", [b"", b"accept-encoding: gzip\r\n", b"connection: close\r\n"])
async def test_cached_answer_equals_the_first_one(line: bytes) -> None:
    async with run_edge(settings()) as server:
        answers = []
        for _ in range(3):
            client = await server.client()
            client.send(MODELS % line)
            answers.append(await client.answer())
            if b"close" in line:
                assert await client.until_closed() == b""
        undated_answers, *ready = [(remove_date(head), body) for head, body in answers]
        assert undated_answers[0].startswith(b"HTTP/1.1 200 OK\r\n")
        assert (b"connection: close\r\n" in undated_answers[0]) == (b"close" in line)
        assert {frozenset(head.split(b"\r\n")) for head, _ in ready} == {
            frozenset(undated_answers[0].split(b"\r\n"))
        }
        assert {body for _, body in ready} == {undated_answers[1]}
        assert all(b"\r\ndate: " in head for head, _ in answers)


async def test_matching_etag_gets_304_and_keeps_the_connection() -> None:
    async with run_edge(settings()) as server:
        client = await server.client()
        client.send(MODELS % b"")
        head, _ = await client.answer()
        etag = re.search(rb"\r\netag: ([^\r]+)", head)
        assert etag is not None
        for _ in range(2):
            client.send(MODELS % (b"if-none-match: %b\r\n" % etag[1]))
            head, body = await client.answer()
            assert head.startswith(b"HTTP/1.1 304 Not Modified\r\n")
            assert b"content-length" not in head
            assert b"transfer-encoding" not in head
            assert body == b""
        assert (await client.ask(HEALTH)).startswith(b"HTTP/1.1 200")


async def test_http_1_0_client_gets_cached_answer_and_connection_is_closed() -> None:
    async with run_edge(settings()) as server:
        await (await server.client()).ask(STATS)
        old = await server.client()
        old.send(STATS.replace(b"HTTP/1.1", b"HTTP/1.0"))
        answer = await old.until_closed()
        assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
        assert b"\r\nconnection: close\r\n" in answer


async def test_pipelined_requests_are_answered_in_order() -> None:
    async with run_edge(settings()) as server:
        client = await server.client()
        await client.ask(STATS)
        client.send(NOWHERE + STATS + STATS + NOWHERE + STATS)
        statuses = [(await client.answer())[0][9:12] for _ in range(5)]
        assert statuses == [b"404", b"200", b"200", b"404", b"200"]


async def test_a_thousand_pipelined_requests_are_all_answered() -> None:
    async with run_edge(settings()) as server:
        client = await server.client()
        await client.ask(STATS)
        last = STATS.replace(b"host: t", b"host: t\r\nconnection: close")
        client.send(NOWHERE + STATS * PIPELINED + last)
        answers = await client.until_closed(120)
        assert answers.startswith(b"HTTP/1.1 404")
        assert answers.count(b"HTTP/1.1 200") == PIPELINED + 1


async def test_rate_limit_counts_cached_answers() -> None:
    async with run_edge(settings(), free_per_minute=3) as server:
        client = await server.client()
        statuses = [(await client.ask(STATS))[9:12] for _ in range(5)]
        assert statuses == [b"200", b"200", b"200", b"429", b"429"]
        assert (await client.ask(HEALTH)).startswith(b"HTTP/1.1 200")


async def test_each_cached_answer_restarts_the_idle_deadline() -> None:
    async with run_edge(settings(idle_ms=2 * SHORT_MS)) as server:
        client = await server.client()
        for _ in range(4):  # in all longer than a connection may idle
            assert (await client.ask(STATS)).startswith(b"HTTP/1.1 200")
            await asyncio.sleep(SHORT_MS / 1_000)
        assert await client.until_closed() == b""


@pytest.mark.parametrize(
    "head",
    [
        b"content-length: 500\r\n\r\n{",
        b"transfer-encoding: chunked\r\n\r\n1\r\n{\r\n",
        b"content-length: 500\r\nexpect: 100-continue\r\n\r\n{",
    ],
)
async def test_hang_up_within_the_body_is_logged_as_499_at_debug(head: bytes) -> None:
    async with run_edge(settings()) as server:
        with capture_logs() as logged:
            for _ in range(20):
                client = await server.client()
                client.send(b"POST /v1/lint HTTP/1.1\r\nhost: t\r\n" + head)
                await client.writer.drain()
                client.writer.close()
            async with asyncio.timeout(20):
                while sum(entry.get("status") == 499 for entry in logged) < 20:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            assert (await (await server.client()).ask(HEALTH)).startswith(b"HTTP/1.1 200")
    assert {(entry["log_level"], entry["path"]) for entry in logged} == {("debug", "/v1/lint")}


async def test_request_in_pieces_is_answered_once_it_is_complete() -> None:
    async with run_edge(settings()) as server:
        client = await server.client()
        client.send(b"POST /v1/lint HTTP/1.1\r\nhost: t\r\ncontent-length: 2\r\n\r\n{")
        await asyncio.sleep(0.05)
        client.send(b"}" + HEALTH)
        assert (await client.answer())[0].startswith(b"HTTP/1.1 422")
        assert (await client.answer())[0].startswith(b"HTTP/1.1 200")
