"""Window: the sums of an endpoint's probes of the last 30 days, for its evidence.

Rules (docs/methodology.md, *arithmetic*):
- the window is `as_of - 30 days < at <= as_of`, exactly;
- whole closed days come from their sums; the probes of a closed day are unpacked only if the
  window begins or ends inside it, if it may have the latest scored probe, or if `recent` reaches
  into it;
- the rows of days that are not closed are read once and only counted.

Reading several tables is exact only inside one transaction, which sees one moment.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import Connection

from tollgauge.core.evidence import LastProbe
from tollgauge.core.finding import Finding
from tollgauge.core.probe import Attribution, Outcome, ProbeResult
from tollgauge.core.rollup import Rollup, Sample, merge, rollup_of_samples, sample
from tollgauge.core.units import DAY_MS, WINDOW_MS, day_of
from tollgauge.db.codec import findings_from_json
from tollgauge.db.prepared import Prepared
from tollgauge.db.schema import probe as probe_table
from tollgauge.db.schema import probe_day as probe_day_table
from tollgauge.store.probes.packing import unpack
from tollgauge.store.probes.probe_rows import day_from_row

_ID: Final = sa.bindparam("id", type_=sa.Text)
_NAMES: Final = tuple(f"day_{number}" for number in range(WINDOW_MS // DAY_MS + 1))
"""A window touches one day more than its length: it begins and ends inside a day."""
_DAYS: Final = [sa.bindparam(name, type_=sa.Integer) for name in _NAMES]
_SCORED: Final = Attribution.THEIRS.value

_FRESH: Final = Prepared(
    sa.select(
        *probe_table.c["at", "attribution", "reason", "up", "total", "compliant", "payable"],
        *probe_table.c["compliance", "outcome", "accepts", "tls_not_after", "rules"],
    ).where(
        probe_table.c.day.in_(_DAYS),
        probe_table.c.endpoint_id == _ID,
        probe_table.c.at <= sa.bindparam("as_of"),
    )
)
_INSIDE: Final = sa.or_(
    probe_day_table.c.day == _DAYS[0], probe_day_table.c.day >= sa.bindparam("near")
)
_CLOSED: Final = Prepared(
    sa.select(
        *(column for column in probe_day_table.c if column.name not in ("endpoint_id", "packed")),
        sa.case((_INSIDE, probe_day_table.c.packed)).label("packed"),
    ).where(probe_day_table.c.day.in_(_DAYS), probe_day_table.c.endpoint_id == _ID)
)
_PACKED: Final = Prepared(
    sa.select(probe_day_table.c.packed).where(
        probe_day_table.c.day == sa.bindparam("day"), probe_day_table.c.endpoint_id == _ID
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The probes of a window: their sums (`days`), one entry for each UTC day that has any, oldest
    first; (scored, up) of the most `recent`; the `last` scored one; and, if that had no payment
    envelope, the last scored one that had (`envelope`). `last` may be earlier than the window, on
    its first day.
    """

    days: tuple[Rollup, ...]
    recent: tuple[int, int]
    last: LastProbe | None
    envelope: LastProbe | None


def read(tx: Connection, endpoint_id: str, *, as_of: int, recent_ms: int) -> Window:
    """The window of an endpoint up to `as_of` (ms UTC); `recent` reaches `recent_ms` back."""
    window = _Rows(tx, endpoint_id, as_of=as_of, since=as_of - recent_ms)
    last = window.latest(envelope=False)
    envelope = window.latest(envelope=True) if last is not None and last.accepts is None else None
    inside = envelope is not None and envelope.at > as_of - WINDOW_MS
    return Window(
        days=_sums(window, first=as_of - WINDOW_MS + 1),
        recent=_recent(window, since=as_of - recent_ms),
        last=last,
        envelope=envelope if inside else None,
    )


