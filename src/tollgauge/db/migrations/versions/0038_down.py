"""Since when an endpoint has been failing, the outage that its latest score names, and the forms of
payment that it offers.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0038"
down_revision = "0037"
branch_labels = None
depends_on = None

_RANKED = sa.text("status = 'listed' AND NOT adopted AND ranked_score IS NOT NULL")


def upgrade() -> None:
    for column in (
        sa.Column("forms", sa.Text(), nullable=False, server_default="[]"),
        sa.Column("failing_since", sa.BigInteger()),
        sa.Column("ranked_down_since", sa.BigInteger()),
        sa.Column("ranked_down_reason", sa.Text()),
        sa.Column("ranked_down_confirmed", sa.Boolean()),
    ):
        op.add_column("endpoint", column)
    op.drop_index("ix_endpoint_rank", "endpoint")
    op.create_index(
        "ix_endpoint_rank",
        "endpoint",
        [
            *("ranked_score", "ranked_confidence", "id", "ranked_recommendation", "host"),
            *("ranked_grade", "ranked_uptime", "ranked_compliant", "ranked_down_confirmed"),
        ],
        sqlite_where=_RANKED,
        postgresql_where=_RANKED,
    )
