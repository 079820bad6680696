"""The foundation: endpoints, hosts, crawls, listings, events, probes, scores, meta."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "crawl",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("started", sa.BigInteger(), nullable=False),
        sa.Column("offset", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("finished_at", sa.BigInteger(), nullable=True),
        sa.Column("complete", sa.Boolean(), nullable=True),
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
    op.create_table(
        "host",
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("lease_owner", sa.Text(), nullable=True),
        sa.Column("lease_until", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("free_at", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("wildcard", sa.Boolean(), nullable=True),
        sa.Column("wildcard_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("host", name="pk_host"),
    )
    op.create_table(
        "meta",
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("key", name="pk_meta"),
    )
    op.create_table(
        "endpoint",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("resource", sa.Text(), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("query", sa.Text(), server_default="", nullable=False),
        sa.Column("method", sa.Text(), nullable=True),
        sa.Column("body", sa.LargeBinary(), nullable=True),
        sa.Column("learned", sa.Text(), nullable=True),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("first_seen", sa.BigInteger(), nullable=False),
        sa.Column("last_seen", sa.BigInteger(), nullable=False),
        sa.Column("last_probed", sa.BigInteger(), nullable=True),
        sa.Column("next_due", sa.BigInteger(), nullable=False),
        sa.Column("watched_until", sa.BigInteger(), server_default="0", nullable=False),
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
        sa.ForeignKeyConstraint(["host"], ["host.host"], name="fk_endpoint_host"),
        sa.PrimaryKeyConstraint("id", name="pk_endpoint"),
        sa.UniqueConstraint("resource", name="uq_endpoint_resource"),
    )
    op.create_index(
        "ix_endpoint_host_next_due", "endpoint", ["host", "next_due", "id"], unique=False
    )
    op.create_index(
        "ix_endpoint_quote_pay_to",
        "endpoint",
        ["quote_pay_to", "quote_network", "host"],
        unique=False,
    )
    op.create_index("ix_endpoint_score_due", "endpoint", ["score_due"], unique=False)
    op.create_index(
        "ix_endpoint_watched",
        "endpoint",
        ["host", "next_due"],
        unique=False,
        sqlite_where=sa.text("watched_until > 0"),
        postgresql_where=sa.text("watched_until > 0"),
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
        sa.ForeignKeyConstraint(
            ["endpoint_id"], ["endpoint.id"], name="fk_discovery_event_endpoint_id"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_discovery_event"),
    )
    op.create_index(
        "ix_discovery_event_endpoint_id_at", "discovery_event", ["endpoint_id", "at"], unique=False
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
        sa.ForeignKeyConstraint(["endpoint_id"], ["endpoint.id"], name="fk_probe_endpoint_id"),
        sa.PrimaryKeyConstraint("day", "endpoint_id", "at", name="pk_probe"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "probe_day",
        sa.Column("day", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("endpoint_id", sa.Text(), nullable=False),
        sa.Column("probes", sa.Integer(), nullable=False),
        sa.Column("scored", sa.Integer(), nullable=False),
        sa.Column("up", sa.Integer(), nullable=False),
        sa.Column("compliant", sa.Integer(), nullable=False),
        sa.Column("payable", sa.Integer(), nullable=False),
        sa.Column("compliance", sa.Integer(), nullable=False),
        sa.Column("slots", sa.BigInteger(), nullable=False),
        sa.Column("latency_sum", sa.BigInteger(), nullable=False),
        sa.Column("latency", sa.LargeBinary(), nullable=False),
        sa.Column("excluded", sa.Text(), nullable=False),
        sa.Column("packed", sa.LargeBinary(), nullable=True),
        sa.ForeignKeyConstraint(["endpoint_id"], ["endpoint.id"], name="fk_probe_day_endpoint_id"),
        sa.PrimaryKeyConstraint("day", "endpoint_id", name="pk_probe_day"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "score",
        sa.Column("endpoint_id", sa.Text(), nullable=False),
        sa.Column("as_of", sa.BigInteger(), nullable=False),
        sa.Column("policy_version", sa.Integer(), nullable=False),
        sa.Column("score_tenths", sa.Integer(), nullable=True),
        sa.Column("grade", sa.Text(), nullable=True),
        sa.Column("recommendation", sa.Text(), nullable=False),
        sa.Column("confidence_hundredths", sa.Integer(), nullable=False),
        sa.Column("uptime_tenths", sa.Integer(), nullable=True),
        sa.Column("compliant", sa.Boolean(), nullable=False),
        sa.Column("evidence", sa.LargeBinary(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("result", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["endpoint_id"], ["endpoint.id"], name="fk_score_endpoint_id"),
        sa.PrimaryKeyConstraint("endpoint_id", name="pk_score"),
    )
    op.create_index(
        "ix_score_rank", "score", ["score_tenths", "confidence_hundredths"], unique=False
    )
