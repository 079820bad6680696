"""Egress with real servers: complete responses, and requests that are never sent."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource as limits
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trustme
from tests.support.hostile_server import World, hostile_world
from tests.support.tls_server import NOT_AFTER

from tollgauge.clients.egress.client import Egress, RequestError
from tollgauge.clients.egress.request import EgressSettings, Request
from tollgauge.core.endpoint.identity import ResourceError
from tollgauge.core.probe.exchange import Answer, Exchange, Fault, FaultKind

GOOD = "https://good.sellers.example"
DEADLINE_MS = 20_000
"""Deadline for exchanges that end by themselves."""
HELD_MS = 1_500
"""Deadline for exchanges that end by it."""
LONG_S = 15
"""Time limit for anything on a busy machine."""


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with hostile_world(tmp_path) as world:
        yield world


def settings(world: World, *, deadline_ms: int = DEADLINE_MS) -> EgressSettings:
    return EgressSettings(
        user_agent="tollgauge/1 (contact and opt-out: https://probes.example/about)",
        deadline_ms=deadline_ms,
        mapped=world.mapped,
        ca_file=world.ca_file,
    )


@pytest.fixture
async def egress(world: World) -> AsyncIterator[Egress]:
    client = Egress(settings(world))
    client.start()
    yield client
    await client.close()


async def fetch_answer(egress: Egress, request: Request) -> Answer:
    exchange = await egress.fetch(request)
    assert isinstance(exchange.result, Answer), exchange
    return exchange.result


def fault(exchange: Exchange) -> FaultKind:
    assert isinstance(exchange.result, Fault), exchange
    return exchange.result.kind


async def test_exchange_records_the_response(egress: Egress) -> None:
    exchange = await egress.fetch(Request(url=f"{GOOD}/header-20k?q=1"), at=77)
    assert (exchange.url, exchange.method, exchange.at) == (f"{GOOD}/header-20k?q=1", "GET", 77)
    assert exchange.address == "127.0.0.1"
    assert exchange.tls_not_after == int(NOT_AFTER.timestamp()) * 1_000
    assert isinstance(exchange.result, Answer)
    assert exchange.result.status == 402
    assert exchange.result.header("payment-required") == "A" * 20_000
    assert (exchange.result.body, exchange.result.truncated) == (b"{}", False)


async def test_phases_are_whole_milliseconds_that_fit_into_the_total(egress: Egress) -> None:
    timings = (await egress.fetch(Request(url=f"{GOOD}/always-200"))).timings
    phases = (timings.dns, timings.connect, timings.tls, timings.ttfb)
    assert all(isinstance(phase, int) and phase >= 0 for phase in phases)
    # Each of the four phases is rounded separately.
    assert sum(phase or 0 for phase in phases) <= timings.total + len(phases)


async def test_duplicate_headers_are_kept_in_order(egress: Egress) -> None:
    answer = await fetch_answer(egress, Request(url=f"{GOOD}/twice"))
    assert answer.header_values("payment-required") == ("one", "two")


async def test_headers_are_only_those_of_the_final_response(egress: Egress) -> None:
    answer = await fetch_answer(egress, Request(url=f"{GOOD}/hints-then-402"))
    assert answer.status == 402
    assert answer.headers == (("content-length", "2"),)


async def test_non_ascii_header_bytes_are_decoded_as_latin_1(egress: Egress) -> None:
    answer = await fetch_answer(egress, Request(url=f"{GOOD}/odd-bytes"))
    assert answer.header("x-a") == "\xe9\xff"
    assert answer.body == b"\xff"


@pytest.mark.parametrize("method", ["GET", "HEAD", "DELETE", "POST", "PUT", "PATCH"])
async def test_every_allowed_method_is_sent(egress: Egress, world: World, method: str) -> None:
    answer = await fetch_answer(egress, Request(url=f"{GOOD}/echo", method=method))
    assert answer.status == 402
    assert world.requests[0].startswith(f"{method} /echo HTTP/1.1\r\n".encode())
    assert (b"Content-Length: 0" in world.requests[0]) == (method in ("POST", "PUT", "PATCH"))


async def test_body_is_sent_unchanged(egress: Egress) -> None:
    body = b'{"a":"\x00\xff"}'
    request = Request(
        url=f"{GOOD}/echo", method="POST", headers=(("Content-Type", "x/y"),), body=body
    )
    head, _, arrived = (await fetch_answer(egress, request)).body.partition(b"\r\n\r\n")
    assert arrived == body
    assert head.count(b"Content-Type: x/y") == 1
    assert b"Expect" not in head


async def test_requests_identify_the_service_and_nothing_else(egress: Egress, world: World) -> None:
    await egress.fetch(Request(url=f"{GOOD}/echo", headers=(("Accept", "application/json"),)))
    names = sorted(line.split(b":")[0] for line in world.requests[0].split(b"\r\n")[1:-2])
    assert names == [b"Accept", b"Accept-Encoding", b"Host", b"User-Agent"]
    assert b"opt-out: https://probes.example/about" in world.requests[0]
    assert b"Accept-Encoding: identity" in world.requests[0]


async def test_compressed_body_is_decoded_even_if_not_requested(egress: Egress) -> None:
    assert (await fetch_answer(egress, Request(url=f"{GOOD}/deflated"))).body == b"plain text"


async def test_cookies_are_neither_stored_nor_sent(egress: Egress, world: World) -> None:
    for _ in range(2):
        await egress.fetch(Request(url=f"{GOOD}/cookies"))
    assert len(world.requests) == 2
    assert b"a=b" not in world.requests[1]


@pytest.mark.parametrize("path", ["/redirect", "/redirect-307", "/refresh", "/alt-svc"])
async def test_redirects_are_not_followed(egress: Egress, world: World, path: str) -> None:
    first = await fetch_answer(egress, Request(url=GOOD + path))
    await fetch_answer(egress, Request(url=GOOD + path))
    assert first.status in (302, 307, 402)
    assert len(world.list_requests(path)) == 2
    assert world.canary_hits == []


async def test_environment_has_no_effect(
    egress: Egress, world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    proxy = f"http://127.0.0.1:{world.canary_port}"
    for name in ("https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY", "http_proxy"):
        monkeypatch.setenv(name, proxy)
    (tmp_path / ".netrc").write_text("machine good.sellers.example login me password secret\n")
    (tmp_path / ".netrc").chmod(0o600)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SSL_CERT_FILE", os.devnull)
    assert (await fetch_answer(egress, Request(url=f"{GOOD}/401"))).status == 401
    assert b"authorization" not in world.requests[0].lower()
    assert len(world.requests) == 1
    assert world.canary_hits == []


async def test_each_attempt_uses_a_new_connection(egress: Egress) -> None:
    for _ in range(3):  # a reused connection would get no second response
        exchange = await egress.fetch(Request(url=f"{GOOD}/stay"))
        assert isinstance(exchange.result, Answer)
        assert exchange.timings.tls is not None
        assert exchange.tls_not_after is not None


@pytest.mark.parametrize(
    "request_",
    [
        Request(url=GOOD, method="get"),
        Request(url=GOOD, method="CONNECT"),
        Request(url=GOOD, method="TRACE"),
        Request(url=GOOD, method="GET / HTTP/1.1\r\nX: y\r\n"),
        Request(url=GOOD, headers=(("X-A", "b\r\nX-C: d"),)),
        Request(url=GOOD, headers=(("X-A\r\nX-C", "d"),)),
        Request(url=GOOD, headers=(("X-A", "b\nc"),)),
        Request(url=GOOD, headers=(("X-A", "b\x00"),)),
        Request(url=GOOD, headers=(("X-A", "\u010d\u010a"),)),
        Request(url=GOOD, headers=(("X A", "b"),)),
        Request(url=GOOD, headers=(("", "b"),)),
        Request(url=GOOD, headers=(("@file", "b"),)),
        Request(url=GOOD, headers=(("Host", "elsewhere.example"),)),
        Request(url=GOOD, headers=(("Content-Length", "5"),)),
        Request(url=GOOD, headers=(("Cookie", "a=b"),)),
        Request(url=GOOD, method="GET", body=b"{}"),
    ],
)
async def test_forbidden_request_is_not_sent(
    egress: Egress, world: World, request_: Request
) -> None:
    with pytest.raises(RequestError):
        await egress.fetch(request_)
    assert world.requests == []


@pytest.mark.parametrize("url", ["", "nonsense", "http://good.sellers.example/", GOOD + "/a b"])
async def test_text_that_is_not_an_https_url_raises(egress: Egress, url: str) -> None:
    with pytest.raises(ResourceError):
        await egress.fetch(Request(url=url))


async def test_non_public_host_is_a_fault(egress: Egress, world: World) -> None:
    for url in ("https://127.0.0.1/", "https://unmapped.sellers.example/", f"{GOOD}.local/"):
        assert fault(await egress.fetch(Request(url=url))) is FaultKind.NOT_PUBLIC
    assert world.requests == []


async def test_cancelling_aborts_the_transfer(world: World) -> None:
    egress = Egress(settings(world, deadline_ms=2 * LONG_S * 1_000))
    egress.start()
    task = asyncio.create_task(egress.fetch(Request(url=f"{GOOD}/watched")))
    await world.wait_for_requests(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    async with asyncio.timeout(LONG_S):
        await world.hung_up.wait()
    await egress.close()


async def test_closing_ends_transfers_long_before_their_deadline(world: World) -> None:
    egress = Egress(settings(world, deadline_ms=2 * LONG_S * 1_000))
    egress.start()
    tasks = [asyncio.create_task(egress.fetch(Request(url=f"{GOOD}/hold"))) for _ in range(5)]
    await world.wait_for_requests(len(tasks))
    async with asyncio.timeout(LONG_S):
        await egress.close()
        exchanges = await asyncio.gather(*tasks)
    assert {fault(item) for item in exchanges} == {FaultKind.LOCAL}
    assert fault(await egress.fetch(Request(url=GOOD))) is FaultKind.LOCAL


async def test_egress_that_was_not_started_is_a_local_fault(world: World) -> None:
    egress = Egress(settings(world))
    assert fault(await egress.fetch(Request(url=GOOD))) is FaultKind.LOCAL
    await egress.close()


async def test_number_of_transfers_is_limited(world: World) -> None:
    egress = Egress(
        EgressSettings(
            mapped=world.mapped, ca_file=world.ca_file, deadline_ms=HELD_MS, max_in_flight=2
        )
    )
    egress.start()
    tasks = [asyncio.create_task(egress.fetch(Request(url=f"{GOOD}/hold"))) for _ in range(4)]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    assert len(world.requests) <= 3  # the two, and possibly the one that took a freed slot
    exchanges = await asyncio.gather(*tasks)
    await egress.close()
    assert len(world.requests) == 4
    # The time waiting for a slot does not count as part of an attempt.
    assert all(HELD_MS <= item.timings.total < 2 * HELD_MS for item in exchanges)


@pytest.mark.parametrize("spare", [0, 1])
async def test_running_out_of_file_descriptors_is_a_local_fault(egress: Egress, spare: int) -> None:
    soft, hard = limits.getrlimit(limits.RLIMIT_NOFILE)
    held: list[int] = []
    limits.setrlimit(limits.RLIMIT_NOFILE, (512, hard))
    try:
        with contextlib.suppress(OSError):
            while True:
                held.append(os.dup(0))
        for _ in range(spare):  # one is enough for a socket but not for libcurl's duplicate
            os.close(held.pop())
        exchange = await egress.fetch(Request(url=f"{GOOD}/always-200"))
    finally:
        for number in held:
            os.close(number)
        limits.setrlimit(limits.RLIMIT_NOFILE, (soft, hard))
    assert fault(exchange) is FaultKind.LOCAL
    assert await fetch_answer(egress, Request(url=f"{GOOD}/always-200"))


def test_names_are_mapped_to_loopback_only() -> None:
    for address in ("10.0.0.1", "localhost"):
        with pytest.raises(ValueError, match="mapped"):
            EgressSettings(mapped={"a.com": (address, 443)})


@pytest.mark.parametrize("agent", ["", "  ", "a\r\nX: y", "caf\xe9"])
def test_user_agent_must_be_printable(agent: str) -> None:
    with pytest.raises(ValueError, match="printable ASCII"):
        EgressSettings(user_agent=agent)


async def test_server_that_requires_another_key_exchange_is_reached(
    tmp_path: Path,
) -> None:
    authority, ca_file = trustme.CA(), tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(ca_file))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("p384.sellers.example").configure_cert(context)
    context.set_ecdh_curve("secp384r1")

    async def answer_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 402 Payment Required\r\ncontent-length: 0\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(answer_once, "127.0.0.1", 0, ssl=context) as server:
        port = server.sockets[0].getsockname()[1]
        mapped = {"p384.sellers.example": ("127.0.0.1", port)}
        one = Egress(EgressSettings(mapped=mapped, ca_file=str(ca_file)))
        one.start()
        try:
            answer = await fetch_answer(one, Request(url="https://p384.sellers.example/"))
        finally:
            await one.close()
    assert answer.status == 402


async def test_request_with_a_start_is_identified_for_its_host(world: World) -> None:
    def identify(authority: str, at: int) -> tuple[tuple[str, str], ...]:
        return (("Signature-Agent", f"{authority} {at}"),)

    client = Egress(settings(world), identify=identify)
    client.start()
    try:
        await client.fetch(Request(url=f"{GOOD}/always-200"), at=77)
        await client.fetch(Request(url=f"{GOOD}/always-200"))
    finally:
        await client.close()
    sent = [request.lower() for request in world.list_requests("/always-200")]
    assert b"signature-agent: good.sellers.example 77\r\n" in sent[0]
    assert b"signature-agent" not in sent[1]
