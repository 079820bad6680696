"""The books: addresses of ours, every transfer that came to them, and which days were checked."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "account",
        sa.Column("chain", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("asset", sa.Text(), nullable=False),
        sa.Column("address", sa.Text(), nullable=False),
        sa.Column("low", sa.BigInteger(), nullable=False),
        sa.Column("low_at", sa.BigInteger(), nullable=False),
        sa.Column("wanted_from", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("chain", "asset", "address", name="pk_account"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "deposit",
        sa.Column("chain", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("block_hash", sa.LargeBinary(), nullable=False),
        sa.Column("log_index", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("asset", sa.Text(), nullable=False),
        sa.Column("pay_to", sa.Text(), nullable=False),
        sa.Column("payer", sa.Text(), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.Column("nonce", sa.Text(), nullable=True),
        sa.Column("transaction", sa.Text(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("chain", "number", "block_hash", "log_index", name="pk_deposit"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_deposit_key", "deposit", ["chain", "asset", "payer", "nonce"])
    op.create_index("ix_deposit_pay_to", "deposit", ["chain", "asset", "pay_to", "at"])
    op.create_table(
        "book_day",
        sa.Column("chain", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("asset", sa.Text(), nullable=False),
        sa.Column("pay_to", sa.Text(), nullable=False),
        sa.Column("day", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("difference", sa.Text(), nullable=False),
        sa.Column("checked_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("chain", "asset", "pay_to", "day", name="pk_book_day"),
        sqlite_with_rowid=False,
    )
    op.add_column(
        "chain_cursor",
        sa.Column("audited_at", sa.BigInteger(), nullable=False, server_default="0"),
    )
