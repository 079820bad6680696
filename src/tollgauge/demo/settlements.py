"""Settles purchases on the local chain as EIP-3009 transfers.

Each payer signs its authorization. A submitter sends it to the token and pays the gas, as
facilitators do. Each slot of the history has a separate block with the slot's time, so that the
chain covers the whole history.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from itertools import groupby
from typing import Any, Final, Protocol

from eth_hash.auto import keccak
from eth_keys.datatypes import PrivateKey

from tollgauge.core.base.units import evm_chain_id
from tollgauge.demo.chain import Chain, TestAccount, word
from tollgauge.demo.customers import DemoPurchase

Report = Callable[[int, int], None]
"""Receives the number of settled purchases and the total."""

_FOREVER: Final = 2**40
_GAS: Final = hex(200_000)
_FEE: Final = hex(2 * 10**9)
_RICH: Final = hex(10**20)
_SUBMITTER: Final = 2
"""The account that submits. It is not the facilitator's, which tracks its own nonce."""
_MINT: Final = "0x40c10f19"
_TRANSFER: Final = "0xa9059cbb"
_DOMAIN: Final = (
    "EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)"
)
_AUTHORIZED: Final = (
    "TransferWithAuthorization(address from,address to,uint256 value,"
    "uint256 validAfter,uint256 validBefore,bytes32 nonce)"
)
_SUBMIT: Final = (
    "transferWithAuthorization"
    "(address,address,uint256,uint256,uint256,bytes32,uint8,bytes32,bytes32)"
)


class Sales(Protocol):
    """Pays the purchases that are made on one network."""

    async def past(
        self, purchases: Sequence[DemoPurchase], *, until: int, report: Report = ...
    ) -> None:
        """Settle purchases at their times, oldest first. `until` is the present (ms UTC)."""

    async def now(self, purchases: Sequence[DemoPurchase]) -> None:
        """Settle purchases now."""


class Settlements:
    """Submits the purchases on a chain to it and tracks the next nonce of each sender. Purchases on
    other chains are ignored.
    """

    def __init__(self, chain: Chain) -> None:
        self._chain = chain
        self._submitter = chain.accounts[_SUBMITTER].address
        self._nonces: dict[str, int] = {}

    async def past(
        self, purchases: Sequence[DemoPurchase], *, until: int, report: Report = lambda *_: None
    ) -> None:
        """Settle purchases at their times, oldest first, and advance the chain to `until` (ms UTC).

        The chain's time must not be later than the first purchase. Raises ChainError if the chain
        rejects a transaction.
        """
        hashes: list[str] = []
        purchases = self._on_chain(purchases)
        async with self._chain.by_hand():
            done = 0
            for at, slot in groupby(purchases, key=lambda purchase: purchase.at):
                report(done, len(purchases))
                block = list(slot)
                hashes += await self._chain.send(await self._transactions(block))
                await self._chain.mine(at=at)
                done += len(block)
            await self._chain.mine(at=until)
        await self._chain.check(hashes)

    async def now(self, purchases: Sequence[DemoPurchase]) -> None:
        """Settle purchases in one block now. Raises ChainError like `past`."""
        purchases = self._on_chain(purchases)
        if not purchases:
            return
        async with self._chain.by_hand():
            hashes = await self._chain.send(await self._transactions(purchases))
            await self._chain.mine()
        await self._chain.check(hashes)

    def _on_chain(self, purchases: Sequence[DemoPurchase]) -> list[DemoPurchase]:
        return [purchase for purchase in purchases if purchase.network == self._chain.network]

    async def _transactions(self, purchases: Sequence[DemoPurchase]) -> list[dict[str, Any]]:
        """Return the transactions of purchases: funding of payers, payments, returned money."""
        calls = [
            (self._submitter, data)
            for data in (
                *_funding(purchases),
                *(_submission(purchase, self._chain) for purchase in purchases),
            )
        ]
        calls += [
            (purchase.pay_to, _return(purchase)) for purchase in purchases if purchase.returned_to
        ]
        for sender, _ in calls:
            if sender not in self._nonces:
                await self._prepare_sender(sender)
        return [self._transaction(sender, data) for sender, data in calls]

    async def _prepare_sender(self, sender: str) -> None:
        """Unlock an address on the chain, even without its key, and fund its gas."""
        await self._chain.rpc("anvil_impersonateAccount", sender)
        await self._chain.rpc("anvil_setBalance", sender, _RICH)
        count = await self._chain.rpc("eth_getTransactionCount", sender, "latest")
        self._nonces[sender] = int(count, 16)

    def _transaction(self, sender: str, data: str) -> dict[str, Any]:
        """Return a call of the token with the sender's next nonce."""
        nonce = self._nonces[sender]
        self._nonces[sender] += 1
        return {
            "from": sender,
            "to": self._chain.token,
            "data": data,
            "nonce": hex(nonce),
            "gas": _GAS,
            "gasPrice": _FEE,
        }


def _funding(purchases: Sequence[DemoPurchase]) -> list[str]:
    """Return mint calls for the payers of purchases, and for payees that return money.

    The payees get the money in advance, because the order of two senders' transactions in a block
    cannot be controlled.
    """
    sums: Counter[str] = Counter()
    for purchase in purchases:
        sums[purchase.payer.address] += purchase.amount
        if purchase.returned_to:
            sums[purchase.pay_to] += purchase.amount
    return [_MINT + _address(owner) + word(amount) for owner, amount in sums.items()]


def _submission(purchase: DemoPurchase, chain: Chain) -> str:
    """Return the call of a purchase: the payer's authorization with its signature."""
    nonce = keccak(f"{purchase.seller.label} {purchase.at} {purchase.number}".encode()).hex()
    terms = (
        _address(purchase.payer.address)
        + _address(purchase.pay_to)
        + word(purchase.amount)
        + word(0)
        + word(_FOREVER)
        + nonce
    )
    struct = keccak(keccak(_AUTHORIZED.encode()) + bytes.fromhex(terms))
    signature = _key(purchase.payer).sign_msg_hash(
        keccak(b"\x19\x01" + _domain(chain.network, chain.token) + struct)
    )
    selector = keccak(_SUBMIT.encode())[:4].hex()
    v, r, s = signature.v + 27, signature.r, signature.s
    return f"0x{selector}{terms}{word(v)}{word(r)}{word(s)}"


def _return(purchase: DemoPurchase) -> str:
    return _TRANSFER + _address(purchase.returned_to) + word(purchase.amount)


@cache
def _domain(network: str, token: str) -> bytes:
    """Return the EIP-712 domain of the token."""
    name, version = keccak(b"USD Coin"), keccak(b"2")
    where = bytes.fromhex(word(evm_chain_id(network)) + _address(token))
    return keccak(keccak(_DOMAIN.encode()) + name + version + where)


@cache
def _key(payer: TestAccount) -> PrivateKey:
    return PrivateKey(bytes.fromhex(payer.key.removeprefix("0x")))


def _address(address: str) -> str:
    return word(int(address, 16))
