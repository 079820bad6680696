"""The claim of endpoints that are due for a probe.

Rules:
- a due endpoint is claimed by leasing its host, so that no two probes run at one host at once, in
  any process; when a lease runs out, its endpoint, still due, is claimed by another worker;
- watched endpoints come first, then the hosts that may be claimed for longest, each with the
  longest overdue of its endpoints: a host with many of them holds up no other;
- all probes together, and the hosts of a large site, keep to their budgets
  (store/schedule/budgets).

When a host may be claimed is store/schedule/due_hosts', the end of a lease store/schedule/hosts'.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

import sqlalchemy as sa
from sqlalchemy import Connection

from tollgauge.core.endpoint.identity import Endpoint
from tollgauge.db.prepared import Prepared
from tollgauge.db.schema import SOME_WATCHED
from tollgauge.db.schema import endpoint as endpoint_table
from tollgauge.db.schema import host as host_table
from tollgauge.store import rows
from tollgauge.store.endpoint_rows import COLUMNS, from_row
from tollgauge.store.schedule import budgets, due_hosts
from tollgauge.store.schedule.hosts import lease, unleased

_LOOKS: Final = 4
"""How often a claim looks for further hosts in place of those that wait for their turns."""
_NOW: Final = sa.bindparam("now_", type_=sa.BigInteger)


def _free_hosts(
    since: sa.ColumnElement[int], *conditions: sa.ColumnExpressionArgument[bool]
) -> Prepared:
    """Free hosts with due endpoints, those first that may be claimed for longest (`since`), locked
    until the transaction ends; those that others lock are left out.
    """
    return Prepared(
        sa.select(*host_table.c["host", "site", "takes_turns", "turn_at"])
        .where(since <= _NOW, host_table.c.free_at <= _NOW, unleased(_NOW))
        .where(*conditions)
        .order_by(since, host_table.c.host)
        .limit(sa.bindparam("limit_", type_=sa.Integer))
        .with_for_update(skip_locked=True, key_share=True)
    )


def _first_due(*, watched: bool) -> Prepared:
    """The longest overdue endpoint of each of some hosts, of its watched ones or of all."""
    candidate = endpoint_table.alias("candidate")
    # The literal lets both databases use the partial index of watched endpoints.
    conditions = (sa.text("candidate.watched_until > 0"), candidate.c.watched_until > _NOW)
    first = (
        sa.select(candidate.c.id)
        .where(candidate.c.host == host_table.c.host, candidate.c.next_due <= _NOW)
        .where(*(conditions if watched else ()))
        .order_by(candidate.c.next_due, candidate.c.id)
        .limit(1)
        .correlate(host_table)
        .scalar_subquery()
    )
    return Prepared(
        {
            dialect: sa.select(*COLUMNS).where(
                endpoint_table.c.id.in_(sa.select(first).where(is_any, unleased(_NOW)))
            )
            for dialect, is_any in rows.is_any(host_table.c.host).items()
        }
    )


_FREE: Final = _free_hosts(host_table.c.next_claim)
_FREE_WATCHED: Final = _free_hosts(host_table.c.next_watched, SOME_WATCHED)
_DUE: Final = _first_due(watched=False)
_DUE_WATCHED: Final = _first_due(watched=True)


def claim_due(
    tx: Connection, *, owner: str, now: int, limit: int, lease_ms: int
) -> tuple[Endpoint, ...]:
    """Claim due endpoints, at most one of each host, by leasing their hosts to `owner` until
    `now + lease_ms`. Hosts that are leased, or not free before `free_at`, are left out.
    """
    watched = budgets.admitted(
        tx, _FREE_WATCHED.rows(tx, {"now_": now, "limit_": limit}), now=now, at_once=True
    )
    claimed = _due_endpoints(tx, _DUE_WATCHED, watched, now=now)
    room = budgets.left(tx, now=now, most=limit) - len(claimed)
    others = _others(tx, now=now, limit=room, without={endpoint.host for endpoint in claimed})
    claimed += _due_endpoints(tx, _DUE, others, now=now)
    hosts = {endpoint.host for endpoint in claimed}
    if stale := {*watched, *others} - hosts:
        due_hosts.compute(tx, stale, now=now)
    if claimed:
        budgets.spend(tx, now=now, probes=len(claimed), most=limit)
        lease(tx, hosts, owner=owner, now=now, lease_ms=lease_ms)
    return tuple(claimed)


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
        free = _FREE.rows(tx, {"now_": now, "limit_": room + len(known)})
        hosts = [row for row in free if row.host not in known][:room]
        admitted = budgets.admitted(tx, hosts, now=now)
        taken += admitted
        if len(admitted) == len(hosts):
            break
    return taken


def _due_endpoints(
    tx: Connection, query: Prepared, hosts: Sequence[str], *, now: int
) -> list[Endpoint]:
    """The longest overdue endpoint of each host, longest overdue first.

    This is a statement of its own, after the hosts are locked, so that it sees what the last owner
    of a lease committed.
    """
    if not hosts:
        return []
    due = query.rows(tx, {"now_": now, **rows.any_of(tx, hosts)})
    endpoints = [from_row(row) for row in due]
    return sorted(endpoints, key=lambda endpoint: (endpoint.next_due, endpoint.id))
