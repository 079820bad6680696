"""Rows of hosts: leases, when a host may be claimed, and whether its 402 means nothing.

- A lease keeps two probes from running at one host at the same time, in any process. Leases for due
  endpoints are taken in store/schedule/claims.
- `next_claim` is when the first endpoint of a host is due and the pause of the host is over;
  `next_watched` is the same for its watched endpoints. Both may be too early, never too late: a
  claim that finds nothing due computes them again. While a host is leased they keep the values of
  the claim.
- A transaction that makes an endpoint due earlier brings its host forward too, so the next wave is
  the front of an index, however many endpoints and hosts there are.
- Locks are taken in one order: endpoints before hosts, both sorted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import Connection

from tollgauge.core.base.units import MINUTE_MS
from tollgauge.db.schema import NEVER, host_lease, upsert
from tollgauge.db.schema import endpoint as endpoint_table
from tollgauge.db.schema import host as host_table
from tollgauge.store import rows
from tollgauge.store.endpoint_rows import host_row


def bring_forward(tx: Connection, due: Mapping[str, int], *, watched: Mapping[str, int]) -> None:
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


def bring_watched_forward(tx: Connection, endpoint_id: str, *, now: int) -> None:
    """Bring the host of an endpoint whose watches changed forward: it may be due now."""
    host = sa.select(endpoint_table.c.host).where(endpoint_table.c.id == endpoint_id)
    both = {name: _earlier(name, sa.literal(now)) for name in ("next_claim", "next_watched")}
    tx.execute(host_table.update().where(host_table.c.host == host.scalar_subquery()).values(both))


def make_all_due(tx: Connection, *, now: int) -> None:
    """Every host has an endpoint that is due now."""
    both = {name: _earlier(name, sa.literal(now)) for name in ("next_claim", "next_watched")}
    both["next_watched"] = sa.case(
        (host_table.c.next_watched < NEVER, both["next_watched"]), else_=NEVER
    )
    tx.execute(host_table.update().values(both))


def compute_due(tx: Connection, hosts: Iterable[str], *, now: int) -> None:
    """Compute anew when hosts, which the caller has locked, may be claimed."""
    values = _due_columns(host_table.c.free_at, now=sa.literal(now))
    for chunk in rows.chunks(sorted(hosts)):
        tx.execute(host_table.update().where(host_table.c.host.in_(chunk)).values(values))


def _due_columns(free_at: sa.ColumnElement[int], *, now: sa.ColumnElement[int]) -> dict[str, Any]:
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


PACE_MAX_MS: Final = 11 * MINUTE_MS
"""More than a probe and the longest pause that a host gets (core/probe/schedule) take together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostState:
    """What is known of a host. `wildcard`: whether its 402 means nothing (monitor/probing), None
    while untried. The host is not probed before `free_at`, and before `lease_until` only by the
    worker with its lease. Instants are ms UTC.

    `round_ms` is the interval of an endpoint of weight 1 where the budget of the host, or of its
    site, is too small for all of them (core/probe/schedule), else 0; `sharing` how many share the
    budget.
    """

    host: str
    wildcard: bool | None = None
    wildcard_at: int | None = None
    free_at: int = 0
    lease_until: int = 0
    round_ms: int = 0
    sharing: int = 0


_OF_HOST: Final = host_lease.c.host == host_table.c.host


def unleased(now: int | sa.ColumnElement[int]) -> sa.ColumnElement[bool]:
    """Whether nobody has leased a host at an instant (ms UTC)."""
    return ~sa.exists().where(_OF_HOST, host_lease.c.until > now)


LEASE_UNTIL: Final = sa.func.coalesce(
    sa.select(host_lease.c.until).where(_OF_HOST).scalar_subquery(), 0
).label("lease_until")
"""Until when a host is leased, 0 where it is not."""
_STATES: Final = sa.select(
    *(host_table.c[field.name] for field in fields(HostState) if field.name != "lease_until"),
    LEASE_UNTIL,
)
_NOW: Final = sa.bindparam("now_", type_=sa.BigInteger)
_FREE_AT: Final = rows.greatest(host_table.c.free_at, sa.bindparam("free_at_", type_=sa.BigInteger))
_TOOK: Final = rows.least(_FREE_AT - sa.bindparam("claimed_at_", type_=sa.BigInteger), PACE_MAX_MS)
_RELEASE: Final = (
    host_table.update()
    .where(host_table.c.host == sa.bindparam("host_"))
    .values(
        free_at=_FREE_AT,
        pace_ms=sa.case(
            (host_table.c.pace_ms == 0, _TOOK), else_=(7 * host_table.c.pace_ms + _TOOK) // 8
        ),
        turn_at=0,
        **_due_columns(_FREE_AT, now=_NOW),
    )
)


