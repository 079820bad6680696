"""A world for the ledger: a chain, a facilitator that may lie, and workers that may die.

The gate, the store and both clients are real. Simulated are the network under the clients (httpx
transports), the clock, and death (tests/support/killable_worker).
"""

from __future__ import annotations

import asyncio
import base64
import functools
import json
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import httpx
from tests.support.killable_worker import KillableStore, Worker
from tests.support.ledger_chain import (
    ASSET,
    NETWORK,
    NUMBERS,
    PAY_TO,
    PAYER,
    PRICE,
    Block,
    FakeChain,
    block_logs,
    word,
)

from tollgauge.clients.chain.authorization import Prover
from tollgauge.clients.chain.rpc import Node
from tollgauge.clients.facilitator import Breaker, Facilitator, FacilitatorSettings
from tollgauge.core.sale.payment import Offer, canonical_body, decode, request_digest
from tollgauge.db.engine import Store
from tollgauge.store.ledger import payments
from tollgauge.web.edge.problem import Problem
from tollgauge.web.paid.gate import Gate
from tollgauge.web.paid.sale import HeldClaim, Sale

NOW = 1_800_000_000_000
OTHER = "0x" + "ee" * 20
VALID_S = 300


def as_stream(answer: httpx.Response) -> httpx.Response:
    """Return a response whose body is not read yet, as one from a socket."""
    body = httpx.ByteStream(answer.content)
    return httpx.Response(answer.status_code, headers=answer.headers, stream=body)


