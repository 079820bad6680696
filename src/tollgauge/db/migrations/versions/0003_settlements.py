"""Settlements: indexed transfers, their sums by day, and how far each chain is indexed."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "chain_cursor",
        sa.Column("chain", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("hash", sa.LargeBinary(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("finalized", sa.BigInteger(), nullable=False),
        sa.Column("audited", sa.BigInteger(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("chain", name="pk_chain_cursor"),
    )
    op.create_table(
        "chain_header",
        sa.Column("chain", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("hash", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("chain", "number", name="pk_chain_header"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "chain_wallet",
        sa.Column("chain", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("address", sa.Text(), nullable=False),
        sa.Column("low", sa.BigInteger(), nullable=False),
        sa.Column("low_at", sa.BigInteger(), nullable=False),
        sa.Column("done", sa.Boolean(), nullable=False),
        sa.Column("touched", sa.Boolean(), nullable=False),
        sa.Column("marked_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("chain", "address", name="pk_chain_wallet"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_chain_wallet_low", "chain_wallet", ["chain", "done", "low"])
    op.create_index("ix_chain_wallet_touched", "chain_wallet", ["chain", "touched"])
    op.create_table(
        "transfer",
        sa.Column("chain", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("block_hash", sa.LargeBinary(), nullable=False),
        sa.Column("log_index", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("wallet", sa.LargeBinary(), nullable=False),
        sa.Column("other", sa.LargeBinary(), nullable=False),
        sa.Column("incoming", sa.Boolean(), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.Column("nonce", sa.LargeBinary(), nullable=True),
        sa.Column("transaction", sa.LargeBinary(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint(
            "chain", "number", "block_hash", "log_index", "wallet", name="pk_transfer"
        ),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_transfer_wallet", "transfer", ["chain", "wallet", "at"])
    op.create_table(
        "transfer_day",
        sa.Column("chain", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("wallet", sa.LargeBinary(), nullable=False),
        sa.Column("day", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("other", sa.LargeBinary(), nullable=False),
        sa.Column("transfers", sa.Integer(), nullable=False),
        sa.Column("paid", sa.Text(), nullable=False),
        sa.Column("returned", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("chain", "wallet", "day", "other", name="pk_transfer_day"),
        sqlite_with_rowid=False,
    )
