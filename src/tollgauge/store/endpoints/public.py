"""Public endpoints: those that a directory lists or once listed, and those that were seen to ask
for payment.

Rules (docs/operating, *what is public*):
- anyone can have any URL probed by buying a report on it, so a URL alone says nothing about its
  host: until it is listed or answers 402, only its buyer sees it;
- if unlisted paths of the host answer 402 too, a 402 says nothing either; until that has been
  tried, the endpoint is not public;
- what is not public after a week is removed (store/never_public), unless it is watched.
"""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa
from sqlalchemy import Connection

from tollgauge.core.endpoint.identity import Endpoint
from tollgauge.db.schema import endpoint as endpoint_table
from tollgauge.db.schema import host as host_table
from tollgauge.store.endpoint_rows import from_row
from tollgauge.store.endpoints.endpoints import PUBLIC

_HOST: Final = host_table.alias()
_SELLS: Final = sa.exists().where(endpoint_table.c.host == _HOST.c.host, PUBLIC)


def get(tx: Connection, endpoint_id: str) -> Endpoint | None:
    """The endpoint with an id; None for an unknown id and for an endpoint that is not public."""
    query = sa.select(endpoint_table).where(endpoint_table.c.id == endpoint_id, PUBLIC)
    row = tx.execute(query).first()
    return None if row is None else from_row(row)


def with_prefix(tx: Connection, prefix: str, *, limit: int) -> tuple[tuple[str, int | None], ...]:
    """The endpoints whose ids begin with some hex digits, by id, each with when its score was last
    computed (ms UTC), None without one.
    """
    query = (
        sa.select(endpoint_table.c.id, endpoint_table.c.ranked_at)
        # After its hex digits, no id holds a character above "f".
        .where(endpoint_table.c.id.between(prefix, f"{prefix}g"), PUBLIC)
        .order_by(endpoint_table.c.id)
        .limit(limit)
    )
    return tuple((row.id, row.ranked_at) for row in tx.execute(query))


def hosts(tx: Connection, *, offset: int, limit: int) -> tuple[str, ...]:
    """The hosts of public endpoints, by name."""
    query = sa.select(_HOST.c.host).where(_SELLS).order_by(_HOST.c.host)
    return tuple(tx.execute(query.offset(offset).limit(limit)).scalars())


def count_hosts(tx: Connection) -> int:
    """How many hosts there are, those without a public endpoint included."""
    return tx.execute(sa.select(sa.func.count()).select_from(host_table)).scalar_one()
