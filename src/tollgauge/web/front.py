"""The front of the server: what happens to a request before any route sees it.

In order: size caps (contract.md section 1: refused before parsing), the rate limit of free routes,
and a small cache of ready-made bytes for the hot free ones, with `ETag` and `If-None-Match`. It
also puts the security headers on every answer. Pure ASGI, because a cached answer should cost no
more than its bytes.
"""

from __future__ import annotations

import hashlib
import ipaddress
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass, field
from typing import Any, Final

from limits import RateLimitItemPerMinute
from limits.aio.storage import MemoryStorage
from limits.aio.strategies import MovingWindowRateLimiter

from tollgauge.core.payment import HEADER_MAX
from tollgauge.web.problem import Problem

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

URL_MAX: Final = 4_096
BODY_MAX: Final = 65_536
HEADERS_MAX: Final = 32_768
CACHE_SECONDS: Final = 5.0
CACHE_ENTRIES: Final = 4_096
CACHE_BODY_MAX: Final = 512 * 1024

SECURITY_HEADERS: Final = (
    (
        b"content-security-policy",
        (
            b"default-src 'none'; style-src 'self'; img-src 'self'; script-src 'self'; "
            b"connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
        ),
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
)


@dataclass(frozen=True, slots=True)
class _Ready:
    """An answer that can be sent as it is."""

    status: int
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes
    etag: bytes
    until: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontSettings:
    """Limits of the free routes. `trusted_proxies` are addresses whose `X-Forwarded-For` counts."""

    free_per_minute: int = 600
    trusted_proxies: tuple[str, ...] = ()


@dataclass(slots=True)
class Front:
    """The ASGI app in front of the routes. `cached` and `paid` are exact paths or prefixes."""

    app: App
    settings: FrontSettings
    cached: tuple[str, ...] = ()
    unlimited: tuple[str, ...] = ()
    _ready: OrderedDict[bytes, _Ready] = field(default_factory=OrderedDict)
    _limiter: MovingWindowRateLimiter = field(
        default_factory=lambda: MovingWindowRateLimiter(MemoryStorage())
    )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI connection."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        try:
            check_sizes(scope)
            if not scope["path"].startswith(self.unlimited):
                await self._check_rate(scope)
        except Problem as problem:
            await problem.response()(scope, receive, _with_headers(send))
            return
        if scope["method"] in ("GET", "HEAD") and scope["path"].startswith(self.cached):
            await self._from_cache(scope, receive, send)
        else:
            await self.app(scope, _capped(receive), _with_headers(send))

    async def _check_rate(self, scope: Scope) -> None:
        limit = RateLimitItemPerMinute(self.settings.free_per_minute)
        if not await self._limiter.hit(limit, client_key(scope, self.settings.trusted_proxies)):
            raise Problem(
                429, "rate-limited", "Too many requests from your address.", retry_after=60
            )

    async def _from_cache(self, scope: Scope, receive: Receive, send: Send) -> None:
        key = scope["path"].encode() + b"?" + scope["query_string"]
        ready = self._ready.get(key)
        if ready is None or ready.until < time.monotonic():
            ready = await self._make(key, scope, receive)
        known = _header(scope, b"if-none-match")
        if ready.etag and known and ready.etag in [tag.strip() for tag in known.split(b",")]:
            kept = tuple(pair for pair in ready.headers if pair[0] != b"content-length")
            await send({"type": "http.response.start", "status": 304, "headers": kept})
            await send({"type": "http.response.body", "body": b""})
            return
        await send(
            {"type": "http.response.start", "status": ready.status, "headers": ready.headers}
        )
        body = b"" if scope["method"] == "HEAD" else ready.body
        await send({"type": "http.response.body", "body": body})

    async def _make(self, key: bytes, scope: Scope, receive: Receive) -> _Ready:
        """Run the route once and keep its whole answer; only a 200 stays in the cache."""
        status = 500
        headers: list[tuple[bytes, bytes]] = []
        parts: list[bytes] = []

        async def collect(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers.extend((bytes(k), bytes(v)) for k, v in message["headers"])
            else:
                parts.append(message.get("body", b""))

        await self.app({**scope, "method": "GET"}, receive, collect)
        body = b"".join(parts)
        etag = (
            b'"' + hashlib.sha256(body).hexdigest()[:32].encode() + b'"' if status == 200 else b""
        )
        if etag:
            headers += [(b"etag", etag), (b"cache-control", b"public, max-age=60")]
        ready = _Ready(
            status,
            (*headers, *SECURITY_HEADERS),
            body,
            etag,
            time.monotonic() + CACHE_SECONDS,
        )
        if status == 200 and len(body) <= CACHE_BODY_MAX:
            self._ready[key] = ready
            self._ready.move_to_end(key)
            while len(self._ready) > CACHE_ENTRIES:
                self._ready.popitem(last=False)
        return ready


def check_sizes(scope: Scope) -> None:
    """Refuse what is too large before anything reads it: Problem 414, 431 or 413."""
    if len(scope.get("raw_path") or b"") + len(scope["query_string"]) > URL_MAX:
        raise Problem(414, "url-too-long", f"Keep the URL under {URL_MAX} bytes.")
    total = 0
    for name, value in scope["headers"]:
        total += len(name) + len(value)
        if name in (b"payment-signature", b"x-payment") and len(value) > HEADER_MAX:
            raise Problem(
                431, "payment-header-too-large", f"Keep the payment under {HEADER_MAX} bytes."
            )
    if total > HEADERS_MAX:
        raise Problem(431, "headers-too-large", f"Keep the headers under {HEADERS_MAX} bytes.")
    length = _header(scope, b"content-length")
    if length is not None and (not length.isdigit() or int(length[:12]) > BODY_MAX):
        raise Problem(413, "body-too-large", f"Keep the body under {BODY_MAX} bytes.")


def client_key(scope: Scope, trusted: tuple[str, ...]) -> str:
    """Whom the rate limit counts: the peer's address, IPv6 by /64; behind a trusted proxy, the
    last address that the proxy itself saw.
    """
    peer = scope["client"][0] if scope.get("client") else "unknown"
    forwarded = _header(scope, b"x-forwarded-for")
    if forwarded and peer in trusted:
        peer = forwarded.decode("latin-1").rsplit(",", 1)[-1].strip()
    try:
        address = ipaddress.ip_address(peer)
    except ValueError:
        return "unknown"
    if isinstance(address, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((address, 64), strict=False))
    return str(address)


def _header(scope: Scope, wanted: bytes) -> bytes | None:
    return next((value for name, value in scope["headers"] if name == wanted), None)


def _capped(receive: Receive) -> Receive:
    """A body that passes the cap without having announced its length ends the request."""
    seen = 0

    async def counted() -> Message:
        nonlocal seen
        message = await receive()
        seen += len(message.get("body", b""))
        if seen > BODY_MAX:
            raise Problem(413, "body-too-large", f"Keep the body under {BODY_MAX} bytes.")
        return message

    return counted


def _with_headers(send: Send) -> Send:
    async def secured(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", ()), *SECURITY_HEADERS]
        await send(message)

    return secured
