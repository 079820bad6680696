"""The ledger: one row a payment.

Rules (docs/payments.md):
- the key is unique over (network, asset, payer, nonce); inserting it is the claim;
- a row's state changes only as core/sale/payment_state.TRANSITIONS allows, by compare-and-swap on
  (state, owner), so that a worker that lost its lease can no longer write; the attempts
  (store/ledger/attempts) are written in the same transaction;
- `lease_until` is until when a row is left alone (ms UTC): by other workers while one works on it,
  by the reconciler afterwards. 0 marks a settled row as final: it is not checked again;
- the answer (store/ledger/attempts) is written in the transaction of the intent to settle.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import Connection

from tollgauge.core.base.errors import TollgaugeError
from tollgauge.core.sale.payment import Authorization, Offer, Payment
from tollgauge.core.sale.payment_state import CHECKED_ON_CHAIN, PATHS, TRANSITIONS, State
from tollgauge.db.schema import metadata, upsert
from tollgauge.store import rows
from tollgauge.store.ledger import attempts as attempt_rows
from tollgauge.store.ledger.attempts import Attempt, StoredAnswer, payment_answer

payment = sa.Table(
    "payment",
    metadata,
    sa.Column("id", sa.String(32), primary_key=True),
    sa.Column("network", sa.String(64), nullable=False),
    sa.Column("asset", sa.String(42), nullable=False),
    sa.Column("payer", sa.String(42), nullable=False),
    sa.Column("nonce", sa.String(66), nullable=False),
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("owner", sa.String(64), nullable=False),
    sa.Column("lease_until", sa.BigInteger, nullable=False),
    sa.Column("digest", sa.String(64), nullable=False),
    sa.Column("route", sa.String(128), nullable=False),
    sa.Column("amount", sa.String(78), nullable=False),
    sa.Column("pay_to", sa.String(42), nullable=False),
    sa.Column("valid_before", sa.String(78), nullable=False),
    sa.Column("header", sa.Text, nullable=False),
    sa.Column("tx_hash", sa.String(66)),
    sa.Column("reason", sa.String(200), nullable=False, server_default=""),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("updated_at", sa.BigInteger, nullable=False),
    sa.UniqueConstraint("network", "asset", "payer", "nonce", name="payment_key"),
    sa.Index("payment_transaction", "tx_hash"),
    sa.Index("payment_due", "state", "lease_until"),
    sa.Index("payment_newest", "created_at"),
    sa.Index("payment_payer", "payer", "state", "created_at"),
)

_KEPT: Final = ("id", "network", "asset", "payer", "nonce", "tx_hash", "created_at")
"""Columns that keep their values when a claim is taken over."""
_MOVED: Final = ("state", "owner", "updated_at", "lease_until", "reason", "tx_hash")
"""Columns that every change of state writes; a rejection removes the header too."""
_WITH_ANSWER: Final = sa.select(
    payment,
    payment_answer.c.status.label("answer_status"),
    payment_answer.c.body,
    payment_answer.c.shown_at,
).outerjoin(payment_answer, payment_answer.c.payment_id == payment.c.id)


class ClaimLost(TollgaugeError):  # noqa: N818 - it names a state, not a bug
    """Another worker has taken over a claimed payment: nothing may be written under its claim."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerRow:
    """One payment of the ledger. Instants are ms UTC, unless named `_s` (unix seconds)."""

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

    @property
    def authorization(self) -> Authorization:
        """The transfer that settles this payment."""
        return Authorization(
            network=self.network,
            asset=self.asset,
            payer=self.payer,
            nonce=self.nonce,
            to=self.pay_to,
            value=self.amount,
            since_s=self.created_at // 1000,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The outcome of a claim: the row as it is now, and whether the caller has claimed it."""

    row: LedgerRow
    claimed: bool


def claim(
    tx: Connection,
    paid: Payment,
    offer: Offer,
    *,
    digest: str,
    owner: str,
    now: int,
    lease_ms: int,
) -> Claim:
    """Claim a payment for one request, or find out who did.

    The first to insert the key has the claim. A `rejected` row, or a `claimed` one whose lease has
    ended, is taken over and bound to the new request and the new signed values (a payer may sign
    one nonce twice), because nothing was charged.
    """
    new = LedgerRow(
        id=paid.id,
        state=State.CLAIMED,
        owner=owner,
        lease_until=now + lease_ms,
        digest=digest,
        route=offer.route,
        network=paid.network,
        asset=paid.asset,
        payer=paid.payer,
        nonce=paid.nonce,
        amount=paid.value,
        pay_to=paid.to,
        valid_before_s=paid.valid_before,
        header=paid.header,
        answer=None,
        transaction=None,
        reason="",
        created_at=now,
        updated_at=now,
    )
    columns = _columns(new)
    insert = upsert(payment).values(columns).on_conflict_do_nothing().returning(payment.c.id)
    if tx.execute(insert).first() is not None:
        return Claim(row=new, claimed=True)
    row = get(tx, paid.id)
    assert row is not None  # noqa: S101 - the key was not inserted, so it was there
    if not _may_take_over(row, now=now):
        return Claim(row=row, claimed=False)
    takeover = {name: value for name, value in columns.items() if name not in _KEPT}
    changed = _update_unchanged(tx, row, takeover)
    return Claim(row=get(tx, paid.id) or row, claimed=changed)


def _may_take_over(row: LedgerRow, *, now: int) -> bool:
    abandoned = row.state is State.CLAIMED and row.lease_until <= now
    return row.state is State.REJECTED or abandoned


def _is_held(row: LedgerRow) -> sa.ColumnElement[bool]:
    """Select the row if it still has the state and owner that were read."""
    return sa.and_(
        payment.c.id == row.id, payment.c.state == row.state.value, payment.c.owner == row.owner
    )


def _update_unchanged(tx: Connection, row: LedgerRow, changes: Mapping[str, Any]) -> bool:
    """Change a row unless it was written since it was read; False if it was."""
    unchanged = (_is_held(row), payment.c.updated_at == row.updated_at)
    return tx.execute(payment.update().where(*unchanged).values(changes)).rowcount == 1


def move(
    tx: Connection,
    row: LedgerRow,
    state: State,
    *,
    now: int,
    owner: str | None = None,
    answer: StoredAnswer | None = None,
    transaction: str | None = None,
    reason: str = "",
    lease_ms: int = 0,
    attempts: Sequence[Attempt] = (),
) -> LedgerRow | None:
    """Change a row's state; returns the new row, or None if another worker changed it first.

    The row is left alone for `lease_ms`, under a new `owner` if one is given; `attempts` are added
    to those of the payment. An empty `transaction` removes the one that a facilitator had named.
    The header of a rejected payment is not kept: nothing will be settled with it, and anyone can
    send 16 KB of it. Raises ValueError for a change that is not in
    core/sale/payment_state.TRANSITIONS, and for settling without an answer.
    """
    if state not in TRANSITIONS[row.state]:
        raise ValueError(f"a payment cannot go from {row.state} to {state}")
    if row.state is State.CLAIMED and state is State.SETTLING and answer is None:
        raise ValueError("nothing is settled before its answer is stored")
    moved = replace(
        row,
        state=state,
        owner=owner or row.owner,
        updated_at=now,
        lease_until=now + lease_ms,
        reason=reason[:200],
        answer=answer or row.answer,
        transaction=row.transaction if transaction is None else transaction or None,
        header="" if state is State.REJECTED else row.header,
    )
    columns = _columns(moved)
    written = _MOVED if state is not State.REJECTED else (*_MOVED, "header")
    changes = {name: columns[name] for name in written}
    if tx.execute(payment.update().where(_is_held(row)).values(changes)).rowcount != 1:
        return None
    if answer is not None:
        attempt_rows.store_answer(tx, row.id, answer, now=now)
    attempt_rows.add(tx, row.id, attempts)
    return moved


def check_claim(tx: Connection, row: LedgerRow) -> None:
    """Lock a claim until this transaction ends, so that what is written in it is written by the
    payment's own worker (docs/payments.md). Raises ClaimLost if another worker has taken the
    payment over, or if it is no longer claimed.
    """
    is_claimed = (_is_held(row), payment.c.state == State.CLAIMED.value)
    lock = sa.select(payment.c.id).where(*is_claimed).with_for_update()
    if tx.execute(lock).first() is None:
        raise ClaimLost(f"payment {row.id} is no longer claimed by {row.owner}")


def conclude(
    tx: Connection,
    row: LedgerRow,
    state: State,
    *,
    now: int,
    transaction: str | None,
    reason: str,
    lease_ms: int,
    attempts: Sequence[Attempt] = (),
) -> LedgerRow | None:
    """Give a row that no worker has the state that the chain proves, through every state between;
    returns the new row, or None if another worker changed it first.
    """
    current: LedgerRow | None = row
    for between in () if state in TRANSITIONS[row.state] else PATHS[row.state]:
        if between is not state:
            current = current and move(tx, current, between, now=now, reason=reason)
    return current and move(
        tx,
        current,
        state,
        now=now,
        transaction=transaction,
        reason=reason,
        lease_ms=lease_ms,
        attempts=attempts,
    )


def leave(tx: Connection, row: LedgerRow, *, until: int) -> None:
    """Leave a row alone until `until` (ms UTC)."""
    _update_unchanged(tx, row, {"lease_until": until})


def finish(tx: Connection, row: LedgerRow, *, transaction: str) -> LedgerRow:
    """Mark a settled row as final, settled by this transaction: it is not checked again."""
    _update_unchanged(tx, row, {"lease_until": 0, "tx_hash": transaction})
    return replace(row, lease_until=0, transaction=transaction or None)


def get(tx: Connection, payment_id: str) -> LedgerRow | None:
    """One payment by its id, or None."""
    row = tx.execute(_WITH_ANSWER.where(payment.c.id == payment_id)).first()
    return _row(row) if row else None


def due(tx: Connection, *, now: int, limit: int) -> tuple[LedgerRow, ...]:
    """Payments that are due to be checked on the chain, longest overdue first: `unknown`,
    `settling` ones that a dead worker left, and `settled` ones until they are final.
    """
    overdue = payment.c.lease_until.between(1, now)
    overdue_rows: list[LedgerRow] = []
    for state in sorted(CHECKED_ON_CHAIN):  # one query each, so that the index on state is used
        query = (
            _WITH_ANSWER.where(payment.c.state == state.value, overdue)
            .order_by(payment.c.lease_until)
            .limit(limit)
        )
        overdue_rows += [_row(row) for row in tx.execute(query)]
    return tuple(sorted(overdue_rows, key=lambda row: row.lease_until)[:limit])


def latest(tx: Connection, *, limit: int) -> tuple[LedgerRow, ...]:
    """The newest payments, for the operator."""
    query = _WITH_ANSWER.order_by(payment.c.created_at.desc(), payment.c.id).limit(limit)
    return tuple(_row(row) for row in tx.execute(query))


def _columns(row: LedgerRow) -> dict[str, Any]:
    """The columns of a payment, without its answer's."""
    return rows.to_columns(
        row,
        "answer",
        "transaction",
        "valid_before_s",
        state=row.state.value,
        amount=str(row.amount),
        valid_before=str(row.valid_before_s),
        tx_hash=row.transaction,
    )


def _row(row: Any) -> LedgerRow:
    """The inverse of `_columns`, with the answer."""
    stored = row.body is not None
    return rows.from_columns(
        LedgerRow,
        row,
        state=State(row.state),
        amount=int(row.amount),
        valid_before_s=int(row.valid_before),
        transaction=row.tx_hash or None,
        answer=rows.from_columns(StoredAnswer, row, status=row.answer_status) if stored else None,
    )
