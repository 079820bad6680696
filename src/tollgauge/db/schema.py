"""The tables: every column that the service remembers, in one place for both databases.

Rules:
- instants are integer milliseconds UTC, days count UTC days since the epoch;
- amounts are decimal strings, because a uint256 fits no integer column;
- structured values are JSON text; packed bytes are documented where they are made (packing.py);
- `probe` and `probe_day` are keyed day first, so that a day's rows lie together: new rows append
  at one end and old ones are removed at the other (why there are no partitions:
  docs/decisions/11-no-partitions.md). They name no foreign key: without an index by endpoint, which
  would be as large as they are, removing one endpoint would read all of them.

Other modules of store add their tables to `metadata`. `make docs` writes the SQL that creates the
tables (db/migrations).
"""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from tollgauge.db.codec import plain

metadata: Final = sa.MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "uq": "uq_%(table_name)s_%(column_0_name)s",
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    }
)

Serial: Final = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
"""A key that the database counts up; SQLite only does so for its INTEGER."""


class ForeignText(sa.TypeDecorator[str]):
    """Text that others wrote: without NUL and lone surrogates, which PostgreSQL refuses."""

    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: sa.Dialect) -> str | None:  # noqa: ARG002 - the base has it
        """What is stored of a text."""
        return None if value is None else plain(value)


upsert: Final = postgresql.insert
"""An INSERT with `on_conflict_do_nothing` and `on_conflict_do_update`. SQLite has PostgreSQL's ON
CONFLICT clause, and SQLAlchemy compiles PostgreSQL's class for both.
"""
NEVER: Final = 2**62
"""The instant of what is not due, because there is nothing to do."""
_WATCHED: Final = sa.text("watched_until > 0")
SOME_WATCHED: Final = sa.text(f"next_watched < {NEVER}")
"""The condition of a partial index, as a literal: a parameter would not match it."""
_OPEN: Final = sa.text("finished_at IS NULL")
_ADOPTED: Final = sa.text("adopted")
RANKED: Final = sa.text("status = 'listed' AND NOT adopted AND score_tenths IS NOT NULL")
"""The ranked population (store/endpoints/ranking). A condition of literals, so that both databases
use the partial index.
"""


