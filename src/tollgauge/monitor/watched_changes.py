"""Detect changes at endpoints from new probe results, and select those that a watch reports.

core/watch/change_state decides how an endpoint's state advances. A probe that failed because of
this service is ignored, and so is a confirmation probe: a watch counts consecutive failures of
regular probes, five minutes apart. A watch reports a change that was seen during its paid time and
matches the event types and the sensitivity it had then; later edits do not affect it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from sqlalchemy import Connection

from tollgauge.core.base.units import HOUR_MS, day_of
from tollgauge.core.endpoint.identity import Endpoint
from tollgauge.core.probe import rollup
from tollgauge.core.probe.attribution import SITES_MIN, is_slowness_shared
from tollgauge.core.probe.probe import ProbeResult
from tollgauge.core.watch import change_state
from tollgauge.core.watch.change_state import BASELINE_MIN, ChangeState, ScoredProbe
from tollgauge.core.watch.changes import Baseline, Change, is_slow
from tollgauge.core.watch.watch_rules import WatchRequest
from tollgauge.db.codec import clean_quote
from tollgauge.monitor import seller_files
from tollgauge.store.probes import change_rows, probes
from tollgauge.store.probes.change_rows import StoredChange
from tollgauge.store.probes.probes import PROBE
from tollgauge.store.watches import watch_events, watches
from tollgauge.store.watches.watches import Watch

BASELINE_DAYS: Final = 14  # latencies in a baseline
BASELINE_EVERY_MS: Final = 6 * HOUR_MS
YOUNG_BASELINE_EVERY_MS: Final = HOUR_MS  # while a baseline has too few probes to be used
_PAGE_SIZE: Final = 500


def observe_each(
    tx: Connection,
    results: Sequence[tuple[Endpoint, ProbeResult]],
    *,
    slow_here: bool = False,
) -> tuple[Change, ...]:
    """Record and return the changes that new results of different endpoints cause.

    The caller holds the row locks of the endpoints: change IDs of one endpoint then become visible
    in order, and a cursor over them cannot skip one.

    - `results`: each endpoint as it was before its probe.
    - `slow_here`: this machine caused the slowness.
    """
    scored = [
        (endpoint, result) for endpoint, result in results if result.scored and not result.confirms
    ]
    states = change_rows.change_states(tx, [endpoint.id for endpoint, _ in scored])
    advanced: dict[str, ChangeState] = {}
    changes: list[tuple[str, Change]] = []
    for endpoint, result in scored:
        before = states.get(endpoint.id)
        state = before or ChangeState()
        state, probed = _prepare_input(tx, endpoint, result, state, slow_here=slow_here)
        after, caused = change_state.advance(state, probed)
        if after != before:
            advanced[endpoint.id] = after
        changes += [(endpoint.id, change) for change in caused]
    change_rows.save_change_states(tx, advanced)
    change_rows.add(tx, changes)
    return tuple(change for _, change in changes)


def slow_here(tx: Connection, wave: Sequence[tuple[Endpoint, ProbeResult]]) -> bool:
    """Return whether unrelated watched endpoints of one batch were slow together, each compared
    with its own baseline. This machine is then the likely cause.
    """
    watched = {
        endpoint.id: (endpoint, result)
        for endpoint, result in wave
        if endpoint.watched_until > result.at
    }
    if len(watched) < SITES_MIN:
        return False
    answered: list[tuple[str, bool]] = []
    for id_, state in change_rows.change_states(tx, watched).items():
        endpoint, result = watched[id_]
        baseline = state.baseline
        if result.up and baseline is not None and baseline.count >= BASELINE_MIN:
            answered.append((endpoint.host, is_slow(result, baseline)))
    return is_slowness_shared(answered)


def of_watch(tx: Connection, watch: Watch, *, after: int, limit: int) -> tuple[StoredChange, ...]:
    """Return the changes that a watch reports after a change ID, oldest first."""
    requests = watch_events.request_history(tx, [watch.id]).get(watch.id, ())
    changes: list[StoredChange] = []
    while len(changes) < limit:
        page = change_rows.load_watched(tx, watch, after=after, limit=_PAGE_SIZE)
        changes += [stored for stored in page if is_about(watch, stored, requests)]
        if len(page) < _PAGE_SIZE:
            break
        after = page[-1].id
    return tuple(changes[:limit])


def count_of_watch(tx: Connection, watch: Watch, *, since: int) -> int:
    """Count the changes since a time (ms UTC) that a watch reports."""
    requests = watch_events.request_history(tx, [watch.id]).get(watch.id, ())
    seen = change_rows.load_watched(tx, watch, since=since)
    return sum(is_about(watch, stored, requests) for stored in seen)


def is_about(
    watch: Watch, stored: StoredChange, requests: Sequence[tuple[int, WatchRequest]] = ()
) -> bool:
    """Return whether a watch reports a change.

    `requests`: history of the watch's settings, each with the time from which it applied. Default:
    the current settings only.
    """
    change = stored.change
    number = bisect_left(requests, change.at, key=lambda request: request[0])
    request = requests[max(number - 1, 0)][1] if requests else watch.watch_request
    return (
        watch.endpoint_id == stored.endpoint_id
        and change.type in request.events
        and change.sensitivity in (None, request.sensitivity)
        and watch.created_at < change.at <= watch.reports_until
    )


def _prepare_input(
    tx: Connection,
    endpoint: Endpoint,
    result: ProbeResult,
    state: ChangeState,
    *,
    slow_here: bool,
) -> tuple[ChangeState, ScoredProbe]:
    """Return the state with an up-to-date baseline, and the input to advance it with."""
    quote = None if result.quote is None else clean_quote(result.quote)
    if quote is not result.quote:
        result = replace(result, quote=quote)
    watched = endpoint.watched_until > result.at
    if watched:
        state = _with_baseline(tx, endpoint.id, state, now=result.at)
    # This query is needed only if an outage may begin with this probe.
    may_begin = not result.up and state.recent.endswith("1")
    before = state.quote
    # Announcements are read only if the payTo changed.
    announced = (
        quote is not None
        and before is not None
        and quote.pay_to != before.pay_to
        and seller_files.is_announced(tx, endpoint, before, quote, at=result.at, source=PROBE)
    )
    return state, ScoredProbe(
        result=result,
        sensitivities=watches.sensitivities(tx, endpoint.id) if watched else frozenset(),
        templated=endpoint.templated or endpoint.pay_to_varies,
        last_good=change_rows.last_up(tx, endpoint.id, before=result.at) if may_begin else None,
        slow_here=slow_here,
        announced=announced,
    )


def _with_baseline(
    tx: Connection, endpoint_id: str, state: ChangeState, *, now: int
) -> ChangeState:
    """Return the state with a baseline of two weeks of latencies, recomputed if it is too old."""
    old = state.baseline
    if old is not None:
        pause = BASELINE_EVERY_MS if old.count >= BASELINE_MIN else YOUNG_BASELINE_EVERY_MS
        if now < old.at + pause:
            return state
    today = day_of(now)
    days = probes.days(tx, endpoint_id, first_day=today - BASELINE_DAYS, last_day=today)
    merged = rollup.merge_histograms([day.histogram for day in days])
    baseline = Baseline(
        p50=rollup.percentile(merged, 50) or 0,
        p95=rollup.percentile(merged, 95) or 0,
        count=sum(count for _, count in merged),
        at=now,
    )
    return replace(state, baseline=baseline)
