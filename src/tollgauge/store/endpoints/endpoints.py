"""Endpoints and their hosts: rows, due work and its leases.

Rules:
- a due endpoint is claimed by taking its host's lease, so that no two probes ever run at one host,
  whichever process they are in; a lease that ran out is free again, and its endpoint,
  still due, is claimed by someone else;
- watched endpoints come first, then the longest overdue;
- a score is owed at `score_due`; claiming it moves the due time past a lease, so that the debt
  survives a worker that dies (see the columns in schema.py).

Listings are store/endpoints/listings'; evidence is store/probes/probes'.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import Connection

from tollgauge.core.endpoint import Endpoint
from tollgauge.core.units import MINUTE_MS
from tollgauge.db import schema, upsert
from tollgauge.db.prepared import Prepared
from tollgauge.db.transaction import step
from tollgauge.store.endpoints.endpoint_rows import from_row, to_row

SCORE_LEASE_MS: Final = 5 * MINUTE_MS
_CHUNK: Final = 5_000
_E: Final = schema.endpoint
_H: Final = schema.host
_S: Final = schema.score
_NO_WILDCARD: Final = sa.exists().where(_H.c.host == _E.c.host, _H.c.wildcard.is_(False))
PUBLIC: Final = sa.or_(_E.c.adopted.is_(False), sa.and_(_E.c.learned.is_not(None), _NO_WILDCARD))
"""Which endpoints anyone may see (store/endpoints/public)."""
_STATE: Final = (_H.c.host, _H.c.wildcard, _H.c.wildcard_at, _H.c.free_at, _H.c.lease_until)
_ONE: Final = Prepared(sa.select(_E).where(_E.c.id == sa.bindparam("id")))
# What is asked most often is built once: building a statement costs more than asking it.
_HOST: Final = sa.select(*_STATE).where(_H.c.host == sa.bindparam("host"))
_SHARING: Final = sa.select(sa.func.count(_E.c.host.distinct())).where(
    _E.c.quote_pay_to == sa.bindparam("pay_to"),
    _E.c.quote_network == sa.bindparam("network"),
    PUBLIC,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostState:
    """What is known of a host. `wildcard`: a random path answered 402 too; None while untried.
    No probe before `free_at`, nor, by another than its holder, before the end of a lease.
    """

    host: str
    wildcard: bool | None = None
    wildcard_at: int | None = None
    free_at: int = 0
    lease_until: int = 0


@step
def get(tx: Connection, endpoint_id: str) -> Endpoint | None:
    """The endpoint with an id, or None."""
    row = _ONE.first(tx, {"id": endpoint_id})
    return None if row is None else from_row(row._asdict())


@step
def get_many(tx: Connection, ids: Iterable[str]) -> dict[str, Endpoint]:
    """The endpoints with these ids, by id; unknown ids are left out."""
    found: dict[str, Endpoint] = {}
    for chunk in chunks(ids):
        rows = tx.execute(sa.select(_E).where(_E.c.id.in_(chunk)))
        found.update((row["id"], from_row(row)) for row in rows.mappings())
    return found


@step
def insert(tx: Connection, endpoint: Endpoint, *, adopted: bool = False) -> None:
    """Add an endpoint, and its host where that is new; a score of it is owed at once.

    `adopted` says that no directory lists it: it reads as unlisted until one does.
    """
    insert_many(tx, (endpoint,), adopted=adopted)


@step
def insert_many(tx: Connection, endpoints: Iterable[Endpoint], *, adopted: bool = False) -> None:
    """Add several endpoints, as `insert` does one."""
    ordered = sorted(endpoints, key=lambda endpoint: endpoint.id)
    if not ordered:
        return
    hosts = [{"host": host} for host in sorted({endpoint.host for endpoint in ordered})]
    tx.execute(upsert.insert(tx, _H).on_conflict_do_nothing(), hosts)
    extra = {"adopted": adopted, "score_next": None}
    rows = [
        to_row(endpoint)
        | extra
        | {
            "score_due": endpoint.first_seen,
            "quote_source": next(iter(endpoint.sources), "") if endpoint.quote else None,
        }
        for endpoint in ordered
    ]
    tx.execute(_E.insert(), rows)


@step
def update(tx: Connection, endpoint: Endpoint) -> None:
    """Write every field of an endpoint, by its id.

    It overwrites what others changed since the endpoint was read; what only one of them changes
    has narrower ways (`probes.record_each`, `listings.save_quotes`, `watch`).
    """
    tx.execute(_E.update().where(_E.c.id == endpoint.id).values(to_row(endpoint)))


@step
def watch(tx: Connection, endpoint_id: str, *, until: int, next_due: int) -> None:
    """Watch an endpoint at least until an instant, and probe it at `next_due` at the latest."""
    tx.execute(
        _E.update()
        .where(_E.c.id == endpoint_id)
        .values(
            watched_until=greatest(_E.c.watched_until, until),
            next_due=least(_E.c.next_due, next_due),
        )
    )


@step
def make_due(tx: Connection, *, now: int) -> None:
    """Make every endpoint due at once."""
    tx.execute(_E.update().where(_E.c.next_due > now).values(next_due=now))


@step
def claim_due(
    tx: Connection, *, owner: str, now: int, limit: int, lease_ms: int
) -> tuple[Endpoint, ...]:
    """Due endpoints, at most one a host, whose hosts' leases now belong to `owner` until
    `now + lease_ms`. Hosts under another lease, or on hold until `free_at`, are left out.
    """
    watched = _lock_hosts(tx, now=now, limit=limit, watched=True)
    rest: list[str] = []
    if len(watched) < limit:
        rest = _lock_hosts(tx, now=now, limit=limit - len(watched), watched=False, without=watched)
    found = _due_endpoints(tx, watched, now=now, watched=True)
    found += _due_endpoints(tx, rest, now=now, watched=False)
    if found:
        tx.execute(
            _H.update()
            .where(_H.c.host.in_([endpoint.host for endpoint in found]))
            .values(lease_owner=owner, lease_until=now + lease_ms)
        )
    return tuple(found)


@step
def claim_host(tx: Connection, host: str, *, owner: str, now: int, lease_ms: int) -> bool:
    """Take the lease of one host for a probe that is wanted now; False while it is another's or
    on hold. A host that nobody knows is free.
    """
    tx.execute(upsert.insert(tx, _H).values(host=host).on_conflict_do_nothing())
    done = tx.execute(
        _H.update()
        .where(_H.c.host == host, _H.c.lease_until <= now, _H.c.free_at <= now)
        .values(lease_owner=owner, lease_until=now + lease_ms)
    )
    return done.rowcount > 0


@step
def release_host(tx: Connection, host: str, *, owner: str, now: int, free_at: int) -> bool:
    """End a lease; no probe of the host before `free_at`. False, and nothing changed, when the
    lease is no longer the owner's.
    """
    done = tx.execute(
        _H.update()
        .where(_H.c.host == host, _H.c.lease_owner == owner)
        .values(
            lease_owner=None,
            lease_until=least(_H.c.lease_until, now),
            free_at=greatest(_H.c.free_at, free_at),
        )
    )
    return done.rowcount > 0


@step
def release_hosts(tx: Connection, free_at: Mapping[str, int], *, owner: str, now: int) -> None:
    """End the owner's leases of hosts, each with the instant before which it is not probed."""
    statement = (
        _H.update()
        .where(_H.c.host == sa.bindparam("host_"), _H.c.lease_owner == owner)
        .values(
            lease_owner=None,
            lease_until=least(_H.c.lease_until, now),
            free_at=greatest(_H.c.free_at, sa.bindparam("free_at_", type_=sa.BigInteger)),
        )
    )
    rows = [{"host_": host, "free_at_": free_at[host]} for host in sorted(free_at)]
    tx.execute(statement, rows)


