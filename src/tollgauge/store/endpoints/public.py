"""What anyone may see: endpoints that a directory lists or once listed, and those that were seen
to ask for payment.

Rules (docs/operating.md, *what is public*):
- anyone can have any URL probed by buying a report on it, so a URL alone says nothing of its host:
  until it is listed or answers 402 it is known to its buyer only;
- where a random path of the host answers 402 too, a 402 says nothing either; while that has not
  been tried, nothing is shown yet;
- what stays unknown for a week is forgotten with all that belongs to it, unless a watch holds it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import sqlalchemy as sa
from sqlalchemy import Connection

from tollgauge.core.endpoint import Endpoint
from tollgauge.core.units import DAY_MS, day_of
from tollgauge.db import meta, schema
from tollgauge.db.prepared import Prepared
from tollgauge.db.transaction import step
from tollgauge.store.endpoints.alternative_counts import alternative_count
from tollgauge.store.endpoints.endpoint_rows import from_row
from tollgauge.store.endpoints.endpoints import PUBLIC
from tollgauge.store.endpoints.listings import LISTINGS_TURN
from tollgauge.store.probes.changes import change, change_state_row
from tollgauge.store.watches.watches import watch

KEEP_MS: Final = 7 * DAY_MS
_E: Final = schema.endpoint
_H: Final = schema.host
_BY_DAY: Final = (schema.probe, schema.probe_day)
_BY_ENDPOINT: Final = (
    schema.score,
    schema.discovery_event,
    schema.listing,
    alternative_count,
    change_state_row,
    change,
)
_ADOPTED: Final = sa.text("adopted")
"""As a literal, so that both databases use the partial index."""
_WILDCARD: Final = sa.exists().where(_H.c.host == _E.c.host, _H.c.wildcard.is_(True))
_WATCHED: Final = sa.exists().where(watch.c.endpoint_id == _E.c.id)
_ONE: Final = Prepared(sa.select(_E).where(_E.c.id == sa.bindparam("id"), PUBLIC))


@step
def get(tx: Connection, endpoint_id: str) -> Endpoint | None:
    """The endpoint with an id; None for one that is not public, as for one that nobody knows."""
    row = _ONE.first(tx, {"id": endpoint_id})
    return None if row is None else from_row(row._asdict())


@step
def forget(tx: Connection, *, now: int, limit: int) -> int:
    """Remove endpoints that are known for a week by request alone, with all that belongs to them,
    and their hosts where nothing else is known of these; how many endpoints.

    It takes the turn of whoever adds endpoints, so that none is watched while it goes.
    """
    meta.take_turn(tx, LISTINGS_TURN)
    nothing = sa.or_(_E.c.learned.is_(None), _WILDCARD)
    query = (
        sa.select(_E.c.id, _E.c.host, _E.c.first_seen)
        .where(_ADOPTED, _E.c.first_seen <= now - KEEP_MS, nothing, ~_WATCHED)
        .order_by(_E.c.first_seen)
        .limit(limit)
        .with_for_update(skip_locked=True, of=_E)
    )
    rows = tx.execute(query).all()
    if not rows:
        return 0
    ids = [row.id for row in rows]
    # A probe begins up to a minute before its endpoint is adopted, maybe on the day before.
    first = day_of(min(row.first_seen for row in rows)) - 1
    days = list(range(first, day_of(now) + 2))
    for by_day in _BY_DAY:
        tx.execute(by_day.delete().where(by_day.c.day.in_(days), by_day.c.endpoint_id.in_(ids)))
    for table in _BY_ENDPOINT:
        tx.execute(table.delete().where(table.c.endpoint_id.in_(ids)))
    tx.execute(_E.delete().where(_E.c.id.in_(ids)))
    _forget_hosts(tx, sorted({row.host for row in rows}), now=now)
    return len(ids)


def _forget_hosts(tx: Connection, hosts: Sequence[str], *, now: int) -> None:
    """Remove hosts without endpoints, unless one is being probed or on hold."""
    empty = ~sa.exists().where(_E.c.host == _H.c.host)
    idle = (_H.c.lease_until <= now, _H.c.free_at <= now)
    tx.execute(_H.delete().where(_H.c.host.in_(hosts), empty, *idle))
