"""Secrets: when one was shown, and when a watch got another."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("payment_answer", sa.Column("shown_at", sa.BigInteger()))
    op.add_column("watch", sa.Column("rotated_at", sa.BigInteger()))
