"""Limits on answers that are computed but not paid, per payer and per host.

Such an answer costs as much to compute as a sold one.
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

MAX_UNPAID: Final = 10  # unpaid answers per payer within WITHIN_MS
WITHIN_MS: Final = HOUR_MS
HOST_MAX_FAILED: Final = 20  # failed sales because of one host within HOST_WITHIN_MS
HOST_PAYERS: Final = 5  # and from at least this many payers: one or two cannot block a host
HOST_WITHIN_MS: Final = 10 * MINUTE_MS
_UNPAID: Final = NEVER_PAID | {State.UNKNOWN}


def _oldest_counted() -> sa.Select[int]:
    """Select the time of the oldest of the `others` + 1 newest unpaid answers of a payer."""
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
    """Return the condition that the state is one of `states`.

    Literals instead of parameters: SQLAlchemy compiles a list of parameters for each execution.
    """
    return payment.c.state.in_([sa.literal_column(f"'{state}'") for state in sorted(states)])


def _limits() -> sa.Select[Any]:
    """Select the counts for a payer, and for a host from its HOST_MAX_FAILED newest failures."""
    of_host = (
        sa.select(payment_attempt.c.at, payment.c.payer)
        .join(payment, payment.c.id == payment_attempt.c.payment_id)
        .where(
            payment_attempt.c.host == sa.bindparam("host"),
            payment_attempt.c.at > sa.bindparam("host_since"),
        )
        .order_by(payment_attempt.c.at.desc())
        .limit(HOST_MAX_FAILED)
        .subquery()
    )
    return sa.select(
        _oldest_counted().scalar_subquery().label("payer_at"),
        sa.func.count().label("attempts"),
        sa.func.count(of_host.c.payer.distinct()).label("payers"),
        sa.func.min(of_host.c.at).label("host_at"),
    ).select_from(of_host)


_LIMITS: Final = _limits()


@dataclass(frozen=True, slots=True, kw_only=True)
class PayerLimits:
    """The end of a payer's block, and of a host's block for sales that need it (ms UTC); None below
    the limit.
    """

    payer_until: int | None
    host_until: int | None


def limits(tx: Connection, row: LedgerRow, host: str, *, now: int) -> PayerLimits:
    """Return the limits for a row's payer, and for the host that the sale needs (`for_probe`,
    `for_delivery`, or "").

    For the payer these count: other answers of the last hour that were computed and not paid,
    unless a worker is still settling them, and work that failed after verification because of the
    payer's request. Settled payments are not read: a payer may have thousands. For the host, recent
    sales of several payers that failed there count.
    """
    values = {
        "payer": row.payer,
        "row": row.id,
        "since": now - WITHIN_MS,
        "now": now,
        "others": MAX_UNPAID - 1,
        "host": host,
        "host_since": now - HOST_WITHIN_MS,
    }
    counted = tx.execute(_LIMITS, values).one()
    is_closed = counted.attempts >= HOST_MAX_FAILED and counted.payers >= HOST_PAYERS
    return PayerLimits(
        payer_until=None if counted.payer_at is None else int(counted.payer_at) + WITHIN_MS,
        host_until=int(counted.host_at) + HOST_WITHIN_MS if is_closed else None,
    )


def for_probe(host: str) -> str:
    """Return the key of a host for sales that probe it."""
    return f"probe:{host}"


def for_delivery(host: str) -> str:
    """Return the key of a host's site for sales that deliver to it.

    A domain may have many hosts, and a slow webhook must not affect reports about the same host.
    """
    return f"delivery:{site(host)}"
