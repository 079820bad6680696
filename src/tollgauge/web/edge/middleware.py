"""The edge of the server: what happens to a request before any route sees it.

In order: the Host header, preflights, size caps (refused before parsing), the rate limit, and a
small cache of the responses of hot free routes, plain and gzipped, with `ETag` and `If-None-Match`.
It also puts the CORS and security headers on every response, and answers HEAD as GET without the
body. Pure ASGI, because a cached response should cost no more than its bytes.
"""

from __future__ import annotations

import contextlib
import hashlib
import ipaddress
import math
import time
from collections import OrderedDict
from dataclasses import dataclass, field, replace
from typing import Annotated, Final

from pydantic import AfterValidator, PositiveInt
from pydantic.dataclasses import dataclass as pydantic_dataclass
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from throttled import Throttled
from throttled.rate_limiter import per_min
from throttled.store import MemoryStore

from tollgauge.core.payment import HEADER_MAX
from tollgauge.web.edge.compress import MIN_BYTES, accepts_gzip, gzipped
from tollgauge.web.edge.limits import BODY_MAX, HEADERS_MAX, URL_MAX
from tollgauge.web.edge.problem import Problem, fault

ADDRESSES: Final = 50_000
"""How many addresses the rate limit remembers: those that came last."""
HEALTH_ONLY: Final = "health_only"
"""In the state of a request: its connection was taken above a cap, for the health routes alone."""
CACHE_SECONDS: Final = 5.0
STALE_SECONDS: Final = 3_600.0
"""How long a cached response stands in for one that cannot be made (free reads go on)."""
CACHE_BYTES: Final = 64 * 1024 * 1024
CACHE_BODY_MAX: Final = 512 * 1024

_OF_BODY: Final = frozenset({b"content-length", b"content-encoding"})
"""Headers that an answer without a body leaves out."""

