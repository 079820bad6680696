"""Buyers' reports: one row per payment whose payer stated an outcome.

monitor/outcomes proves the payments. The figures of an endpoint count each payer once per payTo,
with its latest statement.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import Connection

from tollgauge.core.endpoint.buyers_reports import (
    REPORTS_KEPT_MS,
    BuyerOutcome,
    BuyersReports,
)
from tollgauge.db.codec import columns_of
from tollgauge.db.schema import metadata
from tollgauge.store import rows


@dataclass(frozen=True, slots=True, kw_only=True)
class BuyerReport:
    """A statement of a payer about one payment; `at` is the time of the payment in ms UTC."""

    chain: int
    payer: bytes
    nonce: bytes
    endpoint_id: str
    pay_to: bytes
    outcome: BuyerOutcome
    at: int
    signature: bytes


buyer_report: Final = sa.Table(
    "buyer_report",
    metadata,
    *columns_of(BuyerReport, key=("chain", "payer", "nonce")),
    # Of the payer at this payTo, when demand was last measured (millionths).
    sa.Column("weight", sa.BigInteger, nullable=False),
    sa.Index("ix_buyer_report_endpoint", "endpoint_id"),
    sa.Index("ix_buyer_report_payer", "chain", "payer", "pay_to", "at"),
    sa.Index("ix_buyer_report_at", "at"),
    sqlite_with_rowid=False,
)


def _counts() -> sa.Select[Any]:
    """Count the latest statement of each payer at each payTo, by endpoint."""
    later = buyer_report.alias()
    of_payer = (later.c[name] == buyer_report.c[name] for name in ("chain", "payer", "pay_to"))
    is_later = sa.tuple_(later.c.at, later.c.nonce) > sa.tuple_(
        buyer_report.c.at, buyer_report.c.nonce
    )
    is_delivered = buyer_report.c.outcome == BuyerOutcome.DELIVERED
    weight = buyer_report.c.weight
    return (
        sa.select(
            buyer_report.c.endpoint_id,
            sa.func.sum(sa.case((is_delivered, 1), else_=0)).label("delivered"),
            sa.func.count().label("payers"),
            sa.func.sum(sa.case((is_delivered, weight), else_=0)).label("delivered_weight"),
            sa.func.sum(weight).label("weight"),
        )
        .where(rows.any_of(buyer_report.c.endpoint_id), ~sa.exists().where(*of_payer, is_later))
        .group_by(buyer_report.c.endpoint_id)
    )


_COUNTS: Final = _counts()


def add(tx: Connection, report: BuyerReport) -> bool:
    """Store a statement. Returns whether it is now the stored one about its payment: a different
    one is not replaced.
    """
    rows.add_missing(tx, buyer_report, [rows.to_columns(report, weight=0)])
    query = sa.select(buyer_report).where(
        buyer_report.c.chain == report.chain,
        buyer_report.c.payer == report.payer,
        buyer_report.c.nonce == report.nonce,
    )
    stored = rows.from_columns(BuyerReport, tx.execute(query).one())
    # Without the signature: an account can sign the same statement in several ways.
    return replace(stored, signature=report.signature) == report


def counts(tx: Connection, endpoint_ids: Iterable[str]) -> dict[str, BuyersReports]:
    """Return the figures of endpoints by ID; endpoints without statements are left out."""
    return {
        row.endpoint_id: BuyersReports(
            delivered=int(row.delivered),
            not_delivered=row.payers - int(row.delivered),
            delivered_weight=int(row.delivered_weight),
            not_delivered_weight=int(row.weight - row.delivered_weight),
        )
        for row in rows.with_any(tx, _COUNTS, endpoint_ids)
    }


def load_payers(tx: Connection, chain: int) -> frozenset[bytes]:
    """Return the payers of a chain with statements."""
    query = sa.select(buyer_report.c.payer).distinct().where(buyer_report.c.chain == chain)
    return frozenset(tx.scalars(query))


def save_weights(tx: Connection, chain: int, weights: Mapping[tuple[bytes, bytes], int]) -> None:
    """Store the weights of payers, in millionths by (payer, payTo); the others have none."""
    of_chain = buyer_report.c.chain == chain
    places = buyer_report.c.payer, buyer_report.c.pay_to
    for payer, pay_to, before in tx.execute(
        sa.select(*places, buyer_report.c.weight).distinct().where(of_chain)
    ).all():
        weight = weights.get((payer, pay_to), 0)
        if weight != before:
            is_same = of_chain, places[0] == payer, places[1] == pay_to
            tx.execute(buyer_report.update().where(*is_same).values(weight=weight))


def forget(tx: Connection, *, now: int, limit: int) -> int:
    """Delete up to `limit` expired statements; return their number."""
    is_old = buyer_report.c.at < now - REPORTS_KEPT_MS
    order = (buyer_report.c.at,)
    return rows.delete_batch(tx, buyer_report, is_old, order_by=order, limit=limit)
