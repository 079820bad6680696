"""Open days: what the probes of a day that is not closed add up to, gathered by the database.

A score looks at all of today's probes, some dozens of rows of which it needs hardly more than sums.
To read them one by one would take most of its time, so the row of the latest score has the sums up
to the newest probe that it knew (core/open_day), and of the probes after that the database makes
one row an endpoint: what each of them adds to its day and what it says as JSON, and the latest
scored probe in full.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson
import sqlalchemy as sa
from sqlalchemy import Connection

from tollgauge.core.evidence import RECENT_MS, LastProbe, LatestState
from tollgauge.core.latest_probes import NOTHING, Latest, latest_state
from tollgauge.core.open_day import NO_PROBES, DayProbes, OpenDay
from tollgauge.core.probe import Attribution, Outcome
from tollgauge.core.rollup import Rollup
from tollgauge.core.spans import REFUSALS, Spans, Statement
from tollgauge.core.units import DAY_MS
from tollgauge.db.codec import finding_texts
from tollgauge.db.prepared import Prepared, PreparedAny, Query
from tollgauge.db.schema import endpoint as endpoint_table
from tollgauge.db.schema import probe as probe_table
from tollgauge.db.schema import score as score_table

Opened = tuple[OpenDay, DayProbes]
"""The sums of a day up to a probe, and the probes after it."""

_LATEST: Final = (
    *("at", "outcome", "attribution", "up", "payable", "compliance"),
    *("holds", "accepts", "tls_not_after", "rules"),
)
"""What is read of a latest probe."""


def _of_day(ids: list[sa.BindParameter[Any]]) -> dict[str, Query]:
    """The sums that were kept of endpoints on a day and the probes after them, one row an endpoint,
    by the name of the database.
    """
    id_, scored_id = endpoint_table.c.id, score_table.c.endpoint_id
    return {
        "sqlite": _query(ids, (id_,), sa.func.json_array, sa.func.json_group_array),
        "postgresql": _query(ids, (id_, scored_id), sa.func.json_build_array, sa.func.json_agg),
    }


def _query(
    ids: list[sa.BindParameter[Any]], keys: Sequence[Any], array: Any, array_of_rows: Any
) -> Query:
    probe, day = probe_table.c, sa.bindparam("day", type_=sa.Integer)
    scored = probe.attribution == Attribution.THEIRS.value
    speaks = sa.or_(scored, probe.outcome == Outcome.THROTTLED.value)
    speaks_up = sa.and_(probe.up, *(probe.outcome != outcome.value for outcome in sorted(REFUSALS)))
    answered = sa.and_(probe.up, probe.outcome != Outcome.FORBIDDEN.value)
    excluded = sa.case(
        (scored, sa.null()),
        (probe.reason != "", sa.type_coerce(probe.reason, sa.Text)),
        else_=probe.attribution,
    )
    sample = array(
        *(probe.at, excluded, probe.up, sa.case((answered, probe.total))),
        *(probe.compliant, probe.payable, probe.compliance),
    )
    said = array(
        probe.at, probe.holds, sa.case((speaks_up, 1), else_=0), probe.payable, probe.compliance
    )
    seen = sa.and_(scored, probe.accepts.is_not(None))
    counted = sa.and_(probe.at.is_not(None), sa.not_(probe.confirms))
    of_endpoints = (
        sa.select(
            endpoint_table.c.id,
            endpoint_table.c.probes_revised,
            *score_table.c["open_day", "open_day_newest"],
            sa.func.max(probe.at).label("newest"),
            sa.func.max(sa.case((scored, probe.at))).label("last_at"),
            sa.func.max(sa.case((seen, probe.at))).label("envelope_at"),
            sa.func.max(sa.case((speaks, probe.at))).label("state_at"),
            sa.cast(array_of_rows(sample).filter(counted), sa.Text).label("samples"),
            sa.cast(array_of_rows(said).filter(speaks), sa.Text).label("statements"),
        )
        .select_from(
            endpoint_table.outerjoin(score_table, _keeps_the_day()).outerjoin(
                probe_table,
                sa.and_(
                    probe.day == day,
                    probe.endpoint_id == endpoint_table.c.id,
                    probe.at > sa.func.coalesce(score_table.c.open_day_newest, 0),
                    probe.at <= sa.bindparam("as_of", type_=sa.BigInteger),
                ),
            )
        )
        .where(endpoint_table.c.id.in_(ids))
        .group_by(*keys)
        .subquery()
    )
    last = probe_table.alias("last")
    is_last = sa.and_(
        last.c.day == day,
        last.c.endpoint_id == of_endpoints.c.id,
        last.c.at == of_endpoints.c.last_at,
    )
    return sa.select(of_endpoints, *last.c[_LATEST]).select_from(
        of_endpoints.outerjoin(last, is_last)
    )


def _keeps_the_day() -> sa.ColumnElement[bool]:
    """Whether a score has sums of the day that are still right."""
    newest = score_table.c.open_day_newest
    return sa.and_(
        score_table.c.endpoint_id == endpoint_table.c.id,
        newest >= sa.bindparam("kept_since", type_=sa.BigInteger),
        newest <= sa.bindparam("kept_until", type_=sa.BigInteger),
        score_table.c.probes_revised == endpoint_table.c.probes_revised,
    )


_OF_DAY: Final = PreparedAny(_of_day)
_AT: Final = Prepared(
    sa.select(*probe_table.c[_LATEST]).where(
        probe_table.c.day == sa.bindparam("day"),
        probe_table.c.endpoint_id == sa.bindparam("id"),
        probe_table.c.at == sa.bindparam("at"),
    )
)


_NEXT_DAY: Final = Prepared(
    sa.select(sa.func.min(probe_table.c.day).label("day")).where(
        probe_table.c.day > sa.bindparam("after")
    )
)


def days(tx: Connection, span: range) -> list[int]:
    """The days of a span that have probes as rows of their own, in order."""
    known: list[int] = []
    after = span[0] - 1
    while (day := _NEXT_DAY.first(tx, {"after": after}).day) is not None and day <= span[-1]:
        known.append(day)
        after = day
    return known


def probes_of(
    tx: Connection, endpoint_ids: Sequence[str], *, day: int, as_of: int
) -> dict[str, DayProbes]:
    """The probes of endpoints on an open day up to `as_of` (ms UTC), by id; those without a probe
    are left out.
    """
    opened = read(tx, endpoint_ids, day=day, as_of=as_of, kept=False)
    return {id_: probes for id_, (_, probes) in opened.items()}


def read(
    tx: Connection, endpoint_ids: Sequence[str], *, day: int, as_of: int, kept: bool = True
) -> dict[str, Opened]:
    """The open day of endpoints up to `as_of` (ms UTC), by id: the sums that the latest score kept
    and the probes after them. Where it has none, or if not those that are `kept` are wanted, the
    sums are those of no probe. Endpoints without a probe are left out.
    """
    since, until = day * DAY_MS, min(as_of, (day + 1) * DAY_MS - 1)
    values = {
        "day": day,
        "as_of": as_of,
        "kept_since": since,
        "kept_until": until if kept else since - 1,
    }
    opened: dict[str, Opened] = {}
    for row in _OF_DAY.rows(tx, endpoint_ids, values):
        if row.newest is None and row.open_day is None:
            continue
        after = NO_PROBES if row.newest is None else _probes(tx, day, row)
        opened[row.id] = _unpack(row, day, later=after.latest), after
    return opened


def _probes(tx: Connection, day: int, row: Any) -> DayProbes:
    return DayProbes(
        newest=row.newest,
        samples=_rows(row.samples),
        statements=list(map(tuple, _rows(row.statements))),
        latest=_latest(tx, day, row),
    )


def _rows(text: str | None) -> list[Any]:
    return [] if text is None else orjson.loads(text)


def _latest(tx: Connection, day: int, row: Any) -> Latest:
    """The latest probes of a day, which nearly always are one."""

    def at(instant: int | None) -> Any:
        if instant is None or instant == row.last_at:
            return None if instant is None else row
        return _AT.first(tx, {"day": day, "id": row.id, "at": instant})

    last = _last_probe(at(row.last_at))
    same = row.envelope_at == row.last_at
    return Latest(
        last=last,
        envelope=last if same else _last_probe(at(row.envelope_at)),
        state=latest_state(at(row.state_at)),
    )


def _last_probe(row: Any) -> LastProbe | None:
    """What evidence keeps of a row."""
    if row is None:
        return None
    return LastProbe(
        at=row.at,
        outcome=row.outcome,
        up=row.up,
        payable=row.payable,
        accepts=row.accepts,
        tls_not_after=row.tls_not_after,
        rules=finding_texts(row.rules),
    )


def pack(opened: OpenDay) -> bytes:
    """The sums of a day as they are kept; of its ups only those that a score may still look at."""
    sums, spoken, latest = opened.sums, opened.sums.spans, opened.latest
    since = opened.newest - RECENT_MS
    return orjson.dumps(
        (
            (
                *(sums.probes, sums.scored, sums.up, sums.compliant, sums.payable),
                *(sums.compliance, sums.slots, sums.latency_sum),
            ),
            (
                *(spoken.up, spoken.payable, spoken.down, spoken.compliance),
                *(spoken.failures, spoken.repairs),
            ),
            sums.latency,
            sums.excluded,
            None if opened.said is None else tuple(opened.said),
            [up for up in opened.ups if up[0] > since],
            {
                "last": latest.last,
                "envelope": None if _has_envelope(latest.last) else latest.envelope,
                "state": latest.state,
            },
        )
    )


def _unpack(row: Any, day: int, *, later: Latest) -> OpenDay:
    """The inverse of `pack`, of a row that has sums or none yet. The latest probes are those that
    `later` ones lack.
    """
    if row.open_day is None:
        return OpenDay(sums=Rollup(day=day), revised=row.probes_revised)
    counts, spoken, latency, excluded, said, ups, latest = orjson.loads(row.open_day)
    probes, scored, up, compliant, payable, compliance, slots, latency_sum = counts
    up_ms, payable_ms, down_ms, compliance_ms, failures, repairs = spoken
    return OpenDay(
        sums=Rollup(
            day=day,
            probes=probes,
            scored=scored,
            up=up,
            compliant=compliant,
            payable=payable,
            compliance=compliance,
            slots=slots,
            latency_sum=latency_sum,
            latency=tuple(map(tuple, latency)),
            excluded=tuple(map(tuple, excluded)),
            spans=Spans(
                up=up_ms,
                payable=payable_ms,
                down=down_ms,
                compliance=compliance_ms,
                failures=failures,
                repairs=repairs,
            ),
        ),
        newest=row.open_day_newest,
        said=None if said is None else Statement(*said),
        ups=ups,
        latest=latest_from(latest, later=later),
        revised=row.probes_revised,
    )


def latest_from(document: Mapping[str, Any], *, later: Latest) -> Latest:
    """The latest probes of a JSON document, only those that `later` ones lack. The last one with an
    envelope may be left out where that is the last of all.
    """
    if later.last and later.envelope and later.state:
        return NOTHING
    last, state = _probe_from(document["last"]), document["state"]
    return Latest(
        last=None if later.last else last,
        envelope=None
        if later.envelope
        else _probe_from(document["envelope"]) or (last if _has_envelope(last) else None),
        state=None if later.state or state is None else LatestState(**state),
    )


def _has_envelope(probe: LastProbe | None) -> bool:
    return probe is not None and probe.accepts is not None


def _probe_from(document: dict[str, Any] | None) -> LastProbe | None:
    if document is None:
        return None
    return LastProbe(**{**document, "rules": tuple(map(tuple, document["rules"]))})
