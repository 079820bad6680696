"""HTTP responses of hostile sellers, by path."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Awaitable, Callable
from typing import Final

PLAIN_BROTLI: Final = bytes.fromhex("8b0480706c61696e207465787403")
"""The text `plain text`, compressed with Node's zlib.brotliCompressSync."""
BROTLI_BOMB: Final = bytes.fromhex("cbffff3f002400e2b14072effff2ffff0f8004401c1680eefd1f")
"""16 MiB of zeros, compressed in the same way."""
PAYMENT_REQUIRED: Final = b"HTTP/1.1 402 Payment Required\r\n"
MEBIBYTE: Final = 1 << 20


Reply = Callable[[asyncio.StreamWriter, bytes], Awaitable[None]]


def _reply_with(answer: bytes) -> Reply:
    async def reply(writer: asyncio.StreamWriter, _request: bytes) -> None:
        writer.write(answer)

    return reply


def _flood(opening: bytes, piece: bytes, *, pause: float = 0.0, most: int = 1 << 30) -> Reply:
    """Send an opening, then one piece repeatedly until the client hangs up."""

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
    """Return a well-formed response with a length."""
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
        await asyncio.sleep(0)  # drain() does not yield by itself
    writer.write(packer.flush())


async def _methods(writer: asyncio.StreamWriter, request: bytes) -> None:
    """Send back the received request with its body."""
    writer.write(answer(b"" if request.startswith(b"HEAD") else request))


async def _no_goodbye(writer: asyncio.StreamWriter, _request: bytes) -> None:
    """A body without a length that ends with the connection, without TLS's close_notify."""
    writer.write(PAYMENT_REQUIRED + b"\r\nthe whole body")
    await writer.drain()
    await asyncio.sleep(0.05)
    writer.transport.abort()


async def _hold(writer: asyncio.StreamWriter, _request: bytes) -> None:
    """Half of a body, then nothing."""
    writer.write(PAYMENT_REQUIRED + b"Content-Length: 10\r\n\r\nhalf")
    await writer.drain()
    await asyncio.sleep(30)


async def _stay(writer: asyncio.StreamWriter, _request: bytes) -> None:
    """A complete response on a connection that stays open and answers nothing more."""
    writer.write(answer())
    await writer.drain()
    await asyncio.sleep(30)


async def _watch_for_hang_up(hung_up: asyncio.Event, writer: asyncio.StreamWriter) -> None:
    writer.write(PAYMENT_REQUIRED + b"Content-Length: 100000\r\n\r\n")
    while not writer.is_closing():
        writer.write(b".")
        await writer.drain()
        await asyncio.sleep(0.02)
    hung_up.set()


def _post_only(body: bytes) -> Reply:
    """402 for a POST with a given body, 405 otherwise."""

    async def reply(writer: asyncio.StreamWriter, request: bytes) -> None:
        right = request.startswith(b"POST ") and request.endswith(b"\r\n\r\n" + body)
        refused = b"405 Method Not Allowed"
        writer.write(answer() if right else answer(b"", status=refused))

    return reply


def _get_only(status: bytes) -> Reply:
    """402 for a GET, another status otherwise."""

    async def reply(writer: asyncio.StreamWriter, request: bytes) -> None:
        right = request.startswith(b"GET ")
        writer.write(answer() if right else answer(b"", status=status))

    return reply


