"""A chain of one token; tests.support.fake_node has nodes that serve it.

The chain records for every transfer whether an authorization made it. The expected result of an
indexer therefore follows from the blocks, without the code under test.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from eth_utils.crypto import keccak

TOKEN = "0x833589fcd6edb6e08f4c7c32d4f71b54bda02913"
OTHER_TOKEN = "0x" + "99" * 20
TRANSFER = "0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef"
USED = "0x98de503528ee59b575ef0c0a2576a82497bfc029a5685b209e9ec333479b10a5"
CANCELED = "0x1cdd46ff242716cdaa72d159d339a485b3438398348d68f09d7c8c0a59353d81"
SETTLED = "0x" + keccak(text="Settled()").hex()
SETTLED_WITH_PERMIT = "0x" + keccak(text="SettledWithPermit()").hex()
PROXIES = (
    "0x402085c248eea27d92e8b30b2c58ed07f9e20001",
    "0x4020a4f3b7b90cca423b9fabcc0ce57c6c240002",
)
BATCH_ESCROW = "0x4020074e9df2ce1dee5a9c1b5c3f541d02a10003"
CAPTURE_ESCROW = "0xf96815976523e00e65be8f34ca5e64b4f41eb19c"
BATCH_SETTLED = "0x" + keccak(text="Settled(address,address,address,uint128)").hex()
CAPTURED = "0x" + keccak(text="PaymentCaptured(bytes32,uint256,uint16,address)").hex()
REFUNDED = "0x" + keccak(text="PaymentRefunded(bytes32,uint256,address)").hex()
STORE_CREATED = "0x" + keccak(text="TokenStoreCreated(address,address)").hex()
PAYMENT_INFO = keccak(
    text="PaymentInfo(address operator,address payer,address receiver,address token,"
    "uint120 maxAmount,uint48 preApprovalExpiry,uint48 authorizationExpiry,uint48 refundExpiry,"
    "uint16 minFeeBps,uint16 maxFeeBps,address feeReceiver,uint256 salt)"
)
START = 1_760_000_000
BLOCK_SECONDS = 2
FINAL_DEPTH = 40
MIN_PAYMENT = 100


def address(name: str) -> bytes:
    return hashlib.sha256(name.encode()).digest()[:20]


WALLETS = tuple(address(f"wallet {n}") for n in range(5))
PAYERS = tuple(address(f"payer {n}") for n in range(6))
STRANGER = address("stranger")


class Move(NamedTuple):
    """A transfer as recorded by the chain."""

    sender: bytes
    receiver: bytes
    value: int
    authorized: bool
    settled: bool = False  # by a contract
    custodian: bytes | None = None  # stands for an unknown payer


@dataclass(frozen=True)
class Log:
    token: str
    topics: tuple[str, ...]
    data: str


@dataclass(frozen=True)
class Tx:
    """Logs in order, and which of them are transfers of the token."""

    logs: tuple[Log, ...]
    moves: tuple[tuple[int, Move], ...]  # (offset of the log, transfer)
    calldata: str = "0x"


@dataclass(frozen=True)
class Block:
    number: int
    hash: bytes
    parent: bytes
    at: int  # seconds
    txs: tuple[Tx, ...]
    logs: tuple[dict[str, Any], ...]

    def header(self) -> dict[str, Any]:
        return {
            "number": hex(self.number),
            "hash": "0x" + self.hash.hex(),
            "parentHash": "0x" + self.parent.hex(),
            "timestamp": hex(self.at),
            "transactions": [],
        }


def pad(value: bytes) -> str:
    return "0x" + value.hex().rjust(64, "0")


class Writer:
    """Writes transactions; every nonce is new."""

    def __init__(self, dice: random.Random) -> None:
        self.dice = dice

    def nonce(self) -> str:
        return "0x" + self.dice.randbytes(32).hex()

    def move(self, sender: bytes, receiver: bytes, value: int) -> Log:
        return Log(TOKEN, (TRANSFER, pad(sender), pad(receiver)), f"0x{value:064x}")

    def use_authorization(self, payer: bytes) -> Log:
        return Log(TOKEN, (USED, pad(payer), self.nonce()), "0x")

    def payment(self, *pairs: tuple[bytes, bytes, int]) -> Tx:
        """Any number of payments by authorization in one transaction."""
        logs: list[Log] = []
        moves = []
        for sender, receiver, value in pairs:
            logs += [self.use_authorization(sender), self.move(sender, receiver, value)]
            moves.append((len(logs) - 1, Move(sender, receiver, value, authorized=True)))
        return Tx(tuple(logs), tuple(moves))

    def plain(self, sender: bytes, receiver: bytes, value: int) -> Tx:
        move = Move(sender, receiver, value, authorized=False)
        return Tx((self.move(sender, receiver, value),), ((0, move),))

    def detour(self, payer: bytes, wallet: bytes, value: int) -> Tx:
        """Pay another address by authorization; then the same payer sends money with a plain
        transfer.
        """
        logs = (
            self.use_authorization(payer),
            self.move(payer, STRANGER, value),
            Log(OTHER_TOKEN, (TRANSFER, pad(payer), pad(wallet)), f"0x{1:064x}"),
            self.move(payer, wallet, value + 1),
        )
        return Tx(
            logs,
            (
                (1, Move(payer, STRANGER, value, authorized=True)),
                (3, Move(payer, wallet, value + 1, authorized=False)),
            ),
        )

    def cancel_authorization(self, payer: bytes, wallet: bytes, value: int) -> Tx:
        """Cancel an authorization directly before a plain transfer."""
        cancel = Log(TOKEN, (CANCELED, pad(payer), self.nonce()), "0x")
        move = Move(payer, wallet, value, authorized=False)
        return Tx((cancel, self.move(payer, wallet, value)), ((1, move),))

    def settle(self, sender: bytes, receiver: bytes, value: int, *, proxy: int = 0) -> Tx:
        """Pay through a Permit2 proxy."""
        event = (SETTLED, SETTLED_WITH_PERMIT)[value % 2]
        move = Move(sender, receiver, value, authorized=False, settled=True)
        return Tx(
            (self.move(sender, receiver, value), Log(PROXIES[proxy], (event,), "0x")), ((0, move),)
        )

    def settle_batch(self, receiver: bytes, value: int, *, is_decoy: bool) -> Tx:
        """Pay what a seller claimed; the event of a decoy is about another amount."""
        escrow = bytes.fromhex(BATCH_ESCROW[2:])
        named = (pad(receiver), pad(bytes.fromhex(TOKEN[2:])), pad(STRANGER))
        event = Log(BATCH_ESCROW, (BATCH_SETTLED, *named), f"0x{value ^ is_decoy:064x}")
        move = Move(escrow, receiver, value, authorized=False, settled=not is_decoy)
        return Tx((self.move(escrow, receiver, value), event), ((0, move),))

    def capture(self, receiver: bytes, value: int, *, fee: bool, is_first: bool) -> Tx:
        """Capture a payment from an operator's store, whose first transfer creates it."""
        store, net = address("store"), value - value * 100 * fee // 10_000
        created = Log(CAPTURE_ESCROW, (STORE_CREATED, pad(STRANGER)), pad(store))
        data = f"0x{value:064x}{100 * fee:064x}{pad(STRANGER)[2:]}"
        logs = [Log(CAPTURE_ESCROW, (CAPTURED, self.nonce()), data)]
        logs += [created] * is_first
        logs += [self.move(store, STRANGER, value - net)] * (net < value)
        logs.append(self.move(store, receiver, net))
        escrow = bytes.fromhex(CAPTURE_ESCROW[2:])
        move = Move(store, receiver, net, authorized=False, settled=True, custodian=escrow)
        return Tx(tuple(logs), ((len(logs) - 1, move),))

    def refund(self, receiver: bytes, value: int, chain_id: int) -> Tx:
        """Refund a captured payment of a seller with money of its operator."""
        escrow = bytes.fromhex(CAPTURE_ESCROW[2:])
        parties = (address("operator"), PAYERS[0], receiver, bytes.fromhex(TOKEN[2:]))
        limits = (2**100, 2**40, 2**40, 2**40, 0, 0, 0, self.dice.randrange(2**200))
        info = b"".join(one.rjust(32, b"\0") for one in parties)
        info += b"".join(one.to_bytes(32) for one in limits)
        inner = keccak(PAYMENT_INFO + info)
        key = keccak(chain_id.to_bytes(32) + escrow.rjust(32, b"\0") + inner)
        event = Log(CAPTURE_ESCROW, (REFUNDED, pad(key)), f"0x{value:064x}{pad(STRANGER)[2:]}")
        returned = self.move(address("operator"), PAYERS[0], value)
        move = Move(receiver, escrow, value, authorized=False)
        return Tx((event, returned), ((0, move),), "0x12345678" + info.hex())

    def decoy(self, sender: bytes, receiver: bytes, value: int) -> Tx:
        """Send money with a plain transfer, near events that look like a proxy's settlement."""
        move = Move(sender, receiver, value, authorized=False)
        foreign = Log("0x" + "77" * 20, (SETTLED,), "0x")
        other = Log(OTHER_TOKEN, (TRANSFER, pad(sender), pad(receiver)), f"0x{value:064x}")
        own = Log(PROXIES[0], (SETTLED,), "0x")
        logs = (own, self.move(sender, receiver, value), foreign, other, own)
        return Tx(logs, ((1, move),))

    def any_form(self, chain_id: int) -> Tx:
        """A transaction of any form of payment, or a decoy."""
        dice = self.dice
        payer, wallet = dice.choice(PAYERS), dice.choice(WALLETS)
        value = dice.choice((0, 1, 5_000, dice.randrange(10**9), 2**256 - 1))
        small = dice.randrange(1, 10**9)
        kind = dice.randrange(8)
        if kind == 2:
            return self.settle_batch(wallet, small, is_decoy=dice.randrange(3) == 0)
        if kind == 3:
            fee, is_first = dice.randrange(2) == 0, dice.randrange(2) == 0
            return self.capture(wallet, small, fee=fee, is_first=is_first)
        if kind == 4:
            return self.refund(wallet, small, chain_id)
        if kind == 0:
            return self.settle(payer, wallet, value, proxy=dice.randrange(2))
        if kind == 1:
            return self.decoy(payer, wallet, value)
        return self.any()

    def any(self) -> Tx:
        dice = self.dice
        payer, wallet = dice.choice(PAYERS), dice.choice(WALLETS)
        value = dice.choice((0, 1, 5_000, dice.randrange(10**9), 2**80 + 1, 2**256 - 1))
        kind = dice.randrange(10)
        if kind < 4:
            return self.payment((payer, wallet, value))
        if kind == 4:
            pairs = [
                (dice.choice(PAYERS), dice.choice((*WALLETS, STRANGER)), dice.randrange(10**6))
                for _ in range(dice.randrange(2, 6))
            ]
            return self.payment(*pairs)
        if kind == 5:
            return self.plain(payer, wallet, value)
        if kind == 6:
            return self.plain(wallet, dice.choice((*PAYERS, STRANGER)), value)
        if kind == 7:
            return self.detour(payer, wallet, dice.randrange(10**6))
        if kind == 8:
            return self.cancel_authorization(payer, wallet, value)
        return self.payment((wallet, dice.choice(WALLETS), value))


