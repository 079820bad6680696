"""Rows of the newest bundle of each variant: its bytes and their description.

jobs/bundle writes them; every web process serves the same bytes (web/free/bundle_download).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import sqlalchemy as sa
from sqlalchemy import Connection

from tollgauge.core.guard.bundle import Variant
from tollgauge.db.codec import Encoded
from tollgauge.db.schema import metadata
from tollgauge.store import rows

bundle: Final = sa.Table(
    "bundle",
    metadata,
    sa.Column("variant", Encoded(str, Variant), primary_key=True),
    sa.Column("as_of", sa.BigInteger, nullable=False),
    sa.Column("took_ms", sa.BigInteger, nullable=False),
    sa.Column("policy_version", sa.Integer, nullable=False),
    sa.Column("records", sa.Integer, nullable=False),
    sa.Column("scored", sa.Integer, nullable=False),
    sa.Column("size", sa.BigInteger, nullable=False),
    # SHA-256 of the body in hex.
    sa.Column("digest", sa.Text, nullable=False),
    # The detached JWS over the digest and the ID of its key; NULL without a key.
    sa.Column("signature", sa.Text),
    sa.Column("key_id", sa.Text),
    # Last, so that reading the other columns does not read it.
    sa.Column("body", sa.LargeBinary, nullable=False),
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


_FACTS: Final = tuple(column for column in bundle.c if column.name != "body")


def newest(tx: Connection, variant: Variant = Variant.ALL) -> StoredBundle | None:
    """Return the description of the newest bundle, or None."""
    row = tx.execute(sa.select(*_FACTS).where(bundle.c.variant == variant)).first()
    return None if row is None else rows.from_columns(StoredBundle, row)


def every(tx: Connection) -> tuple[StoredBundle, ...]:
    """Return the descriptions of the newest bundle of each variant."""
    query = sa.select(*_FACTS).order_by(bundle.c.variant)
    return tuple(rows.from_columns(StoredBundle, row) for row in tx.execute(query))


def whole(tx: Connection, variant: Variant) -> tuple[StoredBundle, bytes] | None:
    """Return the newest bundle with its bytes, or None."""
    row = tx.execute(sa.select(bundle).where(bundle.c.variant == variant)).first()
    return None if row is None else (rows.from_columns(StoredBundle, row), row.body)


def save(tx: Connection, bundles: Iterable[tuple[StoredBundle, bytes]]) -> None:
    """Replace the bundles of these variants."""
    rows.put(tx, bundle, [rows.to_columns(stored, body=body) for stored, body in bundles])
