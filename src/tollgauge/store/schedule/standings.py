"""How many endpoints of each standing (core/probe/schedule) every host has, the share of the probe
budget that each host got, and how late the probes are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Final

import sqlalchemy as sa
from sqlalchemy import Connection

from tollgauge.core.endpoint.identity import Listing
from tollgauge.core.probe.budgets import BudgetPlan, HostLoad, HostShare
from tollgauge.core.probe.schedule import ASKED_MS, DEAD_MS, Standing
from tollgauge.db.schema import SOME_WATCHED
from tollgauge.db.schema import endpoint as endpoint_table
from tollgauge.db.schema import host as host_table
from tollgauge.store import rows
from tollgauge.store.schedule import budgets, due_hosts
from tollgauge.store.schedule.hosts import unleased

_SHARE: Final = tuple(item.name for item in fields(HostShare))
_HOSTS: Final = sa.select(
    *host_table.c["host", "site", "pace_ms", "next_claim", "free_at", "turn_at", *_SHARE]
)


_STANDINGS: Final = tuple(Standing)


@dataclass(frozen=True, slots=True, kw_only=True)
class Census:
    """The hosts with endpoints, each with its load and the share that it got before. `forgotten`
    are those whose `next_claim` is later than the first of their endpoints is due, each with that
    instant (ms UTC): there should be none.
    """

    loads: tuple[HostLoad, ...]
    shares: Mapping[str, HostShare]
    forgotten: Mapping[str, int] = field(default_factory=dict)


def census(tx: Connection, *, now: int) -> Census:
    """Count all endpoints: it reads each of their rows."""
    standing = _standing(now)
    columns = (
        endpoint_table.c.host,
        standing,
        sa.func.count(),
        sa.func.min(endpoint_table.c.next_due),
    )
    counted: dict[str, dict[Standing, int]] = {}
    due: dict[str, int] = {}
    for host, number, count, first in tx.execute(
        sa.select(*columns).group_by(endpoint_table.c.host, standing)
    ):
        counted.setdefault(host, {})[_STANDINGS[number]] = count
        due[host] = min(due.get(host, first), first)
    hosts = [row for row in tx.execute(_HOSTS) if row.host in counted]
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


def save(tx: Connection, plan: BudgetPlan, changed: Mapping[str, HostShare]) -> None:
    """Store the budgets of a plan, and the shares of those hosts that changed."""
    budgets.put(tx, plan.gaps_us)
    if not changed:
        return
    values = {name: sa.bindparam(f"{name}_", type_=host_table.c[name].type) for name in _SHARE}
    tx.execute(
        host_table.update().where(host_table.c.host == sa.bindparam("host_")).values(values),
        [
            {"host_": host} | {f"{name}_": getattr(changed[host], name) for name in _SHARE}
            for host in sorted(changed)
        ],
    )


def remember(tx: Connection, forgotten: Mapping[str, int]) -> None:
    """Make forgotten hosts due when the first of their endpoints is (ms UTC)."""
    due_hosts.add(tx, forgotten, watched={})


def overdue_ms(tx: Connection, *, now: int) -> dict[str, int]:
    """How many milliseconds the most overdue host has waited for a probe: of `all` hosts, and of
    those where a `watched` endpoint is due.
    """
    columns = host_table.c
    waiting = {
        "all": sa.select(columns.next_claim).order_by(columns.next_claim),
        "watched": sa.select(columns.next_watched)
        .where(SOME_WATCHED)
        .order_by(columns.next_watched),
    }
    since = {
        name: tx.execute(query.where(unleased(now)).limit(1)).scalar_one_or_none()
        for name, query in waiting.items()
    }
    return {name: 0 if at is None else max(now - at, 0) for name, at in since.items()}


def _standing(now: int) -> sa.ColumnElement[int]:
    """The number of an endpoint's standing in _STANDINGS: core/probe/schedule.standing in SQL."""
    columns = endpoint_table.c
    latest: sa.ColumnElement[int] = columns.down_since
    for column in (columns.asked_at, columns.listing_changed_at):
        latest = sa.case((column > latest, column), else_=latest)
    asked = columns.asked_at >= now - ASKED_MS
    delisted = sa.and_(columns.status == Listing.DELISTED.value, columns.adopted.is_(False))
    place = {standing: number for number, standing in enumerate(_STANDINGS)}
    return sa.case(
        (columns.watched_until > now, sa.literal_column(str(place[Standing.WATCHED]))),
        (sa.and_(delisted, asked), sa.literal_column(str(place[Standing.DELISTED_ASKED]))),
        (delisted, sa.literal_column(str(place[Standing.DELISTED]))),
        (latest < now - DEAD_MS, sa.literal_column(str(place[Standing.DEAD]))),
        (asked, sa.literal_column(str(place[Standing.ASKED]))),
        else_=sa.literal_column(str(place[Standing.LISTED])),
    ).label("standing")
