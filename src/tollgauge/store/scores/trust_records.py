"""Rows for trust records: endpoints with their offers and the flags of their latest scores; and the
newest bundle of each variant (monitor/trust_records).

jobs/score writes the bundles; every web process serves the same bytes (web/free/downloads).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import Connection

from tollgauge.core.endpoint.buyers_reports import BuyersReports
from tollgauge.core.endpoint.identity import Listing
from tollgauge.core.endpoint.terms import KnownOffer
from tollgauge.core.guard.bundle import LISTED_MS, Variant
from tollgauge.core.lists.rated_endpoint import RatedEndpoint
from tollgauge.db.codec import columns_of
from tollgauge.db.schema import endpoint as endpoint_table
from tollgauge.db.schema import metadata
from tollgauge.db.schema import score as score_table
from tollgauge.store import rows
from tollgauge.store.endpoints import buyers_reports, rated_endpoints
from tollgauge.store.endpoints.endpoints import PUBLIC

_ROWS: Final = sa.select(
    *rated_endpoints.COLUMNS, *endpoint_table.c["offers", "templated"], score_table.c.result
).outerjoin(score_table, score_table.c.endpoint_id == endpoint_table.c.id)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordRow:
    """An endpoint with the offers of its envelopes, the JSON of its score, or None, and its buyers'
    reports, None without any.
    """

    endpoint: RatedEndpoint
    offers: tuple[KnownOffer, ...]
    templated: bool
    result: bytes | None
    reports: BuyersReports | None


def get(tx: Connection, endpoint_id: str) -> RecordRow | None:
    """Return the public endpoint with an ID, or None."""
    row = tx.execute(_ROWS.where(endpoint_table.c.id == endpoint_id, PUBLIC)).first()
    return None if row is None else _record_rows(tx, [row])[0]


def load_listed(tx: Connection, *, after: str, limit: int, now: int) -> tuple[RecordRow, ...]:
    """Return endpoints after an ID, by ID, that a directory lists or listed within LISTED_MS."""
    page = (
        _ROWS.where(
            endpoint_table.c.id > after,
            endpoint_table.c.adopted.is_(False),
            sa.or_(
                endpoint_table.c.status == Listing.LISTED,
                endpoint_table.c.last_seen > now - LISTED_MS,
            ),
        )
        .order_by(endpoint_table.c.id)
        .limit(limit)
    )
    return _record_rows(tx, tx.execute(page).all())


def _record_rows(tx: Connection, found: Sequence[Any]) -> tuple[RecordRow, ...]:
    reports = buyers_reports.counts(tx, [row.id for row in found])
    return tuple(
        rows.from_columns(
            RecordRow, row, endpoint=rated_endpoints.from_row(row), reports=reports.get(row.id)
        )
        for row in found
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredBundle:
    """The description of a bundle.

    - `as_of` is when its build started (ms UTC), `took_ms` the duration of the build.
    - `scored` of its `records` have a score; `size` is in bytes.
    - `digest` is the SHA-256 in hex; `signature` covers it, with the key `key_id`; both are None
      without a signing key.
    """

    variant: Variant
    as_of: int
    took_ms: int
    policy_version: int
    records: int
    scored: int
    size: int
    digest: str
    signature: str | None
    key_id: str | None


bundle: Final = sa.Table(
    "bundle",
    metadata,
    *columns_of(StoredBundle, key=("variant",)),
    # Last, so that reading the other columns does not read it.
    sa.Column("body", sa.LargeBinary, nullable=False),
)


_FACTS: Final = tuple(column for column in bundle.c if column.name != "body")


def newest_bundle(tx: Connection, variant: Variant = Variant.ALL) -> StoredBundle | None:
    """Return the description of the newest bundle, or None."""
    row = tx.execute(sa.select(*_FACTS).where(bundle.c.variant == variant)).first()
    return None if row is None else rows.from_columns(StoredBundle, row)


def all_bundles(tx: Connection) -> tuple[StoredBundle, ...]:
    """Return the descriptions of the newest bundle of each variant."""
    query = sa.select(*_FACTS).order_by(bundle.c.variant)
    return tuple(rows.from_columns(StoredBundle, row) for row in tx.execute(query))


def load_bundle(tx: Connection, variant: Variant) -> tuple[StoredBundle, bytes] | None:
    """Return the newest bundle with its bytes, or None."""
    row = tx.execute(sa.select(bundle).where(bundle.c.variant == variant)).first()
    return None if row is None else (rows.from_columns(StoredBundle, row), row.body)


def save_bundles(tx: Connection, bundles: Iterable[tuple[StoredBundle, bytes]]) -> None:
    """Replace the bundles of these variants."""
    rows.put(tx, bundle, [rows.to_columns(stored, body=body) for stored, body in bundles])