@step
def lock(tx: Connection, ids: Iterable[str]) -> dict[str, sa.RowMapping]:
    """The rows of endpoints, locked in the order of their ids."""
    found: dict[str, sa.RowMapping] = {}
    for chunk in chunks(sorted(ids)):
        query = sa.select(_E).where(_E.c.id.in_(chunk)).order_by(_E.c.id).with_for_update()
        found.update((row["id"], row) for row in tx.execute(query).mappings())
    return found


@step
def mark_dirty(tx: Connection, ids: Iterable[str], *, now: int) -> None:
    """Say that the evidence of these endpoints changed: a score is owed from now on."""
    for chunk in chunks(sorted(set(ids))):
        mine = sa.select(_E.c.id).where(_E.c.id.in_(chunk)).order_by(_E.c.id).with_for_update()
        tx.execute(_E.update().where(_E.c.id.in_(mine)).values(dirty(now)))


@step
def claim_dirty(
    tx: Connection,
    *,
    now: int,
    limit: int,
    max_age_ms: int,
    lease_ms: int = SCORE_LEASE_MS,
) -> tuple[str, ...]:
    """Ids of endpoints whose score is owed, longest owed first: their evidence changed since it
    was computed, or it is older than `max_age_ms`.

    A claim holds for `lease_ms`; `scores.save` settles it, unless evidence came meanwhile.
    """
    wanted = (
        sa.select(_E.c.id)
        .where(_E.c.score_due <= now)
        .order_by(_E.c.score_due, _E.c.id)
        .limit(limit)
        .with_for_update(skip_locked=True)
    )
    ids = tuple(tx.execute(wanted).scalars())
    for chunk in chunks(ids):
        tx.execute(
            _E.update()
            .where(_E.c.id.in_(chunk))
            .values(score_due=now + lease_ms, score_next=now + max_age_ms)
        )
    return ids


