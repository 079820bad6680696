"""A world of bad sellers on loopback: real sockets, real TLS, every way to misbehave.

`hostile_world()` yields a World: one TLS listener whose certificate depends on the asked name
and whose behaviour depends on the path, raw TCP listeners that never speak TLS, and a canary that
nobody may ever reach. Names end in `.sellers.example` and are mapped by egress settings.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import socket
import ssl
import struct
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

ZONE: Final = "sellers.example"
NOT_AFTER: Final = dt.datetime(2031, 2, 3, 4, 5, 6, tzinfo=dt.UTC)
PLAIN_BROTLI: Final = bytes.fromhex("8b0480706c61696e207465787403")
"""The words `plain text`, as Node's zlib.brotliCompressSync packs them."""
BROTLI_BOMB: Final = bytes.fromhex("cbffff3f002400e2b14072effff2ffff0f8004401c1680eefd1f")
"""16 MiB of zeros, packed the same way."""
PAYMENT_REQUIRED: Final = b"HTTP/1.1 402 Payment Required\r\n"
MEBIBYTE: Final = 1 << 20

Reply = Callable[[asyncio.StreamWriter, bytes], Awaitable[None]]


@dataclass
class World:
    """What a test sees of the world. `requests` are raw request texts in order of arrival;
    `otherwise` is the path that answers for all that have no answer of their own.
    """

    ca_file: str
    mapped: dict[str, tuple[str, int]]
    canary_port: int
    canary_hits: list[str] = field(default_factory=list)
    otherwise: str = "/always-404"
    requests: list[bytes] = field(default_factory=list)
    hung_up: asyncio.Event = field(default_factory=asyncio.Event)
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    def note(self, request: bytes) -> None:
        """A request has come in."""
        self.requests.append(request)
        self._news.set()

    async def arrived(self, count: int) -> None:
        """Wait until so many requests have come in."""
        while len(self.requests) < count:
            self._news.clear()
            await self._news.wait()

    def asked(self, path: str) -> list[bytes]:
        """The requests for a path."""
        return [item for item in self.requests if item.split(b" ", 2)[1] == path.encode()]


@contextlib.asynccontextmanager
async def hostile_world(folder: Path) -> AsyncIterator[World]:
    """Start everything, on free ports; stop it at the end."""
    authority = trustme.CA()
    ca_file = folder / "authority.pem"
    authority.cert_pem.write_to_path(str(ca_file))
    async with contextlib.AsyncExitStack() as stack:
        canary = await stack.enter_async_context(_canary())
        world = World(ca_file=str(ca_file), mapped={}, canary_port=canary.port)
        world.canary_hits = canary.hits
        replies = _replies(world)
        tls_port = await stack.enter_async_context(
            _listener(_speaker(world, replies), _contexts(authority))
        )
        for name in ("good", *_CERTIFICATES, "alert"):
            world.mapped[f"{name}.{ZONE}"] = ("127.0.0.1", tls_port)
        for name, behaviour in _RAW.items():
            port = await stack.enter_async_context(_listener(behaviour, None))
            world.mapped[f"{name}.{ZONE}"] = ("127.0.0.1", port)
        world.mapped[f"refused.{ZONE}"] = ("127.0.0.1", stack.enter_context(_closed_port()))
        world.mapped[f"full.{ZONE}"] = ("127.0.0.1", stack.enter_context(_full_backlog()))
        yield world


# The listeners


@dataclass
class Canary:
    """Listens on both loopback families; every connection is a hit."""

    port: int
    hits: list[str] = field(default_factory=list)


@contextlib.asynccontextmanager
async def _canary() -> AsyncIterator[Canary]:
    canary = Canary(port=0)

    async def hit(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        canary.hits.append(str(writer.get_extra_info("peername")))
        writer.close()

    async with contextlib.AsyncExitStack() as stack:
        first = await asyncio.start_server(hit, "127.0.0.1", 0)
        await stack.enter_async_context(first)
        canary.port = first.sockets[0].getsockname()[1]
        if socket.has_ipv6:
            with contextlib.suppress(OSError):  # a machine without IPv6 has no ::1 to protect
                second = await asyncio.start_server(hit, "::1", canary.port)
                await stack.enter_async_context(second)
        yield canary


@contextlib.asynccontextmanager
async def _listener(
    behaviour: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
    context: ssl.SSLContext | None,
) -> AsyncIterator[int]:
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        tasks.add(task)
        try:
            with contextlib.suppress(OSError, EOFError, asyncio.CancelledError):
                await behaviour(reader, writer)
        finally:
            tasks.discard(task)
            writer.transport.abort()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context, backlog=256)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in tuple(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@contextlib.contextmanager
def _closed_port() -> Iterator[int]:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))  # bound, not listening: connections are refused
        yield holder.getsockname()[1]


