"""Rows for trust records: endpoints with their offers and the flags of their latest scores
(monitor/trust_records).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import Connection

from tollgauge.core.endpoint.identity import Listing
from tollgauge.core.endpoint.terms import KnownOffer
from tollgauge.core.guard.bundle import LISTED_MS
from tollgauge.core.lists.rated_endpoint import RatedEndpoint
from tollgauge.db.schema import endpoint as endpoint_table
from tollgauge.db.schema import score as score_table
from tollgauge.store.endpoints import rated_endpoints
from tollgauge.store.endpoints.endpoints import PUBLIC

_ROWS: Final = sa.select(
    *rated_endpoints.COLUMNS, *endpoint_table.c["offers", "templated"], score_table.c.result
).outerjoin(score_table, score_table.c.endpoint_id == endpoint_table.c.id)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordRow:
    """An endpoint with the offers of its envelopes and the JSON of its score, or None."""

    endpoint: RatedEndpoint
    offers: tuple[KnownOffer, ...]
    templated: bool
    result: bytes | None


def get(tx: Connection, endpoint_id: str) -> RecordRow | None:
    """Return the public endpoint with an ID, or None."""
    row = tx.execute(_ROWS.where(endpoint_table.c.id == endpoint_id, PUBLIC)).first()
    return None if row is None else _record_row(row)


def listed(tx: Connection, *, after: str, limit: int, now: int) -> tuple[RecordRow, ...]:
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
    return tuple(map(_record_row, tx.execute(page)))


def _record_row(row: Any) -> RecordRow:
    return RecordRow(
        endpoint=rated_endpoints.from_row(row),
        offers=row.offers,
        templated=row.templated,
        result=row.result,
    )
