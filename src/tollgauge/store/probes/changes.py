"""Flips as rows, and the standing that tells them, both in the transaction that saw the change.

Rules:
- whoever writes a flip holds the lock of the endpoint's row (recording a probe updates it, crawls
  select it for update), so that the ids of one endpoint become visible in their order and a cursor
  over them misses nothing;
- a probe that was our own doing is not looked at;
- a directory's word on terms counts only while no probe has seen any, and only that of the
  directory that speaks for the endpoint (store/endpoints/merging);
- a standing names the rules that it was judged by; the sets of rules are kept by their ids, so
  that versions of the program that meet in one database know each other's;
- a new flip waits to be dispatched: jobs/alert makes deliveries of it, once.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import orjson
import sqlalchemy as sa
from sqlalchemy import Connection

from tollgauge.core import change_state, changes, latency
from tollgauge.core.attribution import SITES_MIN, shared_slowness
from tollgauge.core.change_state import BASELINE_MIN, PUBLIC_N, ChangeState, Probed
from tollgauge.core.changes import Baseline, Change
from tollgauge.core.endpoint import Endpoint
from tollgauge.core.finding import Severity
from tollgauge.core.lint import ERROR_RULES, RuleSet
from tollgauge.core.probe import Attribution, ProbeResult
from tollgauge.core.rollup import Rollup
from tollgauge.core.units import DAY_MS, HOUR_MS, day_of
from tollgauge.core.watch import WatchRequest
from tollgauge.db import meta, schema, upsert
from tollgauge.db.codec import clean_quote
from tollgauge.db.schema import ForeignText, Serial, metadata
from tollgauge.db.transaction import step
from tollgauge.store.endpoints import endpoints
from tollgauge.store.probes import probes
from tollgauge.store.watches import watch_events, watches

BASELINE_DAYS: Final = 14
_BASELINE_EVERY_MS: Final = 6 * HOUR_MS
_YOUNG_EVERY_MS: Final = HOUR_MS
_PAGE: Final = 500
_RULES: Final = "rules:"
_WAITING: Final = sa.text("dispatched_at IS NULL")
_P: Final = schema.probe
_E: Final = schema.endpoint

change = sa.Table(
    "flip",
    metadata,
    sa.Column("id", Serial, primary_key=True),
    sa.Column("endpoint_id", sa.Text, sa.ForeignKey("endpoint.id"), nullable=False),
    sa.Column("at", sa.BigInteger, nullable=False),
    sa.Column("type", sa.Text, nullable=False),
    sa.Column("severity", sa.Text, nullable=False),
    # Of a liveness flip: for watches of how many misses; NULL for every other type.
    sa.Column("sensitivity", sa.Integer),
    sa.Column("reason", ForeignText, nullable=False),
    sa.Column("before", ForeignText, nullable=False),
    sa.Column("after", ForeignText, nullable=False),
    sa.Column("evidence", ForeignText, nullable=False),
    sa.Column("dispatched_at", sa.BigInteger),
    sa.Index("ix_flip_endpoint_id", "endpoint_id", "id"),
    sa.Index("ix_flip_waiting", "id", sqlite_where=_WAITING, postgresql_where=_WAITING),
)

change_state_row = sa.Table(
    "standing",
    metadata,
    sa.Column("endpoint_id", sa.Text, sa.ForeignKey("endpoint.id"), primary_key=True),
    sa.Column("state", ForeignText, nullable=False),
    sqlite_with_rowid=False,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredChange:
    """A flip with its id and its endpoint."""

    id: int
    endpoint_id: str
    change: Change


@step
def observe(
    tx: Connection, endpoint: Endpoint, result: ProbeResult, *, slow_here: bool = False
) -> tuple[Change, ...]:
    """What a new probe of an endpoint flips. `endpoint` is as it was before the probe;
    `slow_here` says that slowness was our own doing.
    """
    return observe_each(tx, ((endpoint, result),), slow_here=slow_here)


@step
def observe_each(
    tx: Connection,
    seen: Sequence[tuple[Endpoint, ProbeResult]],
    *,
    slow_here: bool = False,
    rules: RuleSet = ERROR_RULES,
) -> tuple[Change, ...]:
    """What new probes of different endpoints flip, as `observe` for one; `rules` judged them."""
    scored = [(endpoint, result) for endpoint, result in seen if result.scored]
    known = _standings(tx, [endpoint.id for endpoint, _ in scored])
    sets = _rule_sets(tx, {each.rules for each in known.values()} - {rules.id})
    after: dict[str, ChangeState] = {}
    rows: list[tuple[str, Change]] = []
    for endpoint, result in scored:
        before = known.get(endpoint.id)
        state, probed = _probed(tx, endpoint, result, before or ChangeState(), slow_here=slow_here)
        probed = replace(probed, rules=rules, rules_before=sets.get(state.rules))
        standing_after, found = change_state.advance(state, probed)
        if standing_after != before:
            after[endpoint.id] = standing_after
        rows += [(endpoint.id, each) for each in found]
    if any(each.rules == rules.id != _rules_of(known.get(id_)) for id_, each in after.items()):
        meta.keep(tx, _RULES + rules.id, orjson.dumps(dict(rules.revisions)).decode())
    _save(tx, after)
    if rows:
        tx.execute(change.insert(), [_values(id_, each) for id_, each in rows])
    return tuple(each for _, each in rows)


def _probed(
    tx: Connection,
    endpoint: Endpoint,
    result: ProbeResult,
    known: ChangeState,
    *,
    slow_here: bool,
) -> tuple[ChangeState, Probed]:
    """The standing to advance, with its baseline, and what it advances by."""
    if result.quote is not None:
        result = replace(result, quote=clean_quote(result.quote))
    watched = endpoint.watched_until > result.at
    if watched:
        known = _with_baseline(tx, endpoint.id, known, now=result.at)
    wanted = watches.sensitivities(tx, endpoint.id) if watched else frozenset[int]()
    return known, Probed(
        result=result,
        sensitivities=change_state.sensitivities(wanted),
        templated=endpoint.templated,
        last_good=_last_good(tx, endpoint.id, known, result),
        slow_here=slow_here,
    )


@step
def slow_here(tx: Connection, wave: Sequence[tuple[Endpoint, ProbeResult]]) -> bool:
    """Whether the watched endpoints of one wave were slow together, against their own pasts."""
    watched = {each.id: (each, result) for each, result in wave if each.watched_until > result.at}
    if len(watched) < SITES_MIN:
        return False
    told: list[tuple[str, bool]] = []
    for id_, known in _standings(tx, watched).items():
        endpoint, result = watched[id_]
        baseline = known.baseline
        if result.up and baseline is not None and baseline.count >= BASELINE_MIN:
            told.append((endpoint.host, changes.slow(result, baseline)))
    return shared_slowness(told)


@step
def add(tx: Connection, endpoint_id: str, found: Sequence[Change]) -> None:
    """Append flips of an endpoint whose row this transaction has locked."""
    if found:
        tx.execute(change.insert(), [_values(endpoint_id, each) for each in found])


@step
def delisted(tx: Connection, ids: Iterable[str], *, source: str, at: int) -> None:
    """Endpoints that no directory lists any more."""
    for endpoint_id in ids:
        add(tx, endpoint_id, (changes.delisting(at=at, source=source),))


@step
def get_change_state(tx: Connection, endpoint_id: str) -> ChangeState | None:
    """What is remembered of an endpoint, None before its first scored probe."""
    return _standings(tx, (endpoint_id,)).get(endpoint_id)


@step
def of_watch(
    tx: Connection, found: watches.Watch, *, after: int, limit: int
) -> tuple[StoredChange, ...]:
    """The flips that a watch is about, after a flip's id, oldest first. What it listened to when
    a flip was seen counts: an edit changes nothing of what was there to be read before.
    """
    wishes = watch_events.wishes(tx, [found.id]).get(found.id, ())
    heard: list[StoredChange] = []
    while len(heard) < limit:
        query = sa.select(change).where(change.c.id > after, *_in_time(found))
        page = tx.execute(query.order_by(change.c.id).limit(_PAGE)).mappings().all()
        stored = [_stored(row) for row in page]
        heard += [each for each in stored if hears(found, each, wishes)]
        if len(page) < _PAGE:
            break
        after = stored[-1].id
    return tuple(heard[:limit])


@step
def count_of_watch(tx: Connection, found: watches.Watch, *, since: int) -> int:
    """How many flips after an instant a watch is about."""
    wishes = watch_events.wishes(tx, [found.id]).get(found.id, ())
    query = sa.select(change).where(change.c.at > since, *_in_time(found))
    rows = tx.execute(query).mappings()
    return sum(hears(found, _stored(row), wishes) for row in rows)


def hears(
    found: watches.Watch, stored: StoredChange, wishes: Sequence[tuple[int, WatchRequest]] = ()
) -> bool:
    """Whether a flip is a watch's business; `wishes` is what it listened to from when on, where
    that may have changed since.
    """
    told = stored.change
    number = bisect_left(wishes, told.at, key=lambda each: each[0])
    watch_request = wishes[max(number - 1, 0)][1] if wishes else found.watch_request
    return (
        found.endpoint_id == stored.endpoint_id
        and told.type in watch_request.events
        and told.sensitivity in (None, watch_request.sensitivity)
        and found.created_at < told.at <= found.told_until
    )


@step
def newest(tx: Connection) -> int:
    """The id of the newest flip, 0 without any: no cursor is ahead of it."""
    return tx.execute(sa.select(sa.func.max(change.c.id))).scalar_one() or 0


@step
def public(
    tx: Connection,
    *,
    endpoint_id: str | None = None,
    host: str | None = None,
    limit: int = 50,
) -> tuple[tuple[str, StoredChange], ...]:
    """The newest public incidents of an endpoint or of a host, with their resources."""
    mine = _E.c.id == endpoint_id if endpoint_id is not None else _E.c.host == host
    query = (
        sa.select(change, _E.c.resource)
        .join(_E, _E.c.id == change.c.endpoint_id)
        .where(mine, endpoints.PUBLIC, _told_at(PUBLIC_N))
        .order_by(change.c.id.desc())
        .limit(limit)
    )
    rows = tx.execute(query).mappings().all()
    return tuple((row["resource"], _stored(row)) for row in rows)


@step
def undispatched(tx: Connection, *, limit: int) -> tuple[StoredChange, ...]:
    """The oldest flips that no delivery was made of, locked until the transaction ends."""
    query = (
        sa.select(change)
        .where(change.c.dispatched_at.is_(None))
        .order_by(change.c.id)
        .limit(limit)
        .with_for_update(skip_locked=True)
    )
    return tuple(_stored(row) for row in tx.execute(query).mappings())


@step
def waiting(tx: Connection) -> bool:
    """Whether any flip is to be dispatched."""
    query = sa.select(sa.literal(1)).where(change.c.dispatched_at.is_(None)).limit(1)
    return tx.execute(query).first() is not None


@step
def dispatched(tx: Connection, ids: Sequence[int], *, now: int) -> None:
    """Deliveries were made of these flips."""
    tx.execute(change.update().where(change.c.id.in_(ids)).values(dispatched_at=now))


@step
def checks(tx: Connection, endpoint_id: str, *, since: int, until: int) -> tuple[int, int]:
    """(probes, scored probes) with `since < at <= until`: whole days from their sums."""
    first, last = day_of(since + 1), day_of(until)
    edge = min(until, (first + 1) * DAY_MS - 1)
    results = list(probes.history(tx, endpoint_id, since=since, until=edge))
    days: tuple[Rollup, ...] = ()
    if last > first:
        results += probes.history(tx, endpoint_id, since=last * DAY_MS - 1, until=until)
    if last > first + 1:
        days = probes.days(tx, endpoint_id, first_day=first + 1, last_day=last - 1)
    made = len(results) + sum(day.probes for day in days)
    return made, sum(result.scored for result in results) + sum(day.scored for day in days)


def _in_time(found: watches.Watch) -> tuple[sa.ColumnElement[bool], ...]:
    """Of the flips of all endpoints those of a watch's endpoint and time."""
    return (
        change.c.endpoint_id == found.endpoint_id,
        change.c.at > found.created_at,
        change.c.at <= found.told_until,
    )


