"""The score of each closed day, from now on. Two columns without a value: it costs nothing."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0028"
down_revision = "0027"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("probe_day", sa.Column("score_tenths", sa.Integer()))
    op.add_column("probe_day", sa.Column("score_policy", sa.Integer()))