@contextlib.contextmanager
def _full_backlog() -> Iterator[int]:
    """A port that answers no SYN, because its queue is full and nobody accepts."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(4):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        yield listener.getsockname()[1]


# Certificates

_CERTIFICATES: Final = frozenset(
    {"wrong", "nameless", "self-signed", "stranger", "strange-chain", "expired", "not-yet"}
)
"""Hosts whose certificate is not valid for them."""


def _contexts(authority: trustme.CA) -> ssl.SSLContext:
    """A context that chooses its certificate by the asked name."""
    past = NOT_AFTER.replace(year=2020)
    stranger = trustme.CA()
    chain = stranger.create_child_ca()
    issued = {
        "good": authority.issue_cert(f"good.{ZONE}", not_after=NOT_AFTER),
        "wrong": authority.issue_cert("someone-else.example"),
        "stranger": stranger.issue_cert(f"stranger.{ZONE}"),
        "expired": authority.issue_cert(
            f"expired.{ZONE}", not_before=past.replace(year=2019), not_after=past
        ),
        "not-yet": authority.issue_cert(
            f"not-yet.{ZONE}",
            not_before=NOT_AFTER.replace(year=2090),
            not_after=NOT_AFTER.replace(year=2091),
        ),
        "strange-chain": chain.issue_cert(f"strange-chain.{ZONE}"),
    }
    contexts = {name: _context(leaf) for name, leaf in issued.items()}
    contexts["self-signed"] = _self_signed()
    contexts["nameless"] = _nameless()

    def choose(
        connection: ssl.SSLObject | ssl.SSLSocket, name: str | None, _: object
    ) -> int | None:
        label = (name or "").split(".")[0]
        connection.context = contexts.get(label, contexts["good"])
        return (
            ssl.AlertDescription.ALERT_DESCRIPTION_HANDSHAKE_FAILURE if label == "alert" else None
        )

    contexts["good"].sni_callback = choose
    return contexts["good"]


def _context(leaf: trustme.LeafCert) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    leaf.configure_cert(context)
    return context


def _self_signed() -> ssl.SSLContext:
    """A certificate of its own issue, for the right name."""
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"self-signed.{ZONE}")])
    key = ec.generate_private_key(ec.SECP256R1())
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(NOT_AFTER.replace(year=2020))
        .not_valid_after(NOT_AFTER)
        .add_extension(
            x509.SubjectAlternativeName([x509.DNSName(f"self-signed.{ZONE}")]), critical=False
        )
        .sign(key, hashes.SHA256())
    )
    return _loaded(
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        + made.public_bytes(Encoding.PEM)
    )


def _nameless() -> ssl.SSLContext:
    """An authority that serves its own certificate, which names no host."""
    lonely = trustme.CA()
    return _loaded(lonely.private_key_pem.bytes() + lonely.cert_pem.bytes())


def _loaded(pem: bytes) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with trustme.Blob(pem).tempfile() as path:
        context.load_cert_chain(path)
    return context


# Raw TCP behaviours


async def _reset(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    connection = writer.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def _silent(_reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(30)


async def _plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(64)
    writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
    await writer.drain()


async def _hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(65_536)
    writer.close()


_RAW: Final = {"reset": _reset, "silent": _silent, "plain": _plain, "hang-up": _hang_up}


# HTTP behaviours, by path


def _speaker(
    world: World, replies: dict[str, Reply]
) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(
            (int(line[15:]) for line in head.split(b"\r\n") if line[:15] == b"Content-Length:"), 0
        )
        request = head + (await reader.readexactly(length) if length else b"")
        world.note(request)
        path = request.split(b" ", 2)[1].decode().split("?")[0]
        try:
            await replies[path if path in replies else world.otherwise](writer, request)
            await writer.drain()
            writer.close()
            await writer.wait_closed()
        except OSError:
            world.hung_up.set()

    return speak


def _fixed(answer: bytes) -> Reply:
    async def reply(writer: asyncio.StreamWriter, _request: bytes) -> None:
        writer.write(answer)

    return reply


def _flood(opening: bytes, piece: bytes, *, pause: float = 0.0, most: int = 1 << 30) -> Reply:
    """An opening, then a piece again and again until the client hangs up."""

    async def reply(writer: asyncio.StreamWriter, _request: bytes) -> None:
        writer.write(opening)
        sent = 0
        while sent < most and not writer.is_closing():
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(pause)
            sent += len(piece)

    return reply


def answer(body: bytes = b"{}", *headers: bytes, status: bytes = b"402 Payment Required") -> bytes:
    """A well-formed answer with a length."""
    lines = [b"HTTP/1.1 " + status, *headers, b"Content-Length: %d" % len(body)]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


async def _bomb(writer: asyncio.StreamWriter, _request: bytes) -> None:
    """512 MiB of zeros in half a MiB of gzip."""
    writer.write(PAYMENT_REQUIRED + b"Content-Encoding: gzip\r\n\r\n")
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    zeros = bytes(MEBIBYTE)
    for _ in range(512):
        if writer.is_closing():
            return
        writer.write(packer.compress(zeros) + packer.flush(zlib.Z_SYNC_FLUSH))
        await writer.drain()
        await asyncio.sleep(0)  # draining alone does not yield
    writer.write(packer.flush())


async def _methods(writer: asyncio.StreamWriter, request: bytes) -> None:
    """Says back what it got, body included."""
    writer.write(answer(b"" if request.startswith(b"HEAD") else request))


async def _no_goodbye(writer: asyncio.StreamWriter, _request: bytes) -> None:
    """A body without a length that ends with the connection, without TLS's close_notify."""
    writer.write(PAYMENT_REQUIRED + b"\r\nthe whole body")
    await writer.drain()
    await asyncio.sleep(0.05)
    writer.transport.abort()