@step
def set_wildcard(tx: Connection, host: str, *, wildcard: bool, at: int) -> None:
    """Remember whether a random path of a host answers 402; a change is evidence for every
    endpoint of the host.
    """
    before = host_state(tx, host)
    statement = upsert.insert(tx, _H).values(host=host, wildcard=wildcard, wildcard_at=at)
    tx.execute(
        statement.on_conflict_do_update(
            index_elements=["host"], set_={"wildcard": wildcard, "wildcard_at": at}
        )
    )
    if bool(before.wildcard) != wildcard:
        ids = tx.execute(sa.select(_E.c.id).where(_E.c.host == host)).scalars()
        mark_dirty(tx, ids, now=at)


@step
def host_state(tx: Connection, host: str) -> HostState:
    """What is known of a host; an unknown host is one that nothing is known of."""
    row = tx.execute(_HOST, {"host": host}).mappings().one_or_none()
    return HostState(host=host) if row is None else HostState(**row)


@step
def host_states(tx: Connection, hosts: Iterable[str]) -> dict[str, HostState]:
    """What is known of hosts, by name; unknown hosts are left out."""
    found: dict[str, HostState] = {}
    for chunk in chunks(hosts):
        rows = tx.execute(sa.select(*_STATE).where(_H.c.host.in_(chunk)))
        found.update((row["host"], HostState(**row)) for row in rows.mappings())
    return found


@step
def count_hosts_sharing(tx: Connection, network: str, pay_to: str) -> int:
    """How many hosts have a public endpoint whose price goes to this address on this network."""
    address = pay_to.lower() if pay_to.startswith("0x") else pay_to
    count: int = tx.execute(_SHARING, {"pay_to": address, "network": network}).scalar_one()
    return count


