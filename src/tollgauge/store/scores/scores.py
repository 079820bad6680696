"""Rows of scores: the latest score of each endpoint, with the evidence it was computed from.

An older score never replaces a newer one. The figures of a score are also written to the endpoint's
row (store/endpoints/rated_endpoints). A score keeps its evidence until the next score. Evidence
that a sold report cites is stored for 90 days after the last citation (core/watch/watch_rules).
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import Connection

from tollgauge.core.base.units import DAY_MS
from tollgauge.core.endpoint.identity import Listing
from tollgauge.core.lists.rated_endpoint import ScoreFigures
from tollgauge.core.score.score import Score, flag_codes, score_from_json
from tollgauge.core.watch.watch_rules import EVIDENCE_MS
from tollgauge.db.codec import Compressed
from tollgauge.db.schema import FIGURES, metadata, upsert
from tollgauge.db.schema import endpoint as endpoint_table
from tollgauge.db.schema import listing as listing_table
from tollgauge.db.schema import score as score_table
from tollgauge.store import rows
from tollgauge.store.endpoints.rated_endpoints import figure_columns

_NEW: Final = upsert(score_table)
_SAVE: Final = _NEW.on_conflict_do_update(
    index_elements=["endpoint_id"],
    # Not the key: SQLite would rewrite its index entry.
    set_={c.name: c for c in _NEW.excluded if c.name != "endpoint_id"},
    where=score_table.c.as_of <= _NEW.excluded.as_of,
)
_SAVE_ONE: Final = _SAVE.returning(score_table.c.endpoint_id)
_NEWEST: Final = sa.func.coalesce(endpoint_table.c.scored_at, 0) <= sa.bindparam(
    "scored_at_", type_=sa.BigInteger
)
_FIGURES: Final = {
    column.name: sa.case(
        (_NEWEST, sa.bindparam(f"{column.name}_", type_=column.type)),
        else_=endpoint_table.c[column.name],
    )
    for column in FIGURES
}
_END_CLAIM: Final = (
    endpoint_table.update()
    .where(endpoint_table.c.id == sa.bindparam("id_"))
    .values(
        score_due=sa.func.coalesce(endpoint_table.c.score_next, endpoint_table.c.score_due),
        score_next=None,
        **_FIGURES,
    )
)
_LOCK: Final = (
    sa.select(endpoint_table.c.id)
    .where(rows.any_of(endpoint_table.c.id))
    .order_by(endpoint_table.c.id)
    .with_for_update()
)
_OF_ENDPOINT: Final = sa.select(score_table).where(score_table.c.endpoint_id == sa.bindparam("id_"))
_RESULTS: Final = sa.select(*score_table.c["endpoint_id", "result"]).where(
    rows.any_of(score_table.c.endpoint_id)
)
_LATEST_TENTHS: Final = sa.select(
    *score_table.c["endpoint_id", "as_of", "policy_version", "score_tenths"]
).where(rows.any_of(score_table.c.endpoint_id))
SITE_MAX: Final = 101  # enough for a median; a site may list tens of thousands of paths


@dataclass(frozen=True, kw_only=True)
class ScoreRow:
    """A stored score.

    `evidence` is the canonical text of the evidence and `result` the JSON of the whole score.
    `figures` belong to the endpoint's row: they are set in a score to save and None in one that was
    read. `named_at` is when a sold report last cited the evidence (ms UTC).
    """

    endpoint_id: str
    as_of: int
    policy_version: int
    score_tenths: int | None
    evidence: bytes
    result: bytes
    figures: ScoreFigures | None = field(default=None, compare=False, repr=False)
    named_at: int | None = field(default=None, compare=False)

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of the evidence in hex."""
        return hashlib.sha256(self.evidence).hexdigest()


def save(tx: Connection, row: ScoreRow) -> bool:
    """Store a score and end the claim that it was computed under.

    The next score is due by age, or immediately if the evidence changed in the meantime. Returns
    False, without storing, if there is a newer score or the endpoint was deleted.
    """
    # First, because it locks the endpoint's row, which therefore cannot be deleted in the meantime.
    if not tx.execute(_END_CLAIM, _claim_values(row)).rowcount:
        return False
    return tx.execute(_SAVE_ONE, rows.to_columns(row, "figures")).first() is not None


def save_many(tx: Connection, score_rows: Iterable[ScoreRow]) -> None:
    """Store scores of different endpoints, with the same number of statements as for one."""
    by_id = {row.endpoint_id: row for row in score_rows}
    known = [by_id[row.id] for row in rows.with_any(tx, _LOCK, sorted(by_id))]
    if known:
        tx.execute(_END_CLAIM, [_claim_values(row) for row in known])
        tx.execute(_SAVE, [rows.to_columns(row, "figures") for row in known])


def _claim_values(row: ScoreRow) -> dict[str, Any]:
    """Return the parameters of _END_CLAIM for a score."""
    if row.figures is None:
        raise ValueError("A score that was read from the database cannot be saved again.")
    columns = figure_columns(row.figures)
    return {"id_": row.endpoint_id} | {f"{name}_": value for name, value in columns.items()}


def get(tx: Connection, endpoint_id: str) -> ScoreRow | None:
    """Return the score of an endpoint, or None."""
    row = tx.execute(_OF_ENDPOINT, {"id_": endpoint_id}).first()
    return None if row is None else rows.from_columns(ScoreRow, row, figures=None)


