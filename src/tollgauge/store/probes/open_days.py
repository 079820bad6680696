"""Open days: what the probes of a day that is not closed add up to, gathered by the database.

A score looks at all of today's probes, some dozens of rows of which it needs hardly more than sums.
To read them one by one would take most of its time, so the database makes one row an endpoint: what
each probe adds to its day and what it says as JSON, and the latest scored probe in full.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Final

import orjson
import sqlalchemy as sa
from sqlalchemy import Connection

from tollgauge.core.evidence import LastProbe, LatestState
from tollgauge.core.probe import Attribution, Outcome, ProbeResult
from tollgauge.core.rollup import Rollup, Sample, rollup_of_samples, sample
from tollgauge.core.spans import REFUSALS, Said, Statement, spans, statement
from tollgauge.core.window import NOTHING, Latest
from tollgauge.db.codec import finding_texts
from tollgauge.db.prepared import Prepared, PreparedAny, Query
from tollgauge.db.schema import probe as probe_table


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenDay:
    """Probes of an endpoint on a day: what they add to it, what they say, each in any order, and
    the latest of them.
    """

    samples: Sequence[Sample] = ()
    statements: Sequence[Said] = ()
    latest: Latest = NOTHING

    @classmethod
    def of(cls, results: Sequence[ProbeResult]) -> OpenDay:
        """Those of results, in the order of time."""
        return cls(
            samples=[sample(result) for result in results if not result.confirms],
            statements=[said for result in results if (said := statement(result)) is not None],
            latest=latest_of(results),
        )

    def __add__(self, other: OpenDay) -> OpenDay:
        """These and others of the same day."""
        return OpenDay(
            samples=[*self.samples, *other.samples],
            statements=[*self.statements, *other.statements],
            latest=self.latest.after(other.latest),
        )

    def sums(
        self, day: int, *, before: Statement | None, until: int
    ) -> tuple[Rollup, Statement | None]:
        """The sums of the day up to `until` (ms UTC), and its last statement; `before` is that of
        the day before.
        """
        spoken = spans(day, self.statements, before=before, until=until)
        last = Statement(*max(self.statements, key=_at)) if self.statements else None
        return rollup_of_samples(day, self.samples, spans=spoken), last

    def ups_after(self, instant: int) -> list[bool]:
        """Of each scored probe after an instant (ms UTC) whether it was up."""
        return [row[2] for row in self.samples if row[0] > instant and row[1] is None]


NO_PROBES: Final = OpenDay()
_at: Final = itemgetter(0)


_LATEST: Final = (
    *("at", "outcome", "attribution", "up", "payable", "compliance"),
    *("holds", "accepts", "tls_not_after", "rules"),
)
"""What is read of a latest probe."""


def _of_day(ids: list[sa.BindParameter[Any]]) -> dict[str, Query]:
    """The probes of endpoints on a day, one row an endpoint, by the name of the database."""
    return {
        "sqlite": _query(ids, sa.func.json_array, sa.func.json_group_array),
        "postgresql": _query(ids, sa.func.json_build_array, sa.func.json_agg),
    }


def _query(ids: list[sa.BindParameter[Any]], array: Any, array_of_rows: Any) -> Query:
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
    of_endpoints = (
        sa.select(
            probe.endpoint_id,
            sa.func.max(sa.case((scored, probe.at))).label("last_at"),
            sa.func.max(sa.case((seen, probe.at))).label("envelope_at"),
            sa.func.max(sa.case((speaks, probe.at))).label("state_at"),
            sa.cast(array_of_rows(sample).filter(sa.not_(probe.confirms)), sa.Text).label(
                "samples"
            ),
            sa.cast(array_of_rows(said).filter(speaks), sa.Text).label("statements"),
        )
        .where(
            probe.day == day,
            probe.endpoint_id.in_(ids),
            probe.at <= sa.bindparam("as_of", type_=sa.BigInteger),
        )
        .group_by(probe.endpoint_id)
        .subquery()
    )
    last = probe_table.alias("last")
    is_last = sa.and_(
        last.c.day == day,
        last.c.endpoint_id == of_endpoints.c.endpoint_id,
        last.c.at == of_endpoints.c.last_at,
    )
    return sa.select(
        of_endpoints.c.endpoint_id.label("id"),
        *of_endpoints.c["last_at", "envelope_at", "state_at", "samples", "statements"],
        *last.c[_LATEST],
    ).select_from(of_endpoints.outerjoin(last, is_last))


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


def read(
    tx: Connection, endpoint_ids: Sequence[str], *, day: int, as_of: int
) -> dict[str, OpenDay]:
    """The open day of endpoints up to `as_of` (ms UTC), by id; those without a probe are left
    out.
    """
    return {
        row.id: OpenDay(
            samples=_rows(row.samples),
            statements=list(map(tuple, _rows(row.statements))),
            latest=_latest(tx, day, row),
        )
        for row in _OF_DAY.rows(tx, endpoint_ids, {"day": day, "as_of": as_of})
    }


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
        state=_state(at(row.state_at)),
    )


def latest_of(results: Sequence[ProbeResult]) -> Latest:
    """The latest of some results, which are in the order of time."""
    last = next((one for one in reversed(results) if one.scored), None)
    envelope = next(
        (one for one in reversed(results) if one.scored and one.accepts is not None), None
    )
    state = next(filter(statement, reversed(results)), None)
    newest = LastProbe.of(last) if last else None
    return Latest(
        last=newest,
        envelope=newest if envelope is last else LastProbe.of(envelope) if envelope else None,
        state=_state(state),
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


def _state(probe: Any) -> LatestState | None:
    """What a row or a result says of now."""
    said = None if probe is None else statement(probe)
    if said is None:
        return None
    outcome = Outcome(probe.outcome).value
    return LatestState(at=said.at, outcome=outcome, up=said.up, payable=said.payable)
