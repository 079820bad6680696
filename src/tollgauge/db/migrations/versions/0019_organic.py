"""Who pays, since when, and what the payers of each wallet add up to."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None

_FIRST = """
INSERT INTO chain_payer (chain, payer, first_wallet, first_at, last_day)
SELECT chain, other, wallet, at, last_at / 86400000 FROM (
    SELECT chain, other, wallet, at,
        row_number() OVER (PARTITION BY chain, other ORDER BY at, wallet) AS place,
        max(at) OVER (PARTITION BY chain, other) AS last_at
    FROM transfer WHERE incoming
) AS payments WHERE place = 1
"""


def upgrade() -> None:
    op.create_table(
        "chain_payer",
        sa.Column("chain", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("payer", sa.LargeBinary(), nullable=False),
        sa.Column("first_wallet", sa.LargeBinary(), nullable=False),
        sa.Column("first_at", sa.BigInteger(), nullable=False),
        sa.Column("last_day", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("chain", "payer", name="pk_chain_payer"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "wallet_sums",
        sa.Column("chain", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("wallet", sa.LargeBinary(), nullable=False),
        sa.Column("as_of", sa.BigInteger(), nullable=False),
        sa.Column("sums", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("chain", "wallet", name="pk_wallet_sums"),
        sqlite_with_rowid=False,
    )
    op.execute(sa.text(_FIRST))
