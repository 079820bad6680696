"""Unpaid: payers who have answers made and do not pay for them, and hosts that make work vain.

Each such answer costs us as much as a sale, and the payer nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sqlalchemy import (
    ColumnElement,
    Connection,
    Integer,
    Select,
    and_,
    bindparam,
    literal_column,
    or_,
    select,
    union_all,
)

from tollgauge.core.payment import State
from tollgauge.core.units import HOUR_MS, MINUTE_MS
from tollgauge.db.prepared import Prepared
from tollgauge.db.transaction import step
from tollgauge.store.ledger.payments import LedgerRow, payment, payment_attempt

MOST: Final = 10
"""So many answers are made for one payer in an hour without being paid."""
WITHIN_MS: Final = HOUR_MS
HOST_MOST: Final = 20
"""So many sales may be made vain by one host within HOST_WITHIN_MS."""
HOST_WITHIN_MS: Final = 10 * MINUTE_MS
_UNPAID = (State.UNKNOWN.value, State.FAILED.value, State.EXPIRED.value)
_LEFT = (State.SETTLING.value,)
_UNMADE = (State.CLAIMED.value, State.REJECTED.value)


def _last_unpaid() -> Select[int]:
    """When what counts as unpaid was made, past the `others` newest."""
    theirs = and_(payment.c.payer == bindparam("payer"), payment.c.created_at > bindparam("since"))
    left = and_(_in(_LEFT), payment.c.lease_until <= bindparam("now"))
    made = select(payment.c.created_at.label("at")).where(
        theirs,
        _in(_UNPAID + _LEFT),
        or_(_in(_UNPAID), left),
        payment.c.id != bindparam("row"),
    )
    vain = (
        select(payment_attempt.c.at)
        .join(payment, payment.c.id == payment_attempt.c.payment_id)
        .where(theirs, _in(_UNMADE), payment_attempt.c.kind == "answer")
    )
    both = union_all(made, vain).subquery()
    newest = select(both.c.at).order_by(both.c.at.desc())
    return newest.offset(bindparam("others", type_=Integer)).limit(1)


def _in(states: Sequence[str]) -> ColumnElement[bool]:
    """The state is one of some, which stand in the statement: a list among its parameters would
    have it written anew each time.
    """
    return payment.c.state.in_([literal_column(f"'{state}'") for state in states])


_LAST_UNPAID: Final = Prepared(_last_unpaid())
_LAST_VAIN: Final = Prepared(
    select(payment_attempt.c.at)
    .where(payment_attempt.c.host == bindparam("host"), payment_attempt.c.at > bindparam("since"))
    .order_by(payment_attempt.c.at.desc())
    .offset(HOST_MOST - 1)
    .limit(1)
)


@step
def until(tx: Connection, row: LedgerRow, *, now: int) -> int | None:
    """Until when nothing more is made for a row's payer (milliseconds UTC), None while something
    may be.

    What counts are the answers of the last hour, other than the row's own, that were made and not
    paid, unless a worker still settles them; and the work that a request of theirs made vain after
    its payment was verified. Each costs us as much as a sale, and the payer nothing. Payments that
    settled are not read: a payer may have thousands of them.
    """
    asked = {
        "payer": row.payer,
        "row": row.id,
        "since": now - WITHIN_MS,
        "now": now,
        "others": MOST - 1,
    }
    oldest = _LAST_UNPAID.first(tx, asked)
    return None if oldest is None else int(oldest.at) + WITHIN_MS


def host_until(tx: Connection, host: str, *, now: int) -> int | None:
    """Until when no sale is begun that needs a host (milliseconds UTC), None while one may be:
    it made too many of the last minutes vain, whoever sent them.
    """
    oldest = _LAST_VAIN.first(tx, {"host": host, "since": now - HOST_WITHIN_MS})
    return None if oldest is None else int(oldest.at) + HOST_WITHIN_MS
