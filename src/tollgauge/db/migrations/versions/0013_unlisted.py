"""Endpoints that no directory ever listed, by age: what was never seen to sell is forgotten."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

_ADOPTED = sa.text("adopted")


def upgrade() -> None:
    op.create_index(
        "ix_endpoint_adopted",
        "endpoint",
        ["first_seen"],
        sqlite_where=_ADOPTED,
        postgresql_where=_ADOPTED,
    )
