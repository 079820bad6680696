"""How each loop's last round ended. A new table: it costs nothing, however large the others are."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "job_round",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("ended_at", sa.BigInteger(), nullable=False),
        sa.Column("took_ms", sa.BigInteger(), nullable=False),
        sa.Column("expected_by", sa.BigInteger(), nullable=False),
        sa.Column("done_at", sa.BigInteger()),
        sa.Column("failed_at", sa.BigInteger()),
        sa.Column("error", sa.Text(), server_default="", nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_job_round"),
    )
