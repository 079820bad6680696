"""What sellers say of themselves, and the changes of payTo that they announced."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0029"
down_revision = "0028"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "seller_file",
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("next_due", sa.BigInteger(), nullable=False),
        sa.Column("asked_at", sa.BigInteger()),
        sa.Column("read_at", sa.BigInteger()),
        sa.Column("contact", sa.Text(), nullable=False, server_default=""),
        sa.Column("statement", sa.Text(), nullable=False, server_default=""),
        sa.Column("opt_out", sa.Boolean(), nullable=False, server_default=sa.false()),
        sa.Column("problems", sa.Text(), nullable=False, server_default="[]"),
        sa.PrimaryKeyConstraint("host", name="pk_seller_file"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_seller_file_next_due", "seller_file", ["next_due"])
    op.create_table(
        "payto_announcement",
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("network", sa.Text(), nullable=False),
        sa.Column("before", sa.Text(), nullable=False),
        sa.Column("after", sa.Text(), nullable=False),
        sa.Column("not_before", sa.BigInteger(), nullable=False),
        sa.Column("seen_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint(
            *("host", "network", "before", "after", "not_before"), name="pk_payto_announcement"
        ),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_payto_announcement_not_before", "payto_announcement", ["not_before"])
    op.add_column(
        "discovery_event",
        sa.Column("announced", sa.Boolean(), nullable=False, server_default=sa.false()),
    )
