"""A chain with authorizations, for the ledger's tests."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

from tollgauge.core.chain.settlement import AUTHORIZATION_CANCELED, AUTHORIZATION_USED, TRANSFER

NETWORK = "eip155:8453"
ASSET = "0x833589fcd6edb6e08f4c7c32d4f71b54bda02913"
PAY_TO = "0x" + "ab" * 20
PAYER = "0x" + "cd" * 20
PRICE = 5_000
NUMBERS = itertools.count(1)


@dataclass(frozen=True)
class Use:
    """The use of a nonce on the chain: a transfer to `to`, or a cancellation (None)."""

    nonce: str
    to: str | None
    transaction: str


@dataclass(frozen=True)
class Block:
    number: int
    hash: str
    at_s: int
    uses: tuple[Use, ...] = ()


@dataclass
class FakeChain:
    """Blocks on demand. An authorization is used at most once and only while it is valid."""

    blocks: list[Block] = field(default_factory=list)
    mempool: list[str] = field(default_factory=list)
    drained: bool = False

    def use(self, nonce: str) -> Use | None:
        return next((u for b in self.blocks for u in b.uses if u.nonce == nonce), None)

    def is_paid(self, nonce: str) -> bool:
        use = self.use(nonce)
        return use is not None and use.to == PAY_TO

    def mine(self, at_s: int, *uses: Use) -> None:
        number = len(self.blocks)
        self.blocks.append(Block(number, word(next(NUMBERS)), at_s, uses))

    def transfer(self, nonce: str, *, at_s: int, valid_before_s: int, to: str = PAY_TO) -> str:
        """Broadcast and mine; return the transaction's hash, even if it reverted."""
        transaction = word(next(NUMBERS))
        good = self.use(nonce) is None and at_s < valid_before_s and not self.drained
        self.mine(at_s, *[Use(nonce, to, transaction)] if good else [])
        return transaction

    def cancel(self, nonce: str, *, at_s: int) -> None:
        uses = [Use(nonce, None, word(next(NUMBERS)))] if self.use(nonce) is None else []
        self.mine(at_s, *uses)

    def reorganise(self, nonce: str, *, remine: bool, at_s: int) -> bool:
        """Drop the block with the payment and all later ones. Their other uses, and with `remine`
        this one, are mined again in one new block.
        """
        place = next((b.number for b in self.blocks for u in b.uses if u.nonce == nonce), None)
        if place is None or not self.is_paid(nonce):
            return False
        dropped = [use for block in self.blocks[place:] for use in block.uses]
        del self.blocks[place:]
        self.mine(at_s, *[use for use in dropped if remine or use.nonce != nonce])
        return True


def word(number: int) -> str:
    return f"0x{number:064x}"


def topic(address: str) -> str:
    return "0x" + address[2:].rjust(64, "0")


def block_logs(block: Block) -> list[dict[str, Any]]:
    logs: list[dict[str, Any]] = []

    def emit(transaction: str, topics: list[str], data: str) -> None:
        logs.append(
            {
                "address": ASSET,
                "topics": topics,
                "data": data,
                "transactionHash": transaction,
                "blockHash": block.hash,
                "blockNumber": hex(block.number),
                "logIndex": hex(len(logs)),
                "removed": False,
            }
        )

    for use in block.uses:
        if use.to is None:
            emit(use.transaction, [AUTHORIZATION_CANCELED, topic(PAYER), use.nonce], "0x")
            continue
        emit(use.transaction, [AUTHORIZATION_USED, topic(PAYER), use.nonce], "0x")
        emit(use.transaction, [TRANSFER, topic(PAYER), topic(use.to)], word(PRICE))
    return logs
