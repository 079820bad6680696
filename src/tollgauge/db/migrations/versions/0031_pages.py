"""What pages show, where they find it at once: what the charts of each endpoint show of its closed
days, in one row, and its chance of being payable in 24 hours beside what else lists show of it.

The table of the charts is empty at first, so it takes no time on any database: each day that is
closed from now on is added to its endpoint's row, and charts read the rows of the days before that
(`charts-since`) until those are older than any chart.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0031"
down_revision = "0030"
branch_labels = None
depends_on = None

_SINCE = """
INSERT INTO meta (key, value)
SELECT 'charts-since', CAST(max(day) + 1 AS TEXT) FROM probe_day HAVING max(day) IS NOT NULL
"""


_FROM_SCORES = """
UPDATE endpoint SET ranked_payable_24h = score.payable_24h_permille
FROM score WHERE score.endpoint_id = endpoint.id
"""


def upgrade() -> None:
    op.add_column("endpoint", sa.Column("ranked_payable_24h", sa.Integer()))
    op.execute(sa.text(_FROM_SCORES))
    op.create_table(
        "probe_chart",
        sa.Column("endpoint_id", sa.Text(), nullable=False),
        sa.Column("days", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["endpoint_id"], ["endpoint.id"], name="fk_probe_chart_endpoint_id"
        ),
        sa.PrimaryKeyConstraint("endpoint_id", name="pk_probe_chart"),
    )
    op.execute(sa.text(_SINCE))
