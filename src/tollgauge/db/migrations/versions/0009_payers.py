"""The ledger's rows by payer, state and age: what was made for a payer lately and is not paid."""

from __future__ import annotations

from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index("payment_payer", "payment", ["payer", "state", "created_at"])