async def _hold(writer: asyncio.StreamWriter, _request: bytes) -> None:
    """Half a body, then nothing."""
    writer.write(PAYMENT_REQUIRED + b"Content-Length: 10\r\n\r\nhalf")
    await writer.drain()
    await asyncio.sleep(30)


async def _stay(writer: asyncio.StreamWriter, _request: bytes) -> None:
    """A whole answer on a connection that stays open and answers nothing more."""
    writer.write(answer())
    await writer.drain()
    await asyncio.sleep(30)


async def _watch_for_hang_up(world: World, writer: asyncio.StreamWriter) -> None:
    writer.write(PAYMENT_REQUIRED + b"Content-Length: 100000\r\n\r\n")
    while not writer.is_closing():
        writer.write(b".")
        await writer.drain()
        await asyncio.sleep(0.02)
    world.hung_up.set()


def _post_only(body: bytes) -> Reply:
    """402 to a POST with a given body, 405 to everything else."""

    async def reply(writer: asyncio.StreamWriter, request: bytes) -> None:
        right = request.startswith(b"POST ") and request.endswith(b"\r\n\r\n" + body)
        refused = b"405 Method Not Allowed"
        writer.write(answer() if right else answer(b"", status=refused))

    return reply


def _get_only(status: bytes) -> Reply:
    """402 to a GET, another status to everything else."""

    async def reply(writer: asyncio.StreamWriter, request: bytes) -> None:
        right = request.startswith(b"GET ")
        writer.write(answer() if right else answer(b"", status=status))

    return reply


