"""All tables of the database, and the two steps that concern nearly all of them: the rehearsal of a
sale, and the deletion of endpoints that were not public for a week (`PUBLIC` in
store/endpoints/endpoints).
"""

from __future__ import annotations

import importlib
import pkgutil
import secrets
from collections.abc import Sequence
from typing import Final

import sqlalchemy as sa
from sqlalchemy import Connection

from tollgauge import store
from tollgauge.core.base.units import day_of
from tollgauge.core.watch.watch_rules import UNLISTED_MS
from tollgauge.db import meta, schema
from tollgauge.db.schema import endpoint as endpoint_table
from tollgauge.db.schema import host as host_table
from tollgauge.store.endpoints.buyers_reports import buyer_report
from tollgauge.store.endpoints.listings import LISTINGS_TURN
from tollgauge.store.endpoints.seller_file_states import seller_file
from tollgauge.store.ledger.attempts import payment_answer
from tollgauge.store.ledger.payments import payment
from tollgauge.store.schedule.hosts import is_unleased
from tollgauge.store.watches.watches import watch

# A table is registered when its module is imported.
for _module in pkgutil.walk_packages(store.__path__, f"{store.__name__}."):
    if _module.name != __name__:
        importlib.import_module(_module.name)

TABLES: Final = tuple(schema.metadata.sorted_tables)

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


_BY_DAY: Final = (schema.probe, schema.probe_day)
_BY_ENDPOINT: Final = (
    *(
        table
        for table in TABLES
        if table is not watch and any(key.references(endpoint_table) for key in table.foreign_keys)
    ),
    buyer_report,
)
"""The other tables with rows of an endpoint. It has none in `watch`: watched ones are kept."""
_ADOPTED: Final = sa.text("adopted")  # a literal: a parameter would not match the partial index
_WILDCARD: Final = sa.exists().where(
    host_table.c.host == endpoint_table.c.host, host_table.c.wildcard.is_(True)
)
_WATCHED: Final = sa.exists().where(watch.c.endpoint_id == endpoint_table.c.id)


def forget_never_public(tx: Connection, *, now: int, limit: int) -> int:
    """Delete endpoints that were not public for a week with all related rows, and hosts without
    other endpoints.

    Returns the number of deleted endpoints.
    """
    # Adding an endpoint takes the same turn, so none of these can get a watch in the meantime.
    meta.take_turn(tx, LISTINGS_TURN)
    not_seen_to_sell = sa.or_(endpoint_table.c.learned.is_(None), _WILDCARD)
    query = (
        sa.select(endpoint_table.c.id, endpoint_table.c.host, endpoint_table.c.first_seen)
        .where(
            _ADOPTED, endpoint_table.c.first_seen <= now - UNLISTED_MS, not_seen_to_sell, ~_WATCHED
        )
        .order_by(endpoint_table.c.first_seen)
        .limit(limit)
        .with_for_update(skip_locked=True, of=endpoint_table)
    )
    rows = tx.execute(query).all()
    if not rows:
        return 0
    ids = [row.id for row in rows]
    # A probe starts up to a minute before its endpoint is adopted, possibly on the previous day.
    first = day_of(min(row.first_seen for row in rows)) - 1
    days = list(range(first, day_of(now) + 2))
    for by_day in _BY_DAY:
        tx.execute(by_day.delete().where(by_day.c.day.in_(days), by_day.c.endpoint_id.in_(ids)))
    for table in _BY_ENDPOINT:
        tx.execute(table.delete().where(table.c.endpoint_id.in_(ids)))
    tx.execute(endpoint_table.delete().where(endpoint_table.c.id.in_(ids)))
    _forget_hosts(tx, sorted({row.host for row in rows}), now=now)
    return len(ids)


def _forget_hosts(tx: Connection, hosts: Sequence[str], *, now: int) -> None:
    """Delete hosts without endpoints that are neither leased nor pausing."""
    empty = ~sa.exists().where(endpoint_table.c.host == host_table.c.host)
    idle = (is_unleased(now), host_table.c.free_at <= now)
    gone = host_table.delete().where(host_table.c.host.in_(hosts), empty, *idle)
    names = list(tx.execute(gone.returning(host_table.c.host)).scalars())
    for table in (seller_file, schema.host_lease):
        tx.execute(table.delete().where(table.c.host.in_(names)))
