"""Open days: what the probes of a day that is not closed add up to.

The row of the latest score has the sums of its day up to the newest probe that it knew
(core/open_day), so of the probes themselves only those after that are read: nearly always one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any, Final

import orjson
import sqlalchemy as sa
from sqlalchemy import Connection

from tollgauge.core.evidence import RECENT_MS, LastProbe, LatestState
from tollgauge.core.latest_probes import NOTHING, Latest, latest_state
from tollgauge.core.open_day import NO_PROBES, DayProbes, OpenDay
from tollgauge.core.probe import Attribution, Outcome
from tollgauge.core.rollup import Rollup, Sample
from tollgauge.core.spans import Spans, Statement, statement
from tollgauge.core.units import DAY_MS
from tollgauge.db.codec import finding_texts
from tollgauge.db.prepared import Prepared, PreparedAny, Query
from tollgauge.db.schema import endpoint as endpoint_table
from tollgauge.db.schema import probe as probe_table
from tollgauge.db.schema import score as score_table

Opened = tuple[OpenDay, DayProbes]
"""The sums of a day up to a probe, and the probes after it."""
_at: Final = attrgetter("at")

_SEEN: Final = (
    *("at", "outcome", "attribution", "reason", "up", "compliant", "payable", "compliance"),
    *("total", "holds", "confirms", "accepts", "tls_not_after", "rules"),
)
"""What is read of a probe."""


def _of_day(ids: list[sa.BindParameter[Any]]) -> Query:
    """The sums that were kept of endpoints on a day with each of the probes after them, or with
    none.
    """
    probe = probe_table.c
    later = sa.and_(
        probe.day == sa.bindparam("day", type_=sa.Integer),
        probe.endpoint_id == endpoint_table.c.id,
        probe.at > sa.func.coalesce(score_table.c.open_day_newest, 0),
        probe.at <= sa.bindparam("as_of", type_=sa.BigInteger),
    )
    return (
        sa.select(
            *endpoint_table.c["id", "probes_revised"],
            *score_table.c["open_day", "open_day_newest"],
            *probe[_SEEN],
        )
        .select_from(
            endpoint_table.outerjoin(score_table, _keeps_the_day()).outerjoin(probe_table, later)
        )
        .where(endpoint_table.c.id.in_(ids))
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
    of_endpoints: dict[str, list[Any]] = {}
    for row in _OF_DAY.rows(tx, endpoint_ids, values):
        if row.at is not None or row.open_day is not None:
            of_endpoints.setdefault(row.id, []).append(row)
    opened: dict[str, Opened] = {}
    for id_, (first, *others) in of_endpoints.items():
        after = NO_PROBES if first.at is None else _probes(sorted([first, *others], key=_at))
        opened[id_] = _unpack(first, day, later=after.latest), after
    return opened


def _probes(probe_rows: Sequence[Any]) -> DayProbes:
    """The probes of rows, which are in the order of time."""
    spoken = [(row, said) for row in probe_rows if (said := statement(row)) is not None]
    scored = [row for row in probe_rows if row.attribution == Attribution.THEIRS]
    envelopes = [row for row in scored if row.accepts is not None]
    last = _last_probe(scored[-1]) if scored else None
    same = bool(envelopes) and envelopes[-1] is scored[-1]
    return DayProbes(
        newest=probe_rows[-1].at,
        samples=[_sample(row) for row in probe_rows if not row.confirms],
        statements=[said for _, said in spoken],
        latest=Latest(
            last=last,
            envelope=last if same else _last_probe(envelopes[-1]) if envelopes else None,
            state=latest_state(spoken[-1][0]) if spoken else None,
        ),
    )


def _sample(row: Any) -> Sample:
    """What a probe adds to its day (core/rollup.sample)."""
    answered = row.up and row.outcome != Outcome.FORBIDDEN
    return (
        row.at,
        None if row.attribution == Attribution.THEIRS else row.reason or row.attribution,
        row.up,
        row.total if answered else None,
        row.compliant,
        row.payable,
        row.compliance,
    )


def _last_probe(row: Any) -> LastProbe:
    """What evidence keeps of a row."""
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
