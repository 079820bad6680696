"""The plan of the probe budgets, and the census of endpoints from which it is made
(core/probe/budgets). store/schedule/claims claims within them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import sqlalchemy as sa
from sqlalchemy import Connection

from tollgauge.core.endpoint.identity import Listing
from tollgauge.core.probe.budgets import BudgetPlan, HostLoad, HostShare
from tollgauge.core.probe.schedule import ASKED_MS, DEAD_MS, Standing
from tollgauge.db.schema import SOME_WATCHED
from tollgauge.db.schema import budget as budget_table
from tollgauge.db.schema import endpoint as endpoint_table
from tollgauge.db.schema import host as host_table
from tollgauge.store import rows
from tollgauge.store.schedule import hosts
from tollgauge.store.schedule.hosts import is_unleased

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


def remember(tx: Connection, forgotten: Mapping[str, int]) -> None:
    """Make forgotten hosts due with the first of their endpoints (ms UTC)."""
    hosts.bring_forward(tx, forgotten, watched={})


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
