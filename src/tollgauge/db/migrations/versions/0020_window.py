"""What the closed days of each endpoint add up to, in one row.

The table is empty at first, so this takes no time on any database: where days are closed already,
the prune loop makes the rows, a batch of endpoints a round, and until then scores read the rows of
each day.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None

_UNBUILT = """
INSERT INTO meta (key, value) SELECT 'windows-unbuilt', ''
WHERE EXISTS (SELECT 1 FROM probe_day)
"""


def upgrade() -> None:
    op.create_table(
        "probe_window",
        sa.Column("endpoint_id", sa.Text(), nullable=False),
        sa.Column("day", sa.Integer(), nullable=False),
        sa.Column("closed", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["endpoint_id"], ["endpoint.id"], name="fk_probe_window_endpoint_id"
        ),
        sa.PrimaryKeyConstraint("endpoint_id", name="pk_probe_window"),
    )
    op.execute(sa.text(_UNBUILT))
