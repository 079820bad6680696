"""A score keeps what the probes of its day add up to, and an endpoint how often its probes were
recorded late or attributed anew. A score of before keeps none until the next one.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0036"
down_revision = "0035"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("score", sa.Column("open_day", sa.LargeBinary()))
    op.add_column("score", sa.Column("open_day_newest", sa.BigInteger()))
    for table in ("score", "endpoint"):
        revised = sa.Column("probes_revised", sa.Integer(), nullable=False, server_default="0")
        op.add_column(table, revised)
