"""What the operator sees: how much work waits in each queue, and when each loop last ended a round.

Every figure of a queue is a count over an index. How much is too much is decided in monitor/status.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import Connection

from tollgauge.core.endpoint.identity import Listing
from tollgauge.core.sale.payment_state import CONCLUDED
from tollgauge.db.schema import crawl, endpoint, host, metadata, upsert
from tollgauge.store import rows
from tollgauge.store.chain.cursors import Cursor, chain_cursor
from tollgauge.store.ledger.payments import payment

STUCK_MAX: Final = 10
"""How many stuck payments are named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """How many rows of a queue are due, how many of them were due before a given instant, and when
    the oldest was due (ms UTC, None without one).
    """

    due: int
    late: int
    oldest: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StuckPayment:
    """A payment without an outcome; it has been in this state since `updated_at` (ms UTC)."""

    id: str
    state: str
    route: str
    updated_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LastCrawl:
    """The newest crawl of a source, and when the last complete one ended (ms UTC)."""

    source: str
    started: int
    finished_at: int | None
    complete: bool | None
    suspicious: bool
    listed: int | None
    completed_at: int | None

    @property
    def was_never_whole(self) -> bool:
        """Whether neither this crawl nor any before it got to the end."""
        return self.finished_at is None and self.completed_at is None


def probes(tx: Connection, *, now: int, late_since: int) -> Queue:
    """Endpoints that are due for a probe, at hosts that did not ask for a pause."""
    query = _queue(endpoint.c.next_due, now=now, late_since=late_since)
    return _read(tx, query.join(host, host.c.host == endpoint.c.host).where(host.c.free_at <= now))


def scores(tx: Connection, *, now: int, late_since: int) -> Queue:
    """Endpoints whose score is due."""
    return _read(tx, _queue(endpoint.c.score_due, now=now, late_since=late_since))


def _queue(due: sa.Column[int], *, now: int, late_since: int) -> sa.Select[Any]:
    late = sa.func.coalesce(sa.func.sum(sa.case((due < late_since, 1), else_=0)), 0)
    figures = (sa.func.count().label("due"), late.label("late"), sa.func.min(due).label("oldest"))
    return sa.select(*figures).select_from(due.table).where(due <= now)


def _read(tx: Connection, query: sa.Select[Any]) -> Queue:
    row = tx.execute(query).one()
    return Queue(due=row.due, late=row.late, oldest=row.oldest)


def monitored(tx: Connection) -> int:
    """How many endpoints are probed at the usual pace or faster."""
    query = sa.select(sa.func.count()).where(endpoint.c.status != Listing.DELISTED.value)
    count: int = tx.execute(query).scalar_one()
    return count


def probed_since(tx: Connection, since: int) -> int:
    """How many endpoints were probed last after an instant."""
    query = sa.select(sa.func.count()).where(endpoint.c.last_probed > since)
    count: int = tx.execute(query).scalar_one()
    return count


def last_probed(tx: Connection) -> int | None:
    """When the newest probe was made (ms UTC)."""
    newest: int | None = tx.execute(sa.select(sa.func.max(endpoint.c.last_probed))).scalar_one()
    return newest


def payments_by_state(tx: Connection) -> dict[str, int]:
    """How many payments there are of each state."""
    query = sa.select(payment.c.state, sa.func.count().label("number")).group_by(payment.c.state)
    return {row.state: row.number for row in tx.execute(query.order_by(payment.c.state))}


def stuck_payments(tx: Connection, *, since: int) -> Sequence[StuckPayment]:
    """The oldest payments that have waited for their outcome since before an instant, at most
    STUCK_MAX.
    """
    query = (
        sa.select(payment.c.id, payment.c.state, payment.c.route, payment.c.updated_at)
        .where(payment.c.state.not_in([state.value for state in CONCLUDED]))
        .where(payment.c.updated_at < since)
        .order_by(payment.c.updated_at, payment.c.id)
        .limit(STUCK_MAX)
    )
    return [rows.from_columns(StuckPayment, row) for row in tx.execute(query)]


def last_crawls(tx: Connection) -> tuple[LastCrawl, ...]:
    """The newest crawl of each source."""
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
    """How far each chain is indexed."""
    query = sa.select(chain_cursor).order_by(chain_cursor.c.chain)
    return tuple(rows.from_columns(Cursor, row) for row in tx.execute(query))


ERROR_MAX: Final = 200

job_round = sa.Table(
    "job_round",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("ended_at", sa.BigInteger, nullable=False),
    sa.Column("took_ms", sa.BigInteger, nullable=False),
    # When the loop should have noted its next round; later, no process runs it.
    sa.Column("expected_by", sa.BigInteger, nullable=False),
    # The last round that did its work, and the last that failed, with why.
    sa.Column("done_at", sa.BigInteger),
    sa.Column("failed_at", sa.BigInteger),
    sa.Column("error", sa.Text, nullable=False, server_default=""),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRound:
    """The state of a loop: when its last noted round ended and how long that took, by when the next
    note is expected, when a round last succeeded and when one last failed, and the error of that (a
    type and a place in the code). Instants are ms UTC.
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


def note_round(
    tx: Connection, name: str, *, ended_at: int, took_ms: int, expected_by: int, error: str = ""
) -> None:
    """Note how a round of a loop ended; without an error the last failure stays noted."""
    values: dict[str, Any] = {"ended_at": ended_at, "took_ms": took_ms, "expected_by": expected_by}
    if error:
        values |= {"failed_at": ended_at, "error": error[:ERROR_MAX]}
    else:
        values |= {"done_at": ended_at}
    row = upsert(job_round).values(name=name, **values)
    tx.execute(row.on_conflict_do_update(index_elements=["name"], set_=values))


def job_rounds(tx: Connection) -> tuple[JobRound, ...]:
    """The state of each loop that ever ran, by name."""
    query = sa.select(job_round).order_by(job_round.c.name)
    return tuple(rows.from_columns(JobRound, row) for row in tx.execute(query))
