"""When an endpoint was last up at its scored probes, and which were probed lately."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("endpoint", sa.Column("up_at", sa.BigInteger()))
    op.add_column("endpoint", sa.Column("down_since", sa.BigInteger()))
    op.create_index("ix_endpoint_last_probed", "endpoint", ["last_probed"])
