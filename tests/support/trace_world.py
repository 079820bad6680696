"""A chain with transactions to trace, and a service that sells traces."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from eth_abi.abi import encode
from eth_account import Account
from eth_utils.abi import function_signature_to_4byte_selector
from tests.support.prices import TRACE
from tests.support.processes import free_port
from tests.support.seller_world import SellerWorld
from web3 import Web3

from tollgauge import app
from tollgauge.clients.chain.nodes import ChainSettings
from tollgauge.clients.facilitator import FacilitatorSettings
from tollgauge.config import Config
from tollgauge.db.engine import StoreSettings
from tollgauge.demo.buyer import buy_answer
from tollgauge.demo.chain import Chain
from tollgauge.demo.envelopes import USDC
from tollgauge.demo.serving import serve
from tollgauge.demo.world import PAY_TO
from tollgauge.web import routes as web
from tollgauge.web.paid.sale import SaleSettings
from tollgauge.web.settings import ServerSettings

NETWORK = "eip155:8453"
FOREVER = 2**255
TERMS = "address,address,uint256,uint256,uint256,bytes32"
FORMS = {"vrs": "uint8,bytes32,bytes32", "bytes": "bytes"}
_ARTEFACT = Path(__file__).parent / "wrappers" / "Wrappers.json"
_FIELDS = [
    {"name": "from", "type": "address"},
    {"name": "to", "type": "address"},
    {"name": "value", "type": "uint256"},
    {"name": "validAfter", "type": "uint256"},
    {"name": "validBefore", "type": "uint256"},
    {"name": "nonce", "type": "bytes32"},
]


def contracts() -> dict[str, dict[str, Any]]:
    """Return the compiled wrappers by name: `creation`, `abi`."""
    document: dict[str, dict[str, Any]] = json.loads(_ARTEFACT.read_text(encoding="utf-8"))
    return document


def encode_call(signature: str, *arguments: object) -> str:
    """Return a call's data as 0x-hex, by its signature: `transfer(address,uint256)`."""
    types = _split(signature[signature.index("(") + 1 : -1])
    return "0x" + (function_signature_to_4byte_selector(signature) + encode(types, arguments)).hex()


def _split(types: str) -> list[str]:
    """Split types at the commas that are not inside a tuple."""
    parts, depth = [""], 0
    for char in types:
        depth += (char == "(") - (char == ")")
        if char == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += char
    return [part for part in parts if part]


def _domain() -> dict[str, Any]:
    """The dollar's EIP-712 domain."""
    return {
        "name": "USD Coin",
        "version": "2",
        "chainId": 8453,
        "verifyingContract": Web3.to_checksum_address(USDC),
    }


@dataclass(frozen=True)
class Signed:
    """Return an authorization and its signature."""

    payer: str
    payee: str
    value: int
    nonce: bytes
    signature: bytes
    after: int = 0
    before: int = FOREVER

    @property
    def terms(self) -> tuple[object, ...]:
        return (self.payer, self.payee, self.value, self.after, self.before, self.nonce)

    @property
    def vrs(self) -> tuple[int, bytes, bytes]:
        return self.signature[64], self.signature[:32], self.signature[32:64]

    def call(self, method: str, form: str) -> str:
        """Return the call data of `transfer` or `receive` with its signature as `vrs` or
        `bytes`.
        """
        rest: tuple[object, ...] = self.vrs if form == "vrs" else (self.signature,)
        return encode_call(f"{method}WithAuthorization({TERMS},{FORMS[form]})", *self.terms, *rest)


