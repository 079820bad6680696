"""Rows of endpoints, and claims of those that are due for a score.

A score is due at `score_due`. Claiming it moves that time past a lease, so that it becomes due
again if the worker dies (see the columns in db/schema). store/schedule/claims claims endpoints for
probes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import Connection

from tollgauge.core.base.units import MINUTE_MS
from tollgauge.core.endpoint.identity import Endpoint, Listing
from tollgauge.db.schema import endpoint as endpoint_table
from tollgauge.db.schema import host as host_table
from tollgauge.store import rows
from tollgauge.store.schedule import hosts
from tollgauge.store.schedule.hosts import HostState

SCORE_LEASE_MS: Final = 5 * MINUTE_MS
_NO_WILDCARD: Final = sa.exists().where(
    host_table.c.host == endpoint_table.c.host, host_table.c.wildcard.is_(False)
)
PUBLIC: Final = sa.or_(
    endpoint_table.c.adopted.is_(False),
    sa.and_(endpoint_table.c.learned.is_not(None), _NO_WILDCARD),
)
"""Condition for public endpoints (docs/operating/processes.md): endpoints that a directory
lists or listed, and endpoints that answered 402.

Anyone can have any URL probed by buying a report about it. Such an endpoint is visible only to the
buyer until it is listed or answers 402. If unlisted paths of its host also answer 402, the 402 does
not count; until that is tested, the endpoint is not public. Endpoints that were not public for a
week are deleted (store/tables) unless they are watched.
"""
_TERMS: Final = endpoint_table.c[rows.QUOTE_COLUMNS]


# Up to this many hosts of a payTo are found by one index seek per host, because each may have tens
# of thousands of endpoints. Beyond, all entries are read, at a sixth of a seek each.
FEW_HOSTS: Final = 32


def _hosts_sharing() -> sa.Select[int]:
    """Count the hosts with a public endpoint that has a given payTo on a network."""
    host = endpoint_table.c.host
    paid = sa.and_(
        endpoint_table.c.quote_pay_to == sa.bindparam("pay_to", type_=sa.Text),
        endpoint_table.c.quote_network == sa.bindparam("network", type_=sa.Text),
        PUBLIC,
    )
    first = sa.select(
        sa.literal("", sa.Text).label("host"), sa.literal_column("0", sa.Integer).label("number")
    )
    # A loose index scan: each step seeks the first host after the previous one.
    steps = first.cte("steps", recursive=True)
    following = sa.select(host).where(paid, host > steps.c.host).order_by(host).limit(1)
    steps = steps.union_all(
        sa.select(following.correlate(steps).scalar_subquery(), steps.c.number + 1).where(
            steps.c.host.is_not(None), steps.c.number < FEW_HOSTS
        )
    )
    few = sa.func.count(steps.c.host) - 1
    every = sa.select(sa.func.count(host.distinct())).where(paid)
    return sa.select(sa.case((few < FEW_HOSTS, few), else_=every.scalar_subquery()))


_HOSTS_SHARING: Final = _hosts_sharing()
_ONE: Final = sa.select(*rows.ENDPOINT_COLUMNS).where(endpoint_table.c.id == sa.bindparam("id_"))
_WITH_HOST: Final = _ONE.add_columns(
    *(column for column in hosts.COLUMNS if column.name != "host")
).join(host_table, host_table.c.host == endpoint_table.c.host)
_BY_ID: Final = sa.select(*rows.ENDPOINT_COLUMNS).where(rows.any_of(endpoint_table.c.id))
_LOCK: Final = (
    sa.select(endpoint_table)
    .where(rows.any_of(endpoint_table.c.id))
    .order_by(endpoint_table.c.id)
    .with_for_update()
)


def get(tx: Connection, endpoint_id: str) -> Endpoint | None:
    """Return the endpoint with an ID, or None."""
    row = tx.execute(_ONE, {"id_": endpoint_id}).first()
    return None if row is None else rows.to_endpoint(row)


def get_with_host(tx: Connection, endpoint_id: str) -> tuple[Endpoint, HostState] | None:
    """Return the endpoint with an ID and its host, or None."""
    row = tx.execute(_WITH_HOST, {"id_": endpoint_id}).first()
    return None if row is None else (rows.to_endpoint(row), rows.from_columns(HostState, row))


def get_many(tx: Connection, ids: Iterable[str]) -> dict[str, Endpoint]:
    """Return endpoints by ID; unknown IDs are left out."""
    known = rows.with_any(tx, _BY_ID, ids)
    return {row.id: rows.to_endpoint(row) for row in known}


def insert(tx: Connection, *endpoints: Endpoint, adopted: bool = False) -> None:
    """Add endpoints and their hosts, due for a score immediately.

    `adopted`: no directory lists them yet.
    """
    ordered = sorted(endpoints, key=lambda endpoint: endpoint.id)
    if not ordered:
        return
    bring_forward(tx, ordered)
    columns = []
    for new in ordered:
        source = next(iter(new.sources), "") if new.quote else None
        columns.append(
            rows.from_endpoint(new)
            | {"adopted": adopted, "quote_source": source}
            | {"score_due": new.first_seen, "score_next": None}
        )
    tx.execute(endpoint_table.insert(), columns)


def update(tx: Connection, endpoint: Endpoint) -> None:
    """Write all fields of an endpoint.

    This overwrites concurrent changes since the endpoint was read. Use a narrower function where
    one exists (`probes.record_each`, `listings.save_quotes`).
    """
    tx.execute(
        endpoint_table.update()
        .where(endpoint_table.c.id == endpoint.id)
        .values(rows.from_endpoint(endpoint))
    )
    bring_forward(tx, [endpoint])


def bring_forward(tx: Connection, endpoints: Iterable[Endpoint]) -> None:
    """Add the hosts of endpoints; a known host becomes due with these endpoints, if not earlier."""
    due: dict[str, int] = {}
    watched: dict[str, int] = {}
    for endpoint in endpoints:
        host, at = endpoint.host, endpoint.next_due
        due[host] = min(due.get(host, at), at)
        if endpoint.watched_until:
            watched[host] = min(watched.get(host, at), at)
    hosts.bring_forward(tx, due, watched=watched)


def record_request(tx: Connection, endpoint_id: str, *, now: int) -> None:
    """Record that a report or live probe of an endpoint was bought."""
    one = endpoint_table.c.id == endpoint_id
    tx.execute(endpoint_table.update().where(one).values(asked_at=now))


def make_one_due(tx: Connection, endpoint: Endpoint, *, now: int) -> None:
    """Make an endpoint due for a probe, but not before the end of a pause that it requested."""
    due = replace(endpoint, next_due=min(endpoint.next_due, max(now, endpoint.paused_until)))
    one = endpoint_table.c.id == endpoint.id
    tx.execute(endpoint_table.update().where(one).values(next_due=due.next_due))
    bring_forward(tx, [due])


def make_due(tx: Connection, *, now: int) -> None:
    """Make every endpoint due for a probe."""
    tx.execute(endpoint_table.update().where(endpoint_table.c.next_due > now).values(next_due=now))
    hosts.compute_due(tx, tx.execute(sa.select(host_table.c.host)).scalars(), now=now)


def lock(tx: Connection, ids: Iterable[str]) -> dict[str, sa.Row[Any]]:
    """Lock and return the rows of endpoints by ID.

    Rows are locked in the order of their IDs, so that two transactions cannot deadlock.
    """
    return {row.id: row for row in rows.with_any(tx, _LOCK, sorted(ids))}


def mark_dirty(tx: Connection, ids: Iterable[str], *, now: int) -> None:
    """Make the scores of endpoints due because their evidence changed."""
    for chunk in rows.chunks(sorted(set(ids))):
        locked = (
            sa.select(endpoint_table.c.id)
            .where(endpoint_table.c.id.in_(chunk))
            .order_by(endpoint_table.c.id)
            .with_for_update()
        )
        tx.execute(
            endpoint_table.update().where(endpoint_table.c.id.in_(locked)).values(dirty(now))
        )


def claim_dirty(tx: Connection, *, now: int, limit: int, max_age_ms: int) -> tuple[str, ...]:
    """Claim endpoints whose score is due, longest overdue first, and return their IDs.

    A score is due if its evidence changed or if it is older than `max_age_ms`. A claim expires
    after SCORE_LEASE_MS; `scores.save` ends it, unless the evidence changed in the meantime.
    """
    # Not ordered by ID too: after a change of policy all endpoints are due at the same time, and
    # sorting them for each claim would take longer than scoring.
    query = (
        sa.select(endpoint_table.c.id)
        .where(endpoint_table.c.score_due <= now)
        .order_by(endpoint_table.c.score_due)
        .limit(limit)
        # SKIP LOCKED: workers claim concurrently, and each gets different endpoints.
        .with_for_update(skip_locked=True)
    )
    ids = tuple(tx.execute(query).scalars())
    claim = {"score_due": now + SCORE_LEASE_MS, "score_next": now + max_age_ms}
    # One endpoint per statement: for an UPDATE of many rows SQLite writes an undo copy to a file.
    rows.update_each(tx, endpoint_table, [claim | {"id": id_} for id_ in ids])
    return ids


def hosts_sharing(tx: Connection, network: str, pay_tos: Sequence[str]) -> dict[str, int]:
    """Return, for each payTo on a network, the number of hosts with a public endpoint that uses it.

    Hex addresses must be in lower case, as in quotes.
    """
    return {
        pay_to: tx.execute(_HOSTS_SHARING, {"pay_to": pay_to, "network": network}).scalar_one()
        for pay_to in pay_tos
    }


def sample_common_terms(
    tx: Connection, host: str, *, more_than: int, sample: int
) -> tuple[Endpoint, ...]:
    """Return a random sample of a host's listed endpoints that share its most common terms.

    Empty unless more than `more_than` endpoints share them.
    """
    of_host = sa.and_(
        endpoint_table.c.host == host,
        endpoint_table.c.status == Listing.LISTED,
        endpoint_table.c.adopted.is_(False),
        endpoint_table.c.quote_network.is_not(None),
    )
    number = sa.func.count()
    common = tx.execute(
        sa.select(*_TERMS)
        .where(of_host)
        .group_by(*_TERMS)
        .having(number > more_than)
        .order_by(number.desc(), *_TERMS)
        .limit(1)
    ).one_or_none()
    if common is None:
        return ()
    same = (column == value for column, value in zip(_TERMS, common, strict=True))
    query = sa.select(endpoint_table).where(of_host, *same).order_by(sa.func.random())
    return tuple(rows.to_endpoint(row) for row in tx.execute(query.limit(sample)))


def counts(tx: Connection) -> dict[str, int]:
    """Count `listed`, `delisted` and `adopted` (never listed) endpoints, and the `simulated` ones
    among all.
    """
    numbers = {"listed": 0, "delisted": 0, "adopted": 0, "simulated": 0}
    columns = (endpoint_table.c.status, endpoint_table.c.adopted, endpoint_table.c.simulated)
    query = sa.select(*columns, sa.func.count()).group_by(*columns)
    for status, adopted, simulated, number in tx.execute(query):
        numbers["adopted" if adopted else status] += number
        numbers["simulated"] += number if simulated else 0
    return numbers


def dirty(now: int | sa.ColumnElement[int]) -> dict[str, Any]:
    """Return the column values that make a score due at `now`."""
    return {"score_due": rows.least(endpoint_table.c.score_due, now), "score_next": None}
