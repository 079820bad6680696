"""The latest score of every endpoint, and the order of all of them.

Rules:
- one row for each endpoint, with the evidence that it was computed from; an older score never
  replaces a newer one;
- the ranked population is every listed endpoint that a directory names and that has a score;
- its order is score, confidence and id, all descending, as the index has them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import Connection

from tollgauge.core.endpoint import Listing
from tollgauge.core.score import Score, score_from_json
from tollgauge.db import upsert
from tollgauge.db.compression import compress, decompress
from tollgauge.db.prepared import Prepared, PreparedAny
from tollgauge.db.schema import endpoint as endpoint_table
from tollgauge.db.schema import host as host_table
from tollgauge.db.schema import score as score_table
from tollgauge.store import rows

_ONE: Final = Prepared(
    sa.select(score_table).where(score_table.c.endpoint_id == sa.bindparam("id"))
)
_SAVE: Final = Prepared(
    upsert.either(
        score_table,
        lambda insert: insert.on_conflict_do_update(
            index_elements=["endpoint_id"],
            set_=dict(insert.excluded),
            where=score_table.c.as_of <= insert.excluded.as_of,
        ),
    )
)
_END_CLAIM: Final = Prepared(
    endpoint_table.update()
    .where(endpoint_table.c.id == sa.bindparam("id_"))
    .values(
        score_due=sa.func.coalesce(endpoint_table.c.score_next, endpoint_table.c.score_due),
        score_next=None,
    )
)
_LOCK: Final = PreparedAny(
    lambda ids: (
        sa.select(endpoint_table.c.id)
        .where(endpoint_table.c.id.in_(ids))
        .order_by(endpoint_table.c.id)
        .with_for_update()
    )
)
SITE_MAX: Final = 101
"""Enough for a median; a site may list tens of thousands of paths."""
_OF_SITE: Final = (
    sa.select(score_table.c.score_tenths)
    .join(endpoint_table, endpoint_table.c.id == score_table.c.endpoint_id)
    .join(host_table, host_table.c.host == endpoint_table.c.host)
    .where(
        host_table.c.site == sa.bindparam("site"),
        endpoint_table.c.first_seen < sa.bindparam("before"),
        score_table.c.score_tenths.is_not(None),
    )
    .limit(SITE_MAX)
)
_ORDER: Final = (
    score_table.c.score_tenths.desc(),
    score_table.c.confidence_hundredths.desc(),
    score_table.c.endpoint_id.desc(),
)
_RANKED: Final = (
    endpoint_table.c.status == Listing.LISTED.value,
    endpoint_table.c.adopted.is_(False),
    score_table.c.score_tenths.is_not(None),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreRow:
    """A score as it was saved. `compliant`: at least half of the scored probes were. `evidence` is
    the canonical JSON whose SHA-256 is `digest`; `result` the JSON of the whole score;
    `payable_24h_permille` the chance that it is payable in 24 hours. None where nothing was
    measured.
    """

    endpoint_id: str
    as_of: int
    policy_version: int
    score_tenths: int | None
    grade: str | None
    recommendation: str
    confidence_hundredths: int
    uptime_tenths: int | None
    compliant: bool
    evidence: bytes
    digest: str
    result: bytes
    payable_24h_permille: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """An endpoint of the ranked population, by what ranks it, and its site."""

    endpoint_id: str
    site: str
    score_tenths: int
    confidence_hundredths: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Population:
    """The ranked population: how many endpoints it has, how many of them were ever up in their
    window (`reachable`), how many were mostly `compliant`, and (grade, count) from
    the best grade down.
    """

    scored: int
    reachable: int
    compliant: int
    grades: tuple[tuple[str, int], ...]


def save(tx: Connection, row: ScoreRow) -> bool:
    """Store a score, and end the claim that it was computed under: the next score is due when this
    one is too old, or at once if the evidence changed meanwhile. False if there is a newer score
    or the endpoint was removed; the score is not stored then.
    """
    # First, because it locks the endpoint's row: the endpoint cannot be removed meanwhile.
    if not _END_CLAIM.run(tx, {"id_": row.endpoint_id}):
        return False
    return _SAVE.run(tx, _columns(row)) > 0


def save_many(tx: Connection, score_rows: Iterable[ScoreRow]) -> None:
    """Store scores of different endpoints, each as `save`, in as many statements as for one."""
    by_id = {row.endpoint_id: row for row in score_rows}
    known = [row.id for row in _LOCK.rows(tx, sorted(by_id))]
    _END_CLAIM.run_each(tx, [{"id_": id_} for id_ in known])
    _SAVE.run_each(tx, [_columns(by_id[id_]) for id_ in known])


def get(tx: Connection, endpoint_id: str) -> ScoreRow | None:
    """The score of an endpoint, or None."""
    row = _ONE.first(tx, {"id": endpoint_id})
    return None if row is None else _from_row(row)


def get_many(tx: Connection, endpoint_ids: Iterable[str]) -> dict[str, ScoreRow]:
    """The scores of some endpoints, by endpoint id; those without are left out."""
    query = sa.select(score_table)
    known = rows.with_any(tx, query, score_table.c.endpoint_id, endpoint_ids)
    return {row.endpoint_id: _from_row(row) for row in known}


def results(tx: Connection, endpoint_ids: Iterable[str]) -> dict[str, Score]:
    """The scores of some endpoints without their evidence, which can be large, by endpoint id;
    those without are left out.
    """
    query = sa.select(score_table.c.endpoint_id, score_table.c.result)
    known = rows.with_any(tx, query, score_table.c.endpoint_id, endpoint_ids)
    return {row.endpoint_id: score_from_json(row.result) for row in known}


def site_median(tx: Connection, site: str, *, before: int) -> int | None:
    """The median score in tenths of a site's endpoints that were first seen before an instant, of
    at most SITE_MAX of them; None without any. Of two in the middle the lower one.
    """
    known = sorted(tx.execute(_OF_SITE, {"site": site, "before": before}).scalars())
    return known[(len(known) - 1) // 2] if known else None


def top(tx: Connection, *, limit: int, offset: int = 0) -> tuple[ScoreRow, ...]:
    """The best of the ranked population after the first `offset`, best first."""
    query = (
        sa.select(score_table)
        .join(endpoint_table)
        .where(*_RANKED)
        .order_by(*_ORDER)
        .limit(limit)
        .offset(offset)
    )
    return tuple(_from_row(row) for row in tx.execute(query))


def candidates(
    tx: Connection,
    *,
    recommended: Collection[str],
    without_sites: Collection[str],
    after: Candidate | None,
    limit: int,
) -> tuple[Candidate, ...]:
    """The best of the ranked population with one of these recommendations, best first: those
    behind `after`, without the endpoints of some sites.
    """
    query = (
        sa.select(
            *score_table.c["endpoint_id", "score_tenths", "confidence_hundredths"],
            host_table.c.site,
        )
        .join(endpoint_table, endpoint_table.c.id == score_table.c.endpoint_id)
        .join(host_table, host_table.c.host == endpoint_table.c.host)
        .where(
            *_RANKED,
            score_table.c.recommendation.in_(recommended),
            host_table.c.site.not_in(without_sites),
        )
        .order_by(*_ORDER)
        .limit(limit)
    )
    if after is not None:
        place = (after.score_tenths, after.confidence_hundredths, after.endpoint_id)
        query = query.where(sa.tuple_(*(column.element for column in _ORDER)) < place)
    return tuple(rows.from_columns(Candidate, row) for row in tx.execute(query))


def count_of_site(tx: Connection, site: str, *, recommended: Collection[str], most: int) -> int:
    """How many of the ranked population are of a site and have one of these recommendations;
    `most` and no further.
    """
    query = (
        sa.select(score_table.c.endpoint_id)
        .join(endpoint_table, endpoint_table.c.id == score_table.c.endpoint_id)
        .join(host_table, host_table.c.host == endpoint_table.c.host)
        .where(
            *_RANKED,
            host_table.c.site == site,
            score_table.c.recommendation.in_(recommended),
        )
        .limit(most)
    )
    return tx.execute(sa.select(sa.func.count()).select_from(query.subquery())).scalar_one()


def population(tx: Connection) -> Population:
    """Counts over the ranked population."""
    query = (
        sa.select(
            score_table.c.grade,
            sa.func.count().label("scored"),
            sa.func.count().filter(score_table.c.uptime_tenths > 0).label("reachable"),
            sa.func.count().filter(score_table.c.compliant).label("compliant"),
        )
        .join(endpoint_table)
        .where(*_RANKED)
        .group_by(score_table.c.grade)
        .order_by(score_table.c.grade)
    )
    by_grade = tx.execute(query).all()
    return Population(
        scored=sum(row.scored for row in by_grade),
        reachable=sum(row.reachable for row in by_grade),
        compliant=sum(row.compliant for row in by_grade),
        grades=tuple((row.grade, row.scored) for row in by_grade if row.grade is not None),
    )


def _columns(row: ScoreRow) -> dict[str, Any]:
    """A score as column values."""
    return rows.to_columns(row, evidence=compress(row.evidence))


def _from_row(row: Any) -> ScoreRow:
    """The inverse of `_columns`."""
    return rows.from_columns(ScoreRow, row, evidence=decompress(row.evidence))
