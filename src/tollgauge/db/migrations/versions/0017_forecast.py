"""The chance of being payable in 24 hours beside each score; the index of scores has all that the
leaderboard is chosen by, so that no row is read that it does not show.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("score", sa.Column("payable_24h_permille", sa.Integer()))
    op.drop_index("ix_score_rank", "score")
    op.create_index(
        "ix_score_rank",
        "score",
        ["score_tenths", "confidence_hundredths", "endpoint_id", "recommendation"],
    )
