"""The sellers of tests/support/sellers.py on TLS, each at its own loopback address.

A seller settles a received payment at the demo's facilitator if it is in USDC; for any other token,
it sends the payment to the chain itself. Two records show the actions of clients: every payment
that arrived at a socket, and the state of its nonce on the chain. Requests name their order in the
header `x-order`, so both are known by order, whichever host answered last.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import socket
import ssl
import struct
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx
import trustme
from eth_abi.abi import encode
from eth_account import Account
from tests.support.processes import free_port
from tests.support.sellers import (
    BY_LABEL,
    HOSTS,
    MOVES_TO,
    OTHER_TOKEN,
    PAYEES,
    SELLERS,
    After,
    Json,
    Seller,
)

from tollgauge.clients.peer import public_authorities
from tollgauge.demo.chain import Chain, TestAccount, run_chain, runtime_code
from tollgauge.demo.envelopes import USDC
from tollgauge.demo.facilitator import run_facilitator
from tollgauge.demo.world import PAY_TO

ORDER: Final = "x-order"
FUNDS: Final = 2_000_000_000
"""Atomic USDC of a new wallet: the sum of all sellers' prices."""
HEADERS: Final = ("payment-signature", "x-payment")

_TRANSFER: Final = "0xcf092995"
"""`transferWithAuthorization` with the signature as bytes, as FiatTokenV2_2 has it."""
_USED: Final = "0x98de503528ee59b575ef0c0a2576a82497bfc029a5685b209e9ec333479b10a5"
"""Topic of `AuthorizationUsed(address,bytes32)`, EIP-3009."""
_DRIPS: Final = 12
_DRIP_SECONDS: Final = 0.02


@dataclass(frozen=True, slots=True)
class Arrival:
    """A payment that a seller received, with the order that it was sent for. `nonce` is empty if
    the payment is not an EIP-3009 authorization.
    """

    order: str
    seller: str
    payer: str
    nonce: str
    value: int
    pay_to: str
    payment: Json


