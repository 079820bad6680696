"""The database schema for SQLite and PostgreSQL.

- Times are integer milliseconds UTC; days count UTC days since the epoch.
- Amounts are decimal strings, because a uint256 does not fit into an integer column.
- Structured values are JSON text. Packed bytes are documented in store/probes/probe_rows.
- `probe` and `probe_day` have the day first in their key: rows of a day are adjacent, appended at
  one end and deleted at the other (docs/decisions/11-no-partitions.md explains why there are no
  partitions). They have no foreign key: without an index by endpoint, as large as the tables,
  deleting one endpoint would read all rows.

Other modules of store add their tables to `metadata`. `make docs` generates the SQL that creates
the tables (db/engine).
"""

from __future__ import annotations

from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from tollgauge.core.endpoint.identity import Endpoint
from tollgauge.core.endpoint.terms import PayToHistory
from tollgauge.core.probe.exchange import Timings
from tollgauge.core.probe.probe import ProbeResult
from tollgauge.core.score.prices import Price
from tollgauge.core.score.score import ShownDemand
from tollgauge.db import codec
from tollgauge.db.codec import (
    Amount,
    Clients,
    Compressed,
    Encoded,
    Offers,
    Statements,
    columns_of,
    json_of,
    plain,
)

metadata: Final = sa.MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "uq": "uq_%(table_name)s_%(column_0_name)s",
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    }
)

Serial: Final = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
"""A generated integer key; SQLite generates only INTEGER keys."""


ForeignText: Final = Encoded(plain, None)
"""Text from outside, without NUL and lone surrogates, which PostgreSQL rejects."""
_TERMS: Final = Encoded(codec.terms_to_json, codec.terms_from_json)
_PROBED_TERMS: Final = Encoded(codec.compress_terms, codec.decompress_terms, sa.LargeBinary())
_FINDINGS: Final = Encoded(codec.compress_findings, codec.decompress_findings, sa.LargeBinary())


def partial_index(name: str, *columns: str, where: sa.TextClause, unique: bool = False) -> sa.Index:
    """Return an index of the rows that meet a condition."""
    return sa.Index(name, *columns, unique=unique, sqlite_where=where, postgresql_where=where)


upsert: Final = postgresql.insert
"""An INSERT with `on_conflict_do_nothing` and `on_conflict_do_update`. SQLite has PostgreSQL's ON
CONFLICT clause, and SQLAlchemy compiles PostgreSQL's class for both.
"""
NEVER: Final = 2**62  # due time of rows that are not due
_WATCHED: Final = sa.text("watched_until > 0")
SOME_WATCHED: Final = sa.text(f"next_watched < {NEVER}")
"""The condition of a partial index. A literal, because a parameter would not match the index."""
_OPEN: Final = sa.text("finished_at IS NULL")
_ADOPTED: Final = sa.text("adopted")
DROPPED: Final = sa.text("delisted_at IS NOT NULL")
PAYTO_EVENT: Final = sa.text("event = 'payto-changed'")
"""The condition of two partial indexes of `discovery_event`."""
RANKED: Final = sa.text("status = 'listed' AND NOT adopted AND score_tenths IS NOT NULL")
"""The ranked population (store/endpoints/ranking). Literals, so that both databases use the partial
index.
"""