@dataclass
class World:
    """A running chain, a payer with money, and the wrappers' addresses."""

    chain: Chain
    places: dict[str, str] = field(default_factory=dict)
    nonces: int = 0

    @property
    def payer(self) -> Any:
        return Account.from_key(self.chain.accounts[1].key)

    async def open(self) -> None:
        await self.chain.mint(self.payer.address, 10_000_000)
        for name, contract in contracts().items():
            takes = next(
                (entry for entry in contract["abi"] if entry["type"] == "constructor"), None
            )
            arguments = encode(["address"], [USDC]).hex() if takes else ""
            call = {"from": self.sender(), "data": contract["creation"] + arguments}
            done = await self.receipt(await self.chain.rpc("eth_sendTransaction", call))
            self.places[name] = done["contractAddress"]

    def sender(self, number: int = 2) -> str:
        return self.chain.accounts[number].address

    def sign(
        self,
        kind: str,
        payee: str,
        value: int,
        *,
        wallet: str = "",
        key: Any = None,
        **changes: Any,
    ) -> Signed:
        """Return a signed authorization; `kind` is Transfer or Receive. The payer is the account
        `wallet` that `key` signs for, or the chain's payer.
        """
        self.nonces += 1
        signer = self.payer if key is None else Account.from_key(key)
        signed = Signed(
            payer=wallet or signer.address,
            payee=payee,
            value=value,
            nonce=(0xABCDEF << 200 | self.nonces).to_bytes(32),
            signature=b"",
            **changes,
        )
        names = [field["name"] for field in _FIELDS]
        signature = signer.sign_typed_data(
            _domain(),
            {f"{kind}WithAuthorization": _FIELDS},
            dict(zip(names, signed.terms, strict=True)),
        ).signature
        return Signed(**(vars(signed) | {"signature": bytes(signature)}))

    def sign_cancel(self, nonce: bytes) -> bytes:
        """Return the payer's signature that cancels an authorization."""
        fields = [_FIELDS[0] | {"name": "authorizer"}, _FIELDS[-1]]
        signed = self.payer.sign_typed_data(
            _domain(),
            {"CancelAuthorization": fields},
            {"authorizer": self.payer.address, "nonce": nonce},
        )
        return bytes(signed.signature)

    async def send(self, to: str, data: str, *, sender: int = 2, gas: int = 3_000_000) -> str:
        """Mine a transaction and return its hash, even if it reverted."""
        call = {"from": self.sender(sender), "to": to, "data": data, "gas": hex(gas)}
        tx_hash = str(await self.chain.rpc("eth_sendTransaction", call))
        await self.receipt(tx_hash)
        return tx_hash

    async def receipt(self, tx_hash: str) -> dict[str, Any]:
        receipt: dict[str, Any] | None = None
        while receipt is None:
            receipt = await self.chain.rpc("eth_getTransactionReceipt", tx_hash)
        return receipt

    async def capture(self, tx_hash: str) -> tuple[Any, Any, Any]:
        """Return transaction, receipt and call trace, as a node sends them."""
        options = {"tracer": "callTracer"}
        return (
            await self.chain.rpc("eth_getTransactionByHash", tx_hash),
            await self.chain.rpc("eth_getTransactionReceipt", tx_hash),
            await self.chain.rpc("debug_traceTransaction", tx_hash, options),
        )

    def batch(self, calls: Sequence[tuple[str, str]]) -> str:
        """Return an `aggregate3` of (target, call data), each of which may fail."""
        rows = [(target, True, bytes.fromhex(data[2:])) for target, data in calls]
        return encode_call("aggregate3((address,bool,bytes)[])", rows)

    def bundle(self, calls: Sequence[tuple[str, str]]) -> str:
        """Return a `handleOps` (0.7) of operations in which the account executes (target, call
        data).
        """
        rows = []
        for target, data in calls:
            call = encode_call("execute(address,uint256,bytes)", target, 0, bytes.fromhex(data[2:]))
            word = bytes(32)
            rows.append(
                (self.places["Account"], 0, b"", bytes.fromhex(call[2:]), word, 0, word, b"", b"")
            )
        operation = "(address,uint256,bytes,bytes,bytes32,uint256,bytes32,bytes,bytes)"
        return encode_call(f"handleOps({operation}[],address)", rows, self.sender())


@contextlib.asynccontextmanager
async def trace_service(world: SellerWorld) -> AsyncIterator[str]:
    """Run the service with the sellers' chain and facilitator; yield its address."""
    port = free_port()
    config = Config(
        server=ServerSettings(base_url=f"http://127.0.0.1:{port}", port=port, admin_port=0),
        store=StoreSettings(url="sqlite://"),
        sale=SaleSettings(pay_to=PAY_TO),
        facilitator=FacilitatorSettings(url=world.facilitator_url),
        chains=(ChainSettings(network="eip155:8453", nodes=(world.chain.rpc_url,)),),
    )
    async with (
        app.open_resources(config) as service,
        serve(web.create(service.server()), port=port) as actual,
    ):
        yield f"http://127.0.0.1:{actual}"


async def request_trace(
    service: str, world: SellerWorld, *, payer: str, nonce: str, network: str
) -> dict[str, Any]:
    """Return the paid response about an authorization."""
    order = {"payer": payer, "nonce": nonce, "network": network}
    bought = await buy_answer(service, TRACE, order, account=await world.wallet())
    return bought.report