@dataclass
class LedgerWorld:
    """A payment, a chain, a facilitator with configurable responses, and a clock."""

    nonce: str = field(default_factory=lambda: word(next(NUMBERS) + (1 << 200)))
    now: int = NOW
    chain: FakeChain = field(default_factory=FakeChain)
    verify: str = "valid"
    settle: str = "settled"
    node_down: bool = False
    node_lag: int = 0
    computed: int = 0
    calls: Counter[str] = field(default_factory=Counter)
    in_flight: int = 0
    most_in_flight: int = 0
    foreign: str = ""
    amounts: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.chain.mine(self.now // 1000 - 1_000)
        # An earlier payment of the same payer and price: the most plausible false transaction.
        self.foreign = self.chain.transfer(
            word(7), at_s=self.now // 1000 - 900, valid_before_s=1 << 40
        )

    def clock(self) -> int:
        return self.now

    @property
    def now_s(self) -> int:
        return self.now // 1000

    @property
    def valid_before_s(self) -> int:
        return NOW // 1000 + VALID_S

    @property
    def paid(self) -> bool:
        return self.chain.is_paid(self.nonce)

    @property
    def header(self) -> str:
        document = {
            "x402Version": 2,
            "accepted": {"scheme": "exact", "network": NETWORK, "asset": ASSET},
            "payload": {
                "signature": "0x" + "1b" * 65,
                "authorization": {
                    "from": PAYER,
                    "to": PAY_TO,
                    "value": str(PRICE),
                    "validAfter": "0",
                    "validBefore": str(self.valid_before_s),
                    "nonce": self.nonce,
                },
            },
        }
        return base64.b64encode(json.dumps(document).encode()).decode()

    def broadcast(self) -> str:
        """Put the signed transfer into the next block."""
        self.now += 1000
        return self.chain.transfer(self.nonce, at_s=self.now_s, valid_before_s=self.valid_before_s)

    def tick(self, seconds: int) -> None:
        """Let time pass, and let the chain make a block."""
        self.now += seconds * 1000
        self.chain.mine(self.now_s)

    def mine_waiting(self) -> None:
        for nonce in self.chain.mempool:
            self.chain.transfer(nonce, at_s=self.now_s, valid_before_s=self.valid_before_s)
        self.chain.mempool.clear()

    # -- the facilitator's wire

    async def facilitate(self, request: httpx.Request, worker: Worker) -> httpx.Response:
        verb = request.url.path.strip("/")
        worker.point(f"before {verb}")
        self.calls[verb] += 1
        asked = json.loads(request.content)
        self.amounts.append(asked["paymentRequirements"]["amount"])
        nonce = asked["paymentPayload"]["payload"]["authorization"]["nonce"]
        assert nonce.lower() == self.nonce, "the facilitator gets the claimed payment"
        self.in_flight += verb == "settle"
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            await asyncio.sleep(0)
            answer = self.answer_verify() if verb == "verify" else self.answer_settle()
            await asyncio.sleep(0)
        finally:
            self.in_flight -= verb == "settle"
        worker.point(f"after {verb}")
        return answer

    def sign(self, signature: str) -> str:
        """Return the header with another signature."""
        document = json.loads(base64.b64decode(self.header))
        document["payload"]["signature"] = signature
        return base64.b64encode(json.dumps(document).encode()).decode()

    def usable(self) -> bool:
        """Return the result of a correct simulation of the transfer."""
        unused = self.chain.use(self.nonce) is None
        return unused and self.now_s + 1 < self.valid_before_s and not self.chain.drained

    def answer_verify(self) -> httpx.Response:
        if self.verify == "500":
            return httpx.Response(500, json={"error": "x"})
        if self.verify == "silent":
            raise httpx.ReadTimeout("silent")
        if self.verify == "spends it and refuses":
            self.broadcast()
            return httpx.Response(200, json={"isValid": False, "invalidReason": "nonce_used"})
        if self.verify == "spends it at once and refuses":
            self.chain.transfer(self.nonce, at_s=self.now_s, valid_before_s=self.valid_before_s)
            return httpx.Response(200, json={"isValid": False, "invalidReason": "nonce_used"})
        if self.verify == "spends it and fails":
            self.broadcast()
            return httpx.Response(502, text="<html>")
        if self.verify == "lies" or self.usable():
            return httpx.Response(200, json={"isValid": True})
        return httpx.Response(200, json={"isValid": False, "invalidReason": "invalid_transfer"})

    def answer_settle(self) -> httpx.Response:
        """A behaviour is `what happened: what was said`."""
        happened, _, said = self.settle.partition(": ")
        if not said:
            happened, said = "did", self.settle
        transaction = word(next(NUMBERS))
        if happened == "did" and self.usable():
            transaction = self.broadcast()
        elif happened == "did":
            said = "no" if said == "settled" else said
        elif happened == "later":
            self.chain.mempool.append(self.nonce)
        elif happened == "front-run":
            self.broadcast()
        elif happened == "cancelled":
            self.chain.cancel(self.nonce, at_s=self.now_s)
        elif happened == "drained":
            self.chain.drained = True
        return self.report(said, transaction)

    def report(self, words: str, transaction: str) -> httpx.Response:
        reply: dict[str, Any] = {"success": True, "transaction": transaction, "network": NETWORK}
        no = {"success": False, "errorReason": "failed", "transaction": "", "network": NETWORK}
        match words:
            case "settled":
                return httpx.Response(200, json=reply)
            case "settled elsewhere":
                return httpx.Response(200, json=reply | {"transaction": self.foreign})
            case "pending":
                return httpx.Response(
                    200, json=reply | {"success": False, "errorReason": "settlement_pending"}
                )
            case "no":
                return httpx.Response(200, json=no)
            case "500":
                return httpx.Response(500, json={"error": "x"})
            case "nothing":
                raise httpx.ReadTimeout("black hole")
            case "half":
                return httpx.Response(200, content=json.dumps(reply)[:40])
            case "other network":
                return httpx.Response(200, json=reply | {"network": "eip155:1"})
        raise AssertionError(words)

    # -- the node's wire

    async def node(self, request: httpx.Request, worker: Worker) -> httpx.Response:
        worker.point("before the node")
        await asyncio.sleep(0)
        if self.node_down:
            raise httpx.ConnectError("down")
        asked = json.loads(request.content)
        one = not isinstance(asked, list)
        answers = [
            {"jsonrpc": "2.0", "id": call["id"]} | self.answer_rpc(call["method"], call["params"])
            for call in ([asked] if one else asked)
        ]
        worker.point("after the node")
        return httpx.Response(200, json=answers[0] if one else answers)

    def answer_rpc(self, method: str, params: list[Any]) -> dict[str, Any]:
        seen = self.chain.blocks[: max(1, len(self.chain.blocks) - self.node_lag)]
        if method == "eth_chainId":
            return {"result": hex(8453)}
        if method == "eth_getBlockByNumber":
            number = len(seen) - 1 if params[0] == "latest" else int(params[0], 16)
            block = seen[number] if number < len(seen) else None
            if block is None:
                return {"result": None}
            place = {"number": hex(block.number), "hash": block.hash}
            return {"result": place | {"timestamp": hex(block.at_s)}}
        if method == "eth_call":
            if int(params[1], 16) >= len(seen):
                return {"error": {"code": -32000, "message": "header not found"}}
            nonce = "0x" + params[0]["data"][-64:]
            used = any(use.nonce == nonce for block in seen for use in block.uses)
            return {"result": word(int(used))}
        if method == "eth_getLogs":
            return {"result": list(self.logs(seen, params[0]))}
        assert method == "eth_getTransactionReceipt"
        for block in seen:
            logs = [log for log in block_logs(block) if log["transactionHash"] == params[0]]
            if logs:
                shown: dict[str, Any] = {"status": "0x1", "blockNumber": hex(block.number)}
                return {"result": shown | {"transactionHash": params[0], "logs": logs}}
        return {"result": None}

    def logs(self, seen: list[Block], where: dict[str, Any]) -> list[dict[str, Any]]:
        first, last = int(where["fromBlock"], 16), int(where["toBlock"], 16)
        kinds, payer, nonce = where["topics"]
        return [
            log
            for block in seen[first : last + 1]
            for log in block_logs(block)
            if log["topics"][0] in kinds and log["topics"][1:] == [payer, nonce]
        ]

    # -- workers

    def gate(self, store: Store, worker: Worker, *, with_node: bool = True) -> Gate:
        """Return a worker's gate, with real clients on this world's transports."""

        def http(play: Any) -> httpx.AsyncClient:
            async def handle(request: httpx.Request) -> httpx.Response:
                return as_stream(await play(request, worker))

            return httpx.AsyncClient(transport=httpx.MockTransport(handle))

        facilitator, node = clients()
        facilitator._http = http(self.facilitate)
        facilitator._breakers = {"verify": Breaker(), "settle": Breaker()}
        node._http = http(self.node)  # type: ignore[misc]
        chain = Prover([node]) if with_node else None
        return Gate(
            store=KillableStore(store, worker),
            facilitator=facilitator,
            clock=self.clock,
            chain=chain,
        )

    async def send(
        self,
        gate: Gate,
        *,
        sale: Sale | None = None,
        path: str = "/v1/a",
        header: str | None = None,
    ) -> Answer:
        """Send the client's payment once; return the answer. Raises Crash if the worker died."""
        document, header = {"q": 1}, header or self.header
        try:
            response = await gate.sell(
                sale or self.sale(),
                decode(header),
                document,
                digest=request_digest("POST", path, canonical_body(document)),
            )
        except Problem as problem:
            return Answer(problem.status, problem.code.encode())
        return Answer(response.status_code, bytes(response.body))

    def sale(self) -> Sale:
        async def compute(_order: object, _claim: HeldClaim) -> bytes:
            self.computed += 1
            number = self.computed
            await asyncio.sleep(0)
            return json.dumps({"run": number}).encode()

        offer = Offer(
            route="/v1/a",
            resource="http://shop/v1/a",
            network=NETWORK,
            asset=ASSET,
            amount=PRICE,
            pay_to=PAY_TO,
            domain_name="USD Coin",
            domain_version="2",
        )
        return Sale(offer=offer, description="", validate=lambda body: body, compute=compute)


async def held_claim(store: Store, *, now: int) -> HeldClaim:
    """Return a payment that is claimed now, for the actions of a product under its claim."""
    world = LedgerWorld()
    claim = await store.writing(
        payments.claim,
        decode(world.header),
        world.sale().offer,
        digest="of a request",
        owner="a worker",
        now=now,
        lease_ms=60_000,
    )
    assert claim.claimed
    return HeldClaim(store=store, row=claim.row)


@functools.cache
def clients() -> tuple[Facilitator, Node]:
    """Created once, because each loads the machine's certificates; one worker lives at a time."""
    return Facilitator(FacilitatorSettings(url="http://facilitator")), Node("http://node")


@dataclass(frozen=True)
class Answer:
    status: int
    body: bytes
