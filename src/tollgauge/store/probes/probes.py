"""The probe archive: each probe's result and the sums of each day.

- A probe is first a row of `probe` (a fresh row). store/probes/archive packs the rows of past days
  into one row per endpoint and day (`probe_day`, a closed day).
- Evidence is append-only: recording a probe again has no effect, even if its day is closed. Only
  the attribution of a failure may change later (`take_back`).
- The result, the next due time and the mark for scoring are written in the caller's transaction.
- A day may have both a closed row and fresh rows of late probes. They do not overlap, and readers
  add them.

Reads of several tables are consistent only within one transaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Final

import sqlalchemy as sa
from msgspec import structs
from sqlalchemy import Connection

from tollgauge.core.base.units import DAY_MS, day_of
from tollgauge.core.endpoint.terms import indexable_addresses, update_offers
from tollgauge.core.probe.attribution import LastUp, NetworkProbe, find_sign
from tollgauge.core.probe.outcome import Attribution
from tollgauge.core.probe.probe import NO_SPANS, HistoryRow, ProbeResult, statement
from tollgauge.core.probe.rollup import Rollup, merge, rollup
from tollgauge.db.codec import clean_quote
from tollgauge.db.schema import endpoint as endpoint_table
from tollgauge.db.schema import probe as probe_table
from tollgauge.db.schema import probe_day as probe_day_table
from tollgauge.store import rows
from tollgauge.store.chain import wallets
from tollgauge.store.endpoints.endpoints import dirty
from tollgauge.store.probes import window
from tollgauge.store.probes.probe_rows import (
    history_row,
    result_from_row,
    result_to_row,
    unpack,
    unpack_history,
)

_AT: Final = sa.bindparam("at_", type_=sa.BigInteger)
_REPLACED: Final = endpoint_table.c[
    *("up_at", "down_since", "payable", "failing_since", "payable_since", "unconfirmed_at"),
    *("forms", "offers", "extensions", "version", "quote_at"),
]
"""The columns of an endpoint that a new probe replaces."""
_PROBED: Final = (
    endpoint_table.update()
    .where(endpoint_table.c.id == sa.bindparam("id_"))
    .values(
        last_probed=rows.greatest(endpoint_table.c.last_probed, _AT),
        next_due=sa.func.coalesce(
            sa.bindparam("due_", type_=sa.BigInteger), endpoint_table.c.next_due
        ),
        learned=sa.func.coalesce(sa.bindparam("learned_", type_=sa.Text), endpoint_table.c.learned),
        paused_until=rows.greatest(
            endpoint_table.c.paused_until, sa.bindparam("paused_until_", type_=sa.BigInteger)
        ),
        **{column.name: sa.bindparam(f"{column.name}_", type_=column.type) for column in _REPLACED},
        **dirty(_AT),
    )
)
_STANDING: Final = (
    sa.select(
        *endpoint_table.c["id", "last_probed", "quote_source"],
        *_REPLACED,
        *endpoint_table.c[rows.QUOTE_COLUMNS],
    )
    .where(rows.any_of(endpoint_table.c.id))
    .order_by(endpoint_table.c.id)
    .with_for_update()
)
"""State of endpoints before a probe, locked in the order of their IDs."""
PROBE: Final = "probe"
"""`endpoint.quote_source` of a price that a probe saw."""

LAST: Final = sa.and_(
    probe_table.c.day == endpoint_table.c.last_probed // DAY_MS,
    probe_table.c.endpoint_id == endpoint_table.c.id,
    probe_table.c.at == endpoint_table.c.last_probed,
)
"""Join condition of an endpoint and its last probe, unless the probe's day is closed."""
_LAST: Final = (
    sa.select(probe_table)
    .join_from(endpoint_table, probe_table, LAST)
    .where(endpoint_table.c.id == sa.bindparam("id_"))
)
_DAYS: Final[sa.BindParameter[Any]] = sa.bindparam("days", expanding=True)
_IDS: Final[sa.BindParameter[Any]] = sa.bindparam("ids", expanding=True)
_RECORDED: Final = sa.select(probe_table.c.endpoint_id, probe_table.c.at).where(
    probe_table.c.day.in_(_DAYS),
    probe_table.c.endpoint_id.in_(_IDS),
    rows.any_of(probe_table.c.at),
)
_PACKED: Final = sa.select(probe_day_table.c.endpoint_id, probe_day_table.c.packed).where(
    probe_day_table.c.day.in_(_DAYS), probe_day_table.c.endpoint_id.in_(_IDS)
)
_LAST_UP: Final = sa.select(*endpoint_table.c["id", "up_at", "down_since"]).where(
    rows.any_of(endpoint_table.c.id)
)
ASKED_SINCE: Final = (
    sa.select(
        *endpoint_table.c["host", "up_at", "down_since"],
        *probe_table.c["at", "status", "outcome", "attribution", "reason"],
    )
    .join_from(endpoint_table, probe_table, LAST)
    .where(endpoint_table.c.last_probed > sa.bindparam("since_"))
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewProbe:
    """A probe to record. None leaves a field of the endpoint unchanged.

    - `next_due`: time of the next probe (ms UTC); `learned`: the request that elicited a 402.
    - `unconfirmed_at`: time of the failure that is being confirmed, None without one.
    - `paused_until`: end of the pause that the seller asked for.
    """

    endpoint_id: str
    result: ProbeResult
    next_due: int | None = None
    learned: str | None = None
    unconfirmed_at: int | None = None
    paused_until: int = 0


def record_each(tx: Connection, probes: Sequence[NewProbe]) -> dict[str, bool]:
    """Record one probe each of different endpoints and make their scores due.

    Takes as many statements as for one probe. Probes of endpoints deleted in the meantime are
    dropped. Returns the IDs of endpoints with a new probe, each with whether the price is
    unchanged.
    """
    return {probe.endpoint_id: same_price for probe, same_price in _record_new(tx, probes)}


def record_many(tx: Connection, endpoint_id: str, results: Sequence[ProbeResult]) -> int:
    """Add imported or simulated probes of one endpoint; return the number of new ones."""
    probes = [NewProbe(endpoint_id=endpoint_id, result=result) for result in results]
    return len(_record_new(tx, probes))


def _record_new(tx: Connection, probes: Sequence[NewProbe]) -> list[tuple[NewProbe, bool]]:
    """Record probes that are not in the archive; return each with whether the price is
    unchanged.
    """
    ids = sorted({probe.endpoint_id for probe in probes})
    existing = {row.id: row for row in rows.with_any(tx, _STANDING, ids)}
    present = [probe for probe in probes if probe.endpoint_id in existing]
    # The archive has no probe newer than the endpoint's last one, so only older ones can be known.
    old = [p for p in present if p.result.at <= (existing[p.endpoint_id].last_probed or 0)]
    known = _find_known(tx, old) if old else set()
    new = {
        place: probe
        for probe in sorted(present, key=lambda probe: probe.result.at)
        if (place := (probe.endpoint_id, probe.result.at)) not in known
    }
    if not new:
        return []
    columns = [result_to_row(probe.endpoint_id, probe.result) for probe in new.values()]
    rows.add_missing(tx, probe_table, columns)
    by_endpoint = rows.group((probe.endpoint_id, probe) for probe in new.values())
    changes = [_endpoint_changes(existing[id_], of_one) for id_, of_one in by_endpoint.items()]
    tx.execute(_PROBED, changes)
    _save_addresses(tx, existing, changes)
    return [
        (probe, _same_price(existing[probe.endpoint_id], probe.result)) for probe in new.values()
    ]


def _save_addresses(
    tx: Connection, before: Mapping[str, Any], changes: Iterable[Mapping[str, Any]]
) -> None:
    """Store the addresses of endpoints whose envelopes name others than before."""
    offered = {
        change["id_"]: addresses
        for change in changes
        if (addresses := indexable_addresses(change["offers_"]))
        != indexable_addresses(before[change["id_"]].offers)
    }
    if offered:
        wallets.save_offered(tx, offered)


def _endpoint_changes(before: Any, new: Sequence[NewProbe]) -> dict[str, Any]:
    """Return the changes of an endpoint's row by new probes, oldest first."""
    state = {column.name: getattr(before, column.name) for column in _REPLACED}
    for probe in new:
        result = probe.result
        if result.at > (before.last_probed or 0):
            last_up = LastUp(up_at=state["up_at"], down_since=state["down_since"]).after(result)
            state |= {"up_at": last_up.up_at, "down_since": last_up.down_since}
            state["unconfirmed_at"] = probe.unconfirmed_at
            said = statement(result)
            if said is not None:
                if said.payable and (
                    state["payable"] is not True or state["payable_since"] is None
                ):
                    state["payable_since"] = result.at
                state["payable"] = said.payable
                state["failing_since"] = (
                    None if said.payable else state["failing_since"] or result.at
                )
            if result.scored and result.forms:
                state |= {
                    name: getattr(result, name) for name in ("forms", "extensions", "version")
                }
            if result.scored and result.offers:
                state["offers"] = update_offers(state["offers"], result.offers, at=result.at)
        if _same_price(before, result):
            state["quote_at"] = max(state["quote_at"] or 0, result.at)
    newest = new[-1]
    state |= {"id": newest.endpoint_id, "at": newest.result.at, "due": newest.next_due}
    state |= {"learned": newest.learned, "paused_until": newest.paused_until}
    return {f"{name}_": value for name, value in state.items()}


def _same_price(before: Any, result: ProbeResult) -> bool:
    """Return whether a scored probe saw the same price as earlier probes."""
    if result.quote is None or not result.scored or before.quote_source != PROBE:
        return False
    return clean_quote(result.quote) == rows.to_quote(before)


def take_back(tx: Connection, failures: Mapping[str, int], *, reason: str) -> None:
    """Attribute first, unconfirmed failures to neither side: endpoint ID → time of the failure.

    The endpoints return to their earlier state and their scores are due. Failures of closed days
    are kept.
    """
    for id_, at in failures.items():
        probe = (probe_table.c.day == day_of(at), probe_table.c.endpoint_id == id_)
        taken_back = tx.execute(
            probe_table.update()
            .where(*probe, probe_table.c.at == at)
            .values(attribution=Attribution.UNKNOWN, reason=reason)
        )
        if taken_back.rowcount:
            down_since = sa.case((endpoint_table.c.down_since < at, endpoint_table.c.down_since))
            values = {"unconfirmed_at": None, "payable": True, "failing_since": None}
            values |= {"down_since": down_since} | dirty(at)
            tx.execute(endpoint_table.update().where(endpoint_table.c.id == id_).values(values))


def days(tx: Connection, endpoint_id: str, *, first_day: int, last_day: int) -> tuple[Rollup, ...]:
    """Return the counts of whole UTC days with stored probes, oldest first. For their spans see
    store/probes/window.
    """
    since, until = first_day * DAY_MS - 1, (last_day + 1) * DAY_MS - 1
    kept = _packed_days(tx, endpoint_id, since=since, until=until)
    known = window.all_days(tx, endpoint_id) if kept else ()
    by_day = {
        one.day: structs.replace(one.sums, spans=NO_SPANS) for one in known if one.day in kept
    }
    fresh = _fresh(tx, endpoint_id, since=since, until=until)
    for day, results in rows.group((day_of(result.at), result) for result in fresh).items():
        late = rollup(day, results)
        by_day[day] = merge([by_day[day], late]) if day in by_day else late
    return tuple(by_day[day] for day in sorted(by_day))


def history(tx: Connection, endpoint_id: str, *, since: int, until: int) -> tuple[ProbeResult, ...]:
    """Return the probes with `since < at <= until`, oldest first.

    Findings of closed days have messages only in the last scored probe and the last one with an
    envelope.
    """
    packed_days = _packed_days(tx, endpoint_id, since=since, until=until)
    results = [
        result
        for packed in packed_days.values()
        for result in unpack(packed)
        if since < result.at <= until
    ]
    results += _fresh(tx, endpoint_id, since=since, until=until)
    return tuple(sorted(results, key=lambda result: result.at))


def history_rows(
    tx: Connection, endpoint_id: str, *, since: int, until: int
) -> Iterator[list[HistoryRow]]:
    """Yield history rows with `since < at <= until`, oldest first, one list per UTC day.

    At most one day is unpacked at a time.
    """
    packed = _packed_days(tx, endpoint_id, since=since, until=until)
    fresh_rows = _fresh_rows(tx, endpoint_id, since=since, until=until)
    fresh = rows.group((row.day, history_row(row)) for row in fresh_rows)
    for day in sorted(packed.keys() | fresh.keys()):
        seen = fresh.get(day, [])
        if day in packed:
            seen += [row for row in unpack_history(packed[day]) if since < row[0] <= until]
        if seen:
            yield sorted(seen, key=itemgetter(0))


def last(tx: Connection, endpoint_id: str) -> ProbeResult | None:
    """Return the last probe of an endpoint, unless its day is closed."""
    row = tx.execute(_LAST, {"id_": endpoint_id}).first()
    return None if row is None else result_from_row(row)


def load_last_since(tx: Connection, since: int) -> tuple[NetworkProbe, ...]:
    """Return the last probe of each endpoint that was probed after a time (ms UTC), without closed
    days, with the endpoint's state after it.
    """
    return tuple(map(read_network_probe, tx.execute(ASKED_SINCE, {"since_": since})))


def last_up_of(tx: Connection, ids: Iterable[str]) -> dict[str, LastUp]:
    """Return when endpoints were last up, by ID."""
    return {row.id: read_last_up(row) for row in rows.with_any(tx, _LAST_UP, set(ids))}


def read_network_probe(row: Any) -> NetworkProbe:
    """Return a probe as evidence about the local network, with the endpoint's state after it."""
    sign = find_sign(row.outcome, row.reason, row.attribution, status=row.status)
    return NetworkProbe(host=row.host, at=row.at, sign=sign, last_up=read_last_up(row))


def read_last_up(row: Any) -> LastUp:
    """Return when an endpoint was last up."""
    return LastUp(up_at=row.up_at, down_since=row.down_since)


def _find_known(tx: Connection, probes: Sequence[NewProbe]) -> set[tuple[str, int]]:
    """Return the (endpoint ID, time) pairs in the archive.

    Fresh rows are read before closed days, so that a day being closed is seen in one of them.
    """
    ids = {probe.endpoint_id for probe in probes}
    touched = {day_of(probe.result.at) for probe in probes}
    times = {probe.result.at for probe in probes}
    parameters = {"days": list(touched), "ids": list(ids)}
    recorded = rows.with_any(tx, _RECORDED, times, **parameters)
    known = {(row.endpoint_id, row.at) for row in recorded}
    for id_, packed in tx.execute(_PACKED, parameters).all():
        known |= {(id_, result.at) for result in unpack(packed)}
    return known


def _fresh(tx: Connection, endpoint_id: str, *, since: int, until: int) -> list[ProbeResult]:
    return [result_from_row(row) for row in _fresh_rows(tx, endpoint_id, since=since, until=until)]


def _fresh_rows(
    tx: Connection, endpoint_id: str, *, since: int, until: int
) -> Iterable[sa.Row[Any]]:
    columns = probe_table.c
    return tx.execute(
        sa.select(probe_table).where(
            columns.day.in_(range(day_of(since + 1), day_of(until) + 1)),
            columns.endpoint_id == endpoint_id,
            columns.at > since,
            columns.at <= until,
        )
    )


def _packed_days(tx: Connection, endpoint_id: str, *, since: int, until: int) -> dict[int, bytes]:
    """Return the packed probes of the closed days that overlap `since < at <= until`, by day."""
    columns = probe_day_table.c
    query = sa.select(columns.day, columns.packed).where(
        columns.day.in_(range(day_of(since + 1), day_of(until) + 1)),
        columns.endpoint_id == endpoint_id,
    )
    return dict(tx.execute(query).all())
