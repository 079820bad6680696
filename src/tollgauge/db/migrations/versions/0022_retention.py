"""Month sums, and what finds old rows without reading the others.

`probe` and `probe_day` lose their foreign key: neither has an index by endpoint, so removing one
endpoint read both tables to their end. No row of theirs is moved here; on SQLite the constraint is
taken out of the schema's text, as https://sqlite.org/lang_altertable.html, section 7, says.
"""

from __future__ import annotations

import re

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None

_BY_DAY = ("probe", "probe_day")
_FOREIGN_KEY = (
    r",\s*CONSTRAINT fk_{table}_endpoint_id FOREIGN KEY\s*\(endpoint_id\) "
    r"REFERENCES \"?endpoint\"?\s*\(id\)"
)
_ENDED = sa.text("done_at IS NOT NULL")


def upgrade() -> None:
    op.create_table(
        "probe_month",
        sa.Column("endpoint_id", sa.Text(), nullable=False),
        sa.Column("month", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("probes", sa.Integer(), nullable=False),
        sa.Column("scored", sa.Integer(), nullable=False),
        sa.Column("up", sa.Integer(), nullable=False),
        sa.Column("compliant", sa.Integer(), nullable=False),
        sa.Column("payable", sa.Integer(), nullable=False),
        sa.Column("compliance", sa.BigInteger(), nullable=False),
        sa.Column("slots", sa.Integer(), nullable=False),
        sa.Column("latency_count", sa.Integer(), nullable=False),
        sa.Column("latency_sum", sa.BigInteger(), nullable=False),
        sa.Column("latency", sa.LargeBinary(), nullable=False),
        sa.Column("excluded", sa.Text(), nullable=False),
        sa.Column("up_ms", sa.BigInteger(), nullable=False),
        sa.Column("payable_ms", sa.BigInteger(), nullable=False),
        sa.Column("down_ms", sa.BigInteger(), nullable=False),
        sa.Column("compliance_ms", sa.BigInteger(), nullable=False),
        sa.Column("failures", sa.Integer(), nullable=False),
        sa.Column("repairs", sa.Integer(), nullable=False),
        sa.Column("counts", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["endpoint_id"], ["endpoint.id"], name="fk_probe_month_endpoint_id"
        ),
        sa.PrimaryKeyConstraint("endpoint_id", "month", name="pk_probe_month"),
        sqlite_with_rowid=False,
    )
    op.add_column(
        "payment_answer",
        sa.Column("stored_at", sa.BigInteger(), nullable=False, server_default="0"),
    )
    op.execute(
        "UPDATE payment_answer SET stored_at = COALESCE("
        "(SELECT updated_at FROM payment WHERE payment.id = payment_answer.payment_id), 0)"
    )
    op.create_index("ix_payment_answer_stored_at", "payment_answer", ["stored_at"])
    op.create_index("ix_crawl_started", "crawl", ["started"])
    op.create_index("ix_discovery_event_at", "discovery_event", ["at"])
    op.create_index("ix_flip_at", "flip", ["at"])
    op.create_index("ix_watch_expires_at", "watch", ["expires_at"])
    op.create_index(
        "ix_delivery_done_at",
        "delivery",
        ["done_at"],
        sqlite_where=_ENDED,
        postgresql_where=_ENDED,
    )
    for table in _BY_DAY:
        if op.get_bind().dialect.name == "sqlite":
            _drop_foreign_key(op.get_bind(), table)
        else:
            op.drop_constraint(f"fk_{table}_endpoint_id", table, type_="foreignkey")
            # A hundredth of the rows goes each day: after two days, not twenty, room is used again.
            op.execute(f"ALTER TABLE {table} SET (autovacuum_vacuum_scale_factor = 0.02)")


def _drop_foreign_key(connection: sa.Connection, table: str) -> None:
    query = sa.text("SELECT sql FROM sqlite_schema WHERE type = 'table' AND name = :table")
    text = str(connection.execute(query, {"table": table}).scalar_one())
    without = re.sub(_FOREIGN_KEY.format(table=table), "", text)
    version = connection.exec_driver_sql("PRAGMA schema_version").scalar_one()
    connection.exec_driver_sql("PRAGMA writable_schema = ON")
    change = sa.text("UPDATE sqlite_schema SET sql = :sql WHERE type = 'table' AND name = :table")
    connection.execute(change, {"sql": without, "table": table})
    connection.exec_driver_sql(f"PRAGMA schema_version = {version + 1}")
    connection.exec_driver_sql("PRAGMA writable_schema = RESET")
    if connection.exec_driver_sql(f"PRAGMA foreign_key_list({table})").fetchall():
        raise RuntimeError(f"the foreign key of {table} could not be dropped")
