"""The ledger: one row a payment, one row an attempt to verify or settle it, one row an answer.

Rules (docs/payments.md):
- the key is unique over (network, asset, payer, nonce); inserting it is the claim;
- a row's state changes only as core/payment.TRANSITIONS allows, by compare-and-swap on
  (state, owner), so that a worker that lost its lease can no longer write; the attempts are written
  in the same transaction;
- `lease_until` is until when a row is left alone (ms UTC): by other workers while one works on it,
  by the reconciler afterwards. 0 marks a settled row as final: it is not checked again;
- the answer is stored before settling, and kept until 30 days after the outcome is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Index,
    Integer,
    LargeBinary,
    String,
    Table,
    Text,
    UniqueConstraint,
    bindparam,
    delete,
    literal_column,
    select,
    text,
    update,
)

from tollgauge.core.errors import TollgaugeError
from tollgauge.core.payment import (
    CHECKED_ON_CHAIN,
    CONCLUDED,
    PATHS,
    TRANSITIONS,
    Authorization,
    Offer,
    Payment,
    State,
    decode,
)
from tollgauge.core.units import DAY_MS
from tollgauge.db.prepared import Prepared
from tollgauge.db.schema import Serial, metadata
from tollgauge.db.upsert import either

KEEP_ANSWER_MS = 30 * DAY_MS
KEEP_REJECTED_MS = DAY_MS
FORGET_BATCH = 5_000

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
    Column("tx_hash", String(66)),
    Column("reason", String(200), nullable=False, server_default=""),
    Column("created_at", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    UniqueConstraint("network", "asset", "payer", "nonce", name="payment_key"),
    Index("payment_transaction", "tx_hash"),
    Index("payment_due", "state", "lease_until"),
    Index("payment_newest", "created_at"),
    Index("payment_payer", "payer", "state", "created_at"),
)

payment_answer = Table(
    "payment_answer",
    metadata,
    Column("payment_id", String(32), primary_key=True),
    Column("status", Integer, nullable=False),
    Column("body", LargeBinary, nullable=False),
    # When an answer that holds a secret was shown to a buyer who repeats no ticket.
    Column("shown_at", BigInteger),
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
    # The host that made the work of an attempt vain.
    Column("host", Text),
    Index("payment_attempt_of", "payment_id"),
    Index(
        "payment_attempt_host",
        "host",
        "at",
        sqlite_where=text("host IS NOT NULL"),
        postgresql_where=text("host IS NOT NULL"),
    ),
)

_ALL_COLUMNS: Final[dict[str, object]] = dict.fromkeys(payment.c.keys())
_INSERT: Final = Prepared(either(payment, lambda insert: insert.on_conflict_do_nothing()))
_WITH_ANSWER: Final = select(
    payment,
    payment_answer.c.status.label("answer_status"),
    payment_answer.c.body,
    payment_answer.c.shown_at,
).outerjoin(payment_answer, payment_answer.c.payment_id == payment.c.id)
_BY_ID: Final = Prepared(_WITH_ANSWER.where(payment.c.id == bindparam("id_")))
_UPDATE: Final = update(payment).where(
    payment.c.id == bindparam("id_"),
    payment.c.state == bindparam("state_"),
    payment.c.owner == bindparam("owner_"),
)
_UPDATE_HELD: Final = Prepared(_UPDATE)
_UPDATE_UNCHANGED: Final = Prepared(_UPDATE.where(payment.c.updated_at == bindparam("updated_at_")))
_LOCK_CLAIM: Final = Prepared(
    select(payment.c.id)
    .where(
        payment.c.id == bindparam("id_"),
        payment.c.state == literal_column(f"'{State.CLAIMED.value}'"),
        payment.c.owner == bindparam("owner_"),
    )
    .with_for_update()
)
_INSERT_ANSWER: Final = Prepared(payment_answer.insert())
_UPDATE_SHOWN: Final = Prepared(
    update(payment_answer).where(
        payment_answer.c.payment_id == bindparam("id_"), payment_answer.c.shown_at.is_(None)
    )
)
_INSERT_ATTEMPT: Final = Prepared(payment_attempt.insert().inline())


class ClaimLost(TollgaugeError):  # noqa: N818 - it names a state, not a bug
    """Another worker has taken over a claimed payment: nothing may be written under its claim."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredAnswer:
    """The answer that a payment bought: HTTP status and body. `shown_at` is when its secret was
    shown to a buyer who repeats no ticket (ms UTC), None if it was not.
    """

    status: int
    body: bytes
    shown_at: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One attempt: `kind` is verify, answer (only one that failed because of the request or its
    target), intent (written before settle is called), settle or chain; `outcome` is a short text,
    `host` the one because of which an answer failed.
    """

    kind: str
    at: int
    ended_at: int
    outcome: str
    transaction: str | None = None
    host: str | None = None


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
    acquired: bool


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
    request = {
        "digest": digest,
        "route": offer.route,
        "amount": str(paid.value),
        "pay_to": paid.to,
        "valid_before": str(paid.valid_before),
        "header": paid.header,
    }
    lease = {"owner": owner, "lease_until": now + lease_ms, "updated_at": now}
    values = {
        "id": paid.id,
        "network": paid.network,
        "asset": paid.asset,
        "payer": paid.payer,
        "nonce": paid.nonce,
        "state": State.CLAIMED.value,
        "reason": "",
        "created_at": now,
        **request,
        **lease,
    }
    if _INSERT.run(tx, values) == 1:
        return Claim(row=_row(_ALL_COLUMNS | values), acquired=True)
    row = get(tx, paid.id)
    assert row is not None  # noqa: S101 - the key was not inserted, so it was there
    if not _may_take_over(row, now=now):
        return Claim(row=row, acquired=False)
    takeover = {"state": State.CLAIMED.value, "reason": "", **request, **lease}
    changed = _UPDATE_UNCHANGED.run(tx, takeover | _if_unchanged(row))
    return Claim(row=get(tx, paid.id) or row, acquired=changed == 1)


def _may_take_over(row: LedgerRow, *, now: int) -> bool:
    abandoned = row.state is State.CLAIMED and row.lease_until <= now
    return row.state is State.REJECTED or abandoned


def same(row: LedgerRow, paid: Payment, digest: str) -> bool:
    """Whether a payment is the one of a row: the same signature and ticket, sent for the same
    request. A settled signature alone proves nothing, because anyone can read it on the chain; the
    ticket is known to the payer alone. Not for rejected rows, whose header is not kept.
    """
    stored = decode(row.header)
    same_payer = (stored.signer_mark, stored.ticket) == (paid.signer_mark, paid.ticket)
    return row.digest == digest and same_payer


def _if_held(row: LedgerRow) -> dict[str, object]:
    """Parameters of `_UPDATE_HELD`: the row still has the state and owner that were read."""
    return {"id_": row.id, "state_": row.state.value, "owner_": row.owner}


def _if_unchanged(row: LedgerRow) -> dict[str, object]:
    """Parameters of `_UPDATE_UNCHANGED`: the row was not written since it was read."""
    return _if_held(row) | {"updated_at_": row.updated_at}


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
    send 16 KB of it. Raises ValueError for a change that core/payment.TRANSITIONS does not allow,
    and for settling without an answer.
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
    values: dict[str, object] = {
        "state": state.value,
        "owner": moved.owner,
        "updated_at": now,
        "lease_until": moved.lease_until,
        "reason": moved.reason,
        "tx_hash": moved.transaction,
    }
    if state is State.REJECTED:
        values["header"] = ""
    if _UPDATE_HELD.run(tx, values | _if_held(row)) != 1:
        return None
    if answer is not None:
        columns = {"payment_id": row.id, "status": answer.status, "body": answer.body}
        _INSERT_ANSWER.run(tx, columns)
    _insert_attempts(tx, row.id, attempts)
    return moved


def check_claim(tx: Connection, row: LedgerRow) -> None:
    """Lock a claim until this transaction ends, so that what is written in it is written by the
    payment's own worker (docs/payments.md). Raises ClaimLost if another worker has taken the
    payment over, or if it is no longer claimed.
    """
    if _LOCK_CLAIM.first(tx, {"id_": row.id, "owner_": row.owner}) is None:
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
    _UPDATE_UNCHANGED.run(tx, {"lease_until": until} | _if_unchanged(row))


def finish(tx: Connection, row: LedgerRow, *, transaction: str) -> None:
    """Mark a settled row as final, settled by this transaction: it is not checked again."""
    values = {"lease_until": 0, "tx_hash": transaction}
    _UPDATE_UNCHANGED.run(tx, values | _if_unchanged(row))


def show_secret(tx: Connection, payment_id: str, *, now: int) -> bool:
    """Record that the secret in an answer is shown now. False, and nothing changed, if it was
    shown before: of several requests at once, only one shows it.
    """
    return _UPDATE_SHOWN.run(tx, {"shown_at": now, "id_": payment_id}) == 1


def _insert_attempts(tx: Connection, payment_id: str, attempts: Sequence[Attempt]) -> None:
    rows = [
        {
            "payment_id": payment_id,
            "kind": attempt.kind,
            "at": attempt.at,
            "ended_at": attempt.ended_at,
            "outcome": attempt.outcome[:200],
            "tx_hash": attempt.transaction,
            "host": attempt.host,
        }
        for attempt in attempts
    ]
    _INSERT_ATTEMPT.run_each(tx, rows)


def get(tx: Connection, payment_id: str) -> LedgerRow | None:
    """One payment by its id, or None."""
    row = _BY_ID.first(tx, {"id_": payment_id})
    return _row(row._asdict()) if row else None


def due(tx: Connection, *, now: int, limit: int) -> tuple[LedgerRow, ...]:
    """Payments that are due to be checked on the chain, longest overdue first: `unknown`,
    `settling` ones that a dead worker left, and `settled` ones until they are final.
    """
    overdue = payment.c.lease_until.between(1, now)
    rows: list[LedgerRow] = []
    for state in sorted(CHECKED_ON_CHAIN):  # one query each, so that the index on state is used
        query = (
            _WITH_ANSWER.where(payment.c.state == state.value, overdue)
            .order_by(payment.c.lease_until)
            .limit(limit)
        )
        rows += [_row(dict(row)) for row in tx.execute(query).mappings()]
    return tuple(sorted(rows, key=lambda row: row.lease_until)[:limit])


def latest(tx: Connection, *, limit: int) -> tuple[LedgerRow, ...]:
    """The newest payments, for the operator."""
    query = _WITH_ANSWER.order_by(payment.c.created_at.desc(), payment.c.id).limit(limit)
    return tuple(_row(dict(row)) for row in tx.execute(query).mappings())


def attempts(tx: Connection, ids: Sequence[str]) -> dict[str, tuple[Attempt, ...]]:
    """The attempts of some payments by payment id, oldest first."""
    table = payment_attempt
    query = select(table).where(table.c.payment_id.in_(ids)).order_by(table.c.id)
    by_payment: dict[str, list[Attempt]] = {payment_id: [] for payment_id in ids}
    for row in tx.execute(query).mappings():
        by_payment[row["payment_id"]].append(
            Attempt(
                kind=row["kind"],
                at=row["at"],
                ended_at=row["ended_at"],
                outcome=row["outcome"],
                transaction=row["tx_hash"],
                host=row["host"],
            )
        )
    return {payment_id: tuple(found) for payment_id, found in by_payment.items()}


def forget_answers(tx: Connection, *, now: int) -> int:
    """Delete answers whose payment's outcome has been known for 30 days, and return how many; the
    payments stay.
    """
    old = (
        select(payment_answer.c.payment_id)
        .join(payment, payment.c.id == payment_answer.c.payment_id)
        .where(payment.c.state.in_(CONCLUDED), payment.c.updated_at < now - KEEP_ANSWER_MS)
    )
    return tx.execute(delete(payment_answer).where(payment_answer.c.payment_id.in_(old))).rowcount


def forget_rejected(tx: Connection, *, now: int) -> int:
    """Delete up to FORGET_BATCH payments that were rejected a day ago, with their attempts, and
    return how many: nothing was charged, they have expired, and anyone can have any number of them
    rejected.
    """
    old = (
        select(payment.c.id)
        .where(
            payment.c.state == State.REJECTED.value,
            payment.c.lease_until.between(1, now - KEEP_REJECTED_MS),
        )
        .limit(FORGET_BATCH)
    )
    deletion = (
        delete(payment)
        .where(payment.c.id.in_(old), payment.c.state == State.REJECTED.value)
        .returning(payment.c.id)
    )
    ids = tx.execute(deletion).scalars().all()
    tx.execute(delete(payment_attempt).where(payment_attempt.c.payment_id.in_(ids)))
    return len(ids)


def _row(columns: dict[str, object]) -> LedgerRow:
    status, body, shown_at = (columns.get(name) for name in ("answer_status", "body", "shown_at"))
    return LedgerRow(
        id=str(columns["id"]),
        state=State(str(columns["state"])),
        owner=str(columns["owner"]),
        lease_until=int(str(columns["lease_until"])),
        digest=str(columns["digest"]),
        route=str(columns["route"]),
        network=str(columns["network"]),
        asset=str(columns["asset"]),
        payer=str(columns["payer"]),
        nonce=str(columns["nonce"]),
        amount=int(str(columns["amount"])),
        pay_to=str(columns["pay_to"]),
        valid_before_s=int(str(columns["valid_before"])),
        header=str(columns["header"]),
        answer=StoredAnswer(
            status=int(str(status)),
            body=body,
            shown_at=None if shown_at is None else int(str(shown_at)),
        )
        if isinstance(body, bytes)
        else None,
        transaction=str(columns["tx_hash"]) if columns["tx_hash"] else None,
        reason=str(columns["reason"]),
        created_at=int(str(columns["created_at"])),
        updated_at=int(str(columns["updated_at"])),
    )
