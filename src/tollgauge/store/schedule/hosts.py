"""Rows of hosts: leases, due times and the result of the wildcard test.

- A lease prevents two concurrent probes of a host by any process. store/schedule/claims leases
  hosts with due endpoints.
- `next_claim` is when the first endpoint of a host is due and the host's pause is over;
  `next_watched` is the same for its watched endpoints. Both may be too early but never too late: a
  claim that finds nothing due recomputes them. They do not change during a lease.
- A transaction that makes an endpoint due earlier also brings its host forward. The next batch is
  therefore the start of an index, regardless of the number of endpoints.
- Lock order: endpoints before hosts, both sorted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from functools import cache
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import Connection

from tollgauge.core.base.units import MINUTE_MS
from tollgauge.core.endpoint.identity import site
from tollgauge.db.schema import NEVER, host_lease, upsert
from tollgauge.db.schema import endpoint as endpoint_table
from tollgauge.db.schema import host as host_table
from tollgauge.store import rows


def bring_forward(tx: Connection, due: Mapping[str, int], *, watched: Mapping[str, int]) -> None:
    """Add new hosts, and bring others forward to the due times of their endpoints (ms UTC): of any
    (`due`) and of `watched` ones.
    """
    if not due:
        return
    columns = [
        host_row(host) | {"next_claim": due[host], "next_watched": watched.get(host, NEVER)}
        for host in sorted(due)
    ]
    tx.execute(_bring_forward(), columns)


@cache
def _bring_forward() -> sa.Insert:
    insert = upsert(host_table)
    names = ("next_claim", "next_watched")
    earlier = {name: _earlier(name, insert.excluded[name]) for name in names}
    is_earlier = sa.or_(*(insert.excluded[name] < host_table.c[name] for name in names))
    return insert.on_conflict_do_update(index_elements=["host"], set_=earlier, where=is_earlier)


def host_row(host: str) -> dict[str, str]:
    """Return the column values of a new host."""
    return {"host": host, "site": site(host)}


def bring_watched_forward(tx: Connection, endpoint_id: str, *, now: int) -> None:
    """Make the host of an endpoint due after its watches changed."""
    host = sa.select(endpoint_table.c.host).where(endpoint_table.c.id == endpoint_id)
    both = {name: _earlier(name, sa.literal(now)) for name in ("next_claim", "next_watched")}
    tx.execute(host_table.update().where(host_table.c.host == host.scalar_subquery()).values(both))


def record_recheck(tx: Connection, host: str, *, now: int, pause_ms: int) -> int | None:
    """Record that a probe was requested now, unless one was during `pause_ms`.

    Returns:
        None, or the time from which a probe may be requested (ms UTC).
    """
    of_host = host_table.c.host == host
    # One statement decides, so that of two concurrent requests only one is accepted.
    is_allowed = host_table.c.recheck_at <= now - pause_ms
    update = host_table.update().where(of_host, is_allowed).values(recheck_at=now)
    if tx.execute(update).rowcount:
        return None
    last = tx.execute(sa.select(host_table.c.recheck_at).where(of_host)).scalar_one()
    return int(last) + pause_ms


def compute_due(tx: Connection, hosts: Iterable[str], *, now: int) -> None:
    """Recompute the due times of hosts that the caller has locked."""
    values = _due_columns(host_table.c.free_at, now=sa.literal(now))
    for chunk in rows.chunks(sorted(hosts)):
        tx.execute(host_table.update().where(host_table.c.host.in_(chunk)).values(values))


def _due_columns(free_at: sa.ColumnElement[int], *, now: sa.ColumnElement[int]) -> dict[str, Any]:
    """Return the due times of a host that is free from `free_at`."""
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
    """Return when the first of the endpoints is due and its host free, or NEVER."""
    first = (
        sa.select(rows.greatest(endpoint_table.c.next_due, free_at))
        .where(*conditions)
        .order_by(endpoint_table.c.next_due)
        .limit(1)
        .scalar_subquery()
    )
    return sa.func.coalesce(first, NEVER)


def _earlier(name: str, due: sa.ColumnElement[int]) -> sa.ColumnElement[int]:
    """Return a host's column brought forward to `due`, but not before the host is free. NEVER is
    kept.
    """
    free = sa.case((due >= NEVER, due), else_=rows.greatest(host_table.c.free_at, due))
    return rows.least(host_table.c[name], free)


PACE_MAX_MS: Final = 11 * MINUTE_MS  # longer than a probe and a host's longest pause together


@dataclass(frozen=True, slots=True, kw_only=True)
class HostState:
    """The state of a host. Times are ms UTC.

    - `wildcard`: the host answers 402 for any path (monitor/probing); None before the first test.
    - The host is not probed before `free_at`, and until `lease_until` only by the holder of its
      lease.
    - `round_ms`: probe interval of an endpoint of weight 1 if the budget of the host or its site is
      too small for the normal one (core/probe/schedule), otherwise 0. `sharing` endpoints share
      that budget.
    """

    host: str
    wildcard: bool | None = None
    wildcard_at: int | None = None
    free_at: int = 0
    lease_until: int = 0
    round_ms: int = 0
    sharing: int = 0


_OF_HOST: Final = host_lease.c.host == host_table.c.host


def is_unleased(now: int | sa.ColumnElement[int]) -> sa.ColumnElement[bool]:
    """Return the condition that a host is not leased at a time (ms UTC)."""
    return ~sa.exists().where(_OF_HOST, host_lease.c.until > now)


LEASE_UNTIL: Final = sa.func.coalesce(
    sa.select(host_lease.c.until).where(_OF_HOST).scalar_subquery(), 0
).label("lease_until")
"""The end of a host's lease, 0 without one."""
COLUMNS: Final = (
    *(host_table.c[field.name] for field in fields(HostState) if field.name != "lease_until"),
    LEASE_UNTIL,
)
"""The columns of HostState."""
_STATE: Final = sa.select(*COLUMNS).where(host_table.c.host == sa.bindparam("host_"))
_STATES: Final = sa.select(*COLUMNS).where(rows.any_of(host_table.c.host))
_NOW: Final = sa.bindparam("now_", type_=sa.BigInteger)
_FREE: Final = sa.select(host_table.c.host).where(is_unleased(_NOW), rows.any_of(host_table.c.host))
_LOCK_LEASED: Final = (
    sa.select(host_table.c.host, host_lease.c.claimed_at)
    .outerjoin(host_lease, sa.and_(_OF_HOST, host_lease.c.owner == sa.bindparam("owner")))
    .where(rows.any_of(host_table.c.host))
    .order_by(host_table.c.host)
    .with_for_update(key_share=True, of=host_table)
)
_NEW_LEASE: Final = upsert(host_lease)
# A lease that is still held is kept, even if the caller's check missed it.
_LEASE: Final = _NEW_LEASE.on_conflict_do_update(
    index_elements=["host"],
    set_={name: _NEW_LEASE.excluded[name] for name in ("owner", "claimed_at", "until")},
    where=host_lease.c.until <= _NEW_LEASE.excluded.claimed_at,
)
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
    """Return the state of a host; the defaults of HostState if it is unknown."""
    row = tx.execute(_STATE, {"host_": host}).first()
    return HostState(host=host) if row is None else rows.from_columns(HostState, row)