def replies_of(*, canary_port: int, hung_up: asyncio.Event) -> dict[str, Reply]:
    """Return the responses by path. Redirects lead to the canary; `hung_up` is set when a client
    disconnects from the path `/watched`.
    """

    async def watch_for_hang_up(writer: asyncio.StreamWriter, _request: bytes) -> None:
        await _watch_for_hang_up(hung_up, writer)

    head = PAYMENT_REQUIRED
    chunked = head + b"Transfer-Encoding: chunked\r\n\r\n"
    canary = b"http://127.0.0.1:%d/" % canary_port
    table: dict[str, Reply] = {
        "/watched": watch_for_hang_up,
        "/echo": _methods,
        "/bomb": _bomb,
        "/no-goodbye": _no_goodbye,
        "/hold": _hold,
        "/stay": _stay,
        "/silence": _flood(b"", b"", pause=30),
        "/deflated": _reply_with(
            answer(zlib.compress(b"plain text"), b"Content-Encoding: deflate")
        ),
        "/brotli": _reply_with(answer(PLAIN_BROTLI, b"Content-Encoding: br")),
        "/brotli-bomb": _reply_with(answer(BROTLI_BOMB, b"Content-Encoding: br")),
        "/brotli-bomb-in-gzip": _reply_with(
            answer(zlib.compress(BROTLI_BOMB, wbits=31), b"Content-Encoding: br, gzip")
        ),
        "/broken-brotli": _reply_with(answer(b"not brotli at all", b"Content-Encoding: br")),
        "/continue-flood": _flood(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 400),
        "/hints-then-402": _reply_with(
            b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n"
            + answer()
        ),
        "/header-drip": _flood(head + b"X-Slow: ", b"a", pause=0.05),
        "/body-drip": _flood(head + b"Content-Length: 9999\r\n\r\n", b"a", pause=0.05),
        "/header-bomb": _flood(head, b"X-A: " + b"b" * 8_000 + b"\r\n", most=160 * MEBIBYTE),
        "/one-huge-header": _flood(head + b"X-A: ", b"b" * 8_000, most=160 * MEBIBYTE),
        "/headers-65k": _reply_with(
            answer(b"", b"X-A: " + b"b" * 40_000, b"X-B: " + b"b" * 30_000)
        ),
        "/header-20k": _reply_with(answer(b"{}", b"PAYMENT-REQUIRED: " + b"A" * 20_000)),
        "/huge-body": _reply_with(answer(b"x" * MEBIBYTE, b"PAYMENT-REQUIRED: e30=")),
        "/body-at-the-cap": _reply_with(answer(b"x" * 256 * 1_024)),
        "/endless-chunks": _flood(chunked, b"1000\r\n" + b"c" * 4_096 + b"\r\n"),
        "/chunk-extensions": _flood(chunked + b"1;", b"e" * 8_000),
        "/trailer-flood": _flood(chunked + b"1\r\na\r\n0\r\n", b"X-T: " + b"t" * 500 + b"\r\n"),
        "/empty-gzip-members": _flood(
            head + b"Content-Encoding: gzip\r\n\r\n", zlib.compress(b"", wbits=31) * 500
        ),
        "/broken-gzip": _reply_with(answer(b"not gzip at all", b"Content-Encoding: gzip")),
        "/unknown-encoding": _reply_with(answer(b"{}", b"Content-Encoding: aws-chunked")),
        "/redirect": _reply_with(answer(b"", b"Location: " + canary, status=b"302 Found")),
        "/redirect-307": _reply_with(answer(b"", b"Location: " + canary, status=b"307 Temporary")),
        "/redirect-https": _reply_with(
            answer(b"", b"Location: https://good.sellers.example/", status=b"302 Found")
        ),
        "/redirect-path": _reply_with(answer(b"", b"Location: /http:", status=b"302 Found")),
        "/redirect-loud": _reply_with(
            answer(b"", b"Location:  HT\tTP://x.example", status=b"308 P")
        ),
        "/refresh": _reply_with(answer(b"<meta http-equiv=refresh>", b"Refresh: 0; url=" + canary)),
        "/alt-svc": _reply_with(answer(b"", b'Alt-Svc: h2="127.0.0.1:%d"' % canary_port)),
        "/cookies": _reply_with(answer(b"", b"Set-Cookie: a=b; Path=/; Secure")),
        "/401": _reply_with(answer(b"", b"WWW-Authenticate: Basic", status=b"401 Unauthorized")),
        "/empty": _reply_with(b""),
        "/two-lengths": _reply_with(head + b"Content-Length: 2\r\nContent-Length: 5\r\n\r\nhello"),
        "/same-lengths": _reply_with(head + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}"),
        "/length-and-chunked": _reply_with(
            head + b"Content-Length: 7\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"
        ),
        "/length-2e63": _reply_with(head + b"Content-Length: 9223372036854775808\r\n\r\n{}"),
        "/length-2e63-1": _reply_with(head + b"Content-Length: 9223372036854775807\r\n\r\n{}"),
        "/length-of-many-digits": _reply_with(
            head + b"Content-Length: " + b"9" * 5_000 + b"\r\n\r\n{}"
        ),
        "/negative-length": _reply_with(head + b"Content-Length: -5\r\n\r\nhello"),
        "/short-body": _reply_with(head + b"Content-Length: 50\r\n\r\nhello"),
        "/nul": _reply_with(answer(b"", b"X-A: a\x00b")),
        "/space-before-colon": _reply_with(answer(b"", b"X-A : b")),
        "/no-colon": _reply_with(answer(b"", b"nonsense")),
        "/999": _reply_with(answer(b"", status=b"999 Odd")),
        "/000": _reply_with(answer(b"", status=b"000 Odd")),
        "/1000": _reply_with(answer(b"", status=b"1000 Odd")),
        "/http-0.9": _reply_with(b"hello\r\n\r\n"),
        "/bare-lf": _reply_with(b"HTTP/1.1 402 Payment Required\nX-A: b\nContent-Length: 2\n\n{}"),
        "/folded": _reply_with(answer(b"", b"X-A: b\r\n c")),
        "/odd-bytes": _reply_with(answer(b"\xff", b"X-A: \xe9\xff", status=b"402 <script>\xff")),
        "/twice": _reply_with(answer(b"", b"Payment-Required: one", b"PAYMENT-REQUIRED: two")),
        "/injection": _reply_with(answer(b"", b"Location: \\r\\nX: y", status=b"302 Found")),
        "/post-only": _post_only(b"{}"),
        "/declared-body": _post_only(b'{"city":"Oslo"}'),
        "/get-only-404": _get_only(b"404 Not Found"),
        "/get-only-200": _get_only(b"200 OK"),
    }
    for status in (200, 204, 400, 403, 404, 405, 415, 422, 429, 500, 503):
        table[f"/always-{status}"] = _reply_with(answer(b"", status=b"%d Always" % status))
    return table
