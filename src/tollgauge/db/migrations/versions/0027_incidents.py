"""The newest changes of a type, without reading those of the others."""

from __future__ import annotations

from alembic import op

revision = "0027"
down_revision = "0026"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index("ix_flip_type_at", "flip", ["type", "at"])
