"""What each of several vantages saw last of an endpoint."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "vantage_probe",
        sa.Column("endpoint_id", sa.Text(), nullable=False),
        sa.Column("vantage", sa.Text(), nullable=False),
        sa.Column("primary", sa.Boolean(), nullable=False, server_default=sa.false()),
        sa.Column("next_due", sa.BigInteger()),
        sa.Column("asked_at", sa.BigInteger()),
        sa.Column("at", sa.BigInteger()),
        sa.Column("outcome", sa.Text()),
        sa.Column("attribution", sa.Text()),
        sa.Column("reason", sa.Text()),
        sa.Column("status", sa.Integer()),
        sa.Column("up", sa.Boolean()),
        sa.Column("payable", sa.Boolean()),
        sa.Column("latency_ms", sa.Integer()),
        sa.Column("up_at", sa.BigInteger()),
        sa.Column("down_since", sa.BigInteger()),
        sa.PrimaryKeyConstraint("endpoint_id", "vantage", name="pk_vantage_probe"),
        sa.ForeignKeyConstraint(
            ["endpoint_id"], ["endpoint.id"], name="fk_vantage_probe_endpoint_id"
        ),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_vantage_probe_due", "vantage_probe", ["vantage", "next_due"])
    op.create_index("ix_vantage_probe_at", "vantage_probe", ["vantage", "at"])
