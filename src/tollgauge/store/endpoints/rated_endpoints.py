"""Read RatedEndpoint: endpoints with their prices and the figures of their scores.

Reports, lists, the similarity index and bundles select COLUMNS and read rows with `from_row`.
`figure_columns` is the inverse for saving a score.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import Connection

from tollgauge.core.endpoint.identity import Endpoint, Listing
from tollgauge.core.lists.rated_endpoint import RatedEndpoint, ScoreFigures
from tollgauge.core.score.score import Down
from tollgauge.core.similarity.tokenizer import ProviderText
from tollgauge.db import schema
from tollgauge.db.schema import endpoint as endpoint_table
from tollgauge.db.schema import host as host_table
from tollgauge.store import rows
from tollgauge.store.endpoints.endpoints import PUBLIC, lock

alternative_count = sa.Table(
    "alternative_count",
    schema.metadata,
    sa.Column("endpoint_id", sa.Text, sa.ForeignKey("endpoint.id"), primary_key=True),
    sa.Column("better", sa.Integer, nullable=False),
    sqlite_with_rowid=False,
)
"""The latest number of better-scored endpoints with a similar purpose."""

COLUMNS: Final = (
    *endpoint_table.c["id", "resource", "host", "status", "adopted", "first_seen", "last_probed"],
    *endpoint_table.c["simulated", "sources", "service_name", "description"],
    *endpoint_table.c[rows.QUOTE_COLUMNS],
    *(endpoint_table.c[column.name] for column in schema.FIGURES),
    PUBLIC.label("public"),
)
_ROWS: Final = sa.select(*COLUMNS)
_BY_ID: Final = _ROWS.where(rows.any_of(endpoint_table.c.id))
_FIGURES: Final = sa.select(
    *(column for column in COLUMNS if column.name not in {"service_name", "description", "sources"})
)
_TEXTS: Final = sa.select(
    *endpoint_table.c["id", "resource", "service_name", "description", "tags", "query", "body"]
).where(rows.any_of(endpoint_table.c.id))
_WHOLE: Final = sa.select(endpoint_table, PUBLIC.label("public"))
_HOST: Final = host_table.alias()
_SELLS: Final = sa.exists().where(endpoint_table.c.host == _HOST.c.host, PUBLIC)


def get_public(tx: Connection, endpoint_id: str) -> RatedEndpoint | None:
    """Return the public endpoint with an ID, or None."""
    row = tx.execute(_ROWS.where(endpoint_table.c.id == endpoint_id, PUBLIC)).first()
    return None if row is None else from_row(row)


def get_many(tx: Connection, ids: Iterable[str]) -> dict[str, RatedEndpoint]:
    """Return endpoints by ID, public or not; unknown IDs are left out."""
    return {row.id: from_row(row) for row in rows.with_any(tx, _BY_ID, ids)}


def get_whole(tx: Connection, endpoint_id: str) -> tuple[Endpoint, RatedEndpoint] | None:
    """Return an endpoint in both forms, public or not, or None."""
    row = tx.execute(_WHOLE.where(endpoint_table.c.id == endpoint_id)).first()
    return None if row is None else (rows.to_endpoint(row), from_row(row))


def page(tx: Connection, *, after: str, limit: int) -> list[RatedEndpoint]:
    """Return a page of all endpoints by ID, after an ID, without their texts and sources."""
    query = _FIGURES.where(endpoint_table.c.id > after).order_by(endpoint_table.c.id).limit(limit)
    without = {"service_name": "", "description": "", "sources": ()}
    return [_from_row(row, **without) for row in tx.execute(query)]


def provider_texts(tx: Connection, ids: Iterable[str]) -> dict[str, ProviderText]:
    """Return the texts of providers by the ID of their endpoint; unknown IDs are left out."""
    texts = {}
    for row in rows.with_any(tx, _TEXTS, ids):
        fields = row._asdict()
        id_ = fields.pop("id")
        texts[id_] = ProviderText(**fields)
    return texts


def of_host(
    tx: Connection, host: str, *, after: str | None = None, limit: int
) -> tuple[RatedEndpoint, ...]:
    """Return a page of a host's public endpoints.

    Endpoints with the best scores come first and those without a score last; equal ones are sorted
    by descending ID. `after` is the last ID of the previous page; an ID of another host returns the
    first page.
    """
    column = endpoint_table.c
    of_host = _ROWS.where(column.host == host, PUBLIC)
    # Each part is read in the order of its index: a host may have tens of thousands of endpoints.
    scored = of_host.where(column.rank_key.is_not(None)).order_by(
        column.rank_key.desc(), column.id.desc()
    )
    unscored = of_host.where(column.rank_key.is_(None)).order_by(column.id.desc())
    last = sa.select(column.id, column.rank_key).where(column.id == after, column.host == host)
    place = None if after is None else tx.execute(last).first()
    if place is None:
        parts = [scored, unscored]
    elif place.rank_key is None:
        parts = [unscored.where(column.id < place.id)]
    else:
        behind = sa.tuple_(column.rank_key, column.id) < (place.rank_key, place.id)
        parts = [scored.where(behind), unscored]
    listed: list[RatedEndpoint] = []
    for part in parts:
        listed += map(from_row, tx.execute(part.limit(limit - len(listed))))
        if len(listed) == limit:
            break
    return tuple(listed)


def ids_of_pay_to(tx: Connection, pay_to: str, *, limit: int) -> tuple[str, ...]:
    """Return the IDs of public endpoints with a payTo address, best scores first."""
    query = (
        sa.select(endpoint_table.c.id)
        .where(endpoint_table.c.quote_pay_to == pay_to, PUBLIC)
        .order_by(endpoint_table.c.rank_key.desc().nulls_last(), endpoint_table.c.id)
        .limit(limit)
    )
    return tuple(tx.execute(query).scalars())


def pay_tos(tx: Connection, *, offset: int, limit: int) -> tuple[str, ...]:
    """Return at most `limit` payTo addresses of public endpoints, sorted, from the row `offset`
    on.
    """
    column = endpoint_table.c.quote_pay_to
    query = sa.select(column).distinct().where(column.is_not(None), PUBLIC).order_by(column)
    return tuple(tx.execute(query.offset(offset).limit(limit)).scalars())


def count_pay_tos(tx: Connection) -> int:
    """Count the payTo addresses of all endpoints, public or not."""
    query = sa.select(sa.func.count(endpoint_table.c.quote_pay_to.distinct()))
    return tx.execute(query).scalar_one()


def with_prefix(tx: Connection, prefix: str, *, limit: int) -> tuple[tuple[str, int | None], ...]:
    """Return public endpoints whose ID starts with some hex digits, each with the time of its
    latest score (ms UTC) or None.
    """
    query = (
        sa.select(endpoint_table.c.id, endpoint_table.c.scored_at)
        # "g" sorts after every hex digit.
        .where(endpoint_table.c.id.between(prefix, f"{prefix}g"), PUBLIC)
        .order_by(endpoint_table.c.id)
        .limit(limit)
    )
    return tuple((row.id, row.scored_at) for row in tx.execute(query))


def hosts(tx: Connection, *, offset: int, limit: int) -> tuple[str, ...]:
    """Return at most `limit` hosts with public endpoints, by name, from the row `offset` on."""
    query = sa.select(_HOST.c.host).where(_SELLS).order_by(_HOST.c.host)
    return tuple(tx.execute(query.offset(offset).limit(limit)).scalars())


def count_hosts(tx: Connection) -> int:
    """Count all hosts, including those without a public endpoint."""
    return tx.execute(sa.select(sa.func.count()).select_from(host_table)).scalar_one()


def save_better(tx: Connection, counts: Mapping[str, int]) -> None:
    """Store counts of better alternatives. Endpoints deleted in the meantime are skipped."""
    existing = sorted(lock(tx, counts))
    columns = [{"endpoint_id": id_, "better": counts[id_]} for id_ in existing]
    rows.put(tx, alternative_count, columns)


def count_better(tx: Connection, ids: Iterable[str]) -> dict[str, int]:
    """Return the stored counts of better alternatives by ID."""
    query = sa.select(alternative_count).where(rows.any_of(alternative_count.c.endpoint_id))
    return {row.endpoint_id: row.better for row in rows.with_any(tx, query, ids)}


def from_row(row: Any) -> RatedEndpoint:
    """Build an endpoint from a row with COLUMNS."""
    return _from_row(row, sources=() if row.adopted else row.sources)


def _from_row(row: Any, **converted: Any) -> RatedEndpoint:
    return rows.from_columns(
        RatedEndpoint,
        row,
        status=Listing.UNLISTED if row.adopted else Listing(row.status),
        public=bool(row.public),
        quote=rows.to_quote(row),
        down=None
        if row.outage_since is None
        else Down(since=row.outage_since, reason=row.outage_reason, confirmed=row.outage_confirmed),
        **converted,
    )


def figure_columns(figures: ScoreFigures) -> dict[str, Any]:
    """Return the figures of a score as values of the columns `FIGURES` of db/schema."""
    down = figures.down
    return rows.to_columns(
        figures,
        "down",
        outage_since=down.since if down else None,
        outage_reason=down.reason if down else None,
        outage_confirmed=down.confirmed if down else None,
    )
