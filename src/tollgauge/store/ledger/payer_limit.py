"""Limits on answers that are computed and not paid for: by one payer, or because of one host.

Each such answer costs us as much as a sale, and the payer nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import Connection

from tollgauge.core.base.units import HOUR_MS, MINUTE_MS
from tollgauge.core.endpoint.identity import site
from tollgauge.core.sale.payment_state import BEFORE_SETTLEMENT, NEVER_PAID, State
from tollgauge.store.ledger.attempts import payment_attempt
from tollgauge.store.ledger.payments import LedgerRow, payment

MOST: Final = 10
"""At most this many unpaid answers are computed for one payer within WITHIN_MS."""
WITHIN_MS: Final = HOUR_MS
HOST_MOST: Final = 20
"""At most this many sales may fail because of one host within HOST_WITHIN_MS."""
HOST_PAYERS: Final = 5
"""And only where so many payers sent them: one or two cannot close a host to all others."""
HOST_WITHIN_MS: Final = 10 * MINUTE_MS
_UNPAID: Final = NEVER_PAID | {State.UNKNOWN}


def _oldest_counted() -> sa.Select[int]:
    """When the oldest of the `others` + 1 newest unpaid answers of a payer was computed."""
    of_payer = sa.and_(
        payment.c.payer == sa.bindparam("payer"), payment.c.created_at > sa.bindparam("since")
    )
    abandoned = sa.and_(_in({State.SETTLING}), payment.c.lease_until <= sa.bindparam("now"))
    unpaid = sa.select(payment.c.created_at.label("at")).where(
        of_payer,
        _in(_UNPAID | {State.SETTLING}),
        sa.or_(_in(_UNPAID), abandoned),
        payment.c.id != sa.bindparam("row"),
    )
    wasted = (
        sa.select(payment_attempt.c.at)
        .join(payment, payment.c.id == payment_attempt.c.payment_id)
        .where(of_payer, _in(BEFORE_SETTLEMENT), payment_attempt.c.kind == "answer")
    )
    both = sa.union_all(unpaid, wasted).subquery()
    newest = sa.select(both.c.at).order_by(both.c.at.desc())
    return newest.offset(sa.bindparam("others", type_=sa.Integer)).limit(1)


def _in(states: Iterable[State]) -> sa.ColumnElement[bool]:
    """The state is one of some. They are literals of the statement, because SQLAlchemy would
    compile a list of parameters again for each execution.
    """
    return payment.c.state.in_([sa.literal_column(f"'{state.value}'") for state in sorted(states)])


def _newest_of_host() -> sa.Subquery:
    """The HOST_MOST newest attempts that came to nothing because of a host, with their payers."""
    newest = (
        sa.select(payment_attempt.c.at, payment.c.payer)
        .join(payment, payment.c.id == payment_attempt.c.payment_id)
        .where(
            payment_attempt.c.host == sa.bindparam("host"),
            payment_attempt.c.at > sa.bindparam("host_since"),
        )
    )
    return newest.order_by(payment_attempt.c.at.desc()).limit(HOST_MOST).subquery()


def _limits() -> sa.Select[Any]:
    """What counts against a payer, and against a host, in one row."""
    of_host = _newest_of_host()
    return sa.select(
        _oldest_counted().scalar_subquery().label("payer_at"),
        sa.func.count().label("attempts"),
        sa.func.count(of_host.c.payer.distinct()).label("payers"),
        sa.func.min(of_host.c.at).label("host_at"),
    ).select_from(of_host)


_LIMITS: Final = _limits()


@dataclass(frozen=True, slots=True, kw_only=True)
class PayerLimits:
    """Until when no answer is computed for a payer, and until when no sale is begun that needs a
    host (ms UTC); None below the limit.
    """

    payer_until: int | None
    host_until: int | None


def limits(tx: Connection, row: LedgerRow, host: str, *, now: int) -> PayerLimits:
    """The limits of a row's payer, and of a host that its sale needs (`for_probe` or
    `for_delivery`), "" where it needs none.

    What counts against the payer are the answers of the last hour, other than the row's own, that
    were computed and not paid, unless a worker is still settling them; and the work that came to
    nothing after the payment was verified, because of the payer's request. Settled payments are not
    read: a payer may have thousands of them. What counts against the host are sales of the last
    minutes that failed there, for too many payers.
    """
    values = {
        "payer": row.payer,
        "row": row.id,
        "since": now - WITHIN_MS,
        "now": now,
        "others": MOST - 1,
        "host": host,
        "host_since": now - HOST_WITHIN_MS,
    }
    counted = tx.execute(_LIMITS, values).one()
    is_closed = counted.attempts >= HOST_MOST and counted.payers >= HOST_PAYERS
    return PayerLimits(
        payer_until=None if counted.payer_at is None else int(counted.payer_at) + WITHIN_MS,
        host_until=int(counted.host_at) + HOST_WITHIN_MS if is_closed else None,
    )


def for_probe(host: str) -> str:
    """A host as sales count it that probe it."""
    return f"probe:{host}"


def for_delivery(host: str) -> str:
    """The site of a host as sales count it that deliver to it: one domain may have many hosts, and
    a slow webhook says nothing of its reports.
    """
    return f"delivery:{site(host)}"