host = sa.Table(
    "host",
    metadata,
    sa.Column("host", sa.Text, primary_key=True),
    # Its registrable domain (core/endpoint/identity).
    sa.Column("site", sa.Text, nullable=False, server_default=""),
    # No probe before this time: Retry-After, or the minimum gap between two probes.
    sa.Column("free_at", sa.BigInteger, nullable=False, server_default="0"),
    # When it may be claimed for one of its endpoints, or for a watched one, unless it is leased.
    # Never too late, rarely too early (store/schedule/hosts).
    sa.Column("next_claim", sa.BigInteger, nullable=False, server_default=str(NEVER)),
    sa.Column("next_watched", sa.BigInteger, nullable=False, server_default=str(NEVER)),
    # Average duration of a probe including the pause, which limits its probes per day; 0 if
    # unknown.
    sa.Column("pace_ms", sa.BigInteger, nullable=False, server_default="0"),
    # If its budget is too small for its endpoints: the probe interval of an endpoint of weight 1
    # (core/probe/schedule), and the number of endpoints that share the budget; otherwise 0.
    sa.Column("round_ms", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("sharing", sa.Integer, nullable=False, server_default="0"),
    # Whether the hosts of its site take turns, and its turn; 0 without one.
    sa.Column("takes_turns", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("turn_at", sa.BigInteger, nullable=False, server_default="0"),
    # Whether unlisted paths answered 402 too, and when that was tested; NULL before.
    sa.Column("wildcard", sa.Boolean),
    sa.Column("wildcard_at", sa.BigInteger),
    # When a probe of one of its endpoints was last requested (monitor/recording).
    sa.Column("recheck_at", sa.BigInteger, nullable=False, server_default="0"),
    sa.Index("ix_host_site", "site"),
    sa.Index("ix_host_next_claim", "next_claim", "host"),
    partial_index("ix_host_next_watched", "next_watched", "host", where=SOME_WATCHED),
)

# The worker that probes a host until `until`. A separate table: it has one row per running probe
# and fits into a page or two, however many hosts there are.
host_lease = sa.Table(
    "host_lease",
    metadata,
    sa.Column("host", sa.Text, primary_key=True),
    sa.Column("owner", sa.Text, nullable=False),
    sa.Column("claimed_at", sa.BigInteger, nullable=False),
    sa.Column("until", sa.BigInteger, nullable=False),
    sqlite_with_rowid=False,
)

budget = sa.Table(
    "budget",
    metadata,
    # A site whose hosts take turns, or "*" for all probes together.
    sa.Column("name", sa.Text, primary_key=True),
    # Minimum time between two of its probes, and the end of the time already used, in microseconds.
    sa.Column("gap_us", sa.BigInteger, nullable=False),
    sa.Column("taken_until_us", sa.BigInteger, nullable=False, server_default="0"),
    sqlite_with_rowid=False,
)

FIGURES: Final[tuple[sa.Column[Any], ...]] = (
    sa.Column("scored_at", sa.BigInteger),
    sa.Column("score_tenths", sa.Integer),
    sa.Column("rank_key", sa.BigInteger),
    sa.Column("confidence_hundredths", sa.Integer, nullable=False, server_default="0"),
    sa.Column("recommendation", sa.Text, nullable=False, server_default="unverified"),
    sa.Column("grade", sa.Text),
    sa.Column("uptime_tenths", sa.Integer),
    sa.Column("compliant", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("latency_ms", sa.Integer),
    sa.Column("payable_now_permille", sa.Integer),
    sa.Column("payable_24h_permille", sa.Integer),
    # The seller's payers; NULL if settlements are not known.
    sa.Column("demand", json_of(ShownDemand)),
    # The current outage (core/score/score.Down); NULL if the endpoint is not down.
    sa.Column("outage_since", sa.BigInteger),
    sa.Column("outage_reason", sa.Text),
    sa.Column("outage_confirmed", sa.Boolean),
)
"""Columns of `endpoint` that only a saved score writes."""

endpoint = sa.Table(
    "endpoint",
    metadata,
    *columns_of(
        Endpoint,
        key=("id",),
        without=("quote",),
        status=sa.Text(),
        query=ForeignText,
        method=ForeignText,
        service_name=ForeignText,
        description=ForeignText,
        offers=Offers,
        payto_history=json_of(PayToHistory),
    ),
    # Its host's registrable domain (core/endpoint/identity).
    sa.Column("site", sa.Text, nullable=False),
    # Time of the last scored probe that found it up; NULL without one
    # (core/probe/attribution.LastUp).
    sa.Column("up_at", sa.BigInteger),
    # x402 version of its last envelope; NULL before one.
    sa.Column("version", sa.Integer),
    # True until a directory lists it: added on request, not on the leaderboard, never delisted.
    # Public once it answered 402 (store/endpoints/endpoints), otherwise deleted.
    sa.Column("adopted", sa.Boolean, nullable=False),
    sa.Column("quote_network", ForeignText),
    sa.Column("quote_asset", ForeignText),
    sa.Column("quote_amount", Amount),
    sa.Column("quote_pay_to", ForeignText),
    # Source of the quote: `probe`, or the directory that lists it.
    sa.Column("quote_source", sa.Text),
    # When the next score is due. A claim moves it past the worker's lease and stores in
    # `score_next` when a score is due by age. New evidence moves it back to now and clears
    # `score_next`, so that saving the claimed score does not cancel the next one.
    sa.Column("score_due", sa.BigInteger, nullable=False),
    sa.Column("score_next", sa.BigInteger),
    # The figures of its latest score (core/lists/rated_endpoint.ScoreFigures). They are here so
    # that an index can contain them together with the status, and lists do not read scores.
    *FIGURES,
    sa.ForeignKeyConstraint(["host"], ["host.host"]),
    sa.UniqueConstraint("resource"),
    # Contains all columns that queries filter or count by, so that only displayed rows are read.
    partial_index(
        "ix_endpoint_rank",
        *("rank_key", "id", "recommendation", "host", "grade", "score_tenths"),
        *("uptime_tenths", "compliant", "outage_confirmed"),
        where=RANKED,
    ),
    sa.Index("ix_endpoint_host_score", "host", "rank_key", "id"),
    # Not by status first: SQLite would prefer it to the order of ix_endpoint_rank.
    sa.Index("ix_endpoint_simulated", "simulated", "adopted", "status"),
    sa.Index("ix_endpoint_host_next_due", "host", "next_due", "id"),
    sa.Index("ix_endpoint_site_first_seen", "site", "first_seen", "id"),
    partial_index("ix_endpoint_watched", "host", "next_due", where=_WATCHED),
    sa.Index("ix_endpoint_score_due", "score_due"),
    sa.Index("ix_endpoint_last_probed", "last_probed"),
    partial_index("ix_endpoint_adopted", "first_seen", where=_ADOPTED),
    # Contains what decides for nearly all endpoints whether they are public, without reading rows.
    sa.Index("ix_endpoint_quote_pay_to", "quote_pay_to", "quote_network", "host", "adopted"),
    # In the order of IDs, in which endpoints are probed (core/probe/schedule): a batch then reads
    # and writes few pages.
    sqlite_with_rowid=False,
)

crawl = sa.Table(
    "crawl",
    metadata,
    sa.Column("id", Serial, primary_key=True),
    sa.Column("source", sa.Text, nullable=False),
    sa.Column("started", sa.BigInteger, nullable=False),
    sa.Column("offset", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("finished_at", sa.BigInteger),
    sa.Column("complete", sa.Boolean),
    # Time of its content: now, or the time that a file states.
    sa.Column("taken_at", sa.BigInteger),
    # Number of listed endpoints, once it has ended.
    sa.Column("listed", sa.Integer),
    # Number of entries before `offset` that were skipped.
    sa.Column("skipped", sa.Integer, nullable=False, server_default="0"),
    # Number of these that could not be read.
    sa.Column("unreadable", sa.Integer, nullable=False, server_default="0"),
    sa.Column("suspicious", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Index("ix_crawl_started", "started"),
    # At most one open crawl per source.
    partial_index("ix_crawl_open", "source", where=_OPEN, unique=True),
)

listing = sa.Table(
    "listing",
    metadata,
    sa.Column("endpoint_id", sa.Text, sa.ForeignKey("endpoint.id"), primary_key=True),
    sa.Column("source", sa.Text, primary_key=True),
    sa.Column("crawl_id", Serial, nullable=False),
    sa.Column("first_seen", sa.BigInteger, nullable=False),
    sa.Column("last_seen", sa.BigInteger, nullable=False),
    # When a complete crawl of the source no longer contained it; NULL while listed.
    sa.Column("delisted_at", sa.BigInteger),
    sa.Column("quote", _TERMS),
    # The scheme of the quote; empty if the entry has none.
    sa.Column("scheme", ForeignText, nullable=False, server_default=""),
    # Quality figures and status (core/directory/entry_record); NULL if the source states none.
    sa.Column("statement", Statements),
    sa.Index("ix_listing_source_crawl_id", "source", "crawl_id"),
    # The entries that a source dropped last, for its page.
    partial_index("ix_listing_dropped", "source", "delisted_at", where=DROPPED),
    sqlite_with_rowid=False,
)

discovery_event = sa.Table(
    "discovery_event",
    metadata,
    sa.Column("id", Serial, primary_key=True),
    sa.Column("endpoint_id", sa.Text, sa.ForeignKey("endpoint.id"), nullable=False),
    sa.Column("at", sa.BigInteger, nullable=False),
    sa.Column("event", sa.Text, nullable=False),
    sa.Column("source", sa.Text, nullable=False),
    sa.Column("before", ForeignText, nullable=False, server_default=""),
    sa.Column("after", ForeignText, nullable=False, server_default=""),
    # For a payTo change: whether the seller announced it in advance (core/directory/seller_file).
    sa.Column("announced", sa.Boolean, nullable=False, server_default=sa.false()),
    # For a price change: the price and the usual one at the time.
    sa.Column("price", json_of(Price)),
    sa.Index("ix_discovery_event_endpoint_id_at", "endpoint_id", "at"),
    sa.Index("ix_discovery_event_at", "at"),
    # Changes to and from a payTo, for its page.
    *(
        partial_index(f"ix_discovery_event_payto_{side}", side, "at", where=PAYTO_EVENT)
        for side in ("before", "after")
    ),
)

probe = sa.Table(
    "probe",
    metadata,
    sa.Column("day", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("endpoint_id", sa.Text, primary_key=True),
    *columns_of(
        ProbeResult,
        key=("at",),
        without=("timings", "forms", "offers", "extensions", "findings"),
        payable_by=Clients,
        quote=_PROBED_TERMS,
        reason=ForeignText,
        method=ForeignText,
    ),
    *columns_of(Timings, without=("delay", "overrun")),
    sa.Column("rules", _FINDINGS, nullable=False),
    sqlite_with_rowid=False,
)

probe_day = sa.Table(
    "probe_day",
    metadata,
    sa.Column("day", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("endpoint_id", sa.Text, primary_key=True),
    # The packed probes (store/probes/probe_rows).
    sa.Column("packed", sa.LargeBinary, nullable=False),
    sqlite_with_rowid=False,
)

score = sa.Table(
    "score",
    metadata,
    sa.Column("endpoint_id", sa.Text, sa.ForeignKey("endpoint.id"), primary_key=True),
    sa.Column("as_of", sa.BigInteger, nullable=False),
    sa.Column("policy_version", sa.Integer, nullable=False),
    sa.Column("score_tenths", sa.Integer),
    # The canonical evidence text.
    sa.Column("evidence", Compressed, nullable=False),
    sa.Column("result", Compressed, nullable=False),
    # When a sold report last cited the evidence (store/scores/scores).
    sa.Column("named_at", sa.BigInteger),
)

meta = sa.Table(
    "meta",
    metadata,
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("value", sa.Text, nullable=False),
)
