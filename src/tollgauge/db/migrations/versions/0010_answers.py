"""Stored answers in a table of their own: a payment is written three times, its answer once."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "payment_answer",
        sa.Column("payment_id", sa.String(32), nullable=False),
        sa.Column("status", sa.Integer(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("payment_id", name="pk_payment_answer"),
    )
    op.execute(
        "INSERT INTO payment_answer SELECT id, answer_status, answer_body FROM payment "
        "WHERE answer_body IS NOT NULL"
    )
    # An answer is stored together with the intent to settle it: what was stored alone is settled
    # when it is asked for again.
    op.execute("UPDATE payment SET state = 'unknown' WHERE state = 'ready'")
    op.drop_column("payment", "answer_status")
    op.drop_column("payment", "answer_body")
