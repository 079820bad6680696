"""Claim endpoints that are due for a probe by leasing their hosts, within the probe budgets.

- A lease prevents two concurrent probes of a host by any process. When a lease expires, its
  endpoint is still due and another worker claims it.
- Watched endpoints come first, then the hosts that have waited longest, each with its most overdue
  endpoint: a host with many endpoints does not delay others.
- A probe takes `gap_us` microseconds of a budget: of the common one (ALL), which allows overdue
  probes to be made up for at a limited multiple of the normal rate, and of its site's. The hosts of
  a large site take turns: a host without a turn is postponed to the site's next free one. A budget
  without a row is unlimited.
- Budgets are planned from a census of all endpoints (core/probe/budgets).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import Connection

from tollgauge.core.base.units import SECOND_MS
from tollgauge.core.endpoint.identity import Endpoint, Listing
from tollgauge.core.probe.budgets import ALL, BudgetPlan, HostLoad, HostShare
from tollgauge.core.probe.schedule import ASKED_MS, DEAD_MS, Standing
from tollgauge.db.schema import SOME_WATCHED
from tollgauge.db.schema import budget as budget_table
from tollgauge.db.schema import endpoint as endpoint_table
from tollgauge.db.schema import host as host_table
from tollgauge.store import rows
from tollgauge.store.schedule.hosts import compute_due, is_unleased, lease

_LOOKS: Final = 4  # attempts to find hosts in place of those that wait for their turns
# Unused turns expire after this time, so that they do not cause a burst after downtime.
TURN_KEPT_MS: Final = 10 * SECOND_MS
_US: Final = 1_000  # microseconds per millisecond


def claim_due(
    tx: Connection, *, owner: str, now: int, limit: int, lease_ms: int
) -> tuple[Endpoint, ...]:
    """Claim due endpoints, at most one per host, by leasing their hosts to `owner` until `now +
    lease_ms`.
    """
    watched = _admit(
        tx, _lock_free_hosts(tx, now=now, limit=limit, watched=True), now=now, at_once=True
    )
    claimed = _due_endpoints(tx, watched, now=now, watched=True)
    room = lock_remaining_budget(tx, now=now, most=limit) - len(claimed)
    others = _others(tx, now=now, limit=room, without={endpoint.host for endpoint in claimed})
    claimed += _due_endpoints(tx, others, now=now)
    hosts = {endpoint.host for endpoint in claimed}
    # Hosts without a due endpoint came too early: without this they would be claimed each time.
    if stale := {*watched, *others} - hosts:
        compute_due(tx, stale, now=now)
    if claimed:
        spend_budget(tx, now=now, probes=len(claimed), most=limit)
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
        .where(since <= now, host_table.c.free_at <= now, is_unleased(now))
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
        admitted = _admit(tx, hosts, now=now)
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
    due = tx.execute(_due_query(watched=watched), {"hosts": hosts, "now": now})
    return sorted(map(rows.to_endpoint, due), key=lambda endpoint: (endpoint.next_due, endpoint.id))


@cache
def _due_query(*, watched: bool) -> sa.Select[Any]:
    now = sa.bindparam("now", type_=sa.BigInteger)
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
    is_given = host_table.c.host.in_(sa.bindparam("hosts", expanding=True))
    of_hosts = sa.select(first).where(is_given, is_unleased(now))
    return sa.select(*rows.ENDPOINT_COLUMNS).where(endpoint_table.c.id.in_(of_hosts))


def lock_remaining_budget(tx: Connection, *, now: int, most: int) -> int:
    """Return the number of probes that may start now, at most `most`.

    The budget is locked until the transaction ends. An unused budget accumulates up to `most`.
    """
    row = tx.execute(_lock_budgets([ALL])).first()
    if row is None:
        return most
    unused: int = now * _US - row.taken_until_us
    return max(min(unused // int(row.gap_us), most), 0)


def spend_budget(tx: Connection, *, now: int, probes: int, most: int) -> None:
    """Charge the common budget for `probes` that start now.

    An unused budget accumulates up to `most` probes. The caller holds the lock of the budget
    (`lock_remaining_budget`).
    """
    table = budget_table.c
    unused_since = rows.greatest(table.taken_until_us, now * _US - most * table.gap_us)
    tx.execute(
        budget_table.update()
        .where(table.name == ALL)
        .values(taken_until_us=unused_since + probes * table.gap_us)
    )


def _admit(tx: Connection, hosts: Sequence[Any], *, now: int, at_once: bool = False) -> list[str]:
    """Return those of the locked hosts that may be probed now: hosts without turns, and hosts whose
    turn it is.

    The others are postponed to their turns. With `at_once` no host is postponed, but turns are
    used.
    """
    turns = [host for host in hosts if host.takes_turns]
    waiting = [host for host in turns if not now - TURN_KEPT_MS <= host.turn_at <= now]
    if not waiting:
        return [host.host for host in hosts]
    budgets = {
        row.name: row for row in tx.execute(_lock_budgets(sorted({h.site for h in waiting})))
    }
    taken_until = {name: max(row.taken_until_us, now * _US) for name, row in budgets.items()}
    put_off: dict[str, int] = {}
    for host in waiting:
        if host.site not in budgets:
            continue
        turn = -(-taken_until[host.site] // _US)
        taken_until[host.site] += budgets[host.site].gap_us
        if turn > now and not at_once:
            put_off[host.host] = turn
    spent = [{"name": name, "taken_until_us": until} for name, until in sorted(taken_until.items())]
    rows.update_each(tx, budget_table, spent)
    turns_of = [
        {"host": host, "next_claim": turn, "turn_at": turn}
        for host, turn in sorted(put_off.items())
    ]
    rows.update_each(tx, host_table, turns_of)
    return [host.host for host in hosts if host.host not in put_off]


def _lock_budgets(names: Sequence[str]) -> sa.Select[Any]:
    return (
        sa.select(budget_table)
        .where(budget_table.c.name.in_(names))
        .order_by(budget_table.c.name)
        .with_for_update()
    )


_STANDINGS: Final = tuple(Standing)


@dataclass(frozen=True, slots=True, kw_only=True)
class Census:
    """The load and the current share of each host with endpoints.

    `forgotten` contains hosts whose `next_claim` is later than their first due endpoint, with that
    due time (ms UTC). It is empty unless a transaction made an endpoint due without its host.
    """

    loads: tuple[HostLoad, ...]
    shares: Mapping[str, HostShare]
    forgotten: Mapping[str, int] = field(default_factory=dict)


def census(tx: Connection, *, now: int) -> Census:
    """Count all endpoints. This reads every row."""
    standing = _standing(now)
    endpoint = endpoint_table.c
    query = sa.select(endpoint.host, standing, sa.func.count(), sa.func.min(endpoint.next_due))
    counted: dict[str, dict[Standing, int]] = {}
    due: dict[str, int] = {}
    for host, number, count, first in tx.execute(query.group_by(endpoint.host, standing)):
        counted.setdefault(host, {})[_STANDINGS[number]] = count
        due[host] = min(due.get(host, first), first)
    hosts = [row for row in tx.execute(sa.select(host_table)) if row.host in counted]
    return Census(
        loads=tuple(
            HostLoad(host=row.host, site=row.site, pace_ms=row.pace_ms, endpoints=counted[row.host])
            for row in hosts
        ),
        shares={row.host: rows.from_columns(HostShare, row) for row in hosts},
        forgotten={
            row.host: due[row.host]
            for row in hosts
            if row.next_claim > max(due[row.host], row.free_at, row.turn_at)
        },
    )


def save_plan(tx: Connection, plan: BudgetPlan, changed: Mapping[str, HostShare]) -> None:
    """Store the budgets of a plan and the changed shares of hosts."""
    # Remaining budgets keep the time that is spent already.
    gaps = plan.gaps_us
    tx.execute(budget_table.delete().where(budget_table.c.name.not_in(list(gaps))))
    rows.put(tx, budget_table, [{"name": name, "gap_us": gaps[name]} for name in sorted(gaps)])
    columns = [rows.to_columns(share, host=host) for host, share in sorted(changed.items())]
    rows.update_each(tx, host_table, columns)


def overdue_ms(tx: Connection, *, now: int) -> dict[str, int]:
    """Return the delay of the most overdue host (ms): of `all` hosts, and of hosts with a due
    `watched` endpoint.
    """
    columns = host_table.c
    waiting = {
        "all": sa.select(columns.next_claim).order_by(columns.next_claim),
        "watched": sa.select(columns.next_watched)
        .where(SOME_WATCHED)
        .order_by(columns.next_watched),
    }
    since = {
        name: tx.execute(query.where(is_unleased(now)).limit(1)).scalar_one_or_none()
        for name, query in waiting.items()
    }
    return {name: 0 if at is None else max(now - at, 0) for name, at in since.items()}


def _standing(now: int) -> sa.ColumnElement[int]:
    """Return core/probe/schedule.standing as an SQL expression: the index in _STANDINGS."""
    columns = endpoint_table.c
    latest: sa.ColumnElement[int] = columns.down_since
    for column in (columns.asked_at, columns.listing_changed_at):
        latest = sa.case((column > latest, column), else_=latest)
    asked = columns.asked_at >= now - ASKED_MS
    delisted = sa.and_(columns.status == Listing.DELISTED, columns.adopted.is_(False))
    index: dict[Standing, sa.ColumnElement[int]] = {
        one: sa.literal_column(str(number)) for number, one in enumerate(_STANDINGS)
    }
    return sa.case(
        (columns.watched_until > now, index[Standing.WATCHED]),
        (sa.and_(delisted, asked), index[Standing.DELISTED_ASKED]),
        (delisted, index[Standing.DELISTED]),
        (latest < now - DEAD_MS, index[Standing.DEAD]),
        (asked, index[Standing.ASKED]),
        else_=index[Standing.LISTED],
    ).label("standing")
