"""The ledger: one row per payment (docs/payments.md).

- The key (network, asset, payer, nonce) is unique. Inserting it is the claim.
- A row's state changes only as core/sale/payment_state.TRANSITIONS allows, by compare-and-swap on
  (state, owner): a worker that lost its lease can no longer write. Attempts (store/ledger/attempts)
  are written in the same transaction.
- Until `lease_until` (ms UTC) a row belongs to the worker that processes it, and after that to the
  reconciler. 0 marks a settled row as final.
- The answer is written in the transaction that records the intent to settle.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import Connection

from tollgauge.core.base.errors import TollgaugeError
from tollgauge.core.sale.payment import Authorization, Offer, Payment
from tollgauge.core.sale.payment_state import (
    CHECKED_ON_CHAIN,
    CONCLUDED,
    PATHS,
    TRANSITIONS,
    State,
)
from tollgauge.core.watch.watch_rules import ANSWERS_MS, REJECTED_MS
from tollgauge.db.codec import Amount, columns_of
from tollgauge.db.schema import metadata, upsert
from tollgauge.store import rows
from tollgauge.store.ledger import attempts as attempt_rows
from tollgauge.store.ledger.attempts import (
    Attempt,
    StoredAnswer,
    payment_answer,
    payment_attempt,
)


class ClaimLost(TollgaugeError):  # noqa: N818 - it names a state, not a bug
    """Another worker has taken over a claimed payment: the old claim must not write."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerRow:
    """One payment. Times are ms UTC, except those named `_s` (Unix seconds)."""

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


payment = sa.Table(
    "payment",
    metadata,
    *columns_of(LedgerRow, key=("id",), without=("answer",), amount=Amount, valid_before_s=Amount),
    sa.UniqueConstraint("network", "asset", "payer", "nonce", name="payment_key"),
    sa.Index("payment_transaction", "transaction"),
    sa.Index("payment_due", "state", "lease_until"),
    sa.Index("payment_newest", "created_at"),
    sa.Index("payment_payer", "payer", "state", "created_at"),
)

