"""Forecasts as they were made, and the counts of what came of them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "forecast",
        sa.Column("hour", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("endpoint_id", sa.Text(), nullable=False),
        sa.Column("policy_version", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("as_of", sa.BigInteger(), nullable=False),
        sa.Column("payable_now", sa.Integer(), nullable=False),
        sa.Column("payable_24h", sa.Integer(), nullable=False),
        sa.Column("grade", sa.Text(), nullable=False),
        sa.Column("recommendation", sa.Text(), nullable=False),
        sa.Column("age_days", sa.Integer(), nullable=False),
        sa.Column("last_probe", sa.Integer(), nullable=False),
        sa.Column("average_24h", sa.Integer(), nullable=False),
        sa.Column("uptime_7d", sa.Integer(), nullable=False),
        sa.Column("uptime_30d", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("hour", "endpoint_id", "policy_version", name="pk_forecast"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "calibration_day",
        sa.Column("day", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("policy_version", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("horizon", sa.Text(), nullable=False),
        sa.Column("measure", sa.Text(), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.Column("count", sa.Integer(), nullable=False),
        sa.Column("hits", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint(
            "day", "policy_version", "horizon", "measure", "value", name="pk_calibration_day"
        ),
        sqlite_with_rowid=False,
    )
