"""When a secret was shown and rotated; the host that made the work of a sale vain."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("payment_answer", sa.Column("shown_at", sa.BigInteger()))
    op.add_column("watch", sa.Column("rotated_at", sa.BigInteger()))
    op.add_column("payment_attempt", sa.Column("host", sa.Text()))
    some = sa.text("host IS NOT NULL")
    op.create_index(
        "payment_attempt_host",
        "payment_attempt",
        ["host", "at"],
        sqlite_where=some,
        postgresql_where=some,
    )