def _told_at(n: int) -> sa.ColumnElement[bool]:
    return sa.or_(change.c.sensitivity.is_(None), change.c.sensitivity == n)


def _standings(tx: Connection, ids: Iterable[str]) -> dict[str, ChangeState]:
    query = sa.select(change_state_row).where(change_state_row.c.endpoint_id.in_(list(ids)))
    return {
        row["endpoint_id"]: change_state.from_json(orjson.loads(row["state"]))
        for row in tx.execute(query).mappings()
    }


def _rules_of(known: ChangeState | None) -> str | None:
    return None if known is None else known.rules


def _rule_sets(tx: Connection, ids: Iterable[str | None]) -> dict[str | None, RuleSet]:
    """The sets of rules that other versions judged by; an id that nobody kept is left out."""
    texts = {id_: meta.get(tx, _RULES + id_) for id_ in ids if id_ is not None}
    return {id_: RuleSet(orjson.loads(text)) for id_, text in texts.items() if text is not None}


def _save(tx: Connection, after: Mapping[str, ChangeState]) -> None:
    if not after:
        return
    statement = upsert.insert(tx, change_state_row)
    tx.execute(
        statement.on_conflict_do_update(
            index_elements=["endpoint_id"], set_={"state": statement.excluded["state"]}
        ),
        [
            {"endpoint_id": id_, "state": orjson.dumps(change_state.to_json(after[id_])).decode()}
            for id_ in sorted(after)
        ],
    )


