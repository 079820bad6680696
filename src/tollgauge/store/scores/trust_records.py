"""Rows for trust records: endpoints with their latest scores and payTo changes
(monitor/trust_records).

Only addresses from the source of the endpoint's price are used: a probe, or a directory until a
probe sees a price. Anyone could list other addresses in a further directory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import Connection

from tollgauge.core.directory.discovery import PAYTO_CHANGED
from tollgauge.core.endpoint.identity import Listing
from tollgauge.core.guard.bundle import LISTED_MS
from tollgauge.core.lists.rated_endpoint import RatedEndpoint
from tollgauge.core.score.evidence import TermChange
from tollgauge.db.schema import discovery_event
from tollgauge.db.schema import endpoint as endpoint_table
from tollgauge.db.schema import score as score_table
from tollgauge.store import rows
from tollgauge.store.endpoints import rated_endpoints
from tollgauge.store.endpoints.endpoints import PUBLIC

_ROWS: Final = sa.select(
    *rated_endpoints.COLUMNS, endpoint_table.c.quote_source, score_table.c.result
).outerjoin(score_table, score_table.c.endpoint_id == endpoint_table.c.id)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordRow:
    """An endpoint with the JSON of its score, or None, and its payTo changes as seen by the source
    of its price, oldest first.
    """

    endpoint: RatedEndpoint
    result: bytes | None
    payto_changes: tuple[TermChange, ...]


def get(tx: Connection, endpoint_id: str) -> RecordRow | None:
    """Return the public endpoint with an ID, or None."""
    known = tx.execute(_ROWS.where(endpoint_table.c.id == endpoint_id, PUBLIC)).all()
    return _with_changes(tx, known)[0] if known else None


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
    return _with_changes(tx, tx.execute(page).all())


def _with_changes(tx: Connection, endpoint_rows: Sequence[Any]) -> tuple[RecordRow, ...]:
    """Add the payTo changes to rows of endpoints, which are sorted by ID."""
    if not endpoint_rows:
        return ()
    # The IDs of a page are consecutive: a range is shorter than a list of a thousand IDs.
    of_page = discovery_event.c.endpoint_id.between(endpoint_rows[0].id, endpoint_rows[-1].id)
    query = (
        sa.select(*discovery_event.c["endpoint_id", "at", "source", "before", "after", "announced"])
        .where(of_page, discovery_event.c.event == PAYTO_CHANGED)
        .order_by(discovery_event.c.endpoint_id, discovery_event.c.at, discovery_event.c.id)
    )
    changes = rows.group(
        (
            (row.endpoint_id, row.source),
            rows.from_columns(TermChange, row, kind=PAYTO_CHANGED, price=None),
        )
        for row in tx.execute(query)
    )
    return tuple(
        RecordRow(
            endpoint=rated_endpoints.from_row(row),
            result=row.result,
            payto_changes=tuple(changes.get((row.id, row.quote_source), ())),
        )
        for row in endpoint_rows
    )