@dataclass(frozen=True, slots=True)
class Request:
    """A request as a seller parses it; header names are lower case."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes

    @property
    def payment(self) -> str:
        """Return the value of the header that carries a payment, or an empty text."""
        return next((self.headers[name] for name in HEADERS if name in self.headers), "")


@dataclass
class SellerWorld:
    """The running sellers. `answers` are further paths that every host serves (path to headers and
    body); `asked` counts requests, `arrived` contains the payments. `programs` are the clients that
    run until the world ends, by their script.
    """

    chain: Chain
    facilitator_url: str
    http: httpx.AsyncClient
    ca_file: Path
    port: int = 0
    asked: list[tuple[str, Request]] = field(default_factory=list)
    arrived: list[Arrival] = field(default_factory=list)
    answers: dict[str, tuple[dict[str, str], bytes]] = field(default_factory=dict)
    programs: dict[Path, Process] = field(default_factory=dict)

    def origin(self, label: str) -> str:
        return f"https://{HOSTS[label]}:{self.port}"

    def url(self, label: str) -> str:
        return self.origin(label) + BY_LABEL[label].path

    async def wallet(self) -> TestAccount:
        """Return a new account with money."""
        key = Account.create()
        account = TestAccount(address=key.address, key=key.key.to_0x_hex())
        await self.chain.mint(account.address, FUNDS)
        await self._mint_other(account.address)
        return account

    def list_signed(self, payer: TestAccount) -> set[str]:
        """Return the orders for which a payment of the payer arrived at any seller."""
        return {item.order for item in self.arrived if item.payer == payer.address.lower()}

    async def list_paid(self, payer: TestAccount) -> dict[str, int]:
        """Return the orders for which the chain moved the payer's money, and how often.

        Also checks that each used nonce is one that arrived, and that the missing USDC is their
        sum.
        """
        block = await self.chain.rpc("eth_blockNumber")
        topics = [_USED, "0x" + payer.address[2:].lower().rjust(64, "0")]
        query = {"fromBlock": "0x0", "toBlock": block, "topics": topics}
        logs = await self.chain.rpc("eth_getLogs", query)
        used = {log["topics"][2].lower(): log["address"].lower() for log in logs}
        mine = [item for item in self.arrived if item.payer == payer.address.lower()]
        taken = {item.nonce: item for item in mine if item.nonce in used}
        assert taken.keys() == used.keys(), "the chain shows a payment that no seller received"
        dollars = sum(item.value for item in taken.values() if used[item.nonce] == USDC.lower())
        call = {"to": USDC, "data": "0x70a08231" + encode(["address"], [payer.address]).hex()}
        balance = int(await self.chain.rpc("eth_call", call, block), 16)
        assert FUNDS - balance == dollars
        counts: dict[str, int] = {}
        for item in taken.values():
            counts[item.order] = counts.get(item.order, 0) + 1
        return counts

    async def _mint_other(self, address: str) -> None:
        data = "0x40c10f19" + encode(["address", "uint256"], [address, FUNDS]).hex()
        call = {"from": self.chain.accounts[2].address, "to": OTHER_TOKEN, "data": data}
        await self.chain.check(await self.chain.send([call]))

    # Behaviour of sellers

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request."""
        host = writer.get_extra_info("sockname")[0]
        seller = next(seller for seller in SELLERS if HOSTS[seller.label] == host)
        request = await _read(reader)
        self.asked.append((seller.label, request))
        path = request.target.partition("?")[0]
        if path in self.answers:
            headers, body = self.answers[path]
            writer.write(_answer(200, body, headers))
        elif request.payment:
            await self._take(writer, seller, request)
        elif location := self._location(seller, path):
            writer.write(_answer(307, b"", {"location": location}))
        elif seller.drips:
            await _drip(writer, self._challenge(seller))
        else:
            writer.write(self._challenge(seller))

    def _location(self, seller: Seller, path: str) -> str:
        """Return the target of a redirect, or an empty text."""
        if not seller.moved_to or path != seller.path:
            return ""
        if seller.moved_to.startswith("/"):
            return self.origin(seller.label) + seller.moved_to
        return self.url(seller.moved_to)

    def _challenge(self, seller: Seller) -> bytes:
        url = self.url(seller.claims or seller.label)
        if seller.moved_to.startswith("/"):
            url = self.origin(seller.label) + seller.moved_to
        if seller.version == 1:
            entries = [entry | {"resource": url} for entry in seller.entries]
            document: Json = {"x402Version": 1, "error": "", "accepts": entries}
            return _answer(402, json.dumps(document).encode())
        document = {
            "x402Version": 2,
            "error": "Payment required",
            "resource": {"url": url, "description": "", "mimeType": "application/json"},
            "accepts": list(seller.entries),
        }
        body = json.dumps(seller.body or {}).encode()
        return _answer(402, body, {"payment-required": _encode(document)})

    async def _take(self, writer: asyncio.StreamWriter, seller: Seller, request: Request) -> None:
        """Settle the payment first; then act as the seller does once it has the money."""
        payment = json.loads(base64.b64decode(request.payment))
        arrival = _arrival(request.headers.get(ORDER, ""), seller.label, payment)
        self.arrived.append(arrival)
        receipt = await self._settle(seller, payment)
        match seller.after:
            case After.ERROR:
                writer.write(_answer(500, b'{"error":"try again"}'))
            case After.HANG:
                await asyncio.sleep(30)
            case After.DROP:
                _reset(writer)
            case After.ASK_AGAIN:
                writer.write(self._challenge(seller))
            case After.DRIP:
                await _drip(writer, _answer(200, b"x" * 1_000))
            case After.MOVE:
                writer.write(_answer(307, b"", {"location": self.url(MOVES_TO)}))
            case After.CIRCLE:
                again = f"{self.url(seller.label)}?n={len(self.arrived)}"
                writer.write(_answer(307, b"", {"location": again}))
            case After.DELIVER:
                paid = receipt.get("success") is True
                headers = {"payment-response": _encode(receipt)}
                body = json.dumps({"seller": seller.label}).encode()
                writer.write(_answer(200 if paid else 402, body, headers))

    async def _settle(self, seller: Seller, payment: Json) -> Json:
        if payment["x402Version"] == 1:
            (old,) = seller.entries
            wanted = {key: old[key] for key in ("scheme", "asset", "payTo", "extra")}
            wanted |= {"network": "eip155:8453", "amount": old["maxAmountRequired"]}
            wanted["maxTimeoutSeconds"] = old["maxTimeoutSeconds"]
            payment = {"x402Version": 2, "accepted": wanted, "payload": payment["payload"]}
        wanted = payment["accepted"] | {"amount": str(payment["accepted"]["amount"])}
        payment = payment | {"accepted": wanted}
        if wanted["asset"] == OTHER_TOKEN:
            return await self._send(payment["payload"])
        order = {"x402Version": 2, "paymentPayload": payment, "paymentRequirements": wanted}
        answer = await self.http.post(f"{self.facilitator_url}/settle", json=order)
        return dict(answer.json())

    async def _send(self, payload: Json) -> Json:
        """Send a transfer by authorization to the chain, as any holder of the authorization can."""
        given = payload["authorization"]
        numbers = [int(given[name]) for name in ("value", "validAfter", "validBefore")]
        nonce, signature = (
            bytes.fromhex(text[2:]) for text in (given["nonce"], payload["signature"])
        )
        kinds = ["address", "address", *["uint256"] * 3, "bytes32", "bytes"]
        values = [given["from"], given["to"], *numbers, nonce, signature]
        data = _TRANSFER + encode(kinds, values).hex()
        call = {"from": self.chain.accounts[2].address, "to": OTHER_TOKEN, "data": data}
        sent = await self.chain.send([call])
        await self.chain.check(sent)
        return {"success": True, "transaction": sent[0], "network": "eip155:8453"}