class FakeChain:
    """The canonical chain; nodes may lag behind it or stay on a fork of it."""

    def __init__(
        self, seed: int, *, stamped: bool = False, chain_id: int = 8453, forms: bool = False
    ) -> None:
        self.chain_id = chain_id
        self.forms = forms
        self.dice = random.Random(seed)
        self.write = Writer(self.dice)
        self.stamped = stamped
        genesis = Block(0, self.dice.randbytes(32), bytes(32), START, (), ())
        self.blocks: list[Block] = [genesis]
        self.receipts: dict[str, dict[str, Any]] = {}
        self.transactions: dict[bytes, dict[str, Any]] = {}
        self.final = 0

    @property
    def head(self) -> Block:
        return self.blocks[-1]

    def mine(self, *txs: Tx) -> Block:
        number, block_hash = len(self.blocks), self.dice.randbytes(32)
        at = START + number * BLOCK_SECONDS
        logs: list[dict[str, Any]] = []
        for tx in txs:
            transaction = "0x" + self.dice.randbytes(32).hex()
            own = [
                {
                    "address": log.token,
                    "topics": list(log.topics),
                    "data": log.data,
                    "blockHash": "0x" + block_hash.hex(),
                    "blockNumber": hex(number),
                    "transactionHash": transaction,
                    "transactionIndex": "0x0",
                    "logIndex": hex(len(logs) + offset),
                    "removed": False,
                }
                | ({"blockTimestamp": hex(at)} if self.stamped else {})
                for offset, log in enumerate(tx.logs)
            ]
            self.receipts[transaction] = {"transactionHash": transaction, "logs": own}
            # One of two facilitators, without a random number, which would change other tests.
            sender = address(f"facilitator {int(transaction[-1], 16) % 2}")
            self.transactions[bytes.fromhex(transaction[2:])] = {
                "hash": transaction,
                "blockHash": "0x" + block_hash.hex(),
                "blockNumber": hex(number),
                "from": "0x" + sender.hex(),
                "input": tx.calldata,
            }
            logs += own
        block = Block(number, block_hash, self.head.hash, at, tuple(txs), tuple(logs))
        self.blocks.append(block)
        return block

    def any(self) -> Tx:
        """A random transaction: of EIP-3009 only, or of all `forms`."""
        return self.write.any_form(self.chain_id) if self.forms else self.write.any()

    def mine_some(self, blocks: int, *, txs: int = 2) -> None:
        for _ in range(blocks):
            self.mine(*(self.any() for _ in range(self.dice.randrange(txs + 1))))

    def reorg(self, depth: int, blocks: int) -> None:
        """Replace the last `depth` blocks by `blocks` others; some transactions stay. Blocks that a
        node called final stay as well.
        """
        depth = min(depth, self.head.number - self.final)
        if depth < 1:
            return
        gone = self.blocks[-depth:]
        del self.blocks[-depth:]
        for index in range(blocks):
            stay = list(gone[index].txs) if index < len(gone) else []
            self.dice.shuffle(stay)
            self.mine(*stay[: self.dice.randrange(len(stay) + 1)], self.any())

    def compute_expected(self, wallets: Sequence[bytes]) -> set[tuple[Any, ...]]:
        """Return the expected rows of an indexer of these wallets, computed only from the
        blocks.
        """
        entries = set()
        for block in self.blocks:
            place = 0
            for tx in block.txs:
                for offset, move in tx.moves:
                    key = (block.number, block.hash, place + offset)
                    at = block.at * 1_000
                    paid = (move.authorized or move.settled) and move.value >= MIN_PAYMENT
                    if move.receiver in wallets and paid:
                        payer = move.custodian or move.sender
                        entries.add((*key, move.receiver, payer, True, move.value, at))
                    if move.sender in wallets and move.sender != move.receiver:
                        entries.add((*key, move.sender, move.receiver, False, move.value, at))
                place += len(tx.logs)
        return entries

    def deposits(self, own: bytes) -> set[tuple[Any, ...]]:
        """Return all transfers to an own address, and whether an authorization made each."""
        rows = set()
        for block in self.blocks:
            place = 0
            for tx in block.txs:
                for offset, move in tx.moves:
                    if move.receiver == own:
                        key = (block.number, block.hash, place + offset, move.sender, move.value)
                        rows.add((*key, move.authorized, block.at * 1_000))
                place += len(tx.logs)
        return rows
