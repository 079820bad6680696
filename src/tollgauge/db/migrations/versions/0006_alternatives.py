"""How many better alternatives each endpoint has."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "alternative_count",
        sa.Column("endpoint_id", sa.Text(), nullable=False),
        sa.Column("better", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["endpoint_id"], ["endpoint.id"], name="fk_alternative_count_endpoint_id"
        ),
        sa.PrimaryKeyConstraint("endpoint_id", name="pk_alternative_count"),
        sqlite_with_rowid=False,
    )