def _replies(world: World) -> dict[str, Reply]:
    async def watched(writer: asyncio.StreamWriter, _request: bytes) -> None:
        await _watch_for_hang_up(world, writer)

    head = PAYMENT_REQUIRED
    chunked = head + b"Transfer-Encoding: chunked\r\n\r\n"
    canary = b"http://127.0.0.1:%d/" % world.canary_port
    table: dict[str, Reply] = {
        "/watched": watched,
        "/echo": _methods,
        "/bomb": _bomb,
        "/no-goodbye": _no_goodbye,
        "/hold": _hold,
        "/stay": _stay,
        "/silence": _flood(b"", b"", pause=30),
        "/deflated": _fixed(answer(zlib.compress(b"plain text"), b"Content-Encoding: deflate")),
        "/brotli": _fixed(answer(PLAIN_BROTLI, b"Content-Encoding: br")),
        "/brotli-bomb": _fixed(answer(BROTLI_BOMB, b"Content-Encoding: br")),
        "/brotli-bomb-in-gzip": _fixed(
            answer(zlib.compress(BROTLI_BOMB, wbits=31), b"Content-Encoding: br, gzip")
        ),
        "/broken-brotli": _fixed(answer(b"not brotli at all", b"Content-Encoding: br")),
        "/continue-flood": _flood(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 400),
        "/hints-then-402": _fixed(
            b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n"
            + answer()
        ),
        "/header-drip": _flood(head + b"X-Slow: ", b"a", pause=0.05),
        "/body-drip": _flood(head + b"Content-Length: 9999\r\n\r\n", b"a", pause=0.05),
        "/header-bomb": _flood(head, b"X-A: " + b"b" * 8_000 + b"\r\n", most=160 * MEBIBYTE),
        "/one-huge-header": _flood(head + b"X-A: ", b"b" * 8_000, most=160 * MEBIBYTE),
        "/headers-65k": _fixed(answer(b"", b"X-A: " + b"b" * 40_000, b"X-B: " + b"b" * 30_000)),
        "/header-20k": _fixed(answer(b"{}", b"PAYMENT-REQUIRED: " + b"A" * 20_000)),
        "/huge-body": _fixed(answer(b"x" * MEBIBYTE, b"PAYMENT-REQUIRED: e30=")),
        "/body-at-the-cap": _fixed(answer(b"x" * 256 * 1_024)),
        "/endless-chunks": _flood(chunked, b"1000\r\n" + b"c" * 4_096 + b"\r\n"),
        "/chunk-extensions": _flood(chunked + b"1;", b"e" * 8_000),
        "/trailer-flood": _flood(chunked + b"1\r\na\r\n0\r\n", b"X-T: " + b"t" * 500 + b"\r\n"),
        "/empty-gzip-members": _flood(
            head + b"Content-Encoding: gzip\r\n\r\n", zlib.compress(b"", wbits=31) * 500
        ),
        "/broken-gzip": _fixed(answer(b"not gzip at all", b"Content-Encoding: gzip")),
        "/unknown-encoding": _fixed(answer(b"{}", b"Content-Encoding: aws-chunked")),
        "/redirect": _fixed(answer(b"", b"Location: " + canary, status=b"302 Found")),
        "/redirect-307": _fixed(answer(b"", b"Location: " + canary, status=b"307 Temporary")),
        "/redirect-https": _fixed(
            answer(b"", b"Location: https://good.sellers.example/", status=b"302 Found")
        ),
        "/redirect-path": _fixed(answer(b"", b"Location: /http:", status=b"302 Found")),
        "/redirect-loud": _fixed(answer(b"", b"Location:  HT\tTP://x.example", status=b"308 P")),
        "/refresh": _fixed(answer(b"<meta http-equiv=refresh>", b"Refresh: 0; url=" + canary)),
        "/alt-svc": _fixed(answer(b"", b'Alt-Svc: h2="127.0.0.1:%d"' % world.canary_port)),
        "/cookies": _fixed(answer(b"", b"Set-Cookie: a=b; Path=/; Secure")),
        "/401": _fixed(answer(b"", b"WWW-Authenticate: Basic", status=b"401 Unauthorized")),
        "/empty": _fixed(b""),
        "/two-lengths": _fixed(head + b"Content-Length: 2\r\nContent-Length: 5\r\n\r\nhello"),
        "/same-lengths": _fixed(head + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}"),
        "/length-and-chunked": _fixed(
            head + b"Content-Length: 7\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"
        ),
        "/length-2e63": _fixed(head + b"Content-Length: 9223372036854775808\r\n\r\n{}"),
        "/length-2e63-1": _fixed(head + b"Content-Length: 9223372036854775807\r\n\r\n{}"),
        "/length-of-many-digits": _fixed(head + b"Content-Length: " + b"9" * 5_000 + b"\r\n\r\n{}"),
        "/negative-length": _fixed(head + b"Content-Length: -5\r\n\r\nhello"),
        "/short-body": _fixed(head + b"Content-Length: 50\r\n\r\nhello"),
        "/nul": _fixed(answer(b"", b"X-A: a\x00b")),
        "/space-before-colon": _fixed(answer(b"", b"X-A : b")),
        "/no-colon": _fixed(answer(b"", b"nonsense")),
        "/999": _fixed(answer(b"", status=b"999 Odd")),
        "/000": _fixed(answer(b"", status=b"000 Odd")),
        "/1000": _fixed(answer(b"", status=b"1000 Odd")),
        "/http-0.9": _fixed(b"hello\r\n\r\n"),
        "/bare-lf": _fixed(b"HTTP/1.1 402 Payment Required\nX-A: b\nContent-Length: 2\n\n{}"),
        "/folded": _fixed(answer(b"", b"X-A: b\r\n c")),
        "/odd-bytes": _fixed(answer(b"\xff", b"X-A: \xe9\xff", status=b"402 <script>\xff")),
        "/twice": _fixed(answer(b"", b"Payment-Required: one", b"PAYMENT-REQUIRED: two")),
        "/injection": _fixed(answer(b"", b"Location: \\r\\nX: y", status=b"302 Found")),
        "/post-only": _post_only(b"{}"),
        "/declared-body": _post_only(b'{"city":"Oslo"}'),
        "/get-only-404": _get_only(b"404 Not Found"),
        "/get-only-200": _get_only(b"200 OK"),
    }
    for status in (200, 204, 400, 403, 404, 405, 415, 422, 429, 500, 503):
        table[f"/always-{status}"] = _fixed(answer(b"", status=b"%d Always" % status))
    return table
