"""How long probes speak and what their days add up to as time; failures that are asked again.

The sums of the last closed days are computed from their packed probes, because a window of scoring
reaches 30 days back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from alembic import op

from tollgauge.core.spans import Statement, spans, statement
from tollgauge.core.units import DAY_MS
from tollgauge.db.codec import statement_from_json, statement_to_json
from tollgauge.db.packing import unpack

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None

_DAYS = 31
_BATCH = 1_000
_SUMS = ("up_ms", "payable_ms", "down_ms", "failures", "repairs")
_day = sa.table(
    "probe_day",
    *(sa.column(name, sa.Integer) for name in ("day", *_SUMS)),
    *(sa.column(name, sa.Text) for name in ("endpoint_id", "last_statement")),
    sa.column("compliance_ms", sa.BigInteger),
    sa.column("packed", sa.LargeBinary),
)
_NOTE_SINCE = {
    "sqlite": "INSERT INTO meta (key, value) SELECT 'policy-2-since', "
    "CAST(CAST(strftime('%s', 'now') AS INTEGER) * 1000 AS TEXT) "
    "WHERE EXISTS (SELECT 1 FROM score)",
    "postgresql": "INSERT INTO meta (key, value) SELECT 'policy-2-since', "
    "CAST(CAST(extract(epoch FROM now()) AS BIGINT) * 1000 AS TEXT) "
    "WHERE EXISTS (SELECT 1 FROM score)",
}
"""Where there are scores, they were policy 1's: for a while reports show both."""


def upgrade() -> None:
    op.add_column(
        "probe", sa.Column("holds", sa.Integer(), nullable=False, server_default="7200000")
    )
    op.add_column(
        "probe", sa.Column("confirms", sa.Boolean(), nullable=False, server_default=sa.false())
    )
    for name in _SUMS:
        column = sa.Column(name, sa.Integer(), nullable=False, server_default="0")
        op.add_column("probe_day", column)
    op.add_column(
        "probe_day",
        sa.Column("compliance_ms", sa.BigInteger(), nullable=False, server_default="0"),
    )
    op.add_column("probe_day", sa.Column("last_statement", sa.Text()))
    op.add_column("endpoint", sa.Column("asked_at", sa.BigInteger()))
    op.add_column("endpoint", sa.Column("payable", sa.Boolean()))
    op.add_column("endpoint", sa.Column("unconfirmed_at", sa.BigInteger()))
    connection = op.get_bind()
    op.execute(_NOTE_SINCE[connection.dialect.name])
    _fill_sums(connection)


def _fill_sums(connection: sa.Connection) -> None:
    newest = connection.execute(sa.select(sa.func.max(_day.c.day))).scalar_one()
    for day in range(newest - _DAYS + 1, newest + 1) if newest is not None else ():
        last_id = ""
        while rows := _packed(connection, day, after=last_id):
            _fill_day(connection, day, rows)
            last_id = rows[-1].endpoint_id


def _packed(connection: sa.Connection, day: int, *, after: str) -> Sequence[Any]:
    """Some closed days of endpoints with ids after one."""
    query = (
        sa.select(_day.c.endpoint_id, _day.c.packed)
        .where(_day.c.day == day, _day.c.endpoint_id > after, _day.c.packed.is_not(None))
        .order_by(_day.c.endpoint_id)
        .limit(_BATCH)
    )
    return connection.execute(query).all()


def _fill_day(connection: sa.Connection, day: int, rows: Sequence[Any]) -> None:
    before_rows = connection.execute(
        sa.select(_day.c.endpoint_id, _day.c.last_statement).where(
            _day.c.day == day - 1, _day.c.endpoint_id.in_([row.endpoint_id for row in rows])
        )
    )
    before = {row.endpoint_id: statement_from_json(row.last_statement) for row in before_rows}
    update = _day.update().where(_day.c.day == day, _day.c.endpoint_id == sa.bindparam("id_"))
    connection.execute(update, [_sums(day, row, before.get(row.endpoint_id)) for row in rows])


def _sums(day: int, row: Any, before: Statement | None) -> dict[str, Any]:
    """The new columns of a closed day."""
    said = (statement(result) for result in unpack(row.packed))
    statements = [one for one in said if one is not None]
    day_spans = spans(day, statements, before=before, until=(day + 1) * DAY_MS)
    return {
        "id_": row.endpoint_id,
        "up_ms": day_spans.up,
        "payable_ms": day_spans.payable,
        "down_ms": day_spans.down,
        "compliance_ms": day_spans.compliance,
        "failures": day_spans.failures,
        "repairs": day_spans.repairs,
        "last_statement": statement_to_json(statements[-1] if statements else None),
    }
