"""Sales and transfers for reconciliation, and a payment that the ledger lost."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection
from tests.support.statements import execute

from tollgauge.core.base.units import DAY_MS
from tollgauge.core.chain.blocks import BlockHeader
from tollgauge.core.chain.settlement import Deposit
from tollgauge.core.sale.payment_state import State
from tollgauge.db.engine import Store
from tollgauge.store.chain import cursors as chains
from tollgauge.store.chain import deposits
from tollgauge.store.chain.cursors import Cursor
from tollgauge.store.ledger import payments
from tollgauge.store.ledger.attempts import payment_answer, payment_attempt
from tollgauge.store.ledger.payments import payment

CHAIN = 8453
NETWORK = f"eip155:{CHAIN}"
USDC = "0x833589fcd6edb6e08f4c7c32d4f71b54bda02913"
DAY = 20_500
NOON = DAY * DAY_MS + DAY_MS // 2
PAY_TO, OLD_PAY_TO = "0x" + "ab" * 20, "0x" + "cd" * 20
ANN, BEN = "0x" + "0a" * 20, "0x" + "0b" * 20


def header(number: int, *, fork: str = "", at: int = NOON) -> BlockHeader:
    digest = hashlib.sha256(f"{number}{fork}".encode()).digest()
    return BlockHeader(number, digest, bytes(32), at)


def nonce(number: int) -> str:
    return f"0x{number:064x}"


def deposit_in(
    block: BlockHeader,
    index: int,
    value: int = 5_000,
    *,
    by: str | None = None,
    payer: str = ANN,
    to: str = PAY_TO,
) -> Deposit:
    place = (block.number, block.hash, index, USDC, to, payer, value, by)
    return Deposit(*place, "0x" + hashlib.sha256(block.hash).hexdigest(), block.at)


async def start_index(store: Store, *addresses: str, at: int = NOON) -> Cursor:
    """A chain that is indexed up to block 100, with these own addresses, for two days."""
    cursor = await store.writing(chains.start, CHAIN, header(100, at=at))
    own_addresses = addresses or (PAY_TO,)
    cursor = await store.writing(
        chains.add_accounts, cursor, USDC, own_addresses, wanted_from=at - DAY_MS
    )
    await execute(store, deposits.account.update().values(low=0, low_at=at - 2 * DAY_MS))
    return cursor


async def advance_to(
    store: Store, cursor: Cursor, headers: Sequence[BlockHeader], *deposits: Deposit, **rest: Any
) -> Cursor:
    return await store.writing(
        chains.advance, cursor, headers, [], received=deposits, finalized=100, **rest
    )


async def read_to(store: Store, at: int) -> None:
    """Mark every block up to a time as read and final."""
    await execute(store, chains.chain_cursor.update().values(audited_at=at))


async def store_payment(
    store: Store,
    number: int,
    state: State = State.SETTLED,
    *,
    at: int = NOON,
    amount: int = 5_000,
    to: str = PAY_TO,
    payer: str = ANN,
) -> None:
    """Store a payment in the ledger, by its nonce."""
    values = {
        "id": f"{number:032x}",
        "network": NETWORK,
        "asset": USDC,
        "payer": payer,
        "nonce": nonce(number),
        "state": state.value,
        "owner": "",
        "lease_until": 0,
        "digest": "",
        "route": "x402-trust",
        "amount": str(amount),
        "pay_to": to,
        "valid_before_s": str(at // 1_000 + 300),
        "header": "",
        "reason": "",
        "created_at": at,
        "updated_at": at,
    }
    await execute(store, payments.payment.insert().values(values))


def forget_payment(tx: Connection, payment_id: str) -> None:
    """Delete a payment with its response and its attempts."""
    tx.execute(payment_answer.delete().where(payment_answer.c.payment_id == payment_id))
    tx.execute(payment_attempt.delete().where(payment_attempt.c.payment_id == payment_id))
    tx.execute(payment.delete().where(payment.c.id == payment_id))
