"""When a host may be claimed: the columns `next_claim` and `next_watched` of `host`.

Rules:
- `next_claim` is when the first endpoint of a host is due and the pause of the host is over;
  `next_watched` the same of its watched endpoints. Both may be too early, never too late: who finds
  nothing due computes them anew (`compute`). Those of a leased host are as they were when it was
  claimed, until its lease ends;
- whoever makes an endpoint due earlier brings them forward, in the same transaction;
- so the next wave is the front of an index, however many endpoints and hosts there are.

Locks are taken in one order, endpoints before hosts, both sorted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from tollgauge.db.schema import NEVER, upsert
from tollgauge.db.schema import endpoint as endpoint_table
from tollgauge.db.schema import host as host_table
from tollgauge.store import rows
from tollgauge.store.endpoint_rows import host_row


def add(tx: Connection, due: Mapping[str, int], *, watched: Mapping[str, int]) -> None:
    """Add the hosts that are new, and bring the others forward to the instants (ms UTC) at which
    endpoints of theirs are `due`, and `watched` ones among them.
    """
    if not due:
        return
    insert = upsert(host_table)
    columns = [
        host_row(host) | {"next_claim": due[host], "next_watched": watched.get(host, NEVER)}
        for host in sorted(due)
    ]
    names = ("next_claim", "next_watched")
    earlier = {name: _earlier(name, insert.excluded[name]) for name in names}
    is_earlier = sa.or_(*(insert.excluded[name] < host_table.c[name] for name in names))
    tx.execute(
        insert.on_conflict_do_update(index_elements=["host"], set_=earlier, where=is_earlier),
        columns,
    )


def watch(tx: Connection, endpoint_id: str, *, now: int) -> None:
    """Bring the host of an endpoint whose watches changed forward: it may be due now."""
    host = sa.select(endpoint_table.c.host).where(endpoint_table.c.id == endpoint_id)
    both = {name: _earlier(name, sa.literal(now)) for name in ("next_claim", "next_watched")}
    tx.execute(host_table.update().where(host_table.c.host == host.scalar_subquery()).values(both))


def all_due(tx: Connection, *, now: int) -> None:
    """Every host has an endpoint that is due now."""
    both = {name: _earlier(name, sa.literal(now)) for name in ("next_claim", "next_watched")}
    both["next_watched"] = sa.case(
        (host_table.c.next_watched < NEVER, both["next_watched"]), else_=NEVER
    )
    tx.execute(host_table.update().values(both))


def compute(tx: Connection, hosts: Iterable[str], *, now: int) -> None:
    """Compute anew when hosts, which the caller has locked, may be claimed."""
    values = instants(host_table.c.free_at, now=sa.literal(now))
    for chunk in rows.chunks(sorted(hosts)):
        tx.execute(host_table.update().where(host_table.c.host.in_(chunk)).values(values))


def instants(free_at: sa.ColumnElement[int], *, now: sa.ColumnElement[int]) -> dict[str, Any]:
    """The columns of a host that is free from `free_at` on."""
    of_host = endpoint_table.c.host == host_table.c.host
    # The literal lets both databases use the partial index of watched endpoints.
    watched = (sa.text("watched_until > 0"), endpoint_table.c.watched_until > now)
    return {
        "next_claim": _first(free_at, of_host),
        "next_watched": _first(free_at, of_host, *watched),
    }


def _first(
    free_at: sa.ColumnElement[int], *conditions: sa.ColumnExpressionArgument[bool]
) -> sa.ColumnElement[int]:
    """When the first of some endpoints is due and its host is free, NEVER without any."""
    first = (
        sa.select(rows.greatest(endpoint_table.c.next_due, free_at))
        .where(*conditions)
        .order_by(endpoint_table.c.next_due)
        .limit(1)
        .scalar_subquery()
    )
    return sa.func.coalesce(first, NEVER)


def _earlier(name: str, due: sa.ColumnElement[int]) -> sa.ColumnElement[int]:
    """A column of a host with an endpoint that is `due`, but not before the host is free. NEVER
    stays.
    """
    free = sa.case((due >= NEVER, due), else_=rows.greatest(host_table.c.free_at, due))
    return rows.least(host_table.c[name], free)