def get(tx: Connection, host: str) -> HostState:
    """What is known of a host; the defaults of HostState for an unknown one."""
    return get_many(tx, (host,)).get(host) or HostState(host=host)


def get_many(tx: Connection, hosts: Iterable[str]) -> dict[str, HostState]:
    """What is known of hosts, by name; unknown hosts are left out."""
    known = rows.with_any(tx, _STATES, host_table.c.host, hosts)
    return {row.host: rows.from_columns(HostState, row) for row in known}


def claim(tx: Connection, host: str, *, owner: str, now: int, lease_ms: int) -> bool:
    """Lease one host for a probe that is wanted now; False if it is leased, or not free before
    `free_at`. An unknown host is added.
    """
    tx.execute(upsert(host_table).values(host_row(host)).on_conflict_do_nothing())
    free = sa.select(host_table.c.host).where(
        host_table.c.host == host, host_table.c.free_at <= now
    )
    if tx.execute(free.with_for_update(key_share=True)).first() is None:
        return False
    return lease_free(tx, (host,), owner=owner, now=now, lease_ms=lease_ms) == [host]


def lease(tx: Connection, hosts: Iterable[str], *, owner: str, now: int, lease_ms: int) -> None:
    """Lease hosts to `owner` until `now + lease_ms`: the caller has locked them, and has seen since
    then that nobody has leased them.
    """
    values = {"owner": owner, "claimed_at": now, "until": now + lease_ms}
    insert = upsert(host_lease)
    take_ended = insert.on_conflict_do_update(
        index_elements=["host"],
        set_={name: insert.excluded[name] for name in values},
        where=host_lease.c.until <= insert.excluded.claimed_at,
    )
    if leased := sorted(hosts):
        tx.execute(take_ended, [values | {"host": host} for host in leased])


def lease_free(
    tx: Connection, hosts: Iterable[str], *, owner: str, now: int, lease_ms: int
) -> list[str]:
    """Lease those hosts, which the caller has locked, that nobody has leased, and return them."""
    # This is a statement of its own, after the hosts are locked, as in store/schedule/claims.
    query = sa.select(host_table.c.host).where(unleased(now))
    free = [row.host for row in rows.with_any(tx, query, host_table.c.host, hosts)]
    lease(tx, free, owner=owner, now=now, lease_ms=lease_ms)
    return free


def release(tx: Connection, free_at: Mapping[str, int], *, owner: str, now: int) -> None:
    """End the owner's leases of hosts; none of them is probed before its instant in `free_at`.
    Leases that are no longer the owner's stay. All of the hosts are locked, in the order of their
    names.
    """
    # This locks the hosts before another statement reads which endpoints are due: whoever brought
    # one of them forward meanwhile has committed then.
    lock = (
        sa.select(host_table.c.host, host_lease.c.claimed_at)
        .outerjoin(host_lease, sa.and_(_OF_HOST, host_lease.c.owner == owner))
        .order_by(host_table.c.host)
        .with_for_update(key_share=True, of=host_table)
    )
    released = [
        {
            "host_": row.host,
            "claimed_at_": row.claimed_at,
            "now_": now,
            "free_at_": free_at[row.host],
        }
        for row in rows.with_any(tx, lock, host_table.c.host, sorted(free_at))
        if row.claimed_at is not None
    ]
    if released:
        tx.execute(_RELEASE, released)
    owned = (host_lease.c.owner == owner, host_lease.c.host.in_(list(free_at)))
    tx.execute(host_lease.delete().where(*owned))


def set_wildcards(tx: Connection, wildcards: Mapping[str, bool], *, at: int) -> None:
    """Store whether a 402 of hosts means nothing, by host, as of `at` (ms UTC)."""
    columns = [
        {"host": host, "wildcard": wildcards[host], "wildcard_at": at} for host in sorted(wildcards)
    ]
    rows.put(tx, host_table, columns)


def changed_by(tx: Connection, wildcards: Mapping[str, bool]) -> tuple[str, ...]:
    """The ids of the endpoints of those hosts for which `wildcards` says something new: a 402 that
    meant something means nothing any more, or the other way round.
    """
    if not wildcards:
        return ()
    known = get_many(tx, wildcards)
    before = {host: host in known and bool(known[host].wildcard) for host in wildcards}
    changed = [host for host, wildcard in wildcards.items() if wildcard != before[host]]
    of_hosts = sa.select(endpoint_table.c.id).where(endpoint_table.c.host.in_(changed))
    return tuple(tx.execute(of_hosts).scalars()) if changed else ()
