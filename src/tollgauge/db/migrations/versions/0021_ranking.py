"""What ranks an endpoint, on its own row: one index has all that counts and leaderboards read. And
the host of each change.

It writes every scored endpoint's row and every change once: about five seconds of 100,000
endpoints. The latency is that of the next score.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None

_FROM_SCORES = """
UPDATE endpoint SET
    ranked_at = score.as_of,
    ranked_score = score.score_tenths,
    ranked_confidence = score.confidence_hundredths,
    ranked_recommendation = score.recommendation,
    ranked_grade = score.grade,
    ranked_uptime = score.uptime_tenths,
    ranked_compliant = score.compliant
FROM score WHERE score.endpoint_id = endpoint.id
"""
_HOSTS = """
UPDATE flip SET host = endpoint.host FROM endpoint WHERE endpoint.id = flip.endpoint_id
"""
_RANKED = sa.text("status = 'listed' AND NOT adopted AND ranked_score IS NOT NULL")


def upgrade() -> None:
    for column in (
        sa.Column("ranked_at", sa.BigInteger()),
        sa.Column("ranked_score", sa.Integer()),
        sa.Column("ranked_confidence", sa.Integer()),
        sa.Column("ranked_recommendation", sa.Text()),
        sa.Column("ranked_grade", sa.Text()),
        sa.Column("ranked_uptime", sa.Integer()),
        sa.Column("ranked_compliant", sa.Boolean()),
        sa.Column("ranked_latency", sa.Integer()),
    ):
        op.add_column("endpoint", column)
    op.execute(sa.text(_FROM_SCORES))
    op.drop_index("ix_score_rank", "score")
    op.create_index(
        "ix_endpoint_rank",
        "endpoint",
        [
            *("ranked_score", "ranked_confidence", "id", "ranked_recommendation", "host"),
            *("ranked_grade", "ranked_uptime", "ranked_compliant"),
        ],
        sqlite_where=_RANKED,
        postgresql_where=_RANKED,
    )
    op.add_column("flip", sa.Column("host", sa.Text(), server_default="", nullable=False))
    op.execute(sa.text(_HOSTS))
    op.create_index("ix_flip_host", "flip", ["host", "id"])
    op.create_index("ix_endpoint_host_ranked_score", "endpoint", ["host", "ranked_score", "id"])
    op.create_index("ix_endpoint_simulated", "endpoint", ["simulated", "adopted", "status"])
