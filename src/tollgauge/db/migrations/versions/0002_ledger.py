"""The ledger: payments, the attempts to verify and settle them, and named leases."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "payment",
        sa.Column("id", sa.String(32), nullable=False),
        sa.Column("network", sa.String(64), nullable=False),
        sa.Column("asset", sa.String(42), nullable=False),
        sa.Column("payer", sa.String(42), nullable=False),
        sa.Column("nonce", sa.String(66), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("owner", sa.String(64), nullable=False),
        sa.Column("lease_until", sa.BigInteger(), nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("route", sa.String(128), nullable=False),
        sa.Column("amount", sa.String(78), nullable=False),
        sa.Column("pay_to", sa.String(42), nullable=False),
        sa.Column("valid_before", sa.String(78), nullable=False),
        sa.Column("header", sa.Text(), nullable=False),
        sa.Column("answer_status", sa.Integer(), nullable=True),
        sa.Column("answer_body", sa.LargeBinary(), nullable=True),
        sa.Column("tx_hash", sa.String(66), nullable=True),
        sa.Column("reason", sa.String(200), server_default="", nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_payment"),
        sa.UniqueConstraint("network", "asset", "payer", "nonce", name="payment_key"),
    )
    op.create_index("payment_state", "payment", ["state", "updated_at"])
    op.create_table(
        "payment_attempt",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("payment_id", sa.String(32), nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("ended_at", sa.BigInteger(), nullable=False),
        sa.Column("outcome", sa.String(200), nullable=False),
        sa.Column("tx_hash", sa.String(66), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_payment_attempt"),
    )
    op.create_index("payment_attempt_of", "payment_attempt", ["payment_id"])
    op.create_table(
        "lease",
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("owner", sa.String(64), nullable=False),
        sa.Column("until", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_lease"),
    )
