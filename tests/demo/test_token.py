"""The demo dollar follows the rules of EIP-3009 that x402 and the indexer depend on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from eth_account import Account
from tests.support.paying_clients import node
from tests.support.token_balance import at_snapshot, balance
from web3 import Web3
from web3.exceptions import ContractLogicError

from tollgauge.demo.chain import Chain, artefact, run_chain
from tollgauge.demo.envelopes import USDC

pytestmark = pytest.mark.asyncio(loop_scope="module")
_ROOT = Path(__file__).parents[2]
_TRANSFER = "0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef"
_USED = "0x98de503528ee59b575ef0c0a2576a82497bfc029a5685b209e9ec333479b10a5"
_FOREVER = 2**40
_AUTHORIZATION = [
    {"name": "from", "type": "address"},
    {"name": "to", "type": "address"},
    {"name": "value", "type": "uint256"},
    {"name": "validAfter", "type": "uint256"},
    {"name": "validBefore", "type": "uint256"},
    {"name": "nonce", "type": "bytes32"},
]
_CANCEL = [{"name": "authorizer", "type": "address"}, {"name": "nonce", "type": "bytes32"}]
_DOMAIN = {
    "name": "USD Coin",
    "version": "2",
    "chainId": 8453,
    "verifyingContract": Web3.to_checksum_address(USDC),
}
_SAYS_YES = "0x631626ba7e60e01b60005260206000f3"
"""A wallet whose isValidSignature accepts everything with the EIP-1271 magic value."""


@dataclass(frozen=True)
class Bench:
    """A chain with a funded payer, and the token as web3 sees it."""

    chain: Chain
    token: Any
    payer: Any
    payee: str

    def terms(self, nonce: int, value: int = 700, **changes: Any) -> dict[str, Any]:
        terms = {
            "from": self.payer.address,
            "to": self.payee,
            "value": value,
            "validAfter": 0,
            "validBefore": _FOREVER,
            "nonce": nonce.to_bytes(32),
        }
        return terms | changes

    def sign(self, kind: str, fields: list[dict[str, str]], message: dict[str, Any]) -> Any:
        return self.payer.sign_typed_data(_DOMAIN, {kind: fields}, message)

    def send(self, name: str, *args: Any, sender: int = 2) -> Any:
        web3 = self.token.w3
        call = self.token.get_function_by_signature(name)(*args)
        sent = call.transact({"from": self.chain.accounts[sender].address})
        return web3.eth.wait_for_transaction_receipt(sent, poll_latency=0.01)


_VRS = "(address,address,uint256,uint256,uint256,bytes32,uint8,bytes32,bytes32)"
_BYTES = "(address,address,uint256,uint256,uint256,bytes32,bytes)"


def _split(signature: bytes) -> tuple[int, bytes, bytes]:
    return signature[64], signature[:32], signature[32:64]


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def new_bench() -> AsyncIterator[Bench]:
    async with run_chain() as chain:
        web3 = Web3(Web3.HTTPProvider(chain.rpc_url))
        token = web3.eth.contract(Web3.to_checksum_address(USDC), abi=artefact()["abi"])
        payer = Account.from_key(chain.accounts[1].key)
        await chain.mint(payer.address, 10_000)
        yield Bench(chain, token, payer, chain.accounts[3].address)


@pytest_asyncio.fixture(loop_scope="module")
async def bench(new_bench: Bench) -> AsyncIterator[Bench]:
    async with at_snapshot(new_bench.chain):
        yield new_bench


@pytest.mark.parametrize("form", ["vrs", "bytes"])
async def test_signed_transfer_moves_exactly_its_value(bench: Bench, form: str) -> None:
    terms = bench.terms(1)
    signature = bench.sign("TransferWithAuthorization", _AUTHORIZATION, terms).signature
    if form == "vrs":
        receipt = bench.send(
            f"transferWithAuthorization{_VRS}", *terms.values(), *_split(signature)
        )
    else:
        receipt = bench.send(f"transferWithAuthorization{_BYTES}", *terms.values(), signature)
    assert receipt["status"] == 1
    assert await balance(bench.chain, bench.payer.address) == 9_300
    assert await balance(bench.chain, bench.payee) == 700


async def test_use_of_an_authorization_is_logged_just_before_its_transfer(
    bench: Bench,
) -> None:
    terms = bench.terms(2)
    signature = bench.sign("TransferWithAuthorization", _AUTHORIZATION, terms).signature
    logs = bench.send(f"transferWithAuthorization{_BYTES}", *terms.values(), signature)["logs"]
    assert [log["topics"][0].to_0x_hex() for log in logs] == [_USED, _TRANSFER]
    assert logs[0]["topics"][2] == terms["nonce"]
    assert int(logs[1]["data"].to_0x_hex(), 16) == 700


async def test_authorization_works_once(bench: Bench) -> None:
    terms = bench.terms(3)
    signature = bench.sign("TransferWithAuthorization", _AUTHORIZATION, terms).signature
    bench.send(f"transferWithAuthorization{_BYTES}", *terms.values(), signature)
    with pytest.raises(ContractLogicError, match="authorization is used or canceled"):
        bench.send(f"transferWithAuthorization{_BYTES}", *terms.values(), signature)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"validBefore": 1}, "authorization is expired"),
        ({"validAfter": _FOREVER}, "not yet valid"),
        ({"value": 10_001}, "exceeds balance"),
    ],
)
async def test_authorization_outside_of_its_time_is_rejected(
    bench: Bench, changes: dict[str, int], message: str
) -> None:
    terms = bench.terms(4, **changes)
    signature = bench.sign("TransferWithAuthorization", _AUTHORIZATION, terms).signature
    with pytest.raises(ContractLogicError, match=message):
        bench.send(f"transferWithAuthorization{_BYTES}", *terms.values(), signature)


async def test_other_terms_than_the_signed_ones_are_rejected(bench: Bench) -> None:
    terms = bench.terms(5)
    signature = bench.sign("TransferWithAuthorization", _AUTHORIZATION, terms).signature
    richer = terms | {"value": 701}
    with pytest.raises(ContractLogicError, match="invalid signature"):
        bench.send(f"transferWithAuthorization{_BYTES}", *richer.values(), signature)


async def test_only_the_payee_may_redeem_a_receive_authorization(bench: Bench) -> None:
    terms = bench.terms(6)
    signature = bench.sign("ReceiveWithAuthorization", _AUTHORIZATION, terms).signature
    with pytest.raises(ContractLogicError, match="caller must be the payee"):
        bench.send(f"receiveWithAuthorization{_BYTES}", *terms.values(), signature, sender=2)
    with pytest.raises(ContractLogicError, match="invalid signature"):
        bench.send(f"transferWithAuthorization{_BYTES}", *terms.values(), signature)
    bench.send(f"receiveWithAuthorization{_VRS}", *terms.values(), *_split(signature), sender=3)
    assert await balance(bench.chain, bench.payee) == 700


async def test_cancelled_authorization_reads_as_used_and_moves_nothing(bench: Bench) -> None:
    terms = bench.terms(7)
    cancel = {"authorizer": bench.payer.address, "nonce": terms["nonce"]}
    permit = bench.sign("CancelAuthorization", _CANCEL, cancel).signature
    bench.send(
        "cancelAuthorization(address,bytes32,uint8,bytes32,bytes32)",
        *cancel.values(),
        *_split(permit),
    )
    assert bench.token.functions.authorizationState(*cancel.values()).call()
    signature = bench.sign("TransferWithAuthorization", _AUTHORIZATION, terms).signature
    with pytest.raises(ContractLogicError, match="authorization is used or canceled"):
        bench.send(f"transferWithAuthorization{_BYTES}", *terms.values(), signature)
    assert await balance(bench.chain, bench.payee) == 0


async def test_contract_wallet_signs_through_its_own_code(bench: Bench) -> None:
    wallet = Web3.to_checksum_address("0x" + "a1" * 20)
    await bench.chain.rpc("anvil_setCode", wallet, _SAYS_YES)
    await bench.chain.mint(wallet, 700)
    terms = bench.terms(8) | {"from": wallet}
    bench.send(f"transferWithAuthorization{_BYTES}", *terms.values(), b"anything")
    assert await balance(bench.chain, bench.payee) == 700


async def test_empty_signature_is_rejected(bench: Bench) -> None:
    terms = bench.terms(9) | {"from": "0x" + "00" * 20, "value": 0}
    with pytest.raises(ContractLogicError, match="invalid signature"):
        bench.send(f"transferWithAuthorization{_VRS}", *terms.values(), 27, b"\1" * 32, b"\0" * 32)


@pytest.mark.node
async def test_committed_contracts_are_the_compiled_sources() -> None:
    """In one process, because the compiler takes as long to load as to compile the token."""
    both = "import './scripts/compile-token.mjs'; import './scripts/compile-wrappers.mjs';"
    process = await asyncio.create_subprocess_exec(
        *(node(), "--input-type=module", "-e", both, "--", "--check"),
        cwd=_ROOT,
        stderr=asyncio.subprocess.PIPE,
    )
    _, words = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 0, words.decode()
