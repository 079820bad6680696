"""Watches: what listens, what was paid for it, what flipped, and the outbox of notices."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

_SERIAL = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_FAILING = sa.text("failures > 0")
_WAITING = sa.text("dispatched_at IS NULL")


def upgrade() -> None:
    op.create_table(
        "delivery",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("watch_id", sa.Text(), nullable=False),
        sa.Column("destination_id", sa.Text(), nullable=False),
        sa.Column("event_id", sa.Text(), nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("due", sa.BigInteger(), nullable=False),
        sa.Column("last_status", sa.Integer(), nullable=True),
        sa.Column("last_error", sa.Text(), nullable=False),
        sa.Column("done_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_delivery"),
    )
    op.create_index("ix_delivery_destination_id_state", "delivery", ["destination_id", "state"])
    op.create_index("ix_delivery_state_due", "delivery", ["state", "due"])
    op.create_index("ix_delivery_watch_id", "delivery", ["watch_id"])
    op.create_table(
        "destination",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("watch_id", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("sealed_url", sa.LargeBinary(), nullable=False),
        sa.Column("masked", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("removed_at", sa.BigInteger(), nullable=True),
        sa.Column("disabled_at", sa.BigInteger(), nullable=True),
        sa.Column("disabled_reason", sa.Text(), nullable=False),
        sa.Column("failures", sa.Integer(), nullable=False),
        sa.Column("last_ok_at", sa.BigInteger(), nullable=True),
        sa.Column("lease_owner", sa.Text(), nullable=True),
        sa.Column("lease_until", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_destination"),
    )
    op.create_index(
        "ix_destination_failing",
        "destination",
        ["id"],
        sqlite_where=_FAILING,
        postgresql_where=_FAILING,
    )
    op.create_index("ix_destination_watch_id", "destination", ["watch_id"])
    op.create_table(
        "watch_event",
        sa.Column("id", _SERIAL, nullable=False),
        sa.Column("watch_id", sa.Text(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_watch_event"),
    )
    op.create_index("ix_watch_event_watch_id", "watch_event", ["watch_id", "id"])
    op.create_table(
        "watch_payment",
        sa.Column("payment_id", sa.Text(), nullable=False),
        sa.Column("watch_id", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("applied", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("payment_id", name="pk_watch_payment"),
    )
    op.create_index("ix_watch_payment_applied", "watch_payment", ["applied"])
    op.create_index("ix_watch_payment_watch_id", "watch_payment", ["watch_id"])
    op.create_table(
        "flip",
        sa.Column("id", _SERIAL, nullable=False),
        sa.Column("endpoint_id", sa.Text(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("severity", sa.Text(), nullable=False),
        sa.Column("sensitivity", sa.Integer(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("before", sa.Text(), nullable=False),
        sa.Column("after", sa.Text(), nullable=False),
        sa.Column("evidence", sa.Text(), nullable=False),
        sa.Column("dispatched_at", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["endpoint_id"], ["endpoint.id"], name="fk_flip_endpoint_id"),
        sa.PrimaryKeyConstraint("id", name="pk_flip"),
    )
    op.create_index("ix_flip_endpoint_id", "flip", ["endpoint_id", "id"])
    op.create_index(
        "ix_flip_waiting", "flip", ["id"], sqlite_where=_WAITING, postgresql_where=_WAITING
    )
    op.create_table(
        "standing",
        sa.Column("endpoint_id", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["endpoint_id"], ["endpoint.id"], name="fk_standing_endpoint_id"),
        sa.PrimaryKeyConstraint("endpoint_id", name="pk_standing"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "watch",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("secret_hash", sa.Text(), nullable=False),
        sa.Column("sealed_key", sa.LargeBinary(), nullable=True),
        sa.Column("endpoint_id", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("events", sa.Text(), nullable=False),
        sa.Column("sensitivity", sa.Integer(), nullable=False),
        sa.Column("digest", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.Column("ended_at", sa.BigInteger(), nullable=True),
        sa.Column("due", sa.BigInteger(), nullable=False),
        sa.Column("expiring_told", sa.Boolean(), nullable=False),
        sa.Column("digest_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["endpoint_id"], ["endpoint.id"], name="fk_watch_endpoint_id"),
        sa.PrimaryKeyConstraint("id", name="pk_watch"),
        sa.UniqueConstraint("secret_hash", name="uq_watch_secret_hash"),
    )
    op.create_index("ix_watch_endpoint_id_state", "watch", ["endpoint_id", "state"])
    op.create_index("ix_watch_state_due", "watch", ["state", "due"])
