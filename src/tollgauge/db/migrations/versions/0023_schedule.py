"""When each host may be claimed, what it can do, and budgets that hosts share."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None

_NEVER = 2**62
_NUMBERS = {
    "next_claim": str(_NEVER),
    "next_watched": str(_NEVER),
    "claimed_at": "0",
    "pace_ms": "0",
    "round_ms": "0",
    "turn_at": "0",
}
_SOME_WATCHED = sa.text(f"next_watched < {_NEVER}")
# Due at once is too early at most: who finds nothing due computes it anew.
_DUE = """
UPDATE host SET next_claim = coalesce(
    (SELECT min(next_due) FROM endpoint WHERE endpoint.host = host.host), next_claim
)
"""
_WATCHED = """
UPDATE host SET next_watched = next_claim WHERE host IN (
    SELECT host FROM endpoint WHERE watched_until > 0
)
"""


def upgrade() -> None:
    for name, default in _NUMBERS.items():
        column = sa.Column(name, sa.BigInteger(), server_default=default, nullable=False)
        op.add_column("host", column)
    op.add_column("host", sa.Column("sharing", sa.Integer(), server_default="0", nullable=False))
    op.add_column(
        "host", sa.Column("takes_turns", sa.Boolean(), server_default=sa.false(), nullable=False)
    )
    op.add_column("endpoint", sa.Column("listing_changed_at", sa.BigInteger()))
    op.create_table(
        "budget",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("gap_us", sa.BigInteger(), nullable=False),
        sa.Column("taken_until_us", sa.BigInteger(), server_default="0", nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_budget"),
        sqlite_with_rowid=False,
    )
    op.execute(sa.text(_DUE))
    op.execute(sa.text(_WATCHED))
    op.create_index("ix_host_next_claim", "host", ["next_claim", "host"])
    op.create_index(
        "ix_host_next_watched",
        "host",
        ["next_watched", "host"],
        sqlite_where=_SOME_WATCHED,
        postgresql_where=_SOME_WATCHED,
    )
