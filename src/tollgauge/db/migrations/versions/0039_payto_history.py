"""How the payTo of an endpoint has changed since probes first saw one."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0039"
down_revision = "0038"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("endpoint", sa.Column("payto_history", sa.Text()))
