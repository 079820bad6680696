"""The ledger's rows by when they are to be looked at, and by age."""

from __future__ import annotations

from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.drop_index("payment_state", table_name="payment")
    op.create_index("payment_due", "payment", ["state", "lease_until"])
    op.create_index("payment_newest", "payment", ["created_at"])