def _last_good(
    tx: Connection, endpoint_id: str, known: ChangeState, result: ProbeResult
) -> int | None:
    """The last answer before an outage that begins with this probe; asked for then only."""
    if result.up or not known.recent.endswith("1"):
        return None
    query = sa.select(sa.func.max(_P.c.at)).where(
        _P.c.day.in_([day_of(result.at) - 1, day_of(result.at)]),
        _P.c.endpoint_id == endpoint_id,
        _P.c.at < result.at,
        _P.c.up.is_(True),
        _P.c.attribution == Attribution.THEIRS.value,
    )
    found: int | None = tx.execute(query).scalar_one()
    return found


def _with_baseline(
    tx: Connection, endpoint_id: str, known: ChangeState, *, now: int
) -> ChangeState:
    """The standing with a fresh enough baseline, from two weeks of the endpoint's own answers."""
    old = known.baseline
    if old is not None:
        pause = _BASELINE_EVERY_MS if old.count >= BASELINE_MIN else _YOUNG_EVERY_MS
        if now < old.at + pause:
            return known
    today = day_of(now)
    rows = probes.days(tx, endpoint_id, first_day=today - BASELINE_DAYS, last_day=today)
    merged = latency.merge(row.latency for row in rows)
    made = Baseline(
        p50=latency.percentile(merged, 50) or 0,
        p95=latency.percentile(merged, 95) or 0,
        count=sum(count for _, count in merged),
        at=now,
    )
    return replace(known, baseline=made)


def _values(endpoint_id: str, made: Change) -> dict[str, Any]:
    return {
        "endpoint_id": endpoint_id,
        "at": made.at,
        "type": made.type,
        "severity": made.severity.value,
        "sensitivity": made.sensitivity,
        "reason": made.reason,
        "before": _json(made.before),
        "after": _json(made.after),
        "evidence": _json(made.evidence),
        "dispatched_at": None,
    }


def _json(value: Mapping[str, Any]) -> str:
    return orjson.dumps(value).decode()


def _stored(row: sa.RowMapping) -> StoredChange:
    return StoredChange(
        id=row["id"],
        endpoint_id=row["endpoint_id"],
        change=Change(
            type=row["type"],
            at=row["at"],
            severity=Severity(row["severity"]),
            reason=row["reason"],
            before=orjson.loads(row["before"]),
            after=orjson.loads(row["after"]),
            evidence=orjson.loads(row["evidence"]),
            sensitivity=row["sensitivity"],
        ),
    )
