"""The gateway: callers, hostile requests, limits, and streaming, against a real server."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from guard.cases.sample_bundle import Row, body, public_key, signature
from tests.support.command_server import command
from tests.support.guard_seller import Answer, Call, Seller, receipt
from x402 import x402Client

from tollgauge.demo.serving import closed_port
from tollgauge_guard import MEMORY, GuardError, Policy, State, guarded
from tollgauge_guard import gateway as module
from tollgauge_guard.bundle import Bundle
from tollgauge_guard.bundle_source import FixedBundle
from tollgauge_guard.gateway import Gateway
from tollgauge_guard.gateway_connection import MAX_BODY
from tollgauge_guard.headers import drop_headers
from tollgauge_guard.httpx_client import GuardedClient

TOKEN = "t" * 32
BEARER = {"Authorization": f"Bearer {TOKEN}"}


class Running:
    """A running gateway, the seller, and an HTTP client of a caller."""

    def __init__(self, url: str, seller: Seller, http: GuardedClient) -> None:
        self.url, self.seller, self.http = url, seller, http
        self.data = f"/http/127.0.0.1:{seller.port}/data"
        self.port = int(url.rpartition(":")[2])

    async def get(self, path: str | None = None, **options: Any) -> httpx.Response:
        headers = BEARER | options.pop("headers", {})
        async with httpx.AsyncClient(trust_env=False, verify=False, timeout=20) as caller:
            method = options.pop("method", "GET")
            url = f"{self.url}{self.data if path is None else path}"
            return await caller.request(method, url, headers=headers, **options)

    async def send(self, request: str | bytes) -> bytes:
        """Send bytes, and return everything that comes back."""
        raw = request if isinstance(request, bytes) else request.encode("latin-1")
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            with contextlib.suppress(ConnectionError):
                writer.write(raw)
                await writer.drain()
                return await asyncio.wait_for(reader.read(), 20)
            return b""
        finally:
            writer.close()

    def request(self, target: str | None = None, *lines: str, method: str = "GET") -> str:
        """Return the text of a request that is valid except for its lines."""
        target = self.data if target is None else target
        head = [f"{method} {target} HTTP/1.1", f"Host: 127.0.0.1:{self.port}"]
        return "\r\n".join([*head, f"Authorization: Bearer {TOKEN}", *lines, "", ""])


@pytest.fixture
async def running(
    seller: Seller,
    payer: x402Client,
    known: Callable[..., Row],
    bundle_of: Callable[..., Bundle],
) -> AsyncIterator[Running]:
    bundle = bundle_of({f"{seller.url}/data": known(), f"{seller.url}/bad": known("avoid")})
    http = guarded(
        payer,
        bundle=FixedBundle(bundle),
        journal=MEMORY,
        transport=httpx.AsyncHTTPTransport(verify=False),
        policy=Policy(max_host_day=100_000, loss_count=1_000),
    )
    async with http, Gateway(http, TOKEN, "127.0.0.1", 0).serve() as url:
        yield Running(url, seller, http)


def states(running: Running) -> list[State]:
    return [payment.state for payment in running.http.guard.journal.payments()]


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(2_000):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("this did not happen")


async def test_pays_for_a_program_that_cannot(running: Running) -> None:
    answer = await running.get()
    assert (answer.status_code, answer.json()) == (200, {"ok": True})
    (payment,) = running.http.guard.journal.payments()
    assert answer.headers["tollgauge-payment"] == payment.handle
    assert payment.state is State.DELIVERED
    assert [call.payment is None for call in running.seller.calls] == [True, False]


async def test_method_query_and_body_reach_the_seller(running: Running) -> None:
    path = f"{running.data}?a=%2F&b=%C3%A4"
    answer = await running.get(path, method="POST", content=b'{"q": 1}')
    assert answer.status_code == 200
    last = running.seller.calls[-1]
    assert (last.method, last.path, last.body) == ("POST", "/data?a=%2F&b=%C3%A4", b'{"q": 1}')
    assert last.host == f"127.0.0.1:{running.seller.port}"


async def test_https_and_http_hosts_are_addressed_by_path(running: Running) -> None:
    gateway = Gateway(running.http, TOKEN, "127.0.0.1", 0)
    urls = {
        "/https/api.example.com/v1/a?b=c": "https://api.example.com/v1/a?b=c",
        "/https/api.example.com:8443": "https://api.example.com:8443/",
        "/http/api.example.com?q=1": "http://api.example.com?q=1",
        "/https/[2001:db8::1]:99/x//y": "https://[2001:db8::1]:99/x//y",
    }
    assert {path: gateway._target_url(path) for path in urls} == urls


async def test_refusal_is_data_without_addresses_and_remedies(running: Running) -> None:
    answer = await running.get(f"/http/127.0.0.1:{running.seller.port}/bad")
    assert answer.status_code == 403
    assert answer.json() == {"error": "payment-refused", "code": "avoid"}
    assert running.seller.payments == []


async def test_payment_without_an_answer_is_not_made_again(running: Running) -> None:
    running.seller.answer = lambda _call: Answer(is_cut=True)
    first = await running.get()
    assert (first.status_code, first.json()["error"]) == (502, "seller-unreachable")
    (payment,) = running.http.guard.journal.payments()
    assert first.json()["payment"] == payment.handle
    running.seller.ask = lambda offer: offer.update(amount="4000")  # the offer is gone
    second = await running.get()
    assert second.status_code == 409
    assert second.json()["code"] == "payment-unresolved"
    assert second.json()["handle"] == payment.handle
    assert len({json.dumps(one) for one in running.seller.payments}) == 1


async def test_seller_that_does_not_respond_in_time_is_a_504(running: Running) -> None:
    def wait(_call: Call) -> None:
        time.sleep(1)

    running.seller.unpaid = wait
    running.http.timeout = httpx.Timeout(20, read=0.2)
    answer = await running.get()
    assert (answer.status_code, answer.json()["payment"]) == (504, None)
    with closed_port() as closed:
        nowhere = await running.get(f"/http/127.0.0.1:{closed.getsockname()[1]}/x")
    assert (nowhere.status_code, nowhere.json()["error"]) == (502, "seller-unreachable")


async def test_caller_only_tightens(running: Running) -> None:
    low = await running.get(headers={"Tollgauge-Max-Amount": "4999"})
    assert (low.status_code, low.json()["code"]) == (403, "over-call-cap")
    other = await running.get(headers={"Tollgauge-Expect-Pay-To": "0x" + "11" * 20})
    assert (other.status_code, other.json()["code"]) == (403, "payto-unexpected")
    high = await running.get(
        f"/http/127.0.0.1:{running.seller.port}/bad",
        headers={"Tollgauge-Max-Amount": "999999999"},
    )
    assert (high.status_code, high.json()["code"]) == (403, "avoid")
    assert (await running.get(headers={"Tollgauge-Max-Amount": "5000"})).status_code == 200


async def test_named_purchase_is_one_purchase_with_different_bodies(running: Running) -> None:
    running.seller.answer = lambda _call: Answer(500)
    named = {"Tollgauge-Purchase": "order-1"}
    for content in (b"a", b"b"):
        await running.get(method="POST", content=content, headers=named)
    assert len(running.http.guard.journal.payments()) == 1
    for value in ("", "x" * 1_000):
        answer = await running.get(headers={"Tollgauge-Purchase": value})
        assert answer.status_code == 400


async def test_headers_of_the_gateway_and_payments_do_not_reach_the_seller(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[list[tuple[str, str]]] = []
    send = running.http.send

    async def remember(request: httpx.Request, **options: Any) -> httpx.Response:
        seen.append(request.headers.multi_items())
        return await send(request, **options)

    monkeypatch.setattr(running.http, "send", remember)
    headers = {
        "X-PAYMENT": "e30=",
        "Payment-Signature": "e30=",
        "Sign-In-With-X": "e30=",
        "Connection": "close, x-private",
        "X-Private": "1",
        "X-Kept": "1",
        "Tollgauge-Purchase": "order-2",
    }
    assert (await running.get(headers=headers)).status_code == 200
    names = {name for name, _ in seen[0]}
    assert "x-kept" in names
    assert not names & {"authorization", "x-private", "x-payment", "payment-signature"}
    assert not names & {"sign-in-with-x", "tollgauge-purchase", "cookie"}


async def test_authorization_of_the_seller_passes_with_the_token_as_a_proxy_has_it(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str | None] = []
    send = running.http.send

    async def remember(request: httpx.Request, **options: Any) -> httpx.Response:
        seen.append(request.headers.get("authorization"))
        assert "proxy-authorization" not in request.headers
        return await send(request, **options)

    monkeypatch.setattr(running.http, "send", remember)
    headers = {"Proxy-Authorization": f"Bearer {TOKEN}", "Authorization": "Bearer of-the-seller"}
    assert (await running.get(headers=headers)).status_code == 200
    assert seen == ["Bearer of-the-seller"]


async def test_cookies_of_one_caller_are_not_sent_for_another(running: Running) -> None:
    running.seller.answer = lambda _call: Answer(200, {"Set-Cookie": "session=1"})
    await running.get()
    assert len(running.http.cookies.jar) == 0


async def test_hostile_requests_pay_nothing(running: Running) -> None:
    port, ask = running.port, running.request
    host = f"Host: 127.0.0.1:{port}"
    bearer = f"Authorization: Bearer {TOKEN}"
    wrong = f"Authorization: Bearer {'x' * 32}"
    seller = f"127.0.0.1:{running.seller.port}"
    requests: dict[str, tuple[int, ...]] = {
        f"GET {running.data} HTTP/1.1\r\n{host}\r\n\r\n": (401,),
        f"GET {running.data} HTTP/1.1\r\n{host}\r\n{wrong}\r\n\r\n": (401,),
        f"GET {running.data} HTTP/1.1\r\n{host}\r\nAuthorization: Basic {TOKEN}\r\n\r\n": (401,),
        f"GET {running.data} HTTP/1.1\r\n{host}\r\nAuthorization: Bearer {TOKEN}x\r\n\r\n": (401,),
        f"GET {running.data} HTTP/1.1\r\n{host}\r\nAuthorization: Bearer \xe4\r\n\r\n": (401,),
        f"GET {running.data} HTTP/1.1\r\n{host}\r\n{bearer}\r\n{bearer}\r\n\r\n": (401,),
        f"GET {running.data} HTTP/1.1\r\n{bearer}\r\n\r\n": (400, 421),
        f"GET {running.data} HTTP/1.0\r\n{bearer}\r\n\r\n": (421,),
        f"GET {running.data} HTTP/1.1\r\nHost: evil.example\r\n{bearer}\r\n\r\n": (421,),
        f"GET {running.data} HTTP/1.1\r\nHost: 127.0.0.1\r\n{bearer}\r\n\r\n": (421,),
        f"GET {running.data} HTTP/1.1\r\nHost: evil.example:{port}\r\n{bearer}\r\n\r\n": (421,),
        f"GET {running.data} HTTP/1.1\r\n{host}\r\n{host}\r\n{bearer}\r\n\r\n": (400, 421),
        ask(None, "Origin: https://evil.example"): (403,),
        ask(None, "Origin: null"): (403,),
        ask(None, "Sec-Fetch-Site: cross-site"): (403,),
        ask(None, "sec-fetch-mode: no-cors"): (403,),
        ask(None, "Upgrade: websocket", "Connection: upgrade"): (400,),
        ask(f"{seller}", method="CONNECT"): (405,),
        ask(method="TRACE"): (405,),
        ask(method="OPTIONS"): (405,),
        ask(method="PROPFIND"): (405,),
        ask(f"http://{seller}/data"): (400,),
        ask("*"): (400,),
        ask("/"): (400,),
        ask("/https/"): (400,),
        ask("/https//data"): (400,),
        ask("/ftp/a.example/x"): (400,),
        ask("/file/etc/passwd"): (400,),
        ask("/https/user@a.example/x"): (400,),
        ask("/https/user:pass@a.example/x"): (400,),
        ask("/https/a.example%2f/x"): (400,),
        ask("/https/a.example\\@b.example/x"): (400,),
        ask("/https/a.example:99999/x"): (400,),
        ask("/https/a.example:x/x"): (400,),
        ask("/https/[::1/x"): (400,),
        ask("/https/[:::::]/x"): (400, 502),
        ask("/https/ä.example/x"): (400,),
        ask(f"/http/127.0.0.1:{port}/http/{seller}/data"): (400,),
        ask(f"/http/localhost:{port}/x"): (400,),
        ask(f"/http/[::1]:{port}/x"): (400,),
        ask(f"/http/127.1.2.3:{port}/x"): (400,),
        ask(None, "Content-Length: -1", method="POST"): (400,),
        ask(None, "Content-Length: 1", "Content-Length: 2", method="POST"): (400,),
        ask(None, "Transfer-Encoding: gzip", method="POST"): (400, 501),
        ask(None, f"X-Long: {'a' * 70_000}"): (431,),
        ask(None, "Tollgauge-Max-Amount: 1e9"): (400,),
        ask(None, "Tollgauge-Max-Amount: -1"): (400,),
        ask(None, "Tollgauge-Max-Amount: 0x10"): (400,),
        ask(None, " folded: 1"): (401,),  # a part of the token
        ask(None, "Bad Header: 1"): (400,),
        "GARBAGE\r\n\r\n": (400,),
        "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n": (400,),
    }
    for request, allowed in requests.items():
        answer = await running.send(request)
        status = int(answer.split(b" ", 2)[1])
        assert status in allowed, request[:200]
        assert b"Access-Control" not in answer
    assert running.seller.calls == []
    assert running.http.guard.journal.payments() == ()
    assert (await running.get()).status_code == 200


async def test_smuggled_second_request_is_not_served(running: Running) -> None:
    request = running.request(None, "Content-Length: 5", method="POST") + "hello"
    answer = await running.send(request + running.request())
    assert answer.count(b"HTTP/1.1 ") == 1
    assert len(running.http.guard.journal.payments()) <= 1


async def test_body_that_is_too_long_is_rejected(running: Running) -> None:
    answer = await running.get(method="POST", content=bytes(MAX_BODY + 1))
    assert answer.status_code == 413
    assert running.seller.calls == []


async def test_slow_request_is_ended(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REQUEST_TIMEOUT_S", 0.1)
    assert b" 408 " in await running.send("GET / HTTP/1.1\r\n")
    lacking = running.request(None, "Content-Length: 10", method="POST") + "abc"
    assert b" 408 " in await running.send(lacking)


async def test_more_connections_than_allowed_are_rejected(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_CONNECTIONS", 1)
    _, writer = await asyncio.open_connection("127.0.0.1", running.port)
    for _ in range(100):
        if (answer := await running.get()).status_code == 503:
            break
    writer.close()
    assert answer.json()["error"] == "busy"


async def test_response_is_streamed_and_a_cut_one_stays_incomplete(running: Running) -> None:
    running.seller.answer = lambda _call: Answer(200, body=b"x" * 3_000_000)
    assert len((await running.get()).content) == 3_000_000

    def promise_more(_call: Call) -> Answer:
        headers = {"Connection": "close", "Transfer-Encoding": "chunked"}
        return Answer(200, headers, b"4\r\nhalf\r\n")

    running.seller.answer = promise_more
    with pytest.raises(httpx.HTTPError):
        await running.get(f"{running.data}?cut")
    assert sorted(states(running)) == [State.DELIVERED, State.OPEN]


async def test_same_call_after_hanging_up_sends_the_same_payment(running: Running) -> None:
    running.seller.answer = lambda _call: Answer(is_cut=True)
    await running.get()
    running.seller.answer = lambda _call: receipt()
    assert (await running.get()).status_code == 200
    first, second = running.seller.payments
    assert first == second


async def test_payment_of_a_caller_who_hangs_up_is_not_answered(running: Running) -> None:
    def wait(_call: Call) -> Answer:
        time.sleep(0.5)
        return receipt()

    running.seller.answer = wait
    _, writer = await asyncio.open_connection("127.0.0.1", running.port)
    writer.write(running.request().encode())
    await writer.drain()
    await until(lambda: bool(running.seller.payments))
    writer.close()
    await until(lambda: states(running) != [State.IN_FLIGHT])
    assert states(running) == [State.OPEN]


async def test_head_and_refusal_of_head_have_no_body(running: Running) -> None:
    answer = await running.send(running.request("/https/", method="HEAD"))
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert answer.endswith(b"\r\n\r\n")


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "::", "example.com"])
def test_only_loopback_is_served(host: str, running: Running) -> None:
    with pytest.raises(GuardError, match=r"loopback|IP address"):
        Gateway(running.http, TOKEN, host, 0)


def test_short_token_is_rejected(running: Running) -> None:
    with pytest.raises(GuardError, match="32 characters"):
        Gateway(running.http, "short", "127.0.0.1", 0)


def test_headers_of_one_connection_are_dropped() -> None:
    given = [("Connection", "a, B"), ("A", "1"), ("b", "2"), ("TE", "x"), ("C", "3")]
    assert drop_headers(given) == [("C", "3")]


def test_command_serves_until_it_is_ended(tmp_path: Path, seller: Seller) -> None:
    packed = body({}, int(time.time()))
    (tmp_path / "bundle").write_bytes(packed)
    (tmp_path / "bundle.jws").write_text(signature(packed))
    environment = {
        "HOME": str(tmp_path),
        "TOLLGAUGE_GUARD_PAYER_KEY": "0x" + "11" * 32,
        "TOLLGAUGE_GUARD_BUNDLE": str(tmp_path / "bundle"),
        "TOLLGAUGE_GUARD_KEY": json.dumps(public_key()),
    }
    words = command("-m", "tollgauge_guard.cli", "gateway", "--listen", "127.0.0.1:0")
    with subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            url = process.stdout.readline().strip().removesuffix("/https/HOST/PATH")
            name, _, value = process.stdout.readline().strip().partition(": ")
            path = f"/http/127.0.0.1:{seller.port}/new"
            answer = httpx.get(url + path, headers={name: value}, trust_env=False, timeout=20)
        finally:
            process.terminate()
    assert (answer.status_code, answer.json()) == (200, {"ok": True})
    assert process.returncode == 0
