"""The middleware in front of all routes: limits, rate limit, cache, CORS and security headers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from starlette.types import Scope
from tests.support.http_service import (
    WEATHER_ID,
    Running,
    configuration,
    grow_old,
    open_service,
    with_edge,
)

from tollgauge.monitor.reports.overview import leaderboard
from tollgauge.web.edge.cache import CACHE_BYTES, FRESH_SECONDS, STALE_SECONDS
from tollgauge.web.edge.middleware import Edge, EdgeSettings

pytestmark = pytest.mark.asyncio(loop_scope="module")

JSON_ROUTES = (
    "/trust/leaderboard",
    "/trust/stats",
    "/calibration.json",
    f"/trust/snapshot/{WEATHER_ID}",
    "/v1/x402-trust-preview",
    "/openapi.json",
)
PAGES = (
    "/",
    "/leaderboard",
    "/methodology",
    "/calibration",
    "/docs",
    f"/endpoint/{WEATHER_ID}",
    "/provider/weather.example",
    f"/endpoint/{WEATHER_ID}/badge.svg",
)
EXPOSED = (
    "PAYMENT-REQUIRED, PAYMENT-RESPONSE, Retry-After, Tollgauge-Signature, ETag, Accept-Ranges, "
    "Content-Range"
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(
    tmp_path_factory: pytest.TempPathFactory, market_database: Callable[[Path], str]
) -> AsyncIterator[Running]:
    url = market_database(tmp_path_factory.mktemp("front") / "service.db")
    async with open_service(configuration(store_url=url)) as service:
        yield service


async def test_free_routes_have_an_etag_and_a_max_age_of_one_minute(running: Running) -> None:
    for path in JSON_ROUTES + PAGES:
        answer = await running.get(path)
        assert answer.status_code == 200, path
        assert answer.headers["etag"].startswith('"'), path
        assert answer.headers["cache-control"] == "public, max-age=60"
        again = await running.get(path)
        assert again.headers["etag"] == answer.headers["etag"]


async def test_matching_etag_returns_304_without_body(running: Running) -> None:
    for path in JSON_ROUTES + PAGES:
        etag = (await running.get(path)).headers["etag"]
        for known in (etag, f"W/{etag}", f'"other", {etag}', "*"):
            answer = await running.get(path, headers={"if-none-match": known})
            assert answer.status_code == 304, (path, known)
            assert answer.content == b""
            assert answer.headers["etag"] == etag
            assert "content-length" not in answer.headers
        for known in ('"other"', etag.strip('"'), f'"other{etag}'):
            assert (await running.get(path, headers={"if-none-match": known})).status_code == 200


async def test_leaderboard_is_unchanged_until_a_score_changes(running: Running) -> None:
    now = running.clock()
    first, later = [
        await running.service.store.reading(leaderboard, now=now + wait) for wait in (0, 60_000)
    ]
    assert first == later
    assert first.as_of <= now


@pytest.mark.parametrize(
    ("target", "headers", "status"),
    [
        ("/trust/stats", [("host", "trust.test"), ("host", "other.test")], 400),
        ("/trust/stats", [(f"x-{number}", "v" * 1_000) for number in range(40)], 431),
        ("/trust/stats", [("x-payment", "A" * 16_385)], 431),
        ("/trust/stats", [("content-length", "65537")], 413),
        ("/trust/stats?" + "a" * 4_096, [], 414),
    ],
)
async def test_cached_answer_does_not_bypass_request_checks(
    running: Running, target: str, headers: list[tuple[str, str]], status: int
) -> None:
    for _ in range(2):
        assert (await running.get("/trust/stats")).status_code == 200
    assert (await running.get(target, headers=headers)).status_code == status


async def test_cache_key_separates_path_and_query(running: Running) -> None:
    assert (await running.get(f"/endpoint/{WEATHER_ID}?x?")).status_code == 200
    assert (await running.get(f"/endpoint/{WEATHER_ID}%3Fx")).status_code == 404


async def test_cached_answer_is_gzipped_only_if_accepted(running: Running) -> None:
    path = f"/endpoint/{WEATHER_ID}"
    for _ in range(2):
        plain = await running.get(path, headers={"accept-encoding": "identity"})
        packed = await running.get(path, headers={"accept-encoding": "br, gzip"})
        assert "content-encoding" not in plain.headers
        assert packed.headers["content-encoding"] == "gzip"
        assert plain.headers["vary"] == packed.headers["vary"] == "Accept-Encoding"
        assert plain.content == packed.content
        assert plain.headers["etag"] != packed.headers["etag"]


async def test_head_returns_the_headers_of_get(running: Running) -> None:
    for path in (*JSON_ROUTES, *PAGES, "/healthz", "/readyz", "/nothing"):
        get, head = await running.get(path), await running.http.head(path)
        assert head.status_code == get.status_code, path
        assert head.content == b""
        assert head.headers == get.headers


async def test_health_responses_are_not_cached(running: Running) -> None:
    for path in ("/healthz", "/readyz"):
        answer = await running.get(path)
        assert answer.status_code == 200
        assert answer.headers["cache-control"] == "no-store"


async def test_every_answer_carries_security_and_cors_headers(running: Running) -> None:
    etag = (await running.get("/trust/stats")).headers["etag"]
    answers = [
        await running.get("/trust/stats"),
        await running.get("/trust/stats", headers={"if-none-match": etag}),
        await running.get("/nothing"),
        await running.get("/nothing", headers={"accept": "text/html"}),
        await running.get("/trust/snapshot"),
        await running.get("/endpoint", params={"resource": "https://example.com/"}),
        await running.get("/docs"),
        await running.get("/healthz"),
        await running.http.post("/v1/x402-trust"),
        await running.http.post("/v1/x402-trust", headers={"PAYMENT-SIGNATURE": "!"}),
        await running.http.post("/v1/x402-trust", content=b"x" * 65_537),
        await running.get("/" + "a" * 5_000),
        await running.get("/docs", headers={"x-payment": "a" * 16_385}),
        await running.http.delete("/trust/stats"),
        await running.http.options("/trust/stats"),
        await running.http.head("/trust/stats"),
    ]
    statuses = [answer.status_code for answer in answers]
    assert statuses == [
        *(200, 304, 404, 404, 422, 404, 200, 200, 402, 400, 413, 414, 431, 405, 204, 200)
    ]
    for answer in answers:
        headers = answer.headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["access-control-allow-origin"] == "*"
        assert headers["access-control-expose-headers"] == EXPOSED
        assert "server" not in headers


async def test_preflight_allows_payments_from_any_origin(running: Running) -> None:
    answer = await running.http.options(
        "/v1/x402-trust",
        headers={
            "origin": "https://shop.example",
            "access-control-request-method": "POST",
            "access-control-request-headers": "content-type, payment-signature",
        },
    )
    assert answer.status_code == 204
    assert answer.headers["access-control-allow-origin"] == "*"
    assert "POST" in answer.headers["access-control-allow-methods"]
    assert "*" in answer.headers["access-control-allow-headers"]
    assert answer.content == b""


async def test_unsupported_method_returns_405_with_allow(running: Running) -> None:
    for method, path, allowed in (
        ("POST", "/trust/leaderboard", "GET"),
        ("GET", "/mcp", "POST"),
        ("PUT", "/v1/x402-trust", "POST"),
        ("DELETE", "/", "GET"),
        ("PATCH", "/healthz", "GET"),
    ):
        answer = await running.http.request(method, path)
        assert (answer.status_code, answer.json()["code"]) == (405, "method-not-allowed")
        assert answer.headers["allow"] == allowed


async def test_body_over_64_kb_returns_413_before_it_is_read(running: Running) -> None:
    header = {"PAYMENT-SIGNATURE": "e30="}
    for path in ("/v1/x402-trust", "/v1/x402-trust-preview"):
        answer = await running.http.post(path, content=b"x" * 65_537, headers=header)
        assert (answer.status_code, answer.json()["code"]) == (413, "body-too-large")
    lying = await running.http.post(
        "/v1/x402-trust-preview", content=b"", headers={"content-length": "99999999999999999999"}
    )
    assert lying.status_code == 413


async def test_body_without_length_returns_413_at_the_limit(running: Running) -> None:
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        while True:
            sent += 8_192
            assert sent < 1_000_000, "the server reads on and on"
            yield b" " * 8_192

    answer = await running.http.post("/v1/x402-trust-preview", content=endless())
    assert (answer.status_code, answer.json()["code"]) == (413, "body-too-large")


async def test_body_of_maximum_size_is_accepted(running: Running) -> None:
    body = b"{}" + b" " * (65_536 - 2)
    answer = await running.http.post("/v1/x402-trust-preview", content=body)
    assert answer.status_code == 200


async def test_url_over_4_kb_returns_414(running: Running) -> None:
    for path in ("/" + "a" * 4_096, "/trust/snapshot?resource=" + "a" * 4_096):
        answer = await running.get(path)
        assert (answer.status_code, answer.json()["code"]) == (414, "url-too-long")
    assert (await running.get("/" + "a" * 4_000)).status_code == 404


async def test_browser_receives_an_error_page_for_a_rejected_request(running: Running) -> None:
    for path, more, status in (
        ("/" + "a" * 4_096, {}, 414),
        ("/lint", {"content-length": "65537"}, 413),
        ("/leaderboard", {f"x-{number}": "v" * 1_000 for number in range(40)}, 431),
    ):
        answer = await running.get(path, headers={"accept": "text/html,*/*", **more})
        assert answer.status_code == status
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
        assert answer.headers["cache-control"] == "no-store"
        assert "content-security-policy" in answer.headers
        assert f"Status {status}" in answer.text


async def test_oversized_headers_return_431(running: Running) -> None:
    for name in ("PAYMENT-SIGNATURE", "X-PAYMENT"):
        answer = await running.http.post("/v1/x402-trust", headers={name: "A" * 16_385})
        assert (answer.status_code, answer.json()["code"]) == (431, "payment-header-too-large")
    fits = await running.http.post("/v1/x402-trust", headers={"PAYMENT-SIGNATURE": "A" * 16_384})
    assert fits.status_code == 400
    many = {f"x-{number}": "v" * 1_000 for number in range(40)}
    answer = await running.get("/trust/stats", headers=many)
    assert (answer.status_code, answer.json()["code"]) == (431, "headers-too-large")


async def test_request_must_have_exactly_one_host_header(running: Running) -> None:
    for hosts in (["trust.test", "other.test"], ["trust.test", "trust.test"]):
        answer = await running.get("/trust/stats", headers=[("host", host) for host in hosts])
        assert (answer.status_code, answer.json()["code"]) == (400, "host-invalid")
        assert "access-control-allow-origin" in answer.headers


async def test_rate_limit_returns_429_with_retry_after() -> None:
    async with open_service(with_edge(configuration(), free_per_minute=3)) as limited:
        answers = [await limited.get("/trust/stats") for _ in range(5)]
        assert [answer.status_code for answer in answers] == [200, 200, 200, 429, 429]
        last = answers[-1]
        assert last.json()["code"] == "rate-limited"
        assert last.headers["content-type"] == "application/problem+json"
        assert int(last.headers["retry-after"]) == 20  # a third of a minute each
        assert (await limited.get("/healthz")).status_code == 200
        assert (await limited.http.options("/trust/stats")).status_code == 204


async def test_rate_limit_forgets_old_addresses() -> None:
    settings = with_edge(configuration(), trusted_proxies=("127.0.0.1",))
    async with open_service(settings) as crowded:
        before = (asyncio.all_tasks(), threading.active_count())
        for number in range(300):
            caller = {"x-forwarded-for": f"198.18.{number // 250}.{number % 250}"}
            assert (await crowded.get("/healthz", headers=caller)).status_code == 200
            assert (await crowded.get("/nowhere", headers=caller)).status_code == 404
        assert (asyncio.all_tasks(), threading.active_count()) == before


async def test_forwarded_address_is_used_only_behind_a_trusted_proxy() -> None:
    async def ask(running: Running, address: str) -> int:
        return (await running.get("/trust/stats", headers={"x-forwarded-for": address})).status_code

    async with open_service(with_edge(configuration(), free_per_minute=2)) as direct:
        assert [await ask(direct, f"192.0.2.{n}") for n in range(3)] == [200, 200, 429]
    trusted = with_edge(configuration(), free_per_minute=2, trusted_proxies=("127.0.0.1",))
    async with open_service(trusted) as proxied:
        assert [await ask(proxied, f"192.0.2.{n}") for n in range(6)] == [200] * 6
        assert [await ask(proxied, "198.51.100.7") for _ in range(3)] == [200, 200, 429]
        lines = [("x-forwarded-for", "10.9.9.9"), ("x-forwarded-for", "198.51.100.7")]
        assert (await proxied.get("/trust/stats", headers=lines)).status_code == 429


@pytest.mark.parametrize(
    "limits", [{"free_per_minute": 0}, {"trusted_proxies": ("proxy.internal",)}]
)
async def test_invalid_limits_are_rejected(limits: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(limits))):
        EdgeSettings(**limits)


async def test_route_that_ends_without_an_answer_returns_500() -> None:
    async def dies(scope: Scope, receive: Any, send: Any) -> None:
        raise RuntimeError("a text that nobody should see")

    for prefix in ("/kept/", "/other/"):
        ask = Asked(Edge(dies, EdgeSettings(), cached_under=("/kept/",)))
        status, body = await ask(f"{prefix}a")
        assert status == 500
        assert b"internal" in body
        assert b"nobody should see" not in body


@pytest.mark.parametrize("header", [(b"content-length", b"9"), (b"transfer-encoding", b"chunked")])
async def test_route_never_runs_for_clients_that_hang_up_within_the_body(
    header: tuple[bytes, bytes],
) -> None:
    route = Route()
    edge = Edge(route, EdgeSettings(free_per_minute=10_000))
    scope = {"type": "http", "method": "POST", "path": "/a", "raw_path": b"/a", "query_string": b""}
    scope |= {"headers": [(b"host", b"t"), header], "client": ("192.0.2.1", 1)}
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    for _ in range(2_000):
        messages = [
            {"type": "http.request", "body": b"{", "more_body": True},
            {"type": "http.disconnect"},
        ]

        async def receive(messages: list[Any] = messages) -> Any:
            return messages.pop(0)

        await edge(scope, receive, send)
    assert (route.calls, sent) == (0, [])


class Route:
    """An ASGI app that counts its calls and returns a configured answer."""

    def __init__(self) -> None:
        self.status = 200
        self.size = 10
        self.calls = 0

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        self.calls += 1
        headers = [(b"content-type", b"text/plain")]
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        body = str(self.calls).encode().ljust(self.size)
        await send({"type": "http.response.body", "body": body})


class Asked:
    """One GET through the edge, without a server."""

    def __init__(self, edge: Edge) -> None:
        self.edge = edge

    async def __call__(self, path: str = "/kept/a") -> tuple[int, bytes]:
        sent: list[Any] = []

        async def send(message: Any) -> None:
            sent.append(message)

        async def receive() -> Any:
            return {"type": "http.request", "body": b"", "more_body": False}

        scope = {"type": "http", "method": "GET", "path": path, "raw_path": path.encode()}
        await self.edge(
            scope | {"query_string": b"", "headers": [], "client": ("192.0.2.1", 1)}, receive, send
        )
        return sent[0]["status"], sent[1]["body"].strip()


@pytest.fixture
def route() -> Route:
    return Route()


@pytest.fixture
def ask(route: Route) -> Asked:
    return Asked(Edge(route, EdgeSettings(free_per_minute=10_000), cached_under=("/kept/",)))


async def test_popular_answer_is_built_once_in_five_seconds(route: Route, ask: Asked) -> None:
    assert [await ask() for _ in range(3)] == [(200, b"1")] * 3
    grow_old(ask.edge, FRESH_SECONDS)
    assert await ask() == (200, b"2")


async def test_stale_answer_is_served_while_the_route_fails(route: Route, ask: Asked) -> None:
    await ask()
    route.status = 503
    grow_old(ask.edge, FRESH_SECONDS)
    assert await ask() == (200, b"1"), "free reads go on while the database is gone"
    assert await ask("/kept/b") == (503, b"3"), "what was never made cannot go on"
    grow_old(ask.edge, STALE_SECONDS)
    assert (await ask())[0] == 503, "an hour is enough"


async def test_answer_that_is_not_found_leaves_the_cache(route: Route, ask: Asked) -> None:
    await ask()
    route.status = 404
    grow_old(ask.edge, FRESH_SECONDS)
    assert (await ask())[0] == 404


async def test_cache_size_is_limited(route: Route, ask: Asked) -> None:
    route.size = 400_000
    for number in range(200):
        await ask(f"/kept/{number}")
    cache = ask.edge.cache
    assert cache.size <= CACHE_BYTES
    assert len(cache.answers) > CACHE_BYTES // 500_000
    assert cache.size == sum(
        len(path) + len(query) + answer.size for (path, query, *_), answer in cache.answers.items()
    )
    route.size = 600_000
    await ask("/kept/huge")
    assert (b"/kept/huge", b"", False, False) not in cache.answers
