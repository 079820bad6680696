"""The ledger: one row a payment, one row an attempt to verify or settle it, one row an answer.

Rules (docs/payments.md):
- the key is unique over (network, asset, payer, nonce); inserting it is the claim;
- a row moves only along core/payment.TRANSITIONS, by compare-and-swap on (state, owner), so that a
  worker that lost its lease can no longer write; what was tried is written with the move;
- `lease_until` says until when a row is left alone: by other workers while somebody works on it,
  by the reconciler afterwards. A settled row that is final has 0 and is never looked at again;
- the answer is stored before settling and kept for 30 days after the outcome; while the outcome
  is open it is never dropped.
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
from tollgauge.core.payment import PATHS, TRANSITIONS, Authorization, Offer, Payment, State, decode
from tollgauge.core.units import DAY_MS
from tollgauge.db.prepared import Prepared
from tollgauge.db.schema import Serial, metadata
from tollgauge.db.transaction import step
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

_EMPTY: Final[dict[str, object]] = dict.fromkeys(payment.c.keys())
_INSERT: Final = Prepared(either(payment, lambda insert: insert.on_conflict_do_nothing()))
_WHOLE: Final = select(
    payment,
    payment_answer.c.status.label("answer_status"),
    payment_answer.c.body,
    payment_answer.c.shown_at,
).outerjoin(payment_answer, payment_answer.c.payment_id == payment.c.id)
_ONE: Final = Prepared(_WHOLE.where(payment.c.id == bindparam("id_")))
_MOVE: Final = update(payment).where(
    payment.c.id == bindparam("id_"),
    payment.c.state == bindparam("state_"),
    payment.c.owner == bindparam("owner_"),
)
_CHANGE: Final = Prepared(_MOVE)
_CHANGE_SEEN: Final = Prepared(_MOVE.where(payment.c.updated_at == bindparam("updated_at_")))
_HELD: Final = Prepared(
    select(payment.c.id)
    .where(
        payment.c.id == bindparam("id_"),
        payment.c.state == literal_column(f"'{State.CLAIMED.value}'"),
        payment.c.owner == bindparam("owner_"),
    )
    .with_for_update()
)
_ANSWER: Final = Prepared(payment_answer.insert())
_SHOW: Final = Prepared(
    update(payment_answer).where(
        payment_answer.c.payment_id == bindparam("id_"), payment_answer.c.shown_at.is_(None)
    )
)
_ATTEMPT: Final = Prepared(payment_attempt.insert().inline())


class ClaimLost(TollgaugeError):  # noqa: N818 - it names a state, not a bug
    """Another worker has taken a claimed payment over: what its claim justified may not be done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredAnswer:
    """The whole answer that a payment bought: HTTP status and body bytes. `shown_at` is when its
    secret was shown to a buyer who repeats no ticket (milliseconds UTC), None while it was not.
    """

    status: int
    body: bytes
    shown_at: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One step that was tried: `kind` is verify, answer (one that the request or its target
    prevented), intent (to settle, written before it is tried), settle or chain; `outcome` is a
    short text. `host` is the one that made the work vain.
    """

    kind: str
    at: int
    ended_at: int
    outcome: str
    transaction: str | None = None
    host: str | None = None


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

    @property
    def authorization(self) -> Authorization:
        """The transfer that this payment waits for."""
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
    """The outcome of a claim: the row as it stands, and whether the caller holds it now."""

    row: LedgerRow
    mine: bool


@step
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

    The first to insert the key holds it. A `rejected` row, or one left `claimed` by a worker whose
    lease ended, is taken over and bound to the new request and to what is signed now (a payer may
    sign one nonce twice), because nothing was charged.
    """
    bound = {
        "digest": digest,
        "route": offer.route,
        "amount": str(paid.value),
        "pay_to": paid.to,
        "valid_before": str(paid.valid_before),
        "header": paid.header,
    }
    held = {"owner": owner, "lease_until": now + lease_ms, "updated_at": now}
    values = {
        "id": paid.id,
        "network": paid.network,
        "asset": paid.asset,
        "payer": paid.payer,
        "nonce": paid.nonce,
        "state": State.CLAIMED.value,
        "reason": "",
        "created_at": now,
        **bound,
        **held,
    }
    if _INSERT.run(tx, values) == 1:
        return Claim(row=_row(_EMPTY | values), mine=True)
    row = get(tx, paid.id)
    assert row is not None  # noqa: S101 - the key was not inserted, so it was there
    if not _free(row, now=now):
        return Claim(row=row, mine=False)
    fresh = {"state": State.CLAIMED.value, "reason": "", **bound, **held}
    done = _CHANGE_SEEN.run(tx, fresh | _seen(row))
    taken = get(tx, paid.id)
    return Claim(row=taken or row, mine=done == 1)


