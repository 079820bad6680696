"""Job rounds: when each loop last ended a round, how long that took, and its last error.

There is one row for each loop, whichever process runs it. jobs/runner writes it, `tollgauge status`
reads it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import Connection

from tollgauge.db.schema import metadata, upsert
from tollgauge.store import rows

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


def note(
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


def every(tx: Connection) -> tuple[JobRound, ...]:
    """The state of each loop that ever ran, by name."""
    query = sa.select(job_round).order_by(job_round.c.name)
    return tuple(rows.from_columns(JobRound, row) for row in tx.execute(query))
