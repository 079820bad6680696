"""A local Solana network on loopback: the methods of JSON-RPC that the index uses, and sales."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

import orjson
from solders.keypair import Keypair
from solders.pubkey import Pubkey
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tollgauge.core.base.units import Clock
from tollgauge.demo.customers import DemoPurchase
from tollgauge.demo.envelopes import SOLANA, SOLANA_FEE_SEED
from tollgauge.demo.serving import serve
from tollgauge.demo.settlements import Report
from tollgauge.demo.solana_ledger import SolanaLedger
from tollgauge.web.settings import LOOPBACK

FEE_PAYER: Final = Keypair.from_seed(SOLANA_FEE_SEED)
_UNKNOWN_METHOD: Final = -32_601
_FUNDS: Final = 10**12


class SolanaChain:
    """A running network and its transactions. `at` is the time of the next block (ms UTC)."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.at: int | None = None
        self.ledger = SolanaLedger(network=SOLANA, clock=lambda: self.at or clock())
        self.rpc_url = ""
        self._funded: set[Pubkey] = set()

    async def past(
        self, purchases: Sequence[DemoPurchase], *, until: int, report: Report = lambda *_: None
    ) -> None:
        """Settle purchases on this network at their times, oldest first, then continue at `until`
        (ms UTC).
        """
        own = _on_solana(purchases)
        for done, purchase in enumerate(own):
            report(done, len(own))
            self.at = purchase.at
            self._pay(purchase)
        self.at = until

    async def now(self, purchases: Sequence[DemoPurchase]) -> None:
        """Settle purchases on this network now."""
        self.at = None
        for purchase in _on_solana(purchases):
            self._pay(purchase)

    def _pay(self, purchase: DemoPurchase) -> None:
        payer = Keypair.from_seed(bytes.fromhex(purchase.payer.key.removeprefix("0x")))
        pay_to = Pubkey.from_string(purchase.pay_to)
        for owner, funds in ((payer.pubkey(), _FUNDS), (pay_to, 0)):
            if owner not in self._funded:
                self.ledger.fund(owner, funds)
                self._funded.add(owner)
        memo = hashlib.sha256(f"{purchase.at} {purchase.number}".encode()).hexdigest().encode()
        self.ledger.pay(payer, pay_to, purchase.amount, fee_payer=FEE_PAYER, memo=memo)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a JSON-RPC request, or a batch of them."""
        calls = orjson.loads(await Request(scope, receive).body())
        replies = [self._reply(call) for call in (calls if isinstance(calls, list) else [calls])]
        body = orjson.dumps(replies if isinstance(calls, list) else replies[0])
        await Response(body, media_type="application/json")(scope, receive, send)

    def _reply(self, call: dict[str, Any]) -> dict[str, Any]:
        head = {"jsonrpc": "2.0", "id": call["id"]}
        try:
            return head | {"result": self.answer(call["method"], call.get("params", []))}
        except LookupError as error:
            return head | {"error": {"code": _UNKNOWN_METHOD, "message": str(error)}}

    def answer(self, method: str, params: Sequence[Any]) -> Any:
        """Return the result of a method. Raises LookupError for an unknown one."""
        ledger = self.ledger
        match method:
            case "getGenesisHash":
                return SOLANA.partition(":")[2]
            case "getSlot":
                return ledger.slot
            case "getBlockTime":
                blocks = (one for one in ledger.transactions if one["slot"] == params[0])
                return next((one["blockTime"] for one in blocks), self._clock() // 1_000)
            case "getFirstAvailableBlock":
                return 0
            case "getSignaturesForAddress":
                return self._signatures(params[0], params[1])
            case "getTransaction":
                return ledger.by_signature.get(params[0])
            case "getTokenAccountsByOwner":
                return {"value": [{"pubkey": one} for one in ledger.accounts_of(params[0])]}
        raise LookupError(f"The method {method} does not exist.")

    def _signatures(self, address: str, config: dict[str, Any]) -> list[dict[str, Any]]:
        listed = self.ledger.by_account.get(address, [])[::-1]
        names = [one["transaction"]["signatures"][0] for one in listed]
        first = names.index(config["before"]) + 1 if config.get("before") in names else 0
        last = names.index(config["until"]) if config.get("until") in names else len(names)
        page = listed[first:last][: config["limit"]]
        return [
            {
                "signature": one["transaction"]["signatures"][0],
                "slot": one["slot"],
                "blockTime": one["blockTime"],
                "err": one["meta"]["err"],
            }
            for one in page
        ]


def _on_solana(purchases: Sequence[DemoPurchase]) -> list[DemoPurchase]:
    return [purchase for purchase in purchases if purchase.network == SOLANA]


@contextlib.asynccontextmanager
async def run_solana(clock: Clock) -> AsyncIterator[SolanaChain]:
    """Run a network on loopback until the `with` block ends."""
    chain = SolanaChain(clock)
    async with serve(chain) as port:
        chain.rpc_url = f"http://{LOOPBACK}:{port}"
        yield chain
