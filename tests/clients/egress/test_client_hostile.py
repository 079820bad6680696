"""Egress with hostile sellers: each exchange ends with the right reason, in time, in little
memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import resource as limits
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.hostile_server import World, hostile_world
from tests.support.recorded import FOLDER, needs_recorded_inputs

from tollgauge.clients.egress.client import Egress
from tollgauge.clients.egress.request import EgressSettings, Request
from tollgauge.core.lint.judge import lint
from tollgauge.core.probe.exchange import Answer, Exchange, Fault, FaultKind
from tollgauge.core.probe.probe import judge

GOOD = "https://good.sellers.example"
DEADLINE_MS = 1_500
"""Deadline for servers that never finish."""
PATIENT_MS, ENDS_S = 20_000, 15
"""Deadline for servers that answer, on a busy machine, and the time by which all exchanges end."""
CORPUS = FOLDER / "adversarial/corpus.jsonl"


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with hostile_world(tmp_path) as world:
        yield world


@contextlib.asynccontextmanager
async def open_egress(world: World, deadline_ms: int) -> AsyncIterator[Egress]:
    client = Egress(
        EgressSettings(
            deadline_ms=deadline_ms,
            connect_deadline_ms=deadline_ms * 2 // 3,
            mapped=world.mapped,
            ca_file=world.ca_file,
        )
    )
    client.start()
    yield client
    await client.close()


@pytest.fixture
async def egress(world: World) -> AsyncIterator[Egress]:
    async with open_egress(world, PATIENT_MS) as client:
        yield client


@pytest.fixture
async def impatient(world: World) -> AsyncIterator[Egress]:
    async with open_egress(world, DEADLINE_MS) as client:
        yield client


def summarize(exchange: Exchange) -> str:
    if isinstance(exchange.result, Fault):
        return exchange.result.kind.value
    return f"{exchange.result.status}{' truncated' if exchange.result.truncated else ''}"


BY_HOST = {
    "refused": FaultKind.CONNECT,
    "full": FaultKind.CONNECT_TIMEOUT,
    "reset": FaultKind.RESET,
    "silent": FaultKind.TIMEOUT,
    "plain": FaultKind.TLS,
    "hang-up": FaultKind.TLS,
    "alert": FaultKind.TLS,
    "wrong": FaultKind.TLS_INVALID,
    "self-signed": FaultKind.TLS_INVALID,
    "stranger": FaultKind.TLS_INVALID,
    "strange-chain": FaultKind.TLS_INVALID,
    "expired": FaultKind.TLS_INVALID,
    "not-yet": FaultKind.TLS_INVALID,
    "nameless": FaultKind.TLS_INVALID,
}


@pytest.mark.parametrize(("host", "kind"), BY_HOST.items())
async def test_failed_connection_states_the_reason(
    egress: Egress, impatient: Egress, world: World, host: str, kind: FaultKind
) -> None:
    waits = kind in (FaultKind.TIMEOUT, FaultKind.CONNECT_TIMEOUT)
    asked = Request(url=f"https://{host}.sellers.example/always-200")
    exchange = await (impatient if waits else egress).fetch(asked)
    assert isinstance(exchange.result, Fault), exchange
    assert exchange.result.kind is kind, exchange
    assert "127.0.0.1" not in exchange.result.detail
    assert exchange.timings.ttfb is None
    assert world.requests == []


BY_PATH = {
    "/continue-flood": "headers-too-large",
    "/header-bomb": "headers-too-large",
    "/one-huge-header": "headers-too-large",
    "/headers-65k": "headers-too-large",
    "/header-drip": "timeout",
    "/body-drip": "timeout",
    "/hold": "timeout",
    "/silence": "timeout",
    "/header-20k": "402",
    "/huge-body": "402 truncated",
    "/body-at-the-cap": "402",
    "/endless-chunks": "402 truncated",
    "/chunk-extensions": "402 truncated",
    "/trailer-flood": "402 truncated",
    "/bomb": "402 truncated",
    "/empty-gzip-members": "402 truncated",
    "/broken-gzip": "402 truncated",
    "/brotli": "402",
    "/brotli-bomb": "402 truncated",
    "/brotli-bomb-in-gzip": "402 truncated",
    "/broken-brotli": "402 truncated",
    "/unknown-encoding": "402 truncated",
    "/no-goodbye": "402",
    "/empty": "empty-reply",
    "/two-lengths": "malformed-http",
    "/same-lengths": "402",
    "/length-and-chunked": "402",
    "/length-2e63": "malformed-http",
    "/length-2e63-1": "connection-reset",
    "/length-of-many-digits": "malformed-http",
    "/negative-length": "malformed-http",
    "/short-body": "connection-reset",
    "/nul": "malformed-http",
    "/space-before-colon": "malformed-http",
    "/no-colon": "malformed-http",
    "/999": "999",
    "/000": "malformed-http",
    "/1000": "malformed-http",
    "/http-0.9": "malformed-http",
    "/bare-lf": "402",
    "/folded": "402",
    "/injection": "302",
    "/odd-bytes": "402",
}


@pytest.mark.parametrize(("path", "words"), BY_PATH.items())
async def test_response_is_classified(
    egress: Egress, impatient: Egress, path: str, words: str
) -> None:
    async with asyncio.timeout(ENDS_S):
        exchange = await (impatient if words == "timeout" else egress).fetch(
            Request(url=GOOD + path)
        )
    assert summarize(exchange) == words


async def test_oversized_body_keeps_status_and_headers(egress: Egress) -> None:
    result = (await egress.fetch(Request(url=f"{GOOD}/huge-body"))).result
    assert isinstance(result, Answer)
    assert (result.status, result.truncated, len(result.body)) == (402, True, 256 * 1_024)
    assert result.header("payment-required") == "e30="


async def test_body_of_an_unknown_encoding_keeps_its_headers(egress: Egress) -> None:
    result = (await egress.fetch(Request(url=f"{GOOD}/unknown-encoding"))).result
    assert isinstance(result, Answer)
    assert result.header("content-encoding") == "aws-chunked"
    assert result.truncated


async def test_folded_header_is_one_value(egress: Egress) -> None:
    result = (await egress.fetch(Request(url=f"{GOOD}/folded"))).result
    assert isinstance(result, Answer)
    assert result.header("x-a") == "b c"


REASONS = {
    "https://expired.sellers.example/always-200": "certificate-expired",
    "https://not-yet.sellers.example/always-200": "certificate-not-yet-valid",
    "https://wrong.sellers.example/always-200": "certificate-wrong-name",
    "https://self-signed.sellers.example/always-200": "certificate-self-signed",
    "https://stranger.sellers.example/always-200": "certificate-unknown-issuer",
    "https://strange-chain.sellers.example/always-200": "certificate-unknown-issuer",
    "https://nameless.sellers.example/always-200": "certificate-wrong-name",
    "https://plain.sellers.example/always-200": "tls-failed",
    f"{GOOD}/length-and-chunked": "content-length-with-transfer-encoding",
    f"{GOOD}/length-2e63": "content-length-too-large",
    f"{GOOD}/length-of-many-digits": "content-length-too-large",
    f"{GOOD}/two-lengths": "malformed-http",
    f"{GOOD}/redirect": "redirect-to-http",
    f"{GOOD}/redirect-loud": "redirect-to-http",
    f"{GOOD}/redirect-https": "",
    f"{GOOD}/redirect-path": "",
    f"{GOOD}/injection": "",
    f"{GOOD}/header-20k": "",
    f"{GOOD}/always-429": "",
}


@pytest.mark.parametrize(("url", "reason"), REASONS.items())
async def test_reason_of_a_probe_distinguishes_defects(
    egress: Egress, url: str, reason: str
) -> None:
    exchange = await egress.fetch(Request(url=url))
    assert judge(exchange, lint(exchange)).reason == reason


async def test_brotli_body_is_decoded(egress: Egress) -> None:
    result = (await egress.fetch(Request(url=f"{GOOD}/brotli"))).result
    assert isinstance(result, Answer)
    assert result.body == b"plain text"


@pytest.mark.parametrize("path", ["/bomb", "/brotli-bomb", "/brotli-bomb-in-gzip"])
async def test_decompression_bombs_do_not_increase_memory(egress: Egress, path: str) -> None:
    await egress.fetch(Request(url=GOOD + path))  # the baseline cost of one
    before = limits.getrusage(limits.RUSAGE_SELF).ru_maxrss
    exchanges = await asyncio.gather(*(egress.fetch(Request(url=GOOD + path)) for _ in range(8)))
    after = limits.getrusage(limits.RUSAGE_SELF).ru_maxrss
    assert [len(item.result.body) for item in exchanges if isinstance(item.result, Answer)] == (
        [256 * 1_024] * 8
    )
    assert after - before < 48 * 1_024  # KiB; the server runs in this process and is included


async def test_forty_hostile_sellers_do_not_delay_a_good_one(world: World) -> None:
    floods = ("/continue-flood", "/header-bomb", "/endless-chunks", "/bomb", "/chunk-extensions")
    stalls = ("/header-drip", "/silence", "/hold", "/body-drip", "/silence")
    async with open_egress(world, 4 * DEADLINE_MS) as egress:
        hostile = [
            asyncio.create_task(egress.fetch(Request(url=GOOD + path)))
            for path in (*floods, *stalls) * 4
        ]
        await world.wait_for_requests(len(hostile) // 2)
        good = [await egress.fetch(Request(url=f"{GOOD}/header-20k")) for _ in range(3)]
        assert [summarize(item) for item in good] == ["402"] * 3
        async with asyncio.timeout(ENDS_S):
            await asyncio.gather(*hostile)


async def test_one_bad_certificate_does_not_affect_the_trust_anchors(egress: Egress) -> None:
    for host, words in (("expired", "tls-invalid"), ("good", "200"), ("stranger", "tls-invalid")):
        exchange = await egress.fetch(Request(url=f"https://{host}.sellers.example/always-200"))
        assert summarize(exchange) == words


CASES = {
    "red-01": ("/redirect", "302"),
    "red-03": ("/redirect-307", "307"),
    "red-05": ("/injection", "302"),
    "red-07": ("/refresh", "402"),
    "rsp-01": ("/bomb", "402 truncated"),
    "rsp-03": ("/empty-gzip-members", "402 truncated"),
    "rsp-05": ("/endless-chunks", "402 truncated"),
    "rsp-07": ("/header-drip", "timeout"),
    "rsp-09": ("/header-bomb", "headers-too-large"),
    "rsp-11": ("/header-20k", "402"),
    "rsp-15": ("/two-lengths", "malformed-http"),
    "rsp-17": ("/bare-lf", "402"),
    "rsp-19": ("/nul", "malformed-http"),
    "rsp-21": ("/999", "999"),
    "rsp-23": ("/odd-bytes", "402"),
    "rsp-25": ("/silence", "timeout"),
}
ELSEWHERE = {
    "rsp-13": "header and body that disagree are the linter's to judge",
    "rsp-27": "OpenSSL refuses chains over 100 KB before libcurl sees them",
    "rsp-29": "by host: see test_failed_connection_states_the_reason",
}


@needs_recorded_inputs
async def test_corpus_of_hostile_responses_is_covered(
    egress: Egress, impatient: Egress, world: World
) -> None:
    cases = [json.loads(line) for line in CORPUS.read_text().splitlines()]
    wanted = {case["id"] for case in cases if case["group"] in ("red", "rsp")}
    assert wanted == CASES.keys() | ELSEWHERE.keys()
    for name, (path, words) in CASES.items():
        fetched = await (impatient if words == "timeout" else egress).fetch(
            Request(url=GOOD + path)
        )
        assert (name, summarize(fetched)) == (name, words)
    assert world.canary_hits == []