def result(tx: Connection, endpoint_id: str) -> Score | None:
    """Return the score of an endpoint without its evidence, which can be large, or None."""
    return results(tx, (endpoint_id,)).get(endpoint_id)


def results(tx: Connection, endpoint_ids: Iterable[str]) -> dict[str, Score]:
    """Return scores without evidence by endpoint ID."""
    known = rows.with_any(tx, _RESULTS, endpoint_ids)
    return {row.endpoint_id: score_from_json(row.result) for row in known}


def latest_tenths(
    tx: Connection, endpoint_ids: Collection[str]
) -> dict[str, tuple[int, int, int | None]]:
    """Return (as of, policy version, score in tenths) of endpoints by ID."""
    known = rows.with_any(tx, _LATEST_TENTHS, endpoint_ids)
    return {row.endpoint_id: (row.as_of, row.policy_version, row.score_tenths) for row in known}


@dataclass(frozen=True, slots=True, kw_only=True)
class SitePath:
    """A path of a site with its latest score.

    `delisted_at` is when the last directory dropped it, None while listed. `failing_since` is as in
    Endpoint; `outage_reason` and `flags` come from the score. Only a path that is failing has
    `flags`.
    """

    id: str
    first_seen: int
    last_probed: int
    score_tenths: int
    delisted_at: int | None
    failing_since: int | None
    outage_reason: str | None
    flags: tuple[str, ...]


_DELISTED_AT: Final = (
    sa.select(sa.func.max(listing_table.c.delisted_at))
    .where(
        listing_table.c.endpoint_id == endpoint_table.c.id,
        endpoint_table.c.status == Listing.DELISTED,
    )
    .correlate(endpoint_table)
    .scalar_subquery()
)
_IS_FAILING: Final = endpoint_table.c.failing_since.is_not(None)
_SITE_PATHS: Final = (
    sa.select(
        *endpoint_table.c["id", "first_seen", "last_probed", "score_tenths"],
        *endpoint_table.c["failing_since", "outage_reason"],
        _DELISTED_AT.label("delisted_at"),
        # Reading the score of every path took a twentieth of the CPU of the score loop.
        sa.case((_IS_FAILING, score_table.c.result)).label("result"),
    )
    .join_from(endpoint_table, score_table, score_table.c.endpoint_id == endpoint_table.c.id)
    .where(
        endpoint_table.c.site == sa.bindparam("site"),
        endpoint_table.c.first_seen < sa.bindparam("before"),
        endpoint_table.c.last_probed >= sa.bindparam("probed_since"),
        endpoint_table.c.score_tenths.is_not(None),
    )
    .order_by(endpoint_table.c.first_seen, endpoint_table.c.id)
    .limit(SITE_MAX)
)


def site_paths(tx: Connection, site: str, *, before: int, probed_since: int) -> list[SitePath]:
    """Return scored paths of a site that were first seen before `before` and probed since
    `probed_since` (ms UTC): at most SITE_MAX, those known longest.
    """
    limits = {"site": site, "before": before, "probed_since": probed_since}
    return [
        rows.from_columns(SitePath, row, flags=() if row.result is None else flag_codes(row.result))
        for row in tx.execute(_SITE_PATHS, limits).all()
    ]


# Precision of the time of the last citation. A report is sold many times, and writing the time at
# each sale would be most of what the sale writes.
RENAMED_MS: Final = DAY_MS
evidence_table: Final = sa.Table(
    "evidence",
    metadata,
    # SHA-256 of the canonical text in hex.
    sa.Column("digest", sa.Text, primary_key=True),
    # The canonical text.
    sa.Column("document", Compressed, nullable=False),
    sa.Column("named_at", sa.BigInteger, nullable=False),
    sa.Index("ix_evidence_named", "named_at"),
)
_NEW_EVIDENCE: Final = upsert(evidence_table)
_KEEP: Final = _NEW_EVIDENCE.on_conflict_do_update(
    index_elements=["digest"], set_={"named_at": _NEW_EVIDENCE.excluded.named_at}
)
_NAME: Final = score_table.update().where(
    score_table.c.endpoint_id == sa.bindparam("id_"), score_table.c.as_of == sa.bindparam("at_")
)


def keep_evidence(tx: Connection, row: ScoreRow, *, now: int) -> None:
    """Keep the evidence of a score that a report cites now.

    Nothing is written within RENAMED_MS of the last citation.
    """
    if row.named_at is not None and now - row.named_at < RENAMED_MS:
        return
    document = {"digest": row.digest, "document": row.evidence, "named_at": now}
    tx.execute(_KEEP, document)
    tx.execute(_NAME, {"named_at": now, "id_": row.endpoint_id, "at_": row.as_of})


def get_evidence(tx: Connection, digest: str) -> bytes | None:
    """Return the canonical text of a digest, or None if no report cited it for 90 days."""
    query = sa.select(evidence_table.c.document).where(evidence_table.c.digest == digest)
    return tx.execute(query).scalar_one_or_none()


def forget_evidence(tx: Connection, *, now: int, limit: int) -> int:
    """Delete up to `limit` documents not cited for 90 days; return their number."""
    unnamed = evidence_table.c.named_at < now - EVIDENCE_MS - RENAMED_MS
    return rows.delete_batch(tx, evidence_table, unnamed, limit=limit)
