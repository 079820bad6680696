"""The evidence that sold reports name by its digest, so that a buyer can have it later.

A score keeps the evidence that it was computed from only until the next score. What a report named
stays for 90 days after it was named last (core/watch/watch_rules).
"""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa
from sqlalchemy import Connection

from tollgauge.core.base.units import DAY_MS
from tollgauge.core.watch.watch_rules import EVIDENCE_MS
from tollgauge.db.compression import compress, decompress
from tollgauge.db.schema import metadata, upsert
from tollgauge.db.schema import score as score_table
from tollgauge.store.scores.scores import ScoreRow

RENAMED_MS: Final = DAY_MS
"""How much older than it is the instant may be at which a document was named last: one report is
sold many times, and to write it each time would be most of what the sale writes."""
evidence: Final = sa.Table(
    "evidence",
    metadata,
    # SHA-256 of the canonical text, in hex.
    sa.Column("digest", sa.Text, primary_key=True),
    # The canonical text, compressed.
    sa.Column("document", sa.LargeBinary, nullable=False),
    sa.Column("named_at", sa.BigInteger, nullable=False),
    sa.Index("ix_evidence_named", "named_at"),
)


def keep(tx: Connection, row: ScoreRow, *, now: int, named_at: int | None = None) -> None:
    """Keep the evidence of a score that a report names now. Within RENAMED_MS of `named_at`, when
    one named it last, nothing is written.
    """
    if named_at is not None and now - named_at < RENAMED_MS:
        return
    document = {"digest": row.digest, "document": compress(row.evidence), "named_at": now}
    insert = upsert(evidence).values(document)
    tx.execute(insert.on_conflict_do_update(index_elements=["digest"], set_={"named_at": now}))
    tx.execute(
        score_table.update()
        .where(score_table.c.endpoint_id == row.endpoint_id, score_table.c.as_of == row.as_of)
        .values(named_at=now)
    )


def get(tx: Connection, digest: str) -> bytes | None:
    """The canonical text of a digest, None where no report has named it for 90 days."""
    query = sa.select(evidence.c.document).where(evidence.c.digest == digest)
    document = tx.execute(query).scalar_one_or_none()
    return None if document is None else decompress(document)


def forget(tx: Connection, *, now: int, limit: int) -> int:
    """Remove up to `limit` documents that no report has named for 90 days; how many it removed."""
    unnamed = evidence.c.named_at < now - EVIDENCE_MS - RENAMED_MS
    old = sa.select(evidence.c.digest).where(unnamed).limit(limit)
    return tx.execute(evidence.delete().where(evidence.c.digest.in_(old))).rowcount