def _free(row: LedgerRow, *, now: int) -> bool:
    left = row.state is State.CLAIMED and row.lease_until <= now
    return row.state is State.REJECTED or left


def same(row: LedgerRow, paid: Payment, digest: str) -> bool:
    """Whether a payment is the one that a row holds: the same signature, the same ticket, sent
    for the same request. What settled can be read on the chain and proves nothing; the ticket was
    told to the payer alone. Not of rejected rows, which hold no payment.
    """
    held = decode(row.header)
    mine = (held.signer_mark, held.ticket) == (paid.signer_mark, paid.ticket)
    return row.digest == digest and mine


def _held(row: LedgerRow) -> dict[str, object]:
    """The row while nobody moved it and its worker is the same."""
    return {"id_": row.id, "state_": row.state.value, "owner_": row.owner}


def _seen(row: LedgerRow) -> dict[str, object]:
    """The row while nobody wrote it at all."""
    return _held(row) | {"updated_at_": row.updated_at}


@step
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
    """Move a row to `state`, or return None when someone else moved it first.

    The row is left alone for `lease_ms`, under a new `owner` where one is given; `attempts` are
    what was tried meanwhile. An empty `transaction` takes back what a facilitator had named. Of a
    rejected payment the header is not kept: nothing will be settled with it, and anyone can send
    16 KB of it. Raises ValueError for a move that core/payment.TRANSITIONS does not know, and for
    an intent to settle what has no answer.
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
    if _CHANGE.run(tx, values | _held(row)) != 1:
        return None
    if answer is not None:
        made = {"payment_id": row.id, "status": answer.status, "body": answer.body}
        _ANSWER.run(tx, made)
    _record(tx, row.id, attempts)
    return moved


def check_claim(tx: Connection, row: LedgerRow) -> None:
    """Hold a claim until this transaction ends, so that what is written in it is written by the
    payment's own worker (docs/payments.md). Raises ClaimLost if another worker has taken the
    payment over, or if it is no longer claimed.
    """
    if _HELD.first(tx, {"id_": row.id, "owner_": row.owner}) is None:
        raise ClaimLost(f"payment {row.id} is no longer claimed by {row.owner}")


@step
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
    """Move a row that nobody works on to what the chain proves of it, through every state that
    lies between; None when someone else moved it first.
    """
    found: LedgerRow | None = row
    for passed in () if state in TRANSITIONS[row.state] else PATHS[row.state]:
        if passed is not state:
            found = found and move(tx, found, passed, now=now, reason=reason)
    return found and move(
        tx,
        found,
        state,
        now=now,
        transaction=transaction,
        reason=reason,
        lease_ms=lease_ms,
        attempts=attempts,
    )


@step
def leave(tx: Connection, row: LedgerRow, *, until: int) -> None:
    """Look at a row again after `until`."""
    _CHANGE_SEEN.run(tx, {"lease_until": until} | _seen(row))


@step
def finish(tx: Connection, row: LedgerRow, *, transaction: str) -> None:
    """A settled row is final, in this transaction: it is never looked at again."""
    _CHANGE_SEEN.run(tx, {"lease_until": 0, "tx_hash": transaction} | _seen(row))


def show_secret(tx: Connection, payment_id: str, *, now: int) -> bool:
    """Note that the secret in an answer is shown now. False, and nothing changed, if it was shown
    before: of several requests at once, one shows it.
    """
    return _SHOW.run(tx, {"shown_at": now, "id_": payment_id}) == 1


def _record(tx: Connection, payment_id: str, attempts: Sequence[Attempt]) -> None:
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
    _ATTEMPT.run_each(tx, rows)


@step
def get(tx: Connection, payment_id: str) -> LedgerRow | None:
    """One payment by its id, or None."""
    found = _ONE.first(tx, {"id_": payment_id})
    return _row(found._asdict()) if found else None


@step
def due(tx: Connection, *, now: int, limit: int) -> tuple[LedgerRow, ...]:
    """Payments that the chain is to be asked about, longest overdue first: `unknown`, `settling`
    left behind by a dead worker, and `settled` until they are final.
    """
    overdue = payment.c.lease_until.between(1, now)
    found: list[LedgerRow] = []
    for state in (State.UNKNOWN, State.SETTLING, State.SETTLED):
        query = (
            _WHOLE.where(payment.c.state == state.value, overdue)
            .order_by(payment.c.lease_until)
            .limit(limit)
        )
        found += [_row(dict(each)) for each in tx.execute(query).mappings()]
    return tuple(sorted(found, key=lambda row: row.lease_until)[:limit])


@step
def latest(tx: Connection, *, limit: int) -> tuple[LedgerRow, ...]:
    """The newest payments, for the operator."""
    query = _WHOLE.order_by(payment.c.created_at.desc(), payment.c.id).limit(limit)
    return tuple(_row(dict(found)) for found in tx.execute(query).mappings())


@step
def attempts(tx: Connection, ids: Sequence[str]) -> dict[str, tuple[Attempt, ...]]:
    """What was tried for each of some payments, oldest first."""
    table = payment_attempt
    query = select(table).where(table.c.payment_id.in_(ids)).order_by(table.c.id)
    found: dict[str, list[Attempt]] = {each: [] for each in ids}
    for row in tx.execute(query).mappings():
        found[row["payment_id"]].append(
            Attempt(
                kind=row["kind"],
                at=row["at"],
                ended_at=row["ended_at"],
                outcome=row["outcome"],
                transaction=row["tx_hash"],
                host=row["host"],
            )
        )
    return {each: tuple(rows) for each, rows in found.items()}


@step
def forget_answers(tx: Connection, *, now: int) -> int:
    """Drop the bodies of answers whose outcome has been known for 30 days; the rows stay."""
    known = [State.SETTLED.value, State.FAILED.value, State.EXPIRED.value, State.REJECTED.value]
    old = (
        select(payment_answer.c.payment_id)
        .join(payment, payment.c.id == payment_answer.c.payment_id)
        .where(payment.c.state.in_(known), payment.c.updated_at < now - KEEP_ANSWER_MS)
    )
    return tx.execute(delete(payment_answer).where(payment_answer.c.payment_id.in_(old))).rowcount


@step
def forget_rejected(tx: Connection, *, now: int) -> int:
    """Drop up to a batch of payments that were rejected a day ago, with what was tried of them:
    nothing was charged, they have expired, and anyone can have any number of them rejected.
    """
    old = (
        select(payment.c.id)
        .where(
            payment.c.state == State.REJECTED.value,
            payment.c.lease_until.between(1, now - KEEP_REJECTED_MS),
        )
        .limit(FORGET_BATCH)
    )
    gone = (
        delete(payment)
        .where(payment.c.id.in_(old), payment.c.state == State.REJECTED.value)
        .returning(payment.c.id)
    )
    ids = tx.execute(gone).scalars().all()
    tx.execute(delete(payment_attempt).where(payment_attempt.c.payment_id.in_(ids)))
    return len(ids)


def _row(found: dict[str, object]) -> LedgerRow:
    status, body, shown_at = (found.get(name) for name in ("answer_status", "body", "shown_at"))
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
        answer=StoredAnswer(
            status=int(str(status)),
            body=body,
            shown_at=None if shown_at is None else int(str(shown_at)),
        )
        if isinstance(body, bytes)
        else None,
        transaction=str(found["tx_hash"]) if found["tx_hash"] else None,
        reason=str(found["reason"]),
        created_at=int(str(found["created_at"])),
        updated_at=int(str(found["updated_at"])),
    )
