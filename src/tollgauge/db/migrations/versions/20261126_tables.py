"""Every table.

Nothing was released yet: a change of the tables rewrites this version, under another name, and a
database of an older build is refused (db/migrations).
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "20261126"
down_revision = None
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
    op.create_table(
        "budget",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("gap_us", sa.BigInteger(), nullable=False),
        sa.Column("taken_until_us", sa.BigInteger(), server_default="0", nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_budget"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "bundle",
        sa.Column("variant", sa.Text(), nullable=False),
        sa.Column("as_of", sa.BigInteger(), nullable=False),
        sa.Column("took_ms", sa.BigInteger(), nullable=False),
        sa.Column("policy_version", sa.Integer(), nullable=False),
        sa.Column("records", sa.Integer(), nullable=False),
        sa.Column("scored", sa.Integer(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("signature", sa.Text(), nullable=True),
        sa.Column("key_id", sa.Text(), nullable=True),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("variant", name="pk_bundle"),
    )
    op.create_table(
        "calibration_day",
        sa.Column("day", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("policy_version", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("horizon", sa.Text(), nullable=False),
        sa.Column("measure", sa.Text(), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.Column("count", sa.Integer(), nullable=False),
        sa.Column("hits", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint(
            "day", "policy_version", "horizon", "measure", "value", name="pk_calibration_day"
        ),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "chain_cursor",
        sa.Column("chain", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("hash", sa.LargeBinary(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("finalized", sa.BigInteger(), nullable=False),
        sa.Column("audited", sa.BigInteger(), nullable=False),
        sa.Column("audited_at", sa.BigInteger(), server_default="0", nullable=False),
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
    op.create_index("ix_chain_wallet_low", "chain_wallet", ["chain", "done", "low"], unique=False)
    op.create_index("ix_chain_wallet_touched", "chain_wallet", ["chain", "touched"], unique=False)
    op.create_table(
        "crawl",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("started", sa.BigInteger(), nullable=False),
        sa.Column("offset", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("finished_at", sa.BigInteger(), nullable=True),
        sa.Column("complete", sa.Boolean(), nullable=True),
        sa.Column("taken_at", sa.BigInteger(), nullable=True),
        sa.Column("listed", sa.Integer(), nullable=True),
        sa.Column("suspicious", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_crawl"),
    )
    op.create_index(
        "ix_crawl_open",
        "crawl",
        ["source"],
        unique=True,
        sqlite_where=sa.text("finished_at IS NULL"),
        postgresql_where=sa.text("finished_at IS NULL"),
    )
    op.create_index("ix_crawl_started", "crawl", ["started"], unique=False)
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
    op.create_index(
        "ix_delivery_destination_id_state", "delivery", ["destination_id", "state"], unique=False
    )
    op.create_index(
        "ix_delivery_done_at",
        "delivery",
        ["done_at"],
        unique=False,
        sqlite_where=sa.text("done_at IS NOT NULL"),
        postgresql_where=sa.text("done_at IS NOT NULL"),
    )
    op.create_index("ix_delivery_state_due", "delivery", ["state", "due"], unique=False)
    op.create_index("ix_delivery_watch_id", "delivery", ["watch_id"], unique=False)
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
    op.create_index("ix_deposit_key", "deposit", ["chain", "asset", "payer", "nonce"], unique=False)
    op.create_index(
        "ix_deposit_pay_to", "deposit", ["chain", "asset", "pay_to", "at"], unique=False
    )
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
        sa.Column("lease_owner", sa.Text(), nullable=True),
        sa.Column("lease_until", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_destination"),
    )
    op.create_index(
        "ix_destination_failing",
        "destination",
        ["id"],
        unique=False,
        sqlite_where=sa.text("failures > 0"),
        postgresql_where=sa.text("failures > 0"),
    )
    op.create_index("ix_destination_watch_id", "destination", ["watch_id"], unique=False)
    op.create_table(
        "evidence",
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("document", sa.LargeBinary(), nullable=False),
        sa.Column("named_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("digest", name="pk_evidence"),
    )
    op.create_index("ix_evidence_named", "evidence", ["named_at"], unique=False)
    op.create_table(
        "forecast",
        sa.Column("hour", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("endpoint_id", sa.Text(), nullable=False),
        sa.Column("policy_version", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("as_of", sa.BigInteger(), nullable=False),
        sa.Column("payable_now", sa.Integer(), nullable=False),
        sa.Column("payable_24h", sa.Integer(), nullable=False),
        sa.Column("grade", sa.Text(), nullable=False),
        sa.Column("recommendation", sa.Text(), nullable=False),
        sa.Column("age_days", sa.Integer(), nullable=False),
        sa.Column("last_probe", sa.Integer(), nullable=False),
        sa.Column("average_24h", sa.Integer(), nullable=False),
        sa.Column("uptime_7d", sa.Integer(), nullable=False),
        sa.Column("uptime_30d", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("hour", "endpoint_id", "policy_version", name="pk_forecast"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "host",
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("site", sa.Text(), server_default="", nullable=False),
        sa.Column("free_at", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column(
            "next_claim", sa.BigInteger(), server_default="4611686018427387904", nullable=False
        ),
        sa.Column(
            "next_watched", sa.BigInteger(), server_default="4611686018427387904", nullable=False
        ),
        sa.Column("pace_ms", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("round_ms", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("sharing", sa.Integer(), server_default="0", nullable=False),
        sa.Column("takes_turns", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("turn_at", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("wildcard", sa.Boolean(), nullable=True),
        sa.Column("wildcard_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("host", name="pk_host"),
    )
    op.create_index("ix_host_next_claim", "host", ["next_claim", "host"], unique=False)
    op.create_index(
        "ix_host_next_watched",
        "host",
        ["next_watched", "host"],
        unique=False,
        sqlite_where=sa.text("next_watched < 4611686018427387904"),
        postgresql_where=sa.text("next_watched < 4611686018427387904"),
    )
    op.create_index("ix_host_site", "host", ["site"], unique=False)
    op.create_table(
        "host_lease",
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("claimed_at", sa.BigInteger(), nullable=False),
        sa.Column("until", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("host", name="pk_host_lease"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "job_round",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("ended_at", sa.BigInteger(), nullable=False),
        sa.Column("took_ms", sa.BigInteger(), nullable=False),
        sa.Column("expected_by", sa.BigInteger(), nullable=False),
        sa.Column("done_at", sa.BigInteger(), nullable=True),
        sa.Column("failed_at", sa.BigInteger(), nullable=True),
        sa.Column("error", sa.Text(), server_default="", nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_job_round"),
    )
    op.create_table(
        "lease",
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("owner", sa.String(length=64), nullable=False),
        sa.Column("until", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_lease"),
    )
    op.create_table(
        "meta",
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("key", name="pk_meta"),
    )
    op.create_table(
        "payment",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("network", sa.String(length=64), nullable=False),
        sa.Column("asset", sa.String(length=42), nullable=False),
        sa.Column("payer", sa.String(length=42), nullable=False),
        sa.Column("nonce", sa.String(length=66), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("owner", sa.String(length=64), nullable=False),
        sa.Column("lease_until", sa.BigInteger(), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("route", sa.String(length=128), nullable=False),
        sa.Column("amount", sa.String(length=78), nullable=False),
        sa.Column("pay_to", sa.String(length=42), nullable=False),
        sa.Column("valid_before", sa.String(length=78), nullable=False),
        sa.Column("header", sa.Text(), nullable=False),
        sa.Column("tx_hash", sa.String(length=66), nullable=True),
        sa.Column("reason", sa.String(length=200), server_default="", nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_payment"),
        sa.UniqueConstraint("network", "asset", "payer", "nonce", name="payment_key"),
    )
    op.create_index("payment_due", "payment", ["state", "lease_until"], unique=False)
    op.create_index("payment_newest", "payment", ["created_at"], unique=False)
    op.create_index("payment_payer", "payment", ["payer", "state", "created_at"], unique=False)
    op.create_index("payment_transaction", "payment", ["tx_hash"], unique=False)
    op.create_table(
        "payment_answer",
        sa.Column("payment_id", sa.String(length=32), nullable=False),
        sa.Column("status", sa.Integer(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.Column("shown_at", sa.BigInteger(), nullable=True),
        sa.Column("stored_at", sa.BigInteger(), server_default="0", nullable=False),
        sa.PrimaryKeyConstraint("payment_id", name="pk_payment_answer"),
    )
    op.create_index("ix_payment_answer_stored_at", "payment_answer", ["stored_at"], unique=False)
    op.create_table(
        "payment_attempt",
        sa.Column(
            "id",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=True,
            nullable=False,
        ),
        sa.Column("payment_id", sa.String(length=32), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("ended_at", sa.BigInteger(), nullable=False),
        sa.Column("outcome", sa.String(length=200), nullable=False),
        sa.Column("tx_hash", sa.String(length=66), nullable=True),
        sa.Column("host", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_payment_attempt"),
    )
    op.create_index(
        "payment_attempt_host",
        "payment_attempt",
        ["host", "at"],
        unique=False,
        sqlite_where=sa.text("host IS NOT NULL"),
        postgresql_where=sa.text("host IS NOT NULL"),
    )
    op.create_index("payment_attempt_of", "payment_attempt", ["payment_id"], unique=False)
    op.create_table(
        "payto_announcement",
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("network", sa.Text(), nullable=False),
        sa.Column("before", sa.Text(), nullable=False),
        sa.Column("after", sa.Text(), nullable=False),
        sa.Column("not_before", sa.BigInteger(), nullable=False),
        sa.Column("seen_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint(
            "host", "network", "before", "after", "not_before", name="pk_payto_announcement"
        ),
        sqlite_with_rowid=False,
    )
    op.create_index(
        "ix_payto_announcement_not_before", "payto_announcement", ["not_before"], unique=False
    )
    op.create_table(
        "probe",
        sa.Column("day", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("endpoint_id", sa.Text(), nullable=False),
        sa.Column("at", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("attribution", sa.Text(), nullable=False),
        sa.Column("up", sa.Boolean(), nullable=False),
        sa.Column("status", sa.Integer(), nullable=True),
        sa.Column("compliance", sa.Integer(), nullable=False),
        sa.Column("compliant", sa.Boolean(), nullable=False),
        sa.Column("payable", sa.Boolean(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=True),
        sa.Column("quote", sa.Text(), nullable=True),
        sa.Column("accepts", sa.Integer(), nullable=True),
        sa.Column("rules", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("method", sa.Text(), nullable=False),
        sa.Column("tls_not_after", sa.BigInteger(), nullable=True),
        sa.Column("dns", sa.Integer(), nullable=True),
        sa.Column("connect", sa.Integer(), nullable=True),
        sa.Column("tls", sa.Integer(), nullable=True),
        sa.Column("ttfb", sa.Integer(), nullable=True),
        sa.Column("total", sa.Integer(), nullable=False),
        sa.Column("holds", sa.Integer(), server_default="7200000", nullable=False),
        sa.Column("confirms", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.PrimaryKeyConstraint("day", "endpoint_id", "at", name="pk_probe"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "probe_day",
        sa.Column("day", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("endpoint_id", sa.Text(), nullable=False),
        sa.Column("packed", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("day", "endpoint_id", name="pk_probe_day"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "seller_file",
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("next_due", sa.BigInteger(), nullable=False),
        sa.Column("asked_at", sa.BigInteger(), nullable=True),
        sa.Column("read_at", sa.BigInteger(), nullable=True),
        sa.Column("contact", sa.Text(), server_default="", nullable=False),
        sa.Column("statement", sa.Text(), server_default="", nullable=False),
        sa.Column("opt_out", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("problems", sa.Text(), server_default="[]", nullable=False),
        sa.PrimaryKeyConstraint("host", name="pk_seller_file"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_seller_file_next_due", "seller_file", ["next_due"], unique=False)
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
    op.create_index("ix_transfer_wallet", "transfer", ["chain", "wallet", "at"], unique=False)
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
    op.create_table(
        "wallet_sums",
        sa.Column("chain", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("wallet", sa.LargeBinary(), nullable=False),
        sa.Column("as_of", sa.BigInteger(), nullable=False),
        sa.Column("sums", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("chain", "wallet", name="pk_wallet_sums"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "watch_event",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("watch_id", sa.Text(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_watch_event"),
    )
    op.create_index("ix_watch_event_watch_id", "watch_event", ["watch_id", "id"], unique=False)
    op.create_table(
        "watch_payment",
        sa.Column("payment_id", sa.Text(), nullable=False),
        sa.Column("watch_id", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("applied", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("payment_id", name="pk_watch_payment"),
    )
    op.create_index("ix_watch_payment_applied", "watch_payment", ["applied"], unique=False)
    op.create_index("ix_watch_payment_watch_id", "watch_payment", ["watch_id"], unique=False)
    op.create_table(
        "endpoint",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("resource", sa.Text(), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("site", sa.Text(), server_default="", nullable=False),
        sa.Column("query", sa.Text(), server_default="", nullable=False),
        sa.Column("method", sa.Text(), nullable=True),
        sa.Column("body", sa.LargeBinary(), nullable=True),
        sa.Column("learned", sa.Text(), nullable=True),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("first_seen", sa.BigInteger(), nullable=False),
        sa.Column("last_seen", sa.BigInteger(), nullable=False),
        sa.Column("last_probed", sa.BigInteger(), nullable=True),
        sa.Column("up_at", sa.BigInteger(), nullable=True),
        sa.Column("down_since", sa.BigInteger(), nullable=True),
        sa.Column("next_due", sa.BigInteger(), nullable=False),
        sa.Column("watched_until", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("paused_until", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("asked_at", sa.BigInteger(), nullable=True),
        sa.Column("listing_changed_at", sa.BigInteger(), nullable=True),
        sa.Column("payable", sa.Boolean(), nullable=True),
        sa.Column("failing_since", sa.BigInteger(), nullable=True),
        sa.Column("unconfirmed_at", sa.BigInteger(), nullable=True),
        sa.Column("payto_history", sa.Text(), nullable=True),
        sa.Column("forms", sa.Text(), server_default="[]", nullable=False),
        sa.Column("service_name", sa.Text(), server_default="", nullable=False),
        sa.Column("description", sa.Text(), server_default="", nullable=False),
        sa.Column("tags", sa.Text(), server_default="[]", nullable=False),
        sa.Column("sources", sa.Text(), server_default="[]", nullable=False),
        sa.Column("templated", sa.Boolean(), nullable=False),
        sa.Column("simulated", sa.Boolean(), nullable=False),
        sa.Column("adopted", sa.Boolean(), nullable=False),
        sa.Column("quote_network", sa.Text(), nullable=True),
        sa.Column("quote_asset", sa.Text(), nullable=True),
        sa.Column("quote_amount", sa.Text(), nullable=True),
        sa.Column("quote_pay_to", sa.Text(), nullable=True),
        sa.Column("quote_at", sa.BigInteger(), nullable=True),
        sa.Column("quote_source", sa.Text(), nullable=True),
        sa.Column("score_due", sa.BigInteger(), nullable=False),
        sa.Column("score_next", sa.BigInteger(), nullable=True),
        sa.Column("scored_at", sa.BigInteger(), nullable=True),
        sa.Column("score_tenths", sa.Integer(), nullable=True),
        sa.Column("confidence_hundredths", sa.Integer(), server_default="0", nullable=False),
        sa.Column("recommendation", sa.Text(), server_default="unverified", nullable=False),
        sa.Column("grade", sa.Text(), nullable=True),
        sa.Column("uptime_tenths", sa.Integer(), nullable=True),
        sa.Column("compliant", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("latency_ms", sa.Integer(), nullable=True),
        sa.Column("payable_now_permille", sa.Integer(), nullable=True),
        sa.Column("payable_24h_permille", sa.Integer(), nullable=True),
        sa.Column("outage_since", sa.BigInteger(), nullable=True),
        sa.Column("outage_reason", sa.Text(), nullable=True),
        sa.Column("outage_confirmed", sa.Boolean(), nullable=True),
        sa.ForeignKeyConstraint(["host"], ["host.host"], name="fk_endpoint_host"),
        sa.PrimaryKeyConstraint("id", name="pk_endpoint"),
        sa.UniqueConstraint("resource", name="uq_endpoint_resource"),
        sqlite_with_rowid=False,
    )
    op.create_index(
        "ix_endpoint_adopted",
        "endpoint",
        ["first_seen"],
        unique=False,
        sqlite_where=sa.text("adopted"),
        postgresql_where=sa.text("adopted"),
    )
    op.create_index(
        "ix_endpoint_host_next_due", "endpoint", ["host", "next_due", "id"], unique=False
    )
    op.create_index(
        "ix_endpoint_host_score", "endpoint", ["host", "score_tenths", "id"], unique=False
    )
    op.create_index("ix_endpoint_last_probed", "endpoint", ["last_probed"], unique=False)
    op.create_index(
        "ix_endpoint_quote_pay_to",
        "endpoint",
        ["quote_pay_to", "quote_network", "host", "adopted"],
        unique=False,
    )
    op.create_index(
        "ix_endpoint_rank",
        "endpoint",
        [
            "score_tenths",
            "confidence_hundredths",
            "id",
            "recommendation",
            "host",
            "grade",
            "uptime_tenths",
            "compliant",
            "outage_confirmed",
        ],
        unique=False,
        sqlite_where=sa.text("status = 'listed' AND NOT adopted AND score_tenths IS NOT NULL"),
        postgresql_where=sa.text("status = 'listed' AND NOT adopted AND score_tenths IS NOT NULL"),
    )
    op.create_index("ix_endpoint_score_due", "endpoint", ["score_due"], unique=False)
    op.create_index(
        "ix_endpoint_simulated", "endpoint", ["simulated", "adopted", "status"], unique=False
    )
    op.create_index(
        "ix_endpoint_site_first_seen", "endpoint", ["site", "first_seen", "id"], unique=False
    )
    op.create_index(
        "ix_endpoint_watched",
        "endpoint",
        ["host", "next_due"],
        unique=False,
        sqlite_where=sa.text("watched_until > 0"),
        postgresql_where=sa.text("watched_until > 0"),
    )
    op.create_table(
        "alternative_count",
        sa.Column("endpoint_id", sa.Text(), nullable=False),
        sa.Column("better", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["endpoint_id"], ["endpoint.id"], name="fk_alternative_count_endpoint_id"
        ),
        sa.PrimaryKeyConstraint("endpoint_id", name="pk_alternative_count"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "closed_days",
        sa.Column("endpoint_id", sa.Text(), nullable=False),
        sa.Column("recent", sa.LargeBinary(), nullable=False),
        sa.Column("older", sa.LargeBinary(), nullable=True),
        sa.ForeignKeyConstraint(
            ["endpoint_id"], ["endpoint.id"], name="fk_closed_days_endpoint_id"
        ),
        sa.PrimaryKeyConstraint("endpoint_id", name="pk_closed_days"),
    )
    op.create_table(
        "discovery_event",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("endpoint_id", sa.Text(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("event", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("before", sa.Text(), server_default="", nullable=False),
        sa.Column("after", sa.Text(), server_default="", nullable=False),
        sa.Column("announced", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.ForeignKeyConstraint(
            ["endpoint_id"], ["endpoint.id"], name="fk_discovery_event_endpoint_id"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_discovery_event"),
    )
    op.create_index("ix_discovery_event_at", "discovery_event", ["at"], unique=False)
    op.create_index(
        "ix_discovery_event_endpoint_id_at", "discovery_event", ["endpoint_id", "at"], unique=False
    )
    op.create_table(
        "flip",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
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
        sa.Column("host", sa.Text(), server_default="", nullable=False),
        sa.ForeignKeyConstraint(["endpoint_id"], ["endpoint.id"], name="fk_flip_endpoint_id"),
        sa.PrimaryKeyConstraint("id", name="pk_flip"),
    )
    op.create_index("ix_flip_at", "flip", ["at"], unique=False)
    op.create_index("ix_flip_endpoint_id", "flip", ["endpoint_id", "id"], unique=False)
    op.create_index("ix_flip_host", "flip", ["host", "id"], unique=False)
    op.create_index("ix_flip_type_at", "flip", ["type", "at"], unique=False)
    op.create_index(
        "ix_flip_waiting",
        "flip",
        ["id"],
        unique=False,
        sqlite_where=sa.text("dispatched_at IS NULL"),
        postgresql_where=sa.text("dispatched_at IS NULL"),
    )
    op.create_table(
        "listing",
        sa.Column("endpoint_id", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("crawl_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("first_seen", sa.BigInteger(), nullable=False),
        sa.Column("last_seen", sa.BigInteger(), nullable=False),
        sa.Column("gone_at", sa.BigInteger(), nullable=True),
        sa.Column("quote", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["endpoint_id"], ["endpoint.id"], name="fk_listing_endpoint_id"),
        sa.PrimaryKeyConstraint("endpoint_id", "source", name="pk_listing"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_listing_source_crawl_id", "listing", ["source", "crawl_id"], unique=False)
    op.create_table(
        "score",
        sa.Column("endpoint_id", sa.Text(), nullable=False),
        sa.Column("as_of", sa.BigInteger(), nullable=False),
        sa.Column("policy_version", sa.Integer(), nullable=False),
        sa.Column("score_tenths", sa.Integer(), nullable=True),
        sa.Column("evidence", sa.LargeBinary(), nullable=False),
        sa.Column("result", sa.LargeBinary(), nullable=False),
        sa.Column("named_at", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["endpoint_id"], ["endpoint.id"], name="fk_score_endpoint_id"),
        sa.PrimaryKeyConstraint("endpoint_id", name="pk_score"),
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
        "vantage_probe",
        sa.Column("endpoint_id", sa.Text(), nullable=False),
        sa.Column("vantage", sa.Text(), nullable=False),
        sa.Column("primary", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("next_due", sa.BigInteger(), nullable=True),
        sa.Column("asked_at", sa.BigInteger(), nullable=True),
        sa.Column("at", sa.BigInteger(), nullable=True),
        sa.Column("outcome", sa.Text(), nullable=True),
        sa.Column("attribution", sa.Text(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("status", sa.Integer(), nullable=True),
        sa.Column("up", sa.Boolean(), nullable=True),
        sa.Column("payable", sa.Boolean(), nullable=True),
        sa.Column("latency_ms", sa.Integer(), nullable=True),
        sa.Column("up_at", sa.BigInteger(), nullable=True),
        sa.Column("down_since", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(
            ["endpoint_id"], ["endpoint.id"], name="fk_vantage_probe_endpoint_id"
        ),
        sa.PrimaryKeyConstraint("endpoint_id", "vantage", name="pk_vantage_probe"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_vantage_probe_at", "vantage_probe", ["vantage", "at"], unique=False)
    op.create_index("ix_vantage_probe_due", "vantage_probe", ["vantage", "next_due"], unique=False)
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
        sa.Column("rotated_at", sa.BigInteger(), nullable=True),
        sa.Column("old_probes", sa.Integer(), server_default="0", nullable=False),
        sa.Column("old_scored", sa.Integer(), server_default="0", nullable=False),
        sa.ForeignKeyConstraint(["endpoint_id"], ["endpoint.id"], name="fk_watch_endpoint_id"),
        sa.PrimaryKeyConstraint("id", name="pk_watch"),
        sa.UniqueConstraint("secret_hash", name="uq_watch_secret_hash"),
    )
    op.create_index("ix_watch_endpoint_id_state", "watch", ["endpoint_id", "state"], unique=False)
    op.create_index("ix_watch_expires_at", "watch", ["expires_at"], unique=False)
    op.create_index("ix_watch_state_due", "watch", ["state", "due"], unique=False)
    if op.get_bind().dialect.name == "postgresql":
        for table in ("probe", "probe_day"):
            # A hundredth of the rows goes each day: after two days, not twenty, room is used again.
            op.execute(f"ALTER TABLE {table} SET (autovacuum_vacuum_scale_factor = 0.02)")
