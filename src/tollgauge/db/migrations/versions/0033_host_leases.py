"""Leases of hosts have a table of their own, with a row for each probe under way."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0033"
down_revision = "0032"
branch_labels = None
depends_on = None

_LEASED = """
INSERT INTO host_lease (host, owner, claimed_at, until)
SELECT host, lease_owner, claimed_at, lease_until FROM host WHERE lease_owner IS NOT NULL
"""


def upgrade() -> None:
    op.create_table(
        "host_lease",
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("claimed_at", sa.BigInteger(), nullable=False),
        sa.Column("until", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("host", name="pk_host_lease"),
        sqlite_with_rowid=False,
    )
    op.execute(sa.text(_LEASED))
    for name in ("lease_owner", "lease_until", "claimed_at"):
        op.drop_column("host", name)
