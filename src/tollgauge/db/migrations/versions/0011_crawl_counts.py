"""What a crawl listed, and when that was taken: so that one that shrank is noticed."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("crawl", sa.Column("taken_at", sa.BigInteger()))
    op.add_column("crawl", sa.Column("listed", sa.Integer()))
    op.add_column(
        "crawl", sa.Column("suspicious", sa.Boolean(), nullable=False, server_default=sa.false())
    )
    op.execute("UPDATE crawl SET taken_at = started")
    # The last complete crawl of a source is what the next one is compared with.
    op.execute(
        "UPDATE crawl SET listed = (SELECT count(*) FROM listing "
        "WHERE listing.source = crawl.source AND listing.crawl_id = crawl.id) WHERE complete"
    )
