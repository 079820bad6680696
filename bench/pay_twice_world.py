"""The world of `bench pay-twice`: a simulated chain with its facilitator and node, and a proxy
between client and seller that fails on cue.

Each purchase has its own wallet, so the payer of an authorization identifies the purchase. Faults
happen once, at the first payment of a purchase; after that everything works, so that only the
client's reaction decides the number of payments.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import secrets
import socket
import struct
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

NETWORK: Final = "eip155:8453"
_BLOCK_S: Final = 2
_SLOW_S: Final = 60  # longer than any client waits
_MAX_HEAD: Final = 256 * 1_024
_BALANCE_OF: Final = "0x70a08231"
_AUTHORIZATION_STATE: Final = "0xe94a0102"
_PAYMENT_HEADERS: Final = ("payment-signature", "x-payment")


class Fault(StrEnum):
    """What happens to the first payment of a purchase."""

    NONE = "no fault"
    LOST_ANSWER = "200 lost: connection closed"
    TIMEOUT = "200 too late: client times out"
    RESET_BEFORE = "reset before settlement"
    RESET_AFTER = "reset after settlement"
    PENDING_MINED = "402 pending, mined before the resend"
    PENDING_WAITS = "402 pending, mined during the resend"
    RESTART = "facilitator restarts while settling"
    FAILED_RECEIPT = "failed receipt, settled anyway"
    REDIRECT = "redirect after settlement"
    CUT = "body cut after settlement"
    SERVER_ERROR = "502 after settlement"


@dataclass
class Purchase:
    """One purchase by one wallet. Nonces name authorizations; `sent` counts their requests."""

    payer: str
    fault: Fault
    signed: set[str] = field(default_factory=set)
    sent: Counter[str] = field(default_factory=Counter)
    settled: set[str] = field(default_factory=set)
    pending: set[str] = field(default_factory=set)
    has_failed: bool = False

    def take_fault(self, *faults: Fault) -> Fault | None:
        """Return the fault if it is one of these and has not happened yet, and mark it."""
        if self.has_failed or self.fault not in faults:
            return None
        self.has_failed = True
        return self.fault

    def mine(self) -> None:
        """Mine the pending settlements."""
        self.settled |= self.pending
        self.pending.clear()


@dataclass(frozen=True)
class Message:
    """A request or response of HTTP/1.1; header names are lower case."""

    start: str
    headers: dict[str, str]
    body: bytes


class World:
    """All purchases, and the servers that see them."""

    def __init__(self) -> None:
        self.purchases: dict[str, Purchase] = {}
        self._started_at = time.time() - 100_000

    @contextlib.asynccontextmanager
    async def serve(self) -> AsyncIterator[str]:
        """Run the facilitator (`/verify`, `/settle`, `/supported`) and the node (`/node`)."""
        async with _listen(self._answer_service) as url:
            yield url

    @contextlib.asynccontextmanager
    async def proxy(self, seller: str, purchase: Purchase) -> AsyncIterator[str]:
        """Run the line between the client of one purchase and a seller on `HOST:PORT`."""

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            request = await _read(reader)
            await self._pass_on(seller, purchase, request, writer)

        async with _listen(answer) as url:
            yield url

    # The line

    async def _pass_on(
        self, seller: str, purchase: Purchase, request: Message, writer: asyncio.StreamWriter
    ) -> None:
        header = next(
            (request.headers[name] for name in _PAYMENT_HEADERS if name in request.headers), None
        )
        if header is None:
            writer.write(_raw(await _ask(seller, request)))
            return
        payment = json.loads(base64.b64decode(header + "=" * (-len(header) % 4)))
        nonce = _authorization(payment)[1]
        purchase.signed.add(nonce)
        purchase.sent[nonce] += 1
        if purchase.take_fault(Fault.RESET_BEFORE):
            _reset(writer)
            return
        answer = await _ask(seller, request)
        if purchase.fault is Fault.PENDING_MINED:
            purchase.mine()
        # These faults need a settled payment: a client whose payment failed gets its response.
        faults = (Fault.LOST_ANSWER, Fault.TIMEOUT, Fault.RESET_AFTER, Fault.REDIRECT, Fault.CUT)
        fault = purchase.take_fault(*faults, Fault.SERVER_ERROR) if purchase.settled else None
        match fault:
            case Fault.LOST_ANSWER:
                return
            case Fault.TIMEOUT:
                await asyncio.sleep(_SLOW_S)
            case Fault.RESET_AFTER:
                _reset(writer)
            case Fault.REDIRECT:
                target = request.start.split(" ")[1]
                headers = {"location": f"{target}/moved"}
                writer.write(_raw(Message("HTTP/1.1 307 Temporary Redirect", headers, b"")))
            case Fault.CUT:
                writer.write(_raw(answer)[: -max(1, len(answer.body) // 2)])
                await writer.drain()
                _reset(writer)
            case Fault.SERVER_ERROR:
                writer.write(_raw(Message("HTTP/1.1 502 Bad Gateway", {}, b"bad gateway")))
            case _:
                writer.write(_raw(answer))

    # The facilitator

    async def _answer_service(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        request = await _read(reader)
        path = request.start.split(" ")[1]
        document: Any = json.loads(request.body or b"{}")
        match path:
            case "/supported":
                kind = {"x402Version": 2, "scheme": "exact", "network": NETWORK}
                answer: object = {"kinds": [kind], "extensions": [], "signers": {}}
            case "/verify":
                answer = self._verify(document["paymentPayload"])
            case "/settle":
                settled = self._settle(document["paymentPayload"])
                if settled is None:
                    return  # the connection is closed without a response
                answer = settled
            case "/node":
                is_batch = isinstance(document, list)
                calls = [self._call(call) for call in (document if is_batch else [document])]
                answer = calls if is_batch else calls[0]
            case _:
                writer.write(_raw(Message("HTTP/1.1 404 Not Found", {}, b"")))
                return
        headers = {"content-type": "application/json"}
        writer.write(_raw(Message("HTTP/1.1 200 OK", headers, json.dumps(answer).encode())))

    def _verify(self, payment: dict[str, Any]) -> dict[str, object]:
        payer, nonce = _authorization(payment)
        reason = None
        if nonce in self.purchases[payer].settled:
            reason = "invalid_exact_evm_nonce_already_used"
        answer: dict[str, object] = {"isValid": reason is None, "payer": payer}
        return answer if reason is None else answer | {"invalidReason": reason}

    def _settle(self, payment: dict[str, Any]) -> dict[str, object] | None:
        """Settle a payment as the official facilitator does. Returns None if it dies during
        that time.
        """
        payer, nonce = _authorization(payment)
        purchase = self.purchases[payer]
        reason = ""
        # A seller may settle more than once per request: the first request finds nothing mined.
        is_first = len(purchase.signed) == 1 and purchase.sent[nonce] == 1
        if purchase.fault in (Fault.PENDING_MINED, Fault.PENDING_WAITS) and is_first:
            purchase.pending.add(nonce)
            return self._receipt(payer, "settlement_pending")
        match purchase.take_fault(Fault.RESTART, Fault.FAILED_RECEIPT):
            case Fault.RESTART:
                purchase.pending.add(nonce)
                return None
            case Fault.FAILED_RECEIPT:
                purchase.settled.add(nonce)
                reason = "transaction_failed"
            case _:
                if nonce in purchase.settled:
                    reason = "invalid_exact_evm_nonce_already_used"
                purchase.settled.add(nonce)
                purchase.pending.discard(nonce)
        return self._receipt(payer, reason)

    def _receipt(self, payer: str, reason: str) -> dict[str, object]:
        answer: dict[str, object] = {"success": not reason, "network": NETWORK, "payer": payer}
        answer["transaction"] = "0x" + secrets.token_hex(32)
        return answer | {"errorReason": reason} if reason else answer

    # The node

    def _call(self, call: dict[str, Any]) -> dict[str, object]:
        return {"jsonrpc": "2.0", "id": call["id"], "result": self._result(call)}

    def _result(self, call: dict[str, Any]) -> object:
        height = int(time.time() - self._started_at) // _BLOCK_S
        parameters = call.get("params") or []
        match call["method"]:
            case "eth_chainId":
                return hex(int(NETWORK.split(":")[1]))
            case "eth_blockNumber":
                return hex(height)
            case "eth_getBlockByNumber":
                tag = parameters[0]
                number = int(tag, 16) if tag.startswith("0x") else height
                seconds = int(self._started_at) + number * _BLOCK_S
                return {"number": hex(number), "timestamp": hex(seconds)}
            case "eth_call":
                data = parameters[0]["data"]
                if data.startswith(_BALANCE_OF):
                    return f"0x{10**12:064x}"
                if data.startswith(_AUTHORIZATION_STATE):
                    nonce = "0x" + data[-64:].lower()
                    is_used = any(nonce in one.settled for one in self.purchases.values())
                    return f"0x{int(is_used):064x}"
        return None


def _authorization(payment: dict[str, Any]) -> tuple[str, str]:
    """Return payer and nonce of an EIP-3009 authorization, in lower case."""
    fields = payment["payload"]["authorization"]
    return fields["from"].lower(), fields["nonce"].lower()


Handle = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@contextlib.asynccontextmanager
async def _listen(handle: Handle) -> AsyncIterator[str]:
    """Serve one request per connection on a free port of 127.0.0.1; yields the URL."""
    tasks: set[asyncio.Task[None]] = set()

    async def handle_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - a callback of a server runs in a task
        tasks.add(task)
        try:
            with contextlib.suppress(OSError, EOFError, asyncio.CancelledError):
                await handle(reader, writer)
                await writer.drain()
        finally:
            tasks.discard(task)
            writer.close()

    server = await asyncio.start_server(handle_connection, "127.0.0.1", 0, limit=_MAX_HEAD)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for task in tuple(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _ask(seller: str, request: Message) -> Message:
    """Send a request to a seller and return its response."""
    host, port = seller.split(":")
    reader, writer = await asyncio.open_connection(host, int(port), limit=_MAX_HEAD)
    try:
        headers = request.headers | {"connection": "close"}
        writer.write(_raw(Message(request.start, headers, request.body)))
        await writer.drain()
        return await _read(reader, is_response=True)
    finally:
        writer.close()


async def _read(reader: asyncio.StreamReader, *, is_response: bool = False) -> Message:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    start, *lines = head.rstrip("\r\n").split("\r\n")
    parts = (line.partition(":") for line in lines)
    headers = {name.lower(): value.strip() for name, _, value in parts}
    length = headers.pop("content-length", None)
    if headers.pop("transfer-encoding", "") == "chunked":
        body = b""
        while size := int(await reader.readuntil(b"\r\n"), 16):
            body += await reader.readexactly(size)
            await reader.readexactly(2)
        await reader.readuntil(b"\r\n")
        return Message(start, headers, body)
    if length is None and is_response:
        return Message(start, headers, await reader.read())
    return Message(start, headers, await reader.readexactly(int(length or "0")))


def _raw(message: Message) -> bytes:
    headers = message.headers | {"connection": "close", "content-length": str(len(message.body))}
    lines = [message.start, *(f"{name}: {value}" for name, value in headers.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + message.body


def _reset(writer: asyncio.StreamWriter) -> None:
    """Close a connection with a TCP reset (SO_LINGER with a time of zero)."""
    writer.get_extra_info("socket").setsockopt(
        socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
    )
    writer.transport.abort()