host = sa.Table(
    "host",
    metadata,
    sa.Column("host", sa.Text, primary_key=True),
    # Its registrable domain (core/endpoint/identity).
    sa.Column("site", sa.Text, nullable=False, server_default=""),
    # No probe before this instant: Retry-After, or the least gap between two probes.
    sa.Column("free_at", sa.BigInteger, nullable=False, server_default="0"),
    # From when on it may be claimed for one of its endpoints, and for a watched one of them, if it
    # is not leased; never too late, seldom too early (store/schedule/hosts).
    sa.Column("next_claim", sa.BigInteger, nullable=False, server_default=str(NEVER)),
    sa.Column("next_watched", sa.BigInteger, nullable=False, server_default=str(NEVER)),
    # How long one probe takes it in all, its pause included, so what it can do in a day; 0 before
    # that is known.
    sa.Column("pace_ms", sa.BigInteger, nullable=False, server_default="0"),
    # Where its budget is too small for its endpoints' cadence: the interval of one of weight 1
    # (core/probe/schedule), and how many endpoints share the budget; 0 for every other host.
    sa.Column("round_ms", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("sharing", sa.Integer, nullable=False, server_default="0"),
    # Whether its site has so many hosts that their probes take turns, and its turn; 0 without one.
    sa.Column("takes_turns", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("turn_at", sa.BigInteger, nullable=False, server_default="0"),
    # Whether unlisted paths answered 402 too, and when that was tried; NULL while untried.
    sa.Column("wildcard", sa.Boolean),
    sa.Column("wildcard_at", sa.BigInteger),
    sa.Index("ix_host_site", "site"),
    sa.Index("ix_host_next_claim", "next_claim", "host"),
    sa.Index(
        "ix_host_next_watched",
        "next_watched",
        "host",
        sqlite_where=SOME_WATCHED,
        postgresql_where=SOME_WATCHED,
    ),
)

# The one worker that probes a host now; it is free again when `until` has passed. Not in the row of
# the host: a row for each probe under way is a page or two, however many hosts there are.
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
    # The least time between two of its probes, and until when its time is given away: microseconds.
    sa.Column("gap_us", sa.BigInteger, nullable=False),
    sa.Column("taken_until_us", sa.BigInteger, nullable=False, server_default="0"),
    sqlite_with_rowid=False,
)

FIGURES: Final = (
    sa.Column("scored_at", sa.BigInteger),
    sa.Column("score_tenths", sa.Integer),
    sa.Column("confidence_hundredths", sa.Integer, nullable=False, server_default="0"),
    sa.Column("recommendation", sa.Text, nullable=False, server_default="unverified"),
    sa.Column("grade", sa.Text),
    sa.Column("uptime_tenths", sa.Integer),
    sa.Column("compliant", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("latency_ms", sa.Integer),
    sa.Column("payable_now_permille", sa.Integer),
    sa.Column("payable_24h_permille", sa.Integer),
    # The outage (core/score/score.Down); NULL while the endpoint is not down.
    sa.Column("outage_since", sa.BigInteger),
    sa.Column("outage_reason", sa.Text),
    sa.Column("outage_confirmed", sa.Boolean),
)
"""The columns of `endpoint` that only a saved score writes."""

endpoint = sa.Table(
    "endpoint",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("resource", sa.Text, nullable=False, unique=True),
    sa.Column("host", sa.Text, sa.ForeignKey("host.host"), nullable=False),
    # Its host's registrable domain (core/endpoint/identity).
    sa.Column("site", sa.Text, nullable=False, server_default=""),
    sa.Column("query", ForeignText, nullable=False, server_default=""),
    sa.Column("method", ForeignText),
    sa.Column("body", sa.LargeBinary),
    sa.Column("learned", sa.Text),
    sa.Column("status", sa.Text, nullable=False),
    sa.Column("first_seen", sa.BigInteger, nullable=False),
    sa.Column("last_seen", sa.BigInteger, nullable=False),
    sa.Column("last_probed", sa.BigInteger),
    # When it was last up at a scored probe, and the first one since that found it not up; NULL
    # while there is none (core/probe/attribution.LastUp).
    sa.Column("up_at", sa.BigInteger),
    sa.Column("down_since", sa.BigInteger),
    sa.Column("next_due", sa.BigInteger, nullable=False),
    sa.Column("watched_until", sa.BigInteger, nullable=False, server_default="0"),
    # It is not probed before this instant, because it asked for a pause (Retry-After).
    sa.Column("paused_until", sa.BigInteger, nullable=False, server_default="0"),
    # When somebody last paid for a report or a live probe of it.
    sa.Column("asked_at", sa.BigInteger),
    # When a directory last said something new of it.
    sa.Column("listing_changed_at", sa.BigInteger),
    # Whether it could be paid at the last probe that speaks; NULL before any.
    sa.Column("payable", sa.Boolean),
    # The first of the latest probes in a row that found it not payable; NULL if it was payable.
    sa.Column("failing_since", sa.BigInteger),
    # When it became payable the last time; NULL if it never was.
    sa.Column("payable_since", sa.BigInteger),
    # When the failure was that is being asked again; NULL while there is none.
    sa.Column("unconfirmed_at", sa.BigInteger),
    # How its payTo has changed (core/endpoint/terms), as JSON; NULL before probes saw one.
    sa.Column("payto_history", ForeignText),
    # The forms of payment that its last envelope offers (core/endpoint/terms).
    sa.Column("forms", ForeignText, nullable=False, server_default="[]"),
    sa.Column("service_name", ForeignText, nullable=False, server_default=""),
    sa.Column("description", ForeignText, nullable=False, server_default=""),
    sa.Column("tags", ForeignText, nullable=False, server_default="[]"),
    sa.Column("sources", sa.Text, nullable=False, server_default="[]"),
    sa.Column("templated", sa.Boolean, nullable=False),
    sa.Column("simulated", sa.Boolean, nullable=False),
    # True until a directory lists it: known by request only, on no leaderboard, never delisted;
    # public once it was seen to sell (store/endpoints/endpoints), otherwise removed.
    sa.Column("adopted", sa.Boolean, nullable=False),
    sa.Column("quote_network", ForeignText),
    sa.Column("quote_asset", ForeignText),
    sa.Column("quote_amount", sa.Text),
    sa.Column("quote_pay_to", ForeignText),
    sa.Column("quote_at", sa.BigInteger),
    # Who saw the quote: `probe`, or the directory that names it.
    sa.Column("quote_source", sa.Text),
    # When the next score is due. A claim moves it past the worker's lease and notes in
    # `score_next` when a score falls due by age; new evidence pulls it back to now and clears
    # `score_next`. So a saved score settles the account only where nothing came meanwhile.
    sa.Column("score_due", sa.BigInteger, nullable=False),
    sa.Column("score_next", sa.BigInteger),
    # The figures of its latest score (core/lists/rated_endpoint.ScoreFigures). They are here, so
    # that one index has both them and the status, and so that lists read no score.
    *FIGURES,
    # With all that is counted or chosen by, so that no row is read that is not shown.
    sa.Index(
        "ix_endpoint_rank",
        *("score_tenths", "confidence_hundredths", "id", "recommendation", "host"),
        *("grade", "uptime_tenths", "compliant", "outage_confirmed"),
        sqlite_where=RANKED,
        postgresql_where=RANKED,
    ),
    sa.Index("ix_endpoint_host_score", "host", "score_tenths", "id"),
    # Not by status first: SQLite would take it where the order of ix_endpoint_rank is wanted.
    sa.Index("ix_endpoint_simulated", "simulated", "adopted", "status"),
    sa.Index("ix_endpoint_host_next_due", "host", "next_due", "id"),
    sa.Index("ix_endpoint_site_first_seen", "site", "first_seen", "id"),
    sa.Index(
        "ix_endpoint_watched",
        "host",
        "next_due",
        sqlite_where=_WATCHED,
        postgresql_where=_WATCHED,
    ),
    sa.Index("ix_endpoint_score_due", "score_due"),
    sa.Index("ix_endpoint_last_probed", "last_probed"),
    sa.Index("ix_endpoint_adopted", "first_seen", sqlite_where=_ADOPTED, postgresql_where=_ADOPTED),
    # With what decides for nearly all whether they are public, so that their rows are not read.
    sa.Index("ix_endpoint_quote_pay_to", "quote_pay_to", "quote_network", "host", "adopted"),
    # In the order of the ids, in which they are probed (core/probe/schedule), and not of their
    # discovery: a wave reads and writes few pages.
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
    # When what it reads was taken: now, or the instant that a file names.
    sa.Column("taken_at", sa.BigInteger),
    # How many endpoints it listed, once it has ended.
    sa.Column("listed", sa.Integer),
    sa.Column("suspicious", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Index("ix_crawl_started", "started"),
    # At most one open crawl a source.
    sa.Index("ix_crawl_open", "source", unique=True, sqlite_where=_OPEN, postgresql_where=_OPEN),
)

listing = sa.Table(
    "listing",
    metadata,
    sa.Column("endpoint_id", sa.Text, sa.ForeignKey("endpoint.id"), primary_key=True),
    sa.Column("source", sa.Text, primary_key=True),
    sa.Column("crawl_id", Serial, nullable=False),
    sa.Column("first_seen", sa.BigInteger, nullable=False),
    sa.Column("last_seen", sa.BigInteger, nullable=False),
    # When a complete crawl of the source no longer had it; NULL while it is listed.
    sa.Column("gone_at", sa.BigInteger),
    sa.Column("quote", sa.Text),
    sa.Index("ix_listing_source_crawl_id", "source", "crawl_id"),
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
    # Of a payTo: whether the seller announced it ahead (core/directory/seller_file).
    sa.Column("announced", sa.Boolean, nullable=False, server_default=sa.false()),
    # Of a price: it and what was usual then (core/score/prices), as JSON.
    sa.Column("price", ForeignText),
    sa.Index("ix_discovery_event_endpoint_id_at", "endpoint_id", "at"),
    sa.Index("ix_discovery_event_at", "at"),
)

probe = sa.Table(
    "probe",
    metadata,
    sa.Column("day", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("endpoint_id", sa.Text, primary_key=True),
    sa.Column("at", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("outcome", sa.Text, nullable=False),
    sa.Column("attribution", sa.Text, nullable=False),
    sa.Column("up", sa.Boolean, nullable=False),
    sa.Column("status", sa.Integer),
    sa.Column("compliance", sa.Integer, nullable=False),
    sa.Column("compliant", sa.Boolean, nullable=False),
    sa.Column("payable", sa.Boolean, nullable=False),
    sa.Column("version", sa.Integer),
    sa.Column("quote", sa.Text),
    sa.Column("accepts", sa.Integer),
    sa.Column("rules", sa.Text, nullable=False),
    sa.Column("reason", ForeignText, nullable=False),
    sa.Column("method", ForeignText, nullable=False),
    sa.Column("tls_not_after", sa.BigInteger),
    sa.Column("dns", sa.Integer),
    sa.Column("connect", sa.Integer),
    sa.Column("tls", sa.Integer),
    sa.Column("ttfb", sa.Integer),
    sa.Column("total", sa.Integer, nullable=False),
    # For how many milliseconds it speaks at most, and whether it only asks a failure again.
    sa.Column("holds", sa.Integer, nullable=False, server_default="7200000"),
    sa.Column("confirms", sa.Boolean, nullable=False, server_default=sa.false()),
    sqlite_with_rowid=False,
)

probe_day = sa.Table(
    "probe_day",
    metadata,
    sa.Column("day", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("endpoint_id", sa.Text, primary_key=True),
    # The probes themselves (store/probes/probe_rows).
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
    # The canonical text of the evidence, compressed.
    sa.Column("evidence", sa.LargeBinary, nullable=False),
    sa.Column("result", sa.LargeBinary, nullable=False),
    # When a sold report named the evidence last (store/scores/scores).
    sa.Column("named_at", sa.BigInteger),
)

meta = sa.Table(
    "meta",
    metadata,
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("value", sa.Text, nullable=False),
)
