"""All tables of the database, and the rehearsal of a sale.

Importing the modules that define tables registers them.
"""

from __future__ import annotations

import secrets
from typing import Final

import sqlalchemy as sa
from sqlalchemy import Connection

from tollgauge.db import meta
from tollgauge.db.schema import metadata
from tollgauge.store import backlog
from tollgauge.store.chain import (
    cursors,
    deposits,
    followed,
    periods,
    shared_pay_tos,
    submitters,
    transfers,
    volumes,
    wallets,
)
from tollgauge.store.endpoints import buyers_reports, rated_endpoints, shares
from tollgauge.store.endpoints import seller_file_states as seller_files
from tollgauge.store.ledger import attempts, payments, reconciliation
from tollgauge.store.ledger.attempts import payment_answer
from tollgauge.store.ledger.payments import payment
from tollgauge.store.probes import change_rows as changes
from tollgauge.store.probes import vantages, window
from tollgauge.store.scores import forecasts, scores, trust_records
from tollgauge.store.watches import destinations, outbox, watch_events, watch_payments, watches

_MODULES: Final = (
    *(
        meta,
        rated_endpoints,
        attempts,
        reconciliation,
        payments,
        cursors,
        deposits,
        transfers,
        submitters,
        shared_pay_tos,
    ),
    *(periods, volumes, wallets, changes, window, vantages, forecasts, destinations, outbox),
    *(watch_events, watch_payments, watches, backlog, seller_files, trust_records, scores),
    *(buyers_reports, followed, shares),
)
"""Modules that define tables; the remaining tables are in db/schema."""
TABLES: Final = tuple(metadata.sorted_tables)


_ANSWER: Final = bytes(65_536)  # as large as a large answer, to detect a disk that is nearly full


def rehearse_sale(tx: Connection) -> None:
    """Read a row of every table and write an invented payment with its answer.

    Use only in a transaction that is rolled back (`Store.try_write`).
    """
    one_row = [sa.select(sa.literal(1)).select_from(table).limit(1) for table in TABLES]
    tx.execute(sa.select(*(query.scalar_subquery() for query in one_row)))
    key = secrets.token_hex(6)
    row = {
        column.name: 0 if isinstance(column.type, sa.Integer) else key
        for column in payment.columns
        if not column.nullable
    }
    tx.execute(payment.insert().values(row))
    tx.execute(payment_answer.insert().values(payment_id=key, status=0, body=_ANSWER))
