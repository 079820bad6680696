"""The ledger: one row a payment, one row an attempt to verify or settle it.

Rules (payments.md):
- the key is unique over (network, asset, payer, nonce); inserting it is the claim;
- a row moves only along core/payment.TRANSITIONS, by compare-and-swap on (state, owner), so that a
  worker that lost its lease can no longer write;
- the answer is stored before settling and is kept for 30 days;
- rows are never deleted while an answer is owed.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Index,
    Integer,
    LargeBinary,
    String,
    Table,
    Text,
    UniqueConstraint,
    and_,
    select,
    update,
)
from sqlalchemy.ext.asyncio import AsyncConnection

from tollgauge.core.payment import TRANSITIONS, Offer, Payment, State
from tollgauge.core.units import DAY_MS
from tollgauge.store.schema import Serial, metadata
from tollgauge.store.upsert import insert

KEEP_ANSWER_MS = 30 * DAY_MS

payment = Table(
    "payment",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("network", String(64), nullable=False),
    Column("asset", String(42), nullable=False),
    Column("payer", String(42), nullable=False),
    Column("nonce", String(66), nullable=False),
    Column("state", String(16), nullable=False),
    Column("owner", String(64), nullable=False),
    Column("lease_until", BigInteger, nullable=False),
    Column("digest", String(64), nullable=False),
    Column("route", String(128), nullable=False),
    Column("amount", String(78), nullable=False),
    Column("pay_to", String(42), nullable=False),
    Column("valid_before", String(78), nullable=False),
    Column("header", Text, nullable=False),
    Column("answer_status", Integer),
    Column("answer_body", LargeBinary),
    Column("tx_hash", String(66)),
    Column("reason", String(200), nullable=False, server_default=""),
    Column("created_at", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    UniqueConstraint("network", "asset", "payer", "nonce", name="payment_key"),
    Index("payment_transaction", "tx_hash"),
    Index("payment_state", "state", "updated_at"),
)

payment_attempt = Table(
    "payment_attempt",
    metadata,
    Column("id", Serial, primary_key=True, autoincrement=True),
    Column("payment_id", String(32), nullable=False),
    Column("kind", String(16), nullable=False),
    Column("at", BigInteger, nullable=False),
    Column("ended_at", BigInteger, nullable=False),
    Column("outcome", String(200), nullable=False),
    Column("tx_hash", String(66)),
    Index("payment_attempt_of", "payment_id"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredAnswer:
    """The whole answer that a payment bought: HTTP status and body bytes."""

    status: int
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerRow:
    """One payment as the ledger knows it. Instants are milliseconds UTC."""

    id: str
    state: State
    owner: str
    lease_until: int
    digest: str
    route: str
    network: str
    asset: str
    payer: str
    nonce: str
    amount: int
    pay_to: str
    valid_before_s: int
    header: str
    answer: StoredAnswer | None
    transaction: str | None
    reason: str
    created_at: int
    updated_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The outcome of a claim: the row as it stands, and whether the caller holds it now."""

    row: LedgerRow
    mine: bool


async def claim(
    tx: AsyncConnection,
    paid: Payment,
    offer: Offer,
    *,
    header: str,
    digest: str,
    owner: str,
    now: int,
    lease_ms: int,
) -> Claim:
    """Claim a payment for one request, or find out who did.

    The first to insert the key holds it. A `rejected` row, or one left `claimed` by a worker whose
    lease ended, is taken over and bound to the new digest, because nothing was charged; one left
    `ready` is taken over with its answer, for the same digest only.
    """
    values = {
        "id": paid.id,
        "network": paid.network,
        "asset": paid.asset,
        "payer": paid.payer,
        "nonce": paid.nonce,
        "state": State.CLAIMED.value,
        "owner": owner,
        "lease_until": now + lease_ms,
        "digest": digest,
        "route": offer.route,
        "amount": str(paid.value),
        "pay_to": paid.to,
        "valid_before": str(paid.valid_before),
        "header": header,
        "created_at": now,
        "updated_at": now,
    }
    inserted = await tx.execute(insert(tx, payment).values(values).on_conflict_do_nothing())
    row = await get(tx, paid.id)
    assert row is not None  # noqa: S101 - the key was inserted or was there
    if inserted.rowcount == 1:
        return Claim(row=row, mine=True)
    if not _free(row, digest=digest, now=now):
        return Claim(row=row, mine=False)
    fresh = {
        "owner": owner,
        "lease_until": now + lease_ms,
        "digest": digest,
        "route": offer.route,
        "header": header,
        "updated_at": now,
    }
    if row.state is not State.READY:
        fresh |= {"state": State.CLAIMED.value, "reason": ""}
    done = await tx.execute(update(payment).where(_as_seen(row)).values(fresh))
    taken = await get(tx, paid.id)
    assert taken is not None  # noqa: S101 - rows are never deleted here
    return Claim(row=taken, mine=done.rowcount == 1)


