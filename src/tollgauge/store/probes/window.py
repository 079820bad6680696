"""Window: what the probes of an endpoint add up to, for its evidence.

Rules (docs/methodology.md, *time, not probe counts*):
- the window is the UTC day of `as_of` and the 30 days before it; only its last day is cut;
- a closed day comes from its sums. Its probes are unpacked only if fresh rows came late to it, if
  it may have the latest probe that is looked for, or if `recent` reaches into it;
- the rows of days that are not closed are read once and only counted. Their spans begin with what
  the last statement of the day before carries over.

Reading several tables is exact only inside one transaction, which sees one moment.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import Connection

from tollgauge.core.evidence import LastProbe, LatestState
from tollgauge.core.probe import Attribution, Outcome, ProbeResult
from tollgauge.core.rollup import Rollup, Sample, rollup_of_samples, sample
from tollgauge.core.spans import NO_SPANS, Statement, spans, statement
from tollgauge.core.units import DAY_MS, WINDOW_MS, day_of
from tollgauge.db.codec import findings_from_json, statement_from_json
from tollgauge.db.packing import unpack
from tollgauge.db.prepared import Prepared
from tollgauge.db.schema import probe as probe_table
from tollgauge.db.schema import probe_day as probe_day_table
from tollgauge.store.probes.probe_rows import day_from_row

DAYS: Final = WINDOW_MS // DAY_MS + 1
"""The days of a window."""
_ID: Final = sa.bindparam("id", type_=sa.Text)
_NAMES: Final = tuple(f"day_{number}" for number in range(DAYS + 1))
"""The day before the window is read too, for what it carries over."""
_DAYS: Final = [sa.bindparam(name, type_=sa.Integer) for name in _NAMES]
_SCORED: Final = Attribution.THEIRS.value

_FRESH: Final = Prepared(
    sa.select(
        *probe_table.c["at", "attribution", "reason", "up", "total", "compliant", "payable"],
        *probe_table.c["compliance", "outcome", "confirms", "holds", "accepts", "tls_not_after"],
        probe_table.c.rules,
    ).where(
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The probes of a window: their sums (`days`), one entry for each UTC day that has any, or a
    span of the day before, oldest first; (scored, up) of the most `recent`; the `last` scored one;
    if that had no payment envelope, the last scored one that had (`envelope`); and the latest
    `state`, confirmed or not.
    """

    days: tuple[Rollup, ...]
    recent: tuple[int, int]
    last: LastProbe | None
    envelope: LastProbe | None
    state: LatestState | None


def read(tx: Connection, endpoint_id: str, *, as_of: int, recent_ms: int) -> Window:
    """The window of an endpoint up to `as_of` (ms UTC); `recent` reaches `recent_ms` back."""
    since = as_of - recent_ms
    window = _Rows(tx, endpoint_id, as_of=as_of, since=since)
    last = window.latest(_is_scored, lambda day: day.last_statement)
    envelope = None
    if last is not None and last.accepts is None:
        envelope = window.latest(_has_envelope, lambda day: day.up or day.up_ms)
    return Window(
        days=_days(window),
        recent=_recent(window, since=since),
        last=_last_probe(last),
        envelope=_last_probe(envelope),
        state=_state(window.latest(statement, lambda day: day.last_statement)),
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


def _is_scored(probe: Any) -> bool:
    """Whether a row or a result is scored."""
    return bool(probe.attribution == Attribution.THEIRS)


def _has_envelope(probe: Any) -> bool:
    """Whether a row or a result is scored and has a payment envelope."""
    return _is_scored(probe) and probe.accepts is not None


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
            days[day], last[day] = _open_day(window, day, before)
    days.pop(window.span[0], None)
    return tuple(sums for sums in days.values() if sums.probes or sums.spans != NO_SPANS)


def _open_day(window: _Rows, day: int, before: Statement | None) -> tuple[Rollup, Statement | None]:
    """The sums of a day that has fresh rows or no closed row, and its last statement; `before` is
    that of the day before.
    """
    samples: list[Sample] = []
    fresh = window.fresh.get(day, [])
    packed = window.unpacked(day) if day in window.closed else ()
    for row in fresh:
        (
            at,
            attribution,
            reason,
            up,
            total,
            compliant,
            payable,
            compliance,
            outcome,
            confirms,
            *_,
        ) = row
        if not confirms:
            excluded = None if attribution == _SCORED else reason or attribution
            latency_ms = total if up and outcome != Outcome.FORBIDDEN else None
            samples.append(Sample(at, excluded, up, latency_ms, compliant, payable, compliance))
    samples += [sample(result) for result in packed if not result.confirms]
    statements = [said for probe in (*fresh, *packed) if (said := statement(probe)) is not None]
    spoken = spans(day, statements, before=before, until=window.as_of)
    return replace(rollup_of_samples(day, samples), spans=spoken), max(statements, default=None)


def _recent(window: _Rows, *, since: int) -> tuple[int, int]:
    """(scored, up) of the probes after `since`."""
    days = range(max(day_of(since), window.span[1]), window.span[-1] + 1)
    probes = [probe for day in days for probe in window.fresh.get(day, ())]
    for day in days:
        if day in window.closed and window.closed[day].scored:
            probes += window.unpacked(day)
    counted = [
        probe for probe in probes if probe.at > since and _is_scored(probe) and not probe.confirms
    ]
    return len(counted), sum(probe.up for probe in counted)


def _last_probe(probe: Any) -> LastProbe | None:
    """What evidence keeps of a row or a result."""
    if probe is None:
        return None
    is_result = isinstance(probe, ProbeResult)
    findings = probe.findings if is_result else findings_from_json(probe.rules)
    return LastProbe(
        at=probe.at,
        outcome=Outcome(probe.outcome).value,
        up=probe.up,
        payable=probe.payable,
        accepts=probe.accepts,
        tls_not_after=probe.tls_not_after,
        rules=tuple((rule.rule, rule.severity.value, rule.message) for rule in findings),
    )


def _state(probe: Any) -> LatestState | None:
    """What a row or a result says of now."""
    said = None if probe is None else statement(probe)
    if said is None:
        return None
    outcome = Outcome(probe.outcome).value
    return LatestState(at=said.at, outcome=outcome, up=said.up, payable=said.payable)