_KEPT: Final = ("id", "network", "asset", "payer", "nonce", "transaction", "created_at")
"""Columns that are not changed when a claim is taken over."""
_MOVED: Final = ("state", "owner", "updated_at", "lease_until", "reason", "transaction")
"""Columns written by every change of state; a rejection also deletes the header."""
_WITH_ANSWER: Final = sa.select(payment, *payment_answer.c["status", "body", "shown_at"]).outerjoin(
    payment_answer, payment_answer.c.payment_id == payment.c.id
)
_BY_ID: Final = _WITH_ANSWER.where(payment.c.id == sa.bindparam("id_"))
_CLAIM: Final = upsert(payment).on_conflict_do_nothing().returning(payment.c.id)
_HELD: Final = (
    payment.c.id == sa.bindparam("held_id"),
    payment.c.state == sa.bindparam("held_state", type_=payment.c.state.type),
    payment.c.owner == sa.bindparam("held_owner"),
)
"""The condition that a row still has the state and owner that were read."""
_MOVE: Final = payment.update().where(*_HELD)
_UNCHANGED: Final = _MOVE.where(payment.c.updated_at == sa.bindparam("held_updated_at"))
_LOCK_CLAIM: Final = (
    sa.select(payment.c.id).where(*_HELD, payment.c.state == State.CLAIMED).with_for_update()
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The result of a claim: the current row, and whether the caller holds the claim."""

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
    """Claim a payment for one request, or return the existing claim.

    The first insert of the key holds the claim. A `rejected` row, or a `claimed` one with an
    expired lease, is taken over and bound to the new request and the newly signed values (a payer
    may sign a nonce twice), because nothing was charged.
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
    columns = rows.to_columns(new, "answer")
    # The unique key decides between concurrent requests: one of them inserts the row.
    if tx.execute(_CLAIM, columns).first() is not None:
        return Claim(row=new, claimed=True)
    row = get(tx, paid.id)
    assert row is not None  # noqa: S101 - the insert found a conflicting row
    if not _may_take_over(row, now=now):
        return Claim(row=row, claimed=False)
    takeover = {name: value for name, value in columns.items() if name not in _KEPT}
    changed = _update_unchanged(tx, row, takeover)
    return Claim(row=get(tx, paid.id) or row, claimed=changed)


def _may_take_over(row: LedgerRow, *, now: int) -> bool:
    abandoned = row.state is State.CLAIMED and row.lease_until <= now
    return row.state is State.REJECTED or abandoned


def _lease_parameters(row: LedgerRow) -> dict[str, Any]:
    """Return the parameters of _HELD."""
    return {"held_id": row.id, "held_state": row.state, "held_owner": row.owner}


def _update_unchanged(tx: Connection, row: LedgerRow, changes: Mapping[str, Any]) -> bool:
    """Update a row unless it was written since it was read; return whether it was updated."""
    parameters = {**changes, **_lease_parameters(row), "held_updated_at": row.updated_at}
    return tx.execute(_UNCHANGED, parameters).rowcount == 1


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
    """Change a row's state; return the new row, or None if another worker changed it first.

    - `lease_ms`: lease of the row, under a new `owner` if given.
    - `transaction`: an empty text removes a transaction that a facilitator reported.

    The header of a rejected payment is deleted: it is no longer needed, and anyone can send 16 KB.

    Raises:
        ValueError: TRANSITIONS does not allow the change, or an answer is missing for settling.
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
    columns = rows.to_columns(moved, "answer")
    written = _MOVED if state is not State.REJECTED else (*_MOVED, "header")
    changes = {name: columns[name] for name in written}
    # Compare-and-swap: if the lease expired, another worker has changed state or owner.
    if tx.execute(_MOVE, changes | _lease_parameters(row)).rowcount != 1:
        return None
    if answer is not None:
        attempt_rows.store_answer(tx, row.id, answer, now=now)
    attempt_rows.add(tx, row.id, attempts)
    return moved


def check_claim(tx: Connection, row: LedgerRow) -> None:
    """Lock a claim until the transaction ends, so that only the payment's own worker writes in it.

    Raises:
        ClaimLost: Another worker has taken over the payment, or it is no longer claimed.
    """
    if tx.execute(_LOCK_CLAIM, _lease_parameters(row)).first() is None:
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
    """Give a row without a worker the state that the chain proves, through all states in between.

    Returns the new row, or None if another worker changed it first.
    """
    current: LedgerRow | None = row
    # Each step is a compare-and-swap of its own; after a lost one `current` stays None.
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
    """Leave a row to its current worker, or untouched, until `until` (ms UTC)."""
    _update_unchanged(tx, row, {"lease_until": until})


def finish(tx: Connection, row: LedgerRow, *, transaction: str | None) -> LedgerRow:
    """Mark a settled row as final, with its transaction. It is not checked again."""
    _update_unchanged(tx, row, {"lease_until": 0, "transaction": transaction})
    return replace(row, lease_until=0, transaction=transaction)


def get(tx: Connection, payment_id: str) -> LedgerRow | None:
    """Return a payment by ID, or None."""
    row = tx.execute(_BY_ID, {"id_": payment_id}).first()
    return _row(row) if row else None


def due(tx: Connection, *, now: int, limit: int) -> tuple[LedgerRow, ...]:
    """Return payments to check on the chain, longest overdue first: `unknown` ones, `settling` ones
    of dead workers, and `settled` ones that are not final.
    """
    overdue = payment.c.lease_until.between(1, now)
    overdue_rows: list[LedgerRow] = []
    # One query per state, so that the index on (state, lease_until) is used.
    for state in sorted(CHECKED_ON_CHAIN):
        query = (
            _WITH_ANSWER.where(payment.c.state == state, overdue)
            .order_by(payment.c.lease_until)
            .limit(limit)
        )
        overdue_rows += [_row(row) for row in tx.execute(query)]
    return tuple(sorted(overdue_rows, key=lambda row: row.lease_until)[:limit])


def latest(tx: Connection, *, limit: int) -> tuple[LedgerRow, ...]:
    """Return the newest payments, for the operator."""
    query = _WITH_ANSWER.order_by(payment.c.created_at.desc(), payment.c.id).limit(limit)
    return tuple(_row(row) for row in tx.execute(query))


def forget_answers(tx: Connection, *, now: int, limit: int) -> int:
    """Delete up to `limit` answers whose payment was concluded 30 days ago; return their number.

    The payments are kept.
    """
    before = now - ANSWERS_MS
    return rows.delete_batch(
        tx,
        payment_answer,
        payment.c.id == payment_answer.c.payment_id,
        payment_answer.c.stored_at < before,
        payment.c.state.in_(CONCLUDED),
        payment.c.updated_at < before,
        order_by=(payment_answer.c.stored_at,),
        limit=limit,
    )


def forget_rejected(tx: Connection, *, now: int, limit: int) -> int:
    """Delete up to `limit` payments that were rejected a day ago, with their attempts; return their
    number.

    Nothing was charged for them, they have expired, and anyone can create any number of them.
    """
    is_rejected = payment.c.state == State.REJECTED
    expired = payment.c.lease_until.between(1, now - REJECTED_MS)
    old = sa.select(payment.c.id).where(is_rejected, expired).limit(limit)
    # Checked again: the payer may have claimed the row since it was selected.
    deletion = payment.delete().where(payment.c.id.in_(old), is_rejected).returning(payment.c.id)
    ids = tx.execute(deletion).scalars().all()
    tx.execute(payment_attempt.delete().where(payment_attempt.c.payment_id.in_(ids)))
    return len(ids)


def _row(row: Any) -> LedgerRow:
    """Build a payment from a row with its answer."""
    answer = None if row.body is None else rows.from_columns(StoredAnswer, row)
    return rows.from_columns(LedgerRow, row, answer=answer)
