"""The claim of endpoints that are due for a probe.

Rules:
- a due endpoint is claimed by leasing its host, so that no two probes run at one host at once, in
  any process; when a lease runs out, its endpoint, still due, is claimed by another worker;
- watched endpoints come first, then the hosts that may be claimed for longest, each with the
  longest overdue of its endpoints: a host with many of them holds up no other;
- all probes together, and the hosts of a large site, keep to their budgets
  (store/schedule/budgets).

When a host may be claimed is store/schedule/hosts', the end of a lease store/schedule/hosts'.
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

_LOOKS: Final = 4
"""How often a claim looks for further hosts in place of those that wait for their turns."""


def claim_due(
    tx: Connection, *, owner: str, now: int, limit: int, lease_ms: int
) -> tuple[Endpoint, ...]:
    """Claim due endpoints, at most one of each host, by leasing their hosts to `owner` until
    `now + lease_ms`. Hosts that are leased, or not free before `free_at`, are left out.
    """
    watched = budgets.admitted(
        tx, _lock_free_hosts(tx, now=now, limit=limit, watched=True), now=now, at_once=True
    )
    claimed = _due_endpoints(tx, watched, now=now, watched=True)
    room = budgets.left(tx, now=now, most=limit) - len(claimed)
    others = _others(tx, now=now, limit=room, without={endpoint.host for endpoint in claimed})
    claimed += _due_endpoints(tx, others, now=now)
    hosts = {endpoint.host for endpoint in claimed}
    if stale := {*watched, *others} - hosts:
        compute_due(tx, stale, now=now)
    if claimed:
        budgets.spend(tx, now=now, probes=len(claimed), most=limit)
        lease(tx, hosts, owner=owner, now=now, lease_ms=lease_ms)
    return tuple(claimed)


def _lock_free_hosts(
    tx: Connection, *, now: int, limit: int, watched: bool = False
) -> Sequence[sa.Row[Any]]:
    """Lock and return free hosts with due endpoints, or with due `watched` ones, those first that
    have waited longest. The row locks are held until the transaction ends.
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
    """Free hosts with due endpoints, but some, locked until the transaction ends, whose turn it is
    where their site takes turns.
    """
    taken: list[str] = []
    for _ in range(_LOOKS):
        room = limit - len(taken)
        if room <= 0:
            break
        known = {*without, *taken}
        free = _lock_free_hosts(tx, now=now, limit=room + len(known))
        hosts = [row for row in free if row.host not in known][:room]
        admitted = budgets.admitted(tx, hosts, now=now)
        taken += admitted
        if len(admitted) == len(hosts):
            break
    return taken


def _due_endpoints(
    tx: Connection, hosts: Sequence[str], *, now: int, watched: bool = False
) -> list[Endpoint]:
    """Return the longest overdue endpoint of each host, or of its `watched` ones, longest overdue
    first.
    """
    if not hosts:
        return []
    candidate = endpoint_table.alias("candidate")
    # The literal lets both databases use the partial index of watched endpoints.
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
    # A separate statement after the locks: it sees what the last owner of a lease committed.
    of_hosts = sa.select(first).where(host_table.c.host.in_(hosts), unleased(now))
    due = tx.execute(sa.select(*COLUMNS).where(endpoint_table.c.id.in_(of_hosts)))
    endpoints = [from_row(row) for row in due]
    return sorted(endpoints, key=lambda endpoint: (endpoint.next_due, endpoint.id))