@contextlib.asynccontextmanager
async def seller_world(folder: Path) -> AsyncIterator[SellerWorld]:
    """Start the chain, the facilitator and every seller; stop them at the end of the block.

    Raises ChainError without anvil.
    """
    authority = trustme.CA()
    ca_file = folder / "sellers.pem"
    authority.cert_pem.write_to_path(ca_file)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(*HOSTS.values()).configure_cert(context)
    async with contextlib.AsyncExitStack() as stack:
        chain = await stack.enter_async_context(run_chain())
        await chain.rpc("anvil_setCode", OTHER_TOKEN, runtime_code())
        http = httpx.AsyncClient(timeout=30, trust_env=False, verify=public_authorities())
        await stack.enter_async_context(http)
        facilitator = run_facilitator(
            rpc_url=chain.rpc_url, key=chain.accounts[0].key, payees=PAYEES | {PAY_TO} | {PAY_TO}
        )
        url = await stack.enter_async_context(facilitator)
        world = SellerWorld(chain, url, http, ca_file)
        world.port = await stack.enter_async_context(_listen(world, context))
        try:
            yield world
        finally:
            for process in world.programs.values():
                process.kill()
                await process.wait()


@contextlib.asynccontextmanager
async def _listen(world: SellerWorld, context: ssl.SSLContext) -> AsyncIterator[int]:
    """All hosts, on one port."""
    tasks: set[asyncio.Task[None]] = set()

    async def handle_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        tasks.add(task)
        try:
            with contextlib.suppress(OSError, EOFError, asyncio.CancelledError):
                await world.serve(reader, writer)
                await writer.drain()
        finally:
            tasks.discard(task)
            writer.close()

    async with contextlib.AsyncExitStack() as stack:
        port = free_port()
        for host in HOSTS.values():
            server = await asyncio.start_server(handle_connection, host, port, ssl=context)
            stack.push_async_callback(server.wait_closed)
            stack.callback(server.close)
        try:
            yield port
        finally:
            for task in tuple(tasks):
                task.cancel()


async def _read(reader: asyncio.StreamReader) -> Request:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.rstrip("\r\n").split("\r\n")
    method, target, _ = first.split(" ")
    headers = {
        name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)
    }
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Request(method, target, headers, body)


def _arrival(order: str, label: str, payment: Json) -> Arrival:
    payload: dict[str, Any] = payment["payload"]
    given = payload.get("authorization")
    if given is None:
        payer = payload["permit2Authorization"]["from"].lower()
        return Arrival(order, label, payer, "", 0, "", payment)
    nonce, value = given["nonce"].lower(), int(given["value"])
    return Arrival(order, label, given["from"].lower(), nonce, value, given["to"], payment)


def _answer(status: int, body: bytes, headers: dict[str, str] | None = None) -> bytes:
    fixed = {"content-type": "application/json", "connection": "close"}
    lines = [f"{name}: {value}" for name, value in (fixed | (headers or {})).items()]
    head = "\r\n".join([f"HTTP/1.1 {status} Answer", *lines, f"content-length: {len(body)}"])
    return f"{head}\r\n\r\n".encode() + body


async def _drip(writer: asyncio.StreamWriter, answer: bytes) -> None:
    """Send the head and then the body, one byte at a time, and cut it before its end."""
    head, _, _ = answer.partition(b"\r\n\r\n")
    head = head.rpartition(b"\r\n")[0] + b"\r\ncontent-length: 1000000\r\n\r\n"
    writer.write(head)
    for _ in range(_DRIPS):
        writer.write(b" ")
        await writer.drain()
        await asyncio.sleep(_DRIP_SECONDS)
    _reset(writer)


def _reset(writer: asyncio.StreamWriter) -> None:
    connection = writer.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


def _encode(document: Json) -> str:
    return base64.b64encode(json.dumps(document).encode()).decode()
