"""Budgets of probes: all together, and those of sites with many hosts.

A probe takes `gap_us` microseconds of a budget. The budget of all probes together (ALL) lets them
come faster than usual, so that overdue ones are caught up, but only by a factor. The hosts of a
large site take turns: one without a turn is put off to the site's next free one. A budget without a
row limits nothing. How large the budgets are is decided in core/probe/budgets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import Connection

from tollgauge.core.base.units import SECOND_MS
from tollgauge.core.probe.budgets import ALL
from tollgauge.db.schema import budget as budget_table
from tollgauge.db.schema import host as host_table
from tollgauge.store import rows

TURN_KEPT_MS: Final = 10 * SECOND_MS
"""A turn that was not used for so long is lost, so that old turns cause no burst after a stop."""
_US: Final = 1_000
"""Microseconds of a millisecond."""


def left(tx: Connection, *, now: int, most: int) -> int:
    """How many probes may begin now, `most` at most; the budget is locked until the transaction
    ends. What was not used before counts up to `most`.
    """
    row = tx.execute(_locked([ALL])).first()
    if row is None:
        return most
    unused: int = now * _US - row.taken_until_us
    return max(min(unused // int(row.gap_us), most), 0)


def spend(tx: Connection, *, now: int, probes: int, most: int) -> None:
    """Note that so many probes begin now."""
    table = budget_table.c
    unused_since = rows.greatest(table.taken_until_us, now * _US - most * table.gap_us)
    tx.execute(
        budget_table.update()
        .where(table.name == ALL)
        .values(taken_until_us=unused_since + probes * table.gap_us)
    )


def admitted(tx: Connection, hosts: Sequence[Any], *, now: int, at_once: bool = False) -> list[str]:
    """Which of these locked hosts may be probed now: those that take no turns, and those whose turn
    it is. The others are put off to their turns. `at_once` puts nobody off, but uses the turns.
    """
    turns = [host for host in hosts if host.takes_turns]
    waiting = [host for host in turns if not now - TURN_KEPT_MS <= host.turn_at <= now]
    if not waiting:
        return [host.host for host in hosts]
    budgets = {row.name: row for row in tx.execute(_locked(sorted({h.site for h in waiting})))}
    taken_until = {name: max(row.taken_until_us, now * _US) for name, row in budgets.items()}
    put_off: dict[str, int] = {}
    for host in waiting:
        if host.site not in budgets:
            continue
        turn = -(-taken_until[host.site] // _US)
        taken_until[host.site] += budgets[host.site].gap_us
        if turn > now and not at_once:
            put_off[host.host] = turn
    _save(tx, taken_until, put_off)
    return [host.host for host in hosts if host.host not in put_off]


def put(tx: Connection, gaps_us: Mapping[str, int]) -> None:
    """Replace all budgets: the time of one probe in microseconds, by name. What was spent already
    stays spent.
    """
    tx.execute(budget_table.delete().where(budget_table.c.name.not_in(list(gaps_us))))
    columns = [{"name": name, "gap_us": gaps_us[name]} for name in sorted(gaps_us)]
    rows.put(tx, budget_table, columns)


def _locked(names: Sequence[str]) -> sa.Select[Any]:
    return (
        sa.select(budget_table)
        .where(budget_table.c.name.in_(names))
        .order_by(budget_table.c.name)
        .with_for_update()
    )


def _save(tx: Connection, taken_until: Mapping[str, int], put_off: Mapping[str, int]) -> None:
    if taken_until:
        update = budget_table.update().where(budget_table.c.name == sa.bindparam("name_"))
        tx.execute(
            update.values(taken_until_us=sa.bindparam("until_", type_=sa.BigInteger)),
            [{"name_": name, "until_": taken_until[name]} for name in sorted(taken_until)],
        )
    if put_off:
        turn = sa.bindparam("turn_", type_=sa.BigInteger)
        update = host_table.update().where(host_table.c.host == sa.bindparam("host_"))
        tx.execute(
            update.values(next_claim=turn, turn_at=turn),
            [{"host_": host, "turn_": put_off[host]} for host in sorted(put_off)],
        )