def get_many(tx: Connection, hosts: Iterable[str]) -> dict[str, HostState]:
    """Return the states of hosts by name; unknown hosts are left out."""
    known = rows.with_any(tx, _STATES, hosts)
    return {row.host: rows.from_columns(HostState, row) for row in known}


def claim(tx: Connection, host: str, *, owner: str, now: int, lease_ms: int) -> bool:
    """Lease one host for a probe on request. False if it is leased or pausing. An unknown host is
    added.
    """
    rows.add_missing(tx, host_table, [host_row(host)])
    free = sa.select(host_table.c.host).where(
        host_table.c.host == host, host_table.c.free_at <= now
    )
    if tx.execute(free.with_for_update(key_share=True)).first() is None:
        return False
    return lease_free(tx, (host,), owner=owner, now=now, lease_ms=lease_ms) == [host]


def lease(tx: Connection, hosts: Iterable[str], *, owner: str, now: int, lease_ms: int) -> None:
    """Lease hosts to `owner` until `now + lease_ms`.

    The caller has locked the hosts and has since then seen that they are not leased.
    """
    values = {"owner": owner, "claimed_at": now, "until": now + lease_ms}
    if leased := sorted(hosts):
        tx.execute(_LEASE, [values | {"host": host} for host in leased])


def lease_free(
    tx: Connection, hosts: Iterable[str], *, owner: str, now: int, lease_ms: int
) -> list[str]:
    """Lease those of the locked hosts that are not leased, and return them."""
    # A separate statement after the locks: it sees leases committed while this one waited.
    free = [row.host for row in rows.with_any(tx, _FREE, hosts, now_=now)]
    lease(tx, free, owner=owner, now=now, lease_ms=lease_ms)
    return free


def release(tx: Connection, free_at: Mapping[str, int], *, owner: str, now: int) -> None:
    """End the owner's leases of hosts, which are not probed again before their `free_at`.

    Leases that have passed to another owner are kept. All hosts are locked in the order of their
    names.
    """
    # Lock the hosts before reading which endpoints are due: a transaction that brought one of them
    # forward has then committed.
    released = [
        {"host_": row.host, "free_at_": free_at[row.host], "claimed_at_": row.claimed_at}
        | {"now_": now}
        for row in rows.with_any(tx, _LOCK_LEASED, sorted(free_at), owner=owner)
        if row.claimed_at is not None
    ]
    if released:
        tx.execute(_RELEASE, released)
    owned = (host_lease.c.owner == owner, host_lease.c.host.in_(list(free_at)))
    tx.execute(host_lease.delete().where(*owned))


def set_wildcards(tx: Connection, wildcards: Mapping[str, bool], *, at: int) -> None:
    """Store the results of wildcard tests by host, as of `at` (ms UTC)."""
    tested = {"wildcard_at": at}
    columns = [tested | {"host": host, "wildcard": wildcards[host]} for host in sorted(wildcards)]
    rows.put(tx, host_table, columns)


def find_changed(tx: Connection, wildcards: Mapping[str, bool]) -> tuple[str, ...]:
    """Return the IDs of the endpoints of hosts whose wildcard result changes."""
    if not wildcards:
        return ()
    known = get_many(tx, wildcards)
    before = {host: host in known and bool(known[host].wildcard) for host in wildcards}
    changed = [host for host, wildcard in wildcards.items() if wildcard != before[host]]
    of_hosts = sa.select(endpoint_table.c.id).where(endpoint_table.c.host.in_(changed))
    return tuple(tx.execute(of_hosts).scalars()) if changed else ()
