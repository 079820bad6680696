"""The ledger by transaction: which payment a settlement was for."""

from __future__ import annotations

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index("payment_transaction", "payment", ["tx_hash"])
