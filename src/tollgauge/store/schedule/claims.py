"""Claim endpoints that are due for a probe by leasing their hosts.

- A lease prevents two concurrent probes of a host by any process. When a lease expires, its
  endpoint is still due and another worker claims it.
- Watched endpoints come first, then the hosts that have waited longest, each with its most overdue
  endpoint: a host with many endpoints does not delay others.
- All probes, and the hosts of a large site, observe their budgets (store/schedule/budgets).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import Connection

from tollgauge.core.endpoint.identity import Endpoint
from tollgauge.db.schema import SOME_WATCHED
from tollgauge.db.schema import endpoint as endpoint_table
from tollgauge.db.schema import host as host_table
from tollgauge.store.endpoint_rows import COLUMNS, from_row
from tollgauge.store.schedule import budgets
from tollgauge.store.schedule.hosts import compute_due, lease, unleased

_LOOKS: Final = 4  # attempts to find hosts in place of those that wait for their turns


def claim_due(
    tx: Connection, *, owner: str, now: int, limit: int, lease_ms: int
) -> tuple[Endpoint, ...]:
    """Claim due endpoints, at most one per host, by leasing their hosts to `owner` until `now +
    lease_ms`.
    """
    watched = budgets.admit(
        tx, _lock_free_hosts(tx, now=now, limit=limit, watched=True), now=now, at_once=True
    )
    claimed = _due_endpoints(tx, watched, now=now, watched=True)
    room = budgets.remaining(tx, now=now, most=limit) - len(claimed)
    others = _others(tx, now=now, limit=room, without={endpoint.host for endpoint in claimed})
    claimed += _due_endpoints(tx, others, now=now)
    hosts = {endpoint.host for endpoint in claimed}
    # Hosts without a due endpoint came too early: without this they would be claimed each time.
    if stale := {*watched, *others} - hosts:
        compute_due(tx, stale, now=now)
    if claimed:
        budgets.spend(tx, now=now, probes=len(claimed), most=limit)
        lease(tx, hosts, owner=owner, now=now, lease_ms=lease_ms)
    return tuple(claimed)


def _lock_free_hosts(
    tx: Connection, *, now: int, limit: int, watched: bool = False
) -> Sequence[sa.Row[Any]]:
    """Lock and return free hosts with due (or due `watched`) endpoints, longest waiting first.

    The row locks are held until the transaction ends.
    """
    since = host_table.c.next_watched if watched else host_table.c.next_claim
    query = (
        sa.select(*host_table.c["host", "site", "takes_turns", "turn_at"])
        .where(since <= now, host_table.c.free_at <= now, unleased(now))
        .where(*((SOME_WATCHED,) if watched else ()))
        .order_by(since, host_table.c.host)
        .limit(limit)
        # SKIP LOCKED: another worker may be claiming the same hosts; it gets different ones.
        .with_for_update(skip_locked=True, key_share=True)
    )
    return tx.execute(query).all()


def _others(tx: Connection, *, now: int, limit: int, without: Collection[str]) -> list[str]:
    """Lock and return up to `limit` further free hosts whose turn it is, except those in
    `without`.
    """
    taken: list[str] = []
    for _ in range(_LOOKS):
        room = limit - len(taken)
        if room <= 0:
            break
        known = {*without, *taken}
        free = _lock_free_hosts(tx, now=now, limit=room + len(known))
        hosts = [row for row in free if row.host not in known][:room]
        admitted = budgets.admit(tx, hosts, now=now)
        taken += admitted
        if len(admitted) == len(hosts):
            break
    return taken


def _due_endpoints(
    tx: Connection, hosts: Sequence[str], *, now: int, watched: bool = False
) -> list[Endpoint]:
    """Return the most overdue (`watched`) endpoint of each host, most overdue first."""
    if not hosts:
        return []
    candidate = endpoint_table.alias("candidate")
    # A literal, because a parameter would not match the partial index of watched endpoints.
    watched_now = (sa.text("candidate.watched_until > 0"), candidate.c.watched_until > now)
    first = (
        sa.select(candidate.c.id)
        .where(candidate.c.host == host_table.c.host, candidate.c.next_due <= now)
        .where(*(watched_now if watched else ()))
        .order_by(candidate.c.next_due, candidate.c.id)
        .limit(1)
        .correlate(host_table)
        .scalar_subquery()
    )
    # A separate statement after the locks: it sees rows that a lease's last owner committed.
    of_hosts = sa.select(first).where(host_table.c.host.in_(hosts), unleased(now))
    due = tx.execute(sa.select(*COLUMNS).where(endpoint_table.c.id.in_(of_hosts)))
    endpoints = [from_row(row) for row in due]
    return sorted(endpoints, key=lambda endpoint: (endpoint.next_due, endpoint.id))
