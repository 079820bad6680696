"""Window, day by day: what the rows of each day say, where their sums are not at hand.

Rules:
- a closed day comes from its sums. Its probes are unpacked only if fresh rows came late to it, if
  it may have the latest probe that is looked for, or if `recent` reaches into it;
- the rows of days that are not closed are read once and only counted. Their spans begin with what
  the last statement of the day before carries over.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from operator import itemgetter
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import Connection

from tollgauge.core.evidence import LastProbe, LatestState
from tollgauge.core.probe import Attribution, Outcome, ProbeResult
from tollgauge.core.rollup import Rollup, Sample, rollup_of_samples, sample
from tollgauge.core.spans import NO_SPANS, REFUSALS, Said, Statement, spans, statement
from tollgauge.core.units import DAY_MS, day_of
from tollgauge.core.window import DAYS, Latest, Window
from tollgauge.db.codec import finding_texts, statement_from_json
from tollgauge.db.packing import unpack
from tollgauge.db.prepared import Prepared
from tollgauge.db.schema import probe as probe_table
from tollgauge.db.schema import probe_day as probe_day_table
from tollgauge.store.probes.probe_rows import day_from_row

Fresh = Any
"""A row of `fresh_columns`, its truth values as the database has them."""

_ID: Final = sa.bindparam("id", type_=sa.Text)
_NAMES: Final = tuple(f"day_{number}" for number in range(DAYS + 1))
"""The day before the window is read too, for what it carries over."""
_DAYS: Final = [sa.bindparam(name, type_=sa.Integer) for name in _NAMES]
_SCORED: Final = Attribution.THEIRS.value
_REFUSED: Final = Outcome.FORBIDDEN.value
_THROTTLED: Final = Outcome.THROTTLED.value


def fresh_columns(probe: Any = probe_table) -> tuple[sa.ColumnElement[Any], ...]:
    """What a window reads of a probe that is a row of its own. Truth values are not converted,
    because most of them are only added up.
    """
    return (
        *probe.c["at", "endpoint_id", "attribution", "reason"],
        sa.type_coerce(probe.c.up, sa.Integer).label("up"),
        probe.c.total,
        sa.type_coerce(probe.c.compliant, sa.Integer).label("compliant"),
        sa.type_coerce(probe.c.payable, sa.Integer).label("payable"),
        *probe.c["compliance", "outcome"],
        sa.type_coerce(probe.c.confirms, sa.Integer).label("confirms"),
        *probe.c["holds", "accepts", "tls_not_after", "rules"],
    )


_FRESH: Final = Prepared(
    sa.select(*fresh_columns()).where(
        probe_table.c.day.in_(_DAYS),
        probe_table.c.endpoint_id == _ID,
        probe_table.c.at <= sa.bindparam("as_of"),
    )
)
_CLOSED: Final = Prepared(
    sa.select(
        *(column for column in probe_day_table.c if column.name not in ("endpoint_id", "packed")),
        sa.case((probe_day_table.c.day >= sa.bindparam("near"), probe_day_table.c.packed)).label(
            "packed"
        ),
    ).where(probe_day_table.c.day.in_(_DAYS), probe_day_table.c.endpoint_id == _ID)
)
_PACKED: Final = Prepared(
    sa.select(probe_day_table.c.packed).where(
        probe_day_table.c.day == sa.bindparam("day"), probe_day_table.c.endpoint_id == _ID
    )
)


def read(tx: Connection, endpoint_id: str, *, as_of: int, recent_ms: int) -> Window:
    """The window of an endpoint up to `as_of` (ms UTC); `recent` reaches `recent_ms` back."""
    since = as_of - recent_ms
    window = _Rows(tx, endpoint_id, as_of=as_of, since=since)
    last = window.latest(is_scored, lambda day: day.last_statement)
    envelope = window.latest(_has_envelope, lambda day: day.up or day.up_ms)
    state = window.latest(statement, lambda day: day.last_statement)
    return Window(
        open_days=_days(window),
        recent=_recent(window, since=since),
        latest=Latest(
            last=last_probe(last), envelope=last_probe(envelope), state=latest_state(state)
        ),
    )


class _Rows:
    """The rows of a window's days and of the day before (`span`), read once; a closed day is
    unpacked when it is needed.
    """

    def __init__(self, tx: Connection, endpoint_id: str, *, as_of: int, since: int) -> None:
        today = day_of(as_of)
        self.span = range(today - DAYS, today + 1)
        self.as_of = as_of
        near = day_of(since)
        values = {
            "id": endpoint_id,
            "as_of": as_of,
            "near": near,
            **dict(zip(_NAMES, self.span, strict=True)),
        }
        self.fresh: dict[int, list[Any]] = {}
        for row in sorted(_FRESH.rows(tx, values), key=lambda row: row.at):
            self.fresh.setdefault(day_of(row.at), []).append(row)
        self.closed = {row.day: row for row in _CLOSED.rows(tx, values)}
        self._tx, self._id, self._near = tx, endpoint_id, near
        self._unpacked: dict[int, tuple[ProbeResult, ...]] = {}

    def is_closed(self, day: int) -> bool:
        """Whether all probes of a day are in its closed row, and none is later than `as_of`."""
        ended = (day + 1) * DAY_MS - 1 <= self.as_of
        return day in self.closed and day not in self.fresh and ended

    def unpacked(self, day: int) -> tuple[ProbeResult, ...]:
        """The probes of a closed day up to `as_of`; none once they were pruned."""
        if day not in self._unpacked:
            packed = self.closed[day].packed
            if day < self._near:
                packed = _PACKED.first(self._tx, {"id": self._id, "day": day}).packed
            results = unpack(packed) if packed is not None else ()
            self._unpacked[day] = tuple(probe for probe in results if probe.at <= self.as_of)
        return self._unpacked[day]

    def latest(self, wanted: Callable[[Any], object], may_have: Callable[[Any], object]) -> Any:
        """The latest row or result of the window that is wanted, or None. `may_have` says of a
        closed day whether it may have one.
        """
        first, today = self.span[1], self.span[-1]
        for day in range(today, first - 1, -1):
            closed = day in self.closed and may_have(self.closed[day])
            parts = (self.fresh.get(day, ()), self.unpacked(day) if closed else ())
            latest = (filter(wanted, reversed(part)) for part in parts)
            probes = [probe for part in latest if (probe := next(part, None)) is not None]
            if probes:
                return max(probes, key=lambda probe: probe.at)
        return None


def is_scored(probe: Any) -> bool:
    """Whether a row or a result is scored."""
    return bool(probe.attribution == Attribution.THEIRS)


def _has_envelope(probe: Any) -> bool:
    """Whether a row or a result is scored and has a payment envelope."""
    return is_scored(probe) and probe.accepts is not None


def _days(window: _Rows) -> tuple[Rollup, ...]:
    """The sums of the window, by day."""
    days: dict[int, Rollup] = {}
    last: dict[int, Statement | None] = {}
    for day in window.span:
        if window.is_closed(day):
            days[day] = day_from_row(window.closed[day])
            continue
        before = last.get(day - 1)
        if window.is_closed(day - 1):
            before = statement_from_json(window.closed[day - 1].last_statement)
        if before is not None or day in window.fresh or day in window.closed:
            samples, statements = _parts(window.fresh.get(day, ()))
            packed = window.unpacked(day) if day in window.closed else ()
            samples += [sample(result) for result in packed if not result.confirms]
            statements += [said for probe in packed if (said := statement(probe)) is not None]
            days[day], last[day] = open_day(
                day, samples, statements, before=before, until=window.as_of
            )
    days.pop(window.span[0], None)
    return tuple(sums for sums in days.values() if sums.probes or sums.spans != NO_SPANS)


def open_day(
    day: int,
    samples: Iterable[Sample],
    statements: Collection[Said],
    *,
    before: Statement | None,
    until: int,
) -> tuple[Rollup, Statement | None]:
    """The sums of a day that is not closed up to `until` (ms UTC), from what its probes add and
    what they say, and its last statement; `before` is that of the day before.
    """
    spoken = spans(day, statements, before=before, until=until)
    last = Statement(*max(statements, key=itemgetter(0))) if statements else None
    return rollup_of_samples(day, samples, spans=spoken), last


def _parts(fresh: Sequence[Fresh]) -> tuple[list[Sample], list[Said]]:
    """What fresh rows add to their day (`sample`), and what they say (`statement`)."""
    samples: list[Sample] = []
    statements: list[Said] = []
    for row in fresh:
        at, _, attribution, reason, up, total, compliant, payable, compliance, outcome = row[:10]
        confirms, holds = row[10:12]
        is_scored = attribution == _SCORED
        if not confirms:
            excluded = None if is_scored else reason or attribution
            latency_ms = total if up and outcome != _REFUSED else None
            samples.append((at, excluded, up, latency_ms, compliant, payable, compliance))
        if is_scored or outcome == _THROTTLED:
            speaks_up = up and outcome not in REFUSALS
            statements.append(Statement(at, holds, speaks_up, payable, compliance))
    return samples, statements


def latest_of(probes: Sequence[Any]) -> Latest:
    """The latest of some rows or results, which are in the order of time."""
    last = next(filter(is_scored, reversed(probes)), None)
    envelope = next(filter(_has_envelope, reversed(probes)), None)
    state = next(filter(statement, reversed(probes)), None)
    newest = last_probe(last)
    return Latest(
        last=newest,
        envelope=newest if envelope is last else last_probe(envelope),
        state=latest_state(state),
    )


def is_counted(probe: Any) -> bool:
    """Whether a row or a result is in the counts of scored probes."""
    return is_scored(probe) and not probe.confirms


def _recent(window: _Rows, *, since: int) -> tuple[int, int]:
    """(scored, up) of the probes after `since`."""
    days = range(max(day_of(since), window.span[1]), window.span[-1] + 1)
    probes = [probe for day in days for probe in window.fresh.get(day, ())]
    for day in days:
        if day in window.closed and window.closed[day].scored:
            probes += window.unpacked(day)
    counted = [probe for probe in probes if probe.at > since and is_counted(probe)]
    return len(counted), sum(probe.up for probe in counted)


def last_probe(probe: Any) -> LastProbe | None:
    """What evidence keeps of a row or a result."""
    if probe is None:
        return None
    if isinstance(probe, ProbeResult):
        rules = tuple((rule.rule, rule.severity.value, rule.message) for rule in probe.findings)
    else:
        rules = finding_texts(probe.rules)
    return LastProbe(
        at=probe.at,
        outcome=Outcome(probe.outcome).value,
        up=bool(probe.up),
        payable=bool(probe.payable),
        accepts=probe.accepts,
        tls_not_after=probe.tls_not_after,
        rules=rules,
    )


def latest_state(probe: Any) -> LatestState | None:
    """What a row or a result says of now."""
    said = None if probe is None else statement(probe)
    if said is None:
        return None
    outcome = Outcome(probe.outcome).value
    return LatestState(at=said.at, outcome=outcome, up=bool(said.up), payable=bool(said.payable))
