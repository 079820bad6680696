"""A loopback gateway: programs that cannot pay send `http://127.0.0.1:PORT/https/HOST/PATH`.

It requests `https://HOST/PATH` with a guarded client, pays for it if the guard allows that, and
streams the response back. Nothing that a caller sends loosens the policy. Only programs that know
the token are served, and no browsers: a web page must not be able to spend.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import ipaddress
import logging
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from http.cookiejar import Cookie, CookieJar
from typing import Final
from urllib.parse import urlsplit

import h11
import httpx

from tollgauge_guard.errors import GuardError
from tollgauge_guard.gateway_connection import CallerConnection, GatewayError
from tollgauge_guard.guard import HANDLE
from tollgauge_guard.headers import drop_headers
from tollgauge_guard.httpx_client import GuardedClient
from tollgauge_guard.refusal import PaymentRefusedError, PaymentUnresolved
from tollgauge_guard.request import CallOptions, paying

METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"})
MAX_CONNECTIONS: Final = 64
REQUEST_TIMEOUT_S: Final = 30  # for the whole request of a caller
SELLER_TIMEOUT_S: Final = 120
MIN_TOKEN: Final = 32
PURCHASE: Final = "tollgauge-purchase"
MAX_AMOUNT: Final = "tollgauge-max-amount"
EXPECT_PAY_TO: Final = "tollgauge-expect-pay-to"
_TARGET: Final = re.compile(
    r"/(?P<scheme>https?)/(?P<host>[A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])(?P<port>:\d{1,5})?(?P<rest>[/?].*)?"
)
_OF_GATEWAY: Final = frozenset(
    {"host", "content-length", "expect", "proxy-authorization", "proxy-authenticate"}
    | {PURCHASE, MAX_AMOUNT, EXPECT_PAY_TO}
)
_log = logging.getLogger("tollgauge_guard")


@dataclass(frozen=True, slots=True)
class Order:
    """A request that the gateway may make for a caller."""

    method: str
    url: str
    headers: list[tuple[str, str]]
    body: bytes
    options: CallOptions


class Gateway:
    """Serves one guarded client on a loopback port.

    Args:
        http: makes the requests.
        token: what callers send as `Authorization: Bearer` or `Proxy-Authorization: Bearer`.
        host: a loopback address.
        port: 0 for a free one.

    Raises:
        GuardError: the address is not a loopback address, or the token is too short.
    """

    def __init__(self, http: GuardedClient, token: str, host: str, port: int) -> None:
        try:
            address = ipaddress.ip_address(host.strip("[]"))
        except ValueError as error:
            raise GuardError(f"{host} is not an IP address.", hint="Use 127.0.0.1.") from error
        if not address.is_loopback:
            raise GuardError(
                f"{host} is not a loopback address.",
                hint="The gateway spends your money: it serves this machine only. Use 127.0.0.1.",
            )
        if len(token) < MIN_TOKEN:
            raise GuardError(f"A token has at least {MIN_TOKEN} characters.")
        http.cookies.jar = _NoCookies()  # callers must not share the cookies of sellers
        self._http, self.token = http, token
        self._address, self._port = address, port
        self._connections: set[asyncio.Task[None]] = set()

    @contextlib.asynccontextmanager
    async def serve(self) -> AsyncIterator[str]:
        """Serve until the block ends; yields the URL."""
        server = await asyncio.start_server(self._accept, str(self._address), self._port)
        self._port = server.sockets[0].getsockname()[1]
        try:
            yield f"http://{self._name}:{self._port}"
        finally:
            server.close()
            for task in tuple(self._connections):
                task.cancel()
            await asyncio.gather(*self._connections, return_exceptions=True)

    @property
    def _name(self) -> str:
        return f"[{self._address}]" if self._address.version == 6 else str(self._address)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a connection without a task")
        self._connections.add(task)
        connection = CallerConnection(reader, writer)
        try:
            if len(self._connections) > MAX_CONNECTIONS:
                raise GatewayError(503, "busy", "Too many connections.")
            await self._serve(connection)
        except GatewayError as error:
            await connection.refuse(error.status, {"error": error.code, "message": str(error)})
        except (OSError, h11.LocalProtocolError):
            pass  # the caller has gone
        except asyncio.CancelledError:
            pass  # the gateway stops
        finally:
            self._connections.discard(task)
            writer.close()

    async def _serve(self, connection: CallerConnection) -> None:
        try:
            order = await asyncio.wait_for(self._read(connection), REQUEST_TIMEOUT_S)
        except TimeoutError as error:
            raise GatewayError(408, "timeout", "The request took too long.") from error
        if order is None:
            return
        # A caller who hangs up gets no answer: its payment must not count as answered.
        call = asyncio.create_task(self._pay(connection, order))
        gone = asyncio.create_task(connection.wait_closed())
        try:
            await asyncio.wait((call, gone), return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone.cancel()
            if not call.done():
                call.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await call

    async def _read(self, connection: CallerConnection) -> Order | None:
        """Return the order of a caller, None if the connection was closed before its request."""
        head = await connection.read_head()
        if head is None:
            return None
        headers = [
            (name.decode("latin-1"), value.decode("latin-1")) for name, value in head.headers
        ]
        self._check_caller(headers)
        method, target = head.method.decode("latin-1"), head.target.decode("latin-1")
        if method not in METHODS:
            raise GatewayError(
                405, "method-not-allowed", f"Use one of {', '.join(sorted(METHODS))}."
            )
        url = self._target_url(target)
        own = {name.lower(): value for name, value in headers}
        used = "proxy-authorization" if "proxy-authorization" in own else "authorization"
        kept = [
            (name, value)
            for name, value in drop_headers(headers)
            if name.lower() not in _OF_GATEWAY and name.lower() != used
        ]
        body = await connection.read_body()
        return Order(method, url, kept, body, _read_options(own))

    def _check_caller(self, headers: list[tuple[str, str]]) -> None:
        """Raise GatewayError unless the caller is a program that knows the token."""
        values: dict[str, list[str]] = {}
        for name, value in headers:
            values.setdefault(name.lower(), []).append(value)
        hosts = {f"{name}:{self._port}" for name in (self._name, "localhost")}
        if len(values.get("host", ())) != 1 or values["host"][0].lower() not in hosts:
            raise GatewayError(421, "host-mismatch", "The header Host must name the gateway.")
        if "origin" in values or any(name.startswith("sec-fetch-") for name in values):
            raise GatewayError(403, "browser", "The gateway does not serve browsers.")
        given = values.get("proxy-authorization") or values.get("authorization") or [""]
        scheme, _, token = given[0].partition(" ")
        is_known = hmac.compare_digest(
            token.strip().encode("latin-1"), self.token.encode("latin-1")
        )
        if len(given) != 1 or scheme.lower() != "bearer" or not is_known:
            raise GatewayError(401, "unauthorized", "Missing or invalid bearer token.")
        if "upgrade" in values:
            raise GatewayError(400, "upgrade", "The gateway does not upgrade connections.")

    def _target_url(self, target: str) -> str:
        """Return the URL that a path names. Raises GatewayError."""
        match = _TARGET.fullmatch(target)
        if match is None:
            raise GatewayError(400, "target", "The path must be /https/HOST/PATH.")
        scheme, host, port, rest = match.group("scheme", "host", "port", "rest")
        url = f"{scheme}://{host}{port or ''}{rest or '/'}"
        try:
            parts = urlsplit(url)
            is_own = parts.port == self._port and _is_loopback(parts.hostname or "")
        except ValueError as error:
            raise GatewayError(400, "target", "The path names no valid URL.") from error
        if is_own:
            raise GatewayError(400, "target", "The path names the gateway itself.")
        return url

    async def _pay(self, connection: CallerConnection, order: Order) -> None:
        """Make the request of an order, and send its response."""
        request = self._http.build_request(
            order.method, order.url, headers=_exact(order.headers), content=order.body
        )
        options = order.options
        try:
            with paying(
                purchase=options.purchase,
                max_amount=options.max_amount,
                expect_pay_to=options.expect_pay_to,
            ):
                answer = await self._http.send(request, stream=True, follow_redirects=True)
        except PaymentRefusedError as error:
            status = 409 if isinstance(error, PaymentUnresolved) else 403
            await connection.refuse(status, error.for_model())
        except GuardError as error:
            await connection.refuse(400, {"error": "invalid", "message": str(error)})
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            status = 504 if isinstance(error, httpx.TimeoutException) else 502
            document = {"error": "seller-unreachable", "payment": getattr(error, HANDLE, None)}
            await connection.refuse(status, document)
        except Exception:  # noqa: BLE001  # the caller gets a response, whatever fails
            _log.exception("gateway.failed")
            await connection.refuse(500, {"error": "failed"})
        else:
            try:
                await connection.send(answer)
            finally:
                await answer.aclose()


class _NoCookies(CookieJar):
    """A jar that keeps nothing."""

    def set_cookie(self, cookie: Cookie) -> None:
        """Keep nothing."""


def _exact(headers: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return headers without the defaults of httpx."""
    names = {name.lower() for name, _ in headers}
    usual = (("accept", "*/*"), ("accept-encoding", "identity"))
    return [*headers, *(pair for pair in usual if pair[0] not in names)]


def _read_options(headers: dict[str, str]) -> CallOptions:
    """Return what tightens one call. Raises GatewayError."""
    amount = headers.get(MAX_AMOUNT)
    if amount is not None and not re.fullmatch(r"\d{1,15}", amount, re.ASCII):
        raise GatewayError(400, "max-amount", "A maximum is a whole number of micro-dollars.")
    return CallOptions(
        purchase=headers.get(PURCHASE),
        max_amount=None if amount is None else int(amount),
        expect_pay_to=headers.get(EXPECT_PAY_TO),
    )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower().rstrip(".") == "localhost" or host.lower().endswith(".localhost")
