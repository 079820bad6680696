"""Endpoints with what their own rows say of their scores, as the similarity index reads them, and
how many better alternatives each endpoint has. Which endpoint is offered to whom is decided in
monitor/alternatives.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import Connection

from tollgauge.core.endpoint.identity import Endpoint
from tollgauge.core.score.score import Down
from tollgauge.db import schema
from tollgauge.db.prepared import Prepared, PreparedAny
from tollgauge.db.schema import endpoint as endpoint_table
from tollgauge.store import rows
from tollgauge.store.endpoint_rows import down_from_row, from_row
from tollgauge.store.endpoints.endpoints import PUBLIC, lock

alternative_count = sa.Table(
    "alternative_count",
    schema.metadata,
    sa.Column("endpoint_id", sa.Text, sa.ForeignKey("endpoint.id"), primary_key=True),
    sa.Column("better", sa.Integer, nullable=False),
    sqlite_with_rowid=False,
)
"""How many endpoints of a similar purpose score better, as counted last."""

_ROWS: Final = sa.select(endpoint_table, PUBLIC.label("public"))
_ONE: Final = Prepared(_ROWS.where(endpoint_table.c.id == sa.bindparam("id")))
_PAGE: Final = Prepared(
    _ROWS.where(endpoint_table.c.id > sa.bindparam("after"))
    .order_by(endpoint_table.c.id)
    .limit(sa.bindparam("limit", type_=sa.Integer))
)
_COUNTS: Final = PreparedAny(
    lambda ids: sa.select(alternative_count).where(alternative_count.c.endpoint_id.in_(ids))
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredEndpoint:
    """An endpoint with its latest score; `recommendation` is empty without one. `uptime_tenths` and
    `latency_ms` are those of the score, as is `down`, its outage; `public`: anyone may see the
    endpoint.
    """

    endpoint: Endpoint
    score_tenths: int | None
    grade: str | None
    recommendation: str
    confidence_hundredths: int
    payable_24h_permille: int | None = None
    uptime_tenths: int | None = None
    latency_ms: int | None = None
    public: bool = False
    down: Down | None = None


def page(tx: Connection, *, after: str, limit: int) -> tuple[ScoredEndpoint, ...]:
    """A page of all endpoints in the order of ids, those after an id."""
    return tuple(map(_scored_endpoint, _PAGE.rows(tx, {"after": after, "limit": limit})))


def get(tx: Connection, endpoint_id: str) -> ScoredEndpoint | None:
    """An endpoint with its latest score, or None."""
    row = _ONE.first(tx, {"id": endpoint_id})
    return None if row is None else _scored_endpoint(row)


def get_many(tx: Connection, ids: Iterable[str]) -> dict[str, ScoredEndpoint]:
    """Endpoints with their latest scores, by id; unknown ids are left out."""
    known = rows.with_any(tx, _ROWS, endpoint_table.c.id, ids)
    return {row.id: _scored_endpoint(row) for row in known}


def save_counts(tx: Connection, counts: Mapping[str, int]) -> None:
    """Store how many better alternatives some endpoints have, except for those that were removed
    meanwhile.
    """
    existing = sorted(lock(tx, counts))
    columns = [{"endpoint_id": id_, "better": counts[id_]} for id_ in existing]
    rows.put(tx, alternative_count, columns)


def counts(tx: Connection, ids: Iterable[str]) -> dict[str, int]:
    """How many better alternatives some endpoints have; those not counted yet are left out."""
    return {row.endpoint_id: row.better for row in _COUNTS.rows(tx, tuple(ids))}


def _scored_endpoint(row: Any) -> ScoredEndpoint:
    return ScoredEndpoint(
        endpoint=from_row(row),
        score_tenths=row.ranked_score,
        grade=row.ranked_grade,
        recommendation=row.ranked_recommendation or "",
        confidence_hundredths=row.ranked_confidence or 0,
        payable_24h_permille=row.ranked_payable_24h,
        uptime_tenths=row.ranked_uptime,
        latency_ms=row.ranked_latency,
        public=bool(row.public),
        down=down_from_row(row),
    )
