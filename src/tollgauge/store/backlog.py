"""Operator's view: waiting work per queue, and the last round of each loop.

All queue figures are counts over an index. monitor/status decides which are too high.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import Connection

from tollgauge.core.endpoint.identity import Listing
from tollgauge.core.sale.payment_state import CONCLUDED
from tollgauge.db.codec import columns_of
from tollgauge.db.schema import crawl, endpoint, host, metadata, upsert
from tollgauge.store import rows
from tollgauge.store.chain.cursors import Cursor, chain_cursor
from tollgauge.store.ledger.payments import payment

STUCK_MAX: Final = 10  # stuck payments listed


@dataclass(frozen=True, slots=True)
class Queue:
    """Rows of a queue that are due, those of them that are late, and the due time of the oldest (ms
    UTC).
    """

    due: int
    late: int
    oldest: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StuckPayment:
    """A payment without an outcome, in its state since `updated_at` (ms UTC)."""

    id: str
    state: str
    route: str
    updated_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LastCrawl:
    """The newest crawl of a source, and the end of the last complete one (ms UTC)."""

    source: str
    started: int
    finished_at: int | None
    complete: bool | None
    suspicious: bool
    listed: int | None
    completed_at: int | None

    @property
    def was_never_whole(self) -> bool:
        """Whether no crawl of the source ever reached its end."""
        return self.finished_at is None and self.completed_at is None


def probes(tx: Connection, *, now: int, late_since: int) -> Queue:
    """Count endpoints that are due for a probe, except those of paused hosts; late ones were due
    before `late_since` (ms UTC).
    """
    query = _queue(endpoint.c.next_due, now=now, late_since=late_since)
    return _read(tx, query.join(host, host.c.host == endpoint.c.host).where(host.c.free_at <= now))


def scores(tx: Connection, *, now: int, late_since: int) -> Queue:
    """Count endpoints whose score is due; late ones were due before `late_since` (ms UTC)."""
    return _read(tx, _queue(endpoint.c.score_due, now=now, late_since=late_since))


def _queue(due: sa.Column[int], *, now: int, late_since: int) -> sa.Select[Any]:
    late = sa.func.coalesce(sa.func.sum(sa.case((due < late_since, 1), else_=0)), 0)
    figures = (sa.func.count(), late, sa.func.min(due))
    return sa.select(*figures).select_from(due.table).where(due <= now)


def _read(tx: Connection, query: sa.Select[Any]) -> Queue:
    return Queue(*tx.execute(query).one())


def count_monitored(tx: Connection) -> int:
    """Count endpoints that are probed at the normal rate or faster."""
    return rows.count(tx, endpoint.c.status != Listing.DELISTED)


def count_probed_since(tx: Connection, since: int) -> int:
    """Count endpoints whose last probe is after a time."""
    return rows.count(tx, endpoint.c.last_probed > since)


def last_probed(tx: Connection) -> int | None:
    """Return the time of the newest probe (ms UTC)."""
    return rows.highest(tx, endpoint.c.last_probed)


def payments_by_state(tx: Connection) -> dict[str, int]:
    """Count payments by state."""
    query = sa.select(payment.c.state, sa.func.count()).group_by(payment.c.state)
    return {str(state): count for state, count in tx.execute(query.order_by(payment.c.state))}


def stuck_payments(tx: Connection, *, since: int) -> Sequence[StuckPayment]:
    """Return the oldest payments without an outcome since before a time, at most STUCK_MAX."""
    query = (
        sa.select(payment.c.id, payment.c.state, payment.c.route, payment.c.updated_at)
        .where(payment.c.state.not_in(CONCLUDED))
        .where(payment.c.updated_at < since)
        .order_by(payment.c.updated_at, payment.c.id)
        .limit(STUCK_MAX)
    )
    return [rows.from_columns(StuckPayment, row) for row in tx.execute(query)]


def last_crawls(tx: Connection) -> tuple[LastCrawl, ...]:
    """Return the newest crawl of each source."""
    newest = sa.select(sa.func.max(crawl.c.id)).group_by(crawl.c.source)
    completed = (
        sa.select(crawl.c.source, sa.func.max(crawl.c.finished_at).label("completed_at"))
        .where(crawl.c.complete.is_(True))
        .group_by(crawl.c.source)
        .subquery()
    )
    query = (
        sa.select(crawl, completed.c.completed_at)
        .outerjoin(completed, completed.c.source == crawl.c.source)
        .where(crawl.c.id.in_(newest))
        .order_by(crawl.c.source)
    )
    return tuple(rows.from_columns(LastCrawl, row) for row in tx.execute(query))


def chains(tx: Connection) -> tuple[Cursor, ...]:
    """Return the cursor of each indexed chain."""
    query = sa.select(chain_cursor).order_by(chain_cursor.c.chain)
    return tuple(rows.from_columns(Cursor, row) for row in tx.execute(query))


ERROR_MAX: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRound:
    """The state of a loop. Times are ms UTC.

    `ended_at` and `took_ms` describe the last recorded round. `expected_by` is when the next record
    is due; later, no process runs the loop. `done_at` and `failed_at` are the last successful and
    the last failed round; `error` (type and code position) belongs to the latter.
    """

    name: str
    ended_at: int
    took_ms: int
    expected_by: int
    done_at: int | None = None
    failed_at: int | None = None
    error: str = ""

    @property
    def failing(self) -> bool:
        """Whether the last round failed."""
        return self.failed_at is not None and self.failed_at > (self.done_at or 0)


job_round = sa.Table("job_round", metadata, *columns_of(JobRound, key=("name",)))


def note_round(
    tx: Connection, name: str, *, ended_at: int, took_ms: int, expected_by: int, error: str = ""
) -> None:
    """Record the end of a round. A success keeps the record of the last failure.

    Args:
        tx: A writing transaction.
        name: The loop.
        ended_at: End of the round (ms UTC).
        took_ms: Duration of the round.
        expected_by: Time (ms UTC) by which the next round should end.
        error: The failure; empty for a success.
    """
    values: dict[str, Any] = {"ended_at": ended_at, "took_ms": took_ms, "expected_by": expected_by}
    if error:
        values |= {"failed_at": ended_at, "error": error[:ERROR_MAX]}
    else:
        values |= {"done_at": ended_at}
    row = upsert(job_round).values(name=name, **{"error": "", **values})
    tx.execute(row.on_conflict_do_update(index_elements=["name"], set_=values))


def job_rounds(tx: Connection) -> tuple[JobRound, ...]:
    """Return the state of each loop that ever ran, by name."""
    query = sa.select(job_round).order_by(job_round.c.name)
    return tuple(rows.from_columns(JobRound, row) for row in tx.execute(query))
