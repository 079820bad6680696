"""A simulated chain with a virtual clock, nodes that read it, and a facilitator that settles on it.

The seller is the official middleware of the installed SDK. This module does not depend on the
guard: the final state of a payment is read from the chain.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

import httpx
from x402.schemas import (
    PaymentPayload,
    PaymentRequirements,
    SettleResponse,
    SupportedKind,
    SupportedResponse,
    VerifyResponse,
)

NETWORK: Final = "eip155:8453"
BLOCK_S: Final = 2
FINAL_DEPTH: Final = 64
JSON_HEADERS: Final = {"content-type": "application/json"}


@dataclass
class SimulatedChain:
    """EIP-3009 authorizations and when they were used. `now` is the chain's time.

    `node` is a client of a real node, if there is one.
    """

    now: int = 1_800_000_000
    start: int = 1_800_000_000 - 10_000
    used: dict[str, int] = field(default_factory=dict)
    pending: dict[str, int] = field(default_factory=dict)
    valid: dict[str, int] = field(default_factory=dict)
    node: httpx.Client | None = None

    @property
    def height(self) -> int:
        return (self.now - self.start) // BLOCK_S

    def time_of(self, block: int) -> int:
        return self.start + block * BLOCK_S

    def submit(self, payload: PaymentPayload) -> None:
        """Broadcast the settlement of a payment."""
        nonce, valid_before = read(payload)
        self.pending[nonce] = valid_before

    def drop(self) -> None:
        """Drop every transaction that is not mined."""
        self.pending.clear()

    def mine(self) -> None:
        """Mine every transaction whose authorization is still valid."""
        self.now += BLOCK_S
        self.valid |= self.pending
        for nonce, valid_before in self.pending.items():
            if self.time_of(self.height) < valid_before:
                self.used.setdefault(nonce, self.height)
        self.pending.clear()

    def advance(self, seconds: int) -> None:
        """Let time pass; pending transactions are mined in the first block, or expire."""
        self.mine()
        self.now += seconds

    def reorganise(self, depth: int) -> None:
        """Remove the newest blocks; their transactions are pending again."""
        for nonce, block in list(self.used.items()):
            if block > self.height - depth:
                del self.used[nonce]
                self.pending[nonce] = self.valid[nonce]

    def is_used(self, nonce: str, block: int) -> bool:
        return self.used.get(nonce, 2**60) <= block


class Mood(StrEnum):
    """Behaviour of a node."""

    HONEST = "honest"
    SILENT = "silent"
    LAGGING = "lagging"
    OTHER_CHAIN = "other chain"
    LYING = "shows everything unused"
    GARBAGE = "garbage"


@dataclass
class Nodes:
    """JSON-RPC nodes by the host of their URL, in process."""

    chain: SimulatedChain
    moods: dict[str, Mood] = field(default_factory=dict)

    @property
    def transport(self) -> httpx.MockTransport:
        return httpx.MockTransport(self._answer)

    def _answer(self, request: httpx.Request) -> httpx.Response:
        mood = self.moods.get(request.url.host, Mood.HONEST)
        if mood is Mood.SILENT:
            raise httpx.ConnectError("no node", request=request)
        if mood is Mood.GARBAGE:
            return httpx.Response(200, json={"jsonrpc": "2.0", "id": 1, "result": "0x"})
        if (node := self.chain.node) is not None:
            return node.post("", content=request.content, headers=JSON_HEADERS)
        call = json.loads(request.content)
        result = self._result(mood, call["method"], call["params"])
        return httpx.Response(200, json={"jsonrpc": "2.0", "id": 1, "result": result})

    def _result(self, mood: Mood, method: str, params: list[Any]) -> object:
        lag = 500 if mood is Mood.LAGGING else 0
        height = max(0, self.chain.height - lag)
        match method:
            case "eth_chainId":
                return hex(1 if mood is Mood.OTHER_CHAIN else 8453)
            case "eth_blockNumber":
                return hex(height)
            case "eth_getBlockByNumber":
                block = self._block(params[0], height)
                return {"number": hex(block), "timestamp": hex(self.chain.time_of(block))}
            case "eth_call":
                block = self._block(params[1], height)
                nonce = "0x" + params[0]["data"][-64:]
                is_used = mood is not Mood.LYING and self.chain.is_used(nonce, block)
                return f"0x{int(is_used):064x}"
        return None

    @staticmethod
    def _block(tag: str, height: int) -> int:
        match tag:
            case "latest":
                return height
            case "finalized":
                return max(0, height - FINAL_DEPTH)
        return int(tag, 16)


class Settlement(StrEnum):
    """Treatment of a payment by the facilitator."""

    AT_ONCE = "mined at once"
    PENDING = "pending"
    FAILS = "fails, nothing is broadcast"
    FAILS_WRONG = "fails with a wrong transaction, and is mined"
    RAISES = "raises, and is mined later"


@dataclass
class Facilitator:
    """Settles on the simulated chain according to `mode`. A restart loses broadcast
    transactions.
    """

    chain: SimulatedChain
    dice: random.Random
    mode: Settlement = Settlement.AT_ONCE
    known: dict[str, str] = field(default_factory=dict)

    def restart(self) -> None:
        self.known.clear()

    async def verify(
        self, payload: PaymentPayload, _requirements: PaymentRequirements
    ) -> VerifyResponse:
        nonce, valid_before = read(payload)
        reason = None
        if self.chain.is_used(nonce, self.chain.height):
            reason = "invalid_exact_evm_nonce_already_used"
        elif valid_before < self.chain.now + 6:
            reason = "invalid_exact_evm_payload_authorization_valid_before"
        return VerifyResponse(is_valid=reason is None, invalid_reason=reason)

    async def settle(
        self, payload: PaymentPayload, _requirements: PaymentRequirements
    ) -> SettleResponse:
        nonce, _ = read(payload)
        transaction = self.known.setdefault(nonce, f"0x{self.dice.getrandbits(256):064x}")
        is_ok, reason = False, None
        match self.mode:
            case Settlement.AT_ONCE:
                is_ok = not self.chain.is_used(nonce, self.chain.height)
                reason = None if is_ok else "invalid_exact_evm_nonce_already_used"
                self.chain.submit(payload)
                self.chain.mine()
            case Settlement.PENDING:
                reason = "settlement_pending"
                self.chain.submit(payload)
            case Settlement.FAILS:
                reason, transaction = "insufficient_funds", ""
            case Settlement.FAILS_WRONG:
                reason, transaction = "transaction_failed", "0x" + "ee" * 32
                self.chain.submit(payload)
                self.chain.mine()
            case Settlement.RAISES:
                self.chain.submit(payload)
                raise RuntimeError("the facilitator is restarting")
        return SettleResponse(
            success=is_ok, error_reason=reason, transaction=transaction, network=NETWORK
        )

    def get_supported(self) -> SupportedResponse:
        kind = SupportedKind(x402_version=2, scheme="exact", network=NETWORK)
        return SupportedResponse(kinds=[kind], extensions=[], signers={})


def read(payload: PaymentPayload) -> tuple[str, int]:
    """Return nonce and end of validity of a payment."""
    fields = payload.payload["authorization"]
    return fields["nonce"].lower(), int(fields["validBefore"])


def seller_app(facilitator: Facilitator, pay_to: str) -> Any:
    """A seller on the official middleware; its handler returns the requested path."""
    from fastapi import FastAPI, Request
    from fastapi.responses import JSONResponse
    from x402.http import PaymentOption
    from x402.http.middleware.fastapi import payment_middleware
    from x402.http.types import RouteConfig
    from x402.mechanisms.evm.exact import ExactEvmServerScheme
    from x402.server import x402ResourceServer

    server = x402ResourceServer(facilitator)
    server.register(NETWORK, ExactEvmServerScheme())  # type: ignore[no-untyped-call, arg-type]
    option = PaymentOption(
        scheme="exact", pay_to=pay_to, price="$0.005", network=NETWORK, max_timeout_seconds=60
    )
    routes = {"GET /*": RouteConfig(accepts=[option])}
    app = FastAPI()
    paying = payment_middleware(routes, server, sync_facilitator_on_start=True)

    @app.middleware("http")
    async def protect(request: Request, call_next: Callable[..., Any]) -> Any:
        return await paying(request, call_next)

    @app.get("/{path:path}")
    async def answer(path: str) -> JSONResponse:
        return JSONResponse({"path": path})

    return app
