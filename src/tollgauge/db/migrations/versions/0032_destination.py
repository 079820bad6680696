"""Destinations without the instant of their last success, which nothing reads."""

from __future__ import annotations

from alembic import op

revision = "0032"
down_revision = "0031"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.drop_column("destination", "last_ok_at")
