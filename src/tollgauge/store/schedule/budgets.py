"""Probe budgets: of all probes together, and of sites with many hosts (core/probe/budgets).

A probe takes `gap_us` microseconds of a budget. The common budget (ALL) allows overdue probes to be
made up for at a limited multiple of the normal rate. The hosts of a large site take turns: a host
without a turn is postponed to the site's next free one. A budget without a row is unlimited.
`census` counts endpoints by host and standing, from which the budgets are planned.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import Connection

from tollgauge.core.base.units import SECOND_MS
from tollgauge.core.endpoint.identity import Listing
from tollgauge.core.probe.budgets import ALL, BudgetPlan, HostLoad, HostShare
from tollgauge.core.probe.schedule import ASKED_MS, DEAD_MS, Standing
from tollgauge.db.schema import SOME_WATCHED
from tollgauge.db.schema import budget as budget_table
from tollgauge.db.schema import endpoint as endpoint_table
from tollgauge.db.schema import host as host_table
from tollgauge.store import rows
from tollgauge.store.schedule import hosts
from tollgauge.store.schedule.hosts import unleased

# Unused turns expire after this time, so that they do not cause a burst after downtime.
TURN_KEPT_MS: Final = 10 * SECOND_MS
_US: Final = 1_000  # microseconds per millisecond


def remaining(tx: Connection, *, now: int, most: int) -> int:
    """Return the number of probes that may start now, at most `most`.

    The budget is locked until the transaction ends. An unused budget accumulates up to `most`.
    """
    row = tx.execute(_lock_budgets([ALL])).first()
    if row is None:
        return most
    unused: int = now * _US - row.taken_until_us
    return max(min(unused // int(row.gap_us), most), 0)


def spend(tx: Connection, *, now: int, probes: int, most: int) -> None:
    """Charge the budget for probes that start now."""
    table = budget_table.c
    unused_since = rows.greatest(table.taken_until_us, now * _US - most * table.gap_us)
    tx.execute(
        budget_table.update()
        .where(table.name == ALL)
        .values(taken_until_us=unused_since + probes * table.gap_us)
    )


def admit(tx: Connection, hosts: Sequence[Any], *, now: int, at_once: bool = False) -> list[str]:
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


def put(tx: Connection, gaps_us: Mapping[str, int]) -> None:
    """Replace all budgets with these microseconds per probe, by name. Spent time stays spent."""
    tx.execute(budget_table.delete().where(budget_table.c.name.not_in(list(gaps_us))))
    columns = [{"name": name, "gap_us": gaps_us[name]} for name in sorted(gaps_us)]
    rows.put(tx, budget_table, columns)


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
    put(tx, plan.gaps_us)
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
        name: tx.execute(query.where(unleased(now)).limit(1)).scalar_one_or_none()
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