EVERY_ANSWER: Final = (
    (b"access-control-allow-origin", b"*"),
    (b"access-control-expose-headers", b"PAYMENT-REQUIRED, PAYMENT-RESPONSE, Retry-After"),
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
PREFLIGHT: Final = (
    (b"access-control-allow-methods", b"GET, HEAD, POST, PATCH, DELETE, OPTIONS"),
    # The wildcard of the Fetch standard leaves Authorization out.
    (b"access-control-allow-headers", b"*, Authorization"),
    (b"access-control-max-age", b"600"),
)


@dataclass(frozen=True, slots=True)
class _Cached:
    """A response that can be sent as it is; no `etag` unless it is a 200. It is sent until
    `fresh_until`, and until `stale_until` where no new one can be made; both are monotonic seconds.
    """

    status: int
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes
    etag: bytes = b""
    fresh_until: float = 0.0
    stale_until: float = 0.0

    @property
    def size(self) -> int:
        """The bytes of the body and the headers."""
        return len(self.body) + sum(len(name) + len(value) for name, value in self.headers)


def _ip_address(text: str) -> str:
    if _address(text) is None:
        raise ValueError(f"{text!r} is not an IP address")
    return text


@pydantic_dataclass(frozen=True, slots=True, kw_only=True)
class EdgeSettings:
    """The rate limit of one address, which may use a whole minute's at once, and the proxies whose
    `X-Forwarded-For` counts.
    """

    free_per_minute: PositiveInt = 600
    trusted_proxies: tuple[Annotated[str, AfterValidator(_ip_address)], ...] = ()


@dataclass(slots=True)
class Edge:
    """The ASGI app in front of the routes. `cached` are exact paths, `cached_under` prefixes;
    paths in `unlimited` have no rate limit.
    """

    app: ASGIApp
    settings: EdgeSettings
    cached: frozenset[str] = frozenset()
    cached_under: tuple[str, ...] = ()
    unlimited: frozenset[str] = frozenset()
    _cache: OrderedDict[bytes, _Cached] = field(default_factory=OrderedDict)
    _cache_bytes: int = 0
    _limiter: Throttled = field(init=False)

    def __post_init__(self) -> None:
        most = self.settings.free_per_minute
        self._limiter = Throttled(
            using="gcra",
            quota=per_min(most, burst=most),
            store=MemoryStore(options={"MAX_SIZE": ADDRESSES}),
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI connection."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        send = _completed(send, head=scope["method"] == "HEAD")
        try:
            check_host(scope)
            if scope["method"] == "OPTIONS":
                await _send(send, 204, PREFLIGHT)
                return
            if scope.get("state", {}).get(HEALTH_ONLY) and scope["path"] not in self.unlimited:
                raise Problem(503, "busy", "Too many requests are being answered.", retry_after=1)
            check_sizes(scope)
            if scope["path"] not in self.unlimited:
                self._check_rate(scope)
        except Problem as problem:
            await problem.response()(scope, receive, send)
            return
        if scope["method"] == "HEAD":
            scope = {**scope, "method": "GET"}
        if scope["method"] == "GET" and self._cacheable(scope["path"]):
            await self._from_cache(scope, receive, send)
        else:
            await _answer(self.app, scope, receive, send)

    def _cacheable(self, path: str) -> bool:
        return path in self.cached or path.startswith(self.cached_under)

    def _check_rate(self, scope: Scope) -> None:
        result = self._limiter.limit(client_key(scope, self.settings.trusted_proxies))
        if result.limited:
            raise Problem(
                429,
                "rate-limited",
                "Too many requests from your address.",
                retry_after=max(1, math.ceil(result.state.retry_after)),
            )

    async def _from_cache(self, scope: Scope, receive: Receive, send: Send) -> None:
        response = await self._cached_or_new(scope, receive)
        if response.etag and _etag_matches(_header(scope, b"if-none-match"), response.etag):
            headers = (pair for pair in response.headers if pair[0] not in _OF_BODY)
            await _send(send, 304, tuple(headers))
            return
        await _send(send, response.status, response.headers, response.body)

    async def _cached_or_new(self, scope: Scope, receive: Receive) -> _Cached:
        """The cached response, or a new one. While one request makes it anew, and when that fails,
        the others get the cached one.
        """
        gzip = accepts_gzip((_header(scope, b"accept-encoding") or b"").decode("latin-1"))
        key = (b"gzip " if gzip else b"") + scope["path"].encode() + b"?" + scope["query_string"]
        now = time.monotonic()
        cached = self._cache.get(key)
        if cached is not None and now < cached.fresh_until:
            self._cache.move_to_end(key)
            return cached
        if cached is not None and now < cached.stale_until:
            self._cache[key] = replace(cached, fresh_until=now + CACHE_SECONDS)
        new = await _run_route(self.app, scope, receive, gzip=gzip)
        if cached is not None and new.status >= 500 and now < cached.stale_until:
            return cached
        self._drop(key)
        if new.status == 200 and len(new.body) <= CACHE_BODY_MAX:
            self._cache[key] = replace(
                new, fresh_until=now + CACHE_SECONDS, stale_until=now + STALE_SECONDS
            )
            self._cache_bytes += len(key) + new.size
            while self._cache_bytes > CACHE_BYTES:
                self._drop(next(iter(self._cache)))
        return new

    def _drop(self, key: bytes) -> None:
        cached = self._cache.pop(key, None)
        if cached is not None:
            self._cache_bytes -= len(key) + cached.size


async def _answer(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    """Run a route. What nobody expected has been answered and logged by the table of errors when
    Starlette raises it once more for a server's own log, which would hold foreign texts.
    """
    answered = False

    async def note_start(message: Message) -> None:
        nonlocal answered
        answered = True
        await send(message)

    with contextlib.suppress(Exception):
        await app(scope, _capped(receive), note_start)
    if not answered:
        await fault().response()(scope, receive, send)


async def _run_route(app: ASGIApp, scope: Scope, receive: Receive, *, gzip: bool) -> _Cached:
    """Run the route once and collect its whole answer; a 200 gets an `ETag`, a large one is gzipped
    where that is wanted.
    """
    status = 500
    headers: list[tuple[bytes, bytes]] = []
    parts: list[bytes] = []

    async def collect(message: Message) -> None:
        nonlocal status
        if message["type"] == "http.response.start":
            status = message["status"]
            headers.extend((bytes(name), bytes(value)) for name, value in message["headers"])
        else:
            parts.append(message.get("body", b""))

    await _answer(app, scope, receive, collect)
    body = b"".join(parts)
    if status != 200:
        return _Cached(status, tuple(headers), body)
    if len(body) >= MIN_BYTES:
        headers.append((b"vary", b"Accept-Encoding"))
        if gzip:
            body = await gzipped(body)
            headers = [pair for pair in headers if pair[0] != b"content-length"]
            headers.append((b"content-encoding", b"gzip"))
            headers.append((b"content-length", str(len(body)).encode()))
    etag = b'"' + hashlib.sha256(body).hexdigest()[:32].encode() + b'"'
    headers += [(b"etag", etag), (b"cache-control", b"public, max-age=60")]
    return _Cached(status, tuple(headers), body, etag)


def check_host(scope: Scope) -> None:
    """Refuse a request that does not name exactly one host: Problem 400 (RFC 9112 section 3.2).
    Two readers of one request could each take another of several names. HTTP/1.0 may name none.
    """
    hosts = sum(name == b"host" for name, _ in scope["headers"])
    if hosts > 1 or (not hosts and scope.get("http_version") == "1.1"):
        raise Problem(400, "host-invalid", f"Send exactly one Host header, not {hosts}.")


def check_sizes(scope: Scope) -> None:
    """Refuse what is too large before anything reads it: Problem 414, 431 or 413."""
    if len(scope.get("raw_path") or b"") + len(scope["query_string"]) >= URL_MAX:
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
    last address that the proxy itself saw. An IPv4 address that a dual-stack socket wrote as IPv6
    is that IPv4 address.
    """
    peer = scope["client"][0] if scope.get("client") else ""
    forwarded = _header(scope, b"x-forwarded-for")
    if forwarded and _address(peer) in [_address(proxy) for proxy in trusted]:
        peer = forwarded.decode("latin-1").rsplit(",", 1)[-1].strip()
    return address_key(peer)


def address_key(text: str) -> str:
    """Whose an address is: IPv4 as it is, IPv6 by /64, `unknown` for anything else."""
    address = _address(text)
    if isinstance(address, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((address, 64), strict=False))
    return "unknown" if address is None else str(address)


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def _header(scope: Scope, wanted: bytes) -> bytes | None:
    """A header's value; of a repeated one the last, which the nearest proxy has written."""
    return next((value for name, value in reversed(scope["headers"]) if name == wanted), None)


def _etag_matches(known: bytes | None, etag: bytes) -> bool:
    """Whether `If-None-Match` names an entity tag (RFC 9110: weak comparison, or `*`)."""
    if known is None:
        return False
    tags = [tag.strip().removeprefix(b"W/") for tag in known.split(b",")]
    return etag in tags or tags == [b"*"]


def _capped(receive: Receive) -> Receive:
    """A body that passes the cap without having announced its length ends the request."""
    received = 0

    async def counted() -> Message:
        nonlocal received
        message = await receive()
        received += len(message.get("body", b""))
        if received > BODY_MAX:
            raise Problem(413, "body-too-large", f"Keep the body under {BODY_MAX} bytes.")
        return message

    return counted


def _completed(send: Send, *, head: bool) -> Send:
    """Add what every answer carries; of an answer to HEAD, leave the body out."""

    async def complete(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", ()), *EVERY_ANSWER]
        elif head:
            message = {**message, "body": b""}
        await send(message)

    return complete


async def _send(
    send: Send, status: int, headers: tuple[tuple[bytes, bytes], ...], body: bytes = b""
) -> None:
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