class _Rows:
    """The rows of a window's days, read once; a closed day is unpacked when it is needed."""

    def __init__(self, tx: Connection, endpoint_id: str, *, as_of: int, since: int) -> None:
        span = range(day_of(as_of - WINDOW_MS), day_of(as_of) + 1)
        near = max(day_of(since), span[0] + 1)
        values = {
            "id": endpoint_id,
            "as_of": as_of,
            "near": near,
            **dict(zip(_NAMES, span, strict=True)),
        }
        self.as_of = as_of
        self.fresh = _FRESH.rows(tx, values)
        self.closed = {row.day: row for row in _CLOSED.rows(tx, values)}
        self._tx, self._id, self._inside = tx, endpoint_id, (span[0], *range(near, span[-1] + 1))
        self._unpacked: dict[int, tuple[ProbeResult, ...]] = {}

    def unpacked(self, day: int) -> tuple[ProbeResult, ...]:
        """The probes of a closed day up to `as_of`; none once they were pruned."""
        if day not in self._unpacked:
            packed = self.closed[day].packed
            if day not in self._inside:
                packed = _PACKED.first(self._tx, {"id": self._id, "day": day}).packed
            results = unpack(packed) if packed is not None else ()
            self._unpacked[day] = tuple(probe for probe in results if probe.at <= self.as_of)
        return self._unpacked[day]

    def latest(self, *, envelope: bool) -> LastProbe | None:
        """The latest scored probe, of all or of those with an envelope."""
        fresh = (row for row in self.fresh if _counts(row, envelope=envelope))
        row = max(fresh, key=lambda row: row.at, default=None)
        days = [day for day in self.closed if row is None or day >= day_of(row.at)]
        for day in sorted(days, reverse=True):
            sums = self.closed[day]
            packed = self.unpacked(day) if (sums.up if envelope else sums.scored) else ()
            for result in reversed(packed):
                if _counts(result, envelope=envelope) and (row is None or result.at > row.at):
                    return _last_probe(result, result.findings)
        return None if row is None else _last_probe(row, findings_from_json(row.rules))


def _counts(probe: Any, *, envelope: bool) -> bool:
    """Whether a row or a result is scored and, if `envelope`, has a payment envelope."""
    return probe.attribution == Attribution.THEIRS and not (envelope and probe.accepts is None)


def _sums(window: _Rows, *, first: int) -> tuple[Rollup, ...]:
    """The sums of the window that begins at `first`, by day."""
    samples: dict[int, list[Sample]] = {}
    for row in window.fresh:
        at, attribution, reason, up, total, compliant, payable, compliance, outcome, *_ = row
        if at >= first:
            excluded = None if attribution == _SCORED else reason or attribution
            latency_ms = total if up and outcome != Outcome.FORBIDDEN else None
            probe = Sample(at, excluded, up, latency_ms, compliant, payable, compliance)
            samples.setdefault(day_of(at), []).append(probe)
    parts: dict[int, Rollup] = {}
    for day, row in window.closed.items():
        if day * DAY_MS >= first and (day + 1) * DAY_MS - 1 <= window.as_of:
            parts[day] = day_from_row(row)
        else:
            inside = [sample(result) for result in window.unpacked(day) if result.at >= first]
            samples[day] = samples.get(day, []) + inside
    for day, probes in samples.items():
        if probes:
            part = rollup_of_samples(day, probes)
            parts[day] = merge(parts[day], part) if day in parts else part
    return tuple(parts[day] for day in sorted(parts))


def _recent(window: _Rows, *, since: int) -> tuple[int, int]:
    """(scored, up) of the probes after `since`."""
    late = [row for row in window.fresh if row.at > since]
    near = [day for day, row in window.closed.items() if day >= day_of(since) and row.scored]
    packed = [probe for day in near for probe in window.unpacked(day) if probe.at > since]
    both: tuple[Any, ...] = (*late, *packed)
    scored = [probe for probe in both if _counts(probe, envelope=False)]
    return len(scored), sum(probe.up for probe in scored)


def _last_probe(probe: Any, findings: Iterable[Finding]) -> LastProbe:
    """What evidence keeps of a row or a result."""
    return LastProbe(
        at=probe.at,
        outcome=Outcome(probe.outcome).value,
        up=probe.up,
        payable=probe.payable,
        accepts=probe.accepts,
        tls_not_after=probe.tls_not_after,
        rules=tuple((rule.rule, rule.severity.value, rule.message) for rule in findings),
    )
