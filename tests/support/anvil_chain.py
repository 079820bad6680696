"""The chain of the fault schedules on anvil, with a token at USDC's address and moved time."""

from __future__ import annotations

from typing import Any, Final

import httpx
from eth_abi.abi import encode
from tests.support.simulated_chain import BLOCK_S, SimulatedChain
from x402.schemas import PaymentPayload

from tollgauge.clients.peer import public_authorities
from tollgauge.demo.chain import ACCOUNTS, Chain
from tollgauge.demo.envelopes import USDC

_TRANSFER: Final = "0xcf092995"  # transferWithAuthorization(…, bytes)
_STATE: Final = "0xe94a0102"
_KINDS: Final = ("address", "address", "uint256", "uint256", "uint256", "bytes32", "bytes")
_GAS: Final = hex(200_000)


class AnvilChain(SimulatedChain):
    """Settlements are real transactions; blocks are mined only when the schedule says so."""

    def __init__(self, chain: Chain) -> None:
        self._http = httpx.Client(
            base_url=chain.rpc_url, timeout=30, trust_env=False, verify=public_authorities()
        )
        super().__init__(now=0, node=self._http)
        self._rpc("evm_setAutomine", False)
        block = self._rpc("eth_getBlockByNumber", "latest", False)
        self.now = int(block["timestamp"], 16)
        self.payers: dict[str, str] = {}

    def close(self) -> None:
        self._http.close()

    @property
    def height(self) -> int:
        return int(self._rpc("eth_blockNumber"), 16)

    def time_of(self, block: int) -> int:
        found = self._rpc("eth_getBlockByNumber", hex(max(0, block)), False)
        return int(found["timestamp"], 16)

    def submit(self, payload: PaymentPayload) -> None:
        given = payload.payload["authorization"]
        numbers = [int(given[name]) for name in ("value", "validAfter", "validBefore")]
        texts = (given["nonce"], payload.payload["signature"])
        nonce, signature = (bytes.fromhex(text[2:]) for text in texts)
        values = [given["from"], given["to"], *numbers, nonce, signature]
        self.payers[given["nonce"].lower()] = given["from"]
        data = _TRANSFER + encode(_KINDS, values).hex()
        call = {"from": ACCOUNTS[2].address, "to": USDC, "data": data, "gas": _GAS}
        self._rpc("eth_sendTransaction", call)

    def drop(self) -> None:
        self._rpc("anvil_dropAllTransactions")

    def mine(self) -> None:
        self.now += BLOCK_S
        self._rpc("evm_setNextBlockTimestamp", hex(self.now))
        self._rpc("evm_mine")

    def advance(self, seconds: int) -> None:
        self.mine()
        blocks = min(seconds // BLOCK_S, 80)
        self.now += seconds - blocks * BLOCK_S
        if blocks:
            self._rpc("evm_setNextBlockTimestamp", hex(self.now + BLOCK_S))
            self._rpc("anvil_mine", hex(blocks), hex(BLOCK_S))
            self.now += blocks * BLOCK_S

    def reorganise(self, depth: int) -> None:
        """Not on anvil: its rollback also forgets the transactions."""

    def is_used(self, nonce: str, block: int) -> bool:
        payer = self.payers.get(nonce)
        if payer is None:
            return False
        data = f"{_STATE}{payer[2:].lower():0>64}{nonce[2:]}"
        block = max(0, min(block, self.height))
        answer = self._rpc("eth_call", {"to": USDC, "data": data}, hex(block))
        return int(answer, 16) == 1

    def _rpc(self, method: str, *params: Any) -> Any:
        request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        document = self._http.post("", json=request).json()
        assert "error" not in document, (method, document)
        return document["result"]