@step
def of_host(tx: Connection, host: str, *, limit: int) -> tuple[Endpoint, ...]:
    """Public endpoints of a host, those with the best scores first, then those without."""
    query = (
        sa.select(_E)
        .outerjoin(_S, _S.c.endpoint_id == _E.c.id)
        .where(_E.c.host == host, PUBLIC)
        .order_by(_S.c.score_tenths.desc().nulls_last(), _E.c.id)
        .limit(limit)
    )
    return tuple(from_row(row) for row in tx.execute(query).mappings())


@step
def counts(tx: Connection) -> dict[str, int]:
    """How many endpoints are `listed`, `delisted`, or `adopted` (no directory ever listed them),
    and how many of them all are `simulated`.
    """
    found = {"listed": 0, "delisted": 0, "adopted": 0, "simulated": 0}
    columns = (_E.c.status, _E.c.adopted, _E.c.simulated)
    query = sa.select(*columns, sa.func.count()).group_by(*columns)
    for status, adopted, simulated, number in tx.execute(query):
        found["adopted" if adopted else status] += number
        found["simulated"] += number if simulated else 0
    return found


def _lock_hosts(
    tx: Connection, *, now: int, limit: int, watched: bool, without: Iterable[str] = ()
) -> list[str]:
    """Free hosts with due endpoints, longest overdue first, locked until the transaction ends."""
    mine = (_E.c.host == _H.c.host, *_watched(now, watched=watched))
    oldest = sa.select(sa.func.min(_E.c.next_due)).where(*mine).scalar_subquery()
    query = (
        sa.select(_H.c.host)
        .where(_H.c.lease_until <= now, _H.c.free_at <= now, oldest <= now)
        .where(_H.c.host.not_in(list(without)))
        .order_by(oldest, _H.c.host)
        .limit(limit)
        .with_for_update(skip_locked=True, of=_H)
    )
    if watched:
        due = sa.select(_E.c.host).where(_E.c.next_due <= now, *_watched(now, watched=True))
        query = query.where(_H.c.host.in_(due))
    return list(tx.execute(query).scalars())


def _due_endpoints(tx: Connection, hosts: list[str], *, now: int, watched: bool) -> list[Endpoint]:
    """The longest overdue endpoint of each host, longest overdue first.

    A statement of its own: it sees what the last owner of a lease committed before we locked.
    """
    if not hosts:
        return []
    mine = (_E.c.host == _H.c.host, _E.c.next_due <= now, *_watched(now, watched=watched))
    first = (
        sa.select(_E.c.id).where(*mine).order_by(_E.c.next_due, _E.c.id).limit(1).scalar_subquery()
    )
    ids = tx.execute(sa.select(first).where(_H.c.host.in_(hosts))).scalars()
    found = get_many(tx, [id_ for id_ in ids if id_ is not None])
    return sorted(found.values(), key=lambda endpoint: (endpoint.next_due, endpoint.id))


def _watched(now: int, *, watched: bool) -> tuple[sa.ColumnElement[bool], ...]:
    """The literal lets both databases use the partial index of watched endpoints."""
    return (sa.text("watched_until > 0"), _E.c.watched_until > now) if watched else ()  # type: ignore[return-value]


def dirty(now: int | sa.ColumnElement[int]) -> dict[str, Any]:
    """The column values that owe a score from `now` on."""
    return {"score_due": least(_E.c.score_due, now), "score_next": None}


def least(
    column: sa.ColumnElement[int], value: int | sa.ColumnElement[int]
) -> sa.ColumnElement[int]:
    """The smaller of a column and a value, spelled for both databases."""
    return sa.case((column < value, column), else_=value)


def greatest(
    column: sa.ColumnElement[Any], value: int | sa.ColumnElement[int]
) -> sa.ColumnElement[Any]:
    """The greater of a column and a value; the value where the column is NULL."""
    return sa.case((column > value, column), else_=value)


def chunks(ids: Iterable[str]) -> Iterable[list[str]]:
    """Ids in lists that fit the databases' limits on parameters."""
    whole = list(ids)
    return (whole[start : start + _CHUNK] for start in range(0, len(whole), _CHUNK))