def _free(row: LedgerRow, *, digest: str, now: int) -> bool:
    if row.state is State.REJECTED:
        return True
    if row.lease_until > now:
        return False
    return row.state is State.CLAIMED or (row.state is State.READY and row.digest == digest)


def _as_seen(row: LedgerRow) -> ColumnElement[bool]:
    return and_(
        payment.c.id == row.id,
        payment.c.state == row.state.value,
        payment.c.owner == row.owner,
        payment.c.updated_at == row.updated_at,
    )


async def move(
    tx: AsyncConnection,
    row: LedgerRow,
    state: State,
    *,
    now: int,
    answer: StoredAnswer | None = None,
    transaction: str | None = None,
    reason: str = "",
    lease_ms: int = 0,
) -> LedgerRow | None:
    """Move a row to `state`, or return None when someone else moved it first.

    Raises ValueError for a move that core/payment.TRANSITIONS does not know.
    """
    if state not in TRANSITIONS[row.state]:
        raise ValueError(f"a payment cannot go from {row.state} to {state}")
    values: dict[str, object] = {"state": state.value, "updated_at": now, "reason": reason[:200]}
    if lease_ms:
        values["lease_until"] = now + lease_ms
    if answer is not None:
        values |= {"answer_status": answer.status, "answer_body": answer.body}
    if transaction is not None:
        values["tx_hash"] = transaction
    done = await tx.execute(
        update(payment)
        .where(
            payment.c.id == row.id,
            payment.c.state == row.state.value,
            payment.c.owner == row.owner,
        )
        .values(values)
    )
    return await get(tx, row.id) if done.rowcount == 1 else None


async def record_attempt(
    tx: AsyncConnection,
    payment_id: str,
    *,
    kind: str,
    at: int,
    ended_at: int,
    outcome: str,
    transaction: str | None = None,
) -> None:
    """Append what a verify or settle call came to."""
    await tx.execute(
        payment_attempt.insert().values(
            payment_id=payment_id,
            kind=kind,
            at=at,
            ended_at=ended_at,
            outcome=outcome[:200],
            tx_hash=transaction,
        )
    )


async def get(tx: AsyncConnection, payment_id: str) -> LedgerRow | None:
    """One payment by its id, or None."""
    found = (await tx.execute(select(payment).where(payment.c.id == payment_id))).mappings().first()
    return _row(dict(found)) if found else None


async def unresolved(tx: AsyncConnection, *, before: int, limit: int) -> tuple[LedgerRow, ...]:
    """Payments whose settlement nobody knows and that were not touched since `before`, oldest
    first: `unknown`, and `settling` left behind by a dead worker.
    """
    states = (State.UNKNOWN.value, State.SETTLING.value)
    query = (
        select(payment)
        .where(payment.c.state.in_(states), payment.c.updated_at <= before)
        .order_by(payment.c.updated_at)
        .limit(limit)
    )
    return tuple(_row(dict(found)) for found in (await tx.execute(query)).mappings())


async def latest(tx: AsyncConnection, *, limit: int) -> tuple[LedgerRow, ...]:
    """The newest payments, for the operator."""
    query = select(payment).order_by(payment.c.created_at.desc(), payment.c.id).limit(limit)
    return tuple(_row(dict(found)) for found in (await tx.execute(query)).mappings())


async def forget_answers(tx: AsyncConnection, *, now: int) -> int:
    """Drop the bodies of answers older than 30 days; the rows themselves stay."""
    done = await tx.execute(
        update(payment)
        .where(payment.c.answer_body.is_not(None), payment.c.created_at < now - KEEP_ANSWER_MS)
        .values(answer_body=None, answer_status=None)
    )
    return done.rowcount


def _row(found: dict[str, object]) -> LedgerRow:
    status, body = found["answer_status"], found["answer_body"]
    return LedgerRow(
        id=str(found["id"]),
        state=State(str(found["state"])),
        owner=str(found["owner"]),
        lease_until=int(str(found["lease_until"])),
        digest=str(found["digest"]),
        route=str(found["route"]),
        network=str(found["network"]),
        asset=str(found["asset"]),
        payer=str(found["payer"]),
        nonce=str(found["nonce"]),
        amount=int(str(found["amount"])),
        pay_to=str(found["pay_to"]),
        valid_before_s=int(str(found["valid_before"])),
        header=str(found["header"]),
        answer=StoredAnswer(status=int(str(status)), body=body)
        if isinstance(body, bytes)
        else None,
        transaction=str(found["tx_hash"]) if found["tx_hash"] else None,
        reason=str(found["reason"]),
        created_at=int(str(found["created_at"])),
        updated_at=int(str(found["updated_at"])),
    )
