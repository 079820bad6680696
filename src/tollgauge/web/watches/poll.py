"""Polling of a watch's events (docs/watching.md).

A poll returns the events after two cursors, oldest first, and the number of checks, which is
evidence even without events. A canceled watch can be polled until 30 days after its period.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Final

from pydantic import Field
from sqlalchemy import Connection
from starlette.requests import Request
from starlette.responses import Response

from tollgauge.core.base.units import MINUTE_MS
from tollgauge.core.endpoint.identity import Endpoint, page_url
from tollgauge.core.watch import alert_text
from tollgauge.core.watch import watch_rules as rules
from tollgauge.core.watch.changes import EVENTS
from tollgauge.core.watch.watch_rules import WatchState
from tollgauge.monitor import watched_changes
from tollgauge.store.endpoints import endpoints
from tollgauge.store.probes import change_rows as changes
from tollgauge.store.probes.change_rows import StoredChange
from tollgauge.store.watches import watch_events
from tollgauge.store.watches.watch_events import WatchEvent
from tollgauge.store.watches.watches import Watch
from tollgauge.web.dependencies import Service
from tollgauge.web.route import Routes
from tollgauge.web.watches.watch_secret import (
    REFUSED,
    SECURITY,
    WatchId,
    answer,
    bearer,
    own_watch,
)
from tollgauge.web.wire import openapi
from tollgauge.web.wire.parameters import query
from tollgauge.web.wire.request_model import invalid
from tollgauge.web.wire.response_model import OneOf, Severity, UnixSeconds, from_attribute
from tollgauge.web.wire.watch_models import (
    SnakeCaseResponse,
    WatchStateName,
    WholeSecond,
)

ROUTES: Final = Routes(tag="watch", strict_query=True)
PAGE_MAX: Final = 500
GRACE_MS: Final = MINUTE_MS
"""Added to the due time of the next check for `nextCheckBy`, because checks can be late."""
CURSOR: Final = re.compile(r"([0-9]{1,15})(?:\.([0-9]{1,15}))?", re.ASCII)
Cursor = Annotated[
    str,
    query(
        "Cursor of the previous poll. Default: read from the start",
        "0",
        pattern=f"^{CURSOR.pattern}$",
    ),
]


class EventResponse(SnakeCaseResponse):
    """A change of the endpoint. `observed_at` is in unix seconds."""

    event_id: str
    type: Annotated[str, OneOf(EVENTS)]
    severity: Severity
    observed_at: int
    observed_at_iso: str
    watch_id: str
    resource: str
    reason: str
    before: dict[str, Any]
    after: dict[str, Any]
    evidence: dict[str, Any]
    endpoint_page: str


class WatchEventResponse(SnakeCaseResponse):
    """An event of the watch itself."""

    event_id: str
    type: Annotated[str, OneOf(rules.LIFECYCLE)]
    observed_at: UnixSeconds = from_attribute("at")
    observed_at_iso: WholeSecond = from_attribute("at")
    detail: dict[str, Any]


class PollResponse(SnakeCaseResponse):
    """The events after the cursors, and the number of checks: `checkedTimes` conclusive checks
    since the watch began, `excludedTimes` checks that failed on our side, `probesSinceCursor`
    checks since the previous poll. The next check is made before `nextCheckBy`.
    """

    watch_id: str = from_attribute("id")
    state: WatchStateName
    resource: str
    expires_at: WholeSecond
    events: list[EventResponse]
    next_cursor: str
    watch_events: list[WatchEventResponse]
    watch_events_cursor: str
    checked_times: int = Field(serialization_alias="checkedTimes")
    excluded_times: int = Field(serialization_alias="excludedTimes")
    probes_since_cursor: int = Field(serialization_alias="probesSinceCursor")
    last_checked_at: WholeSecond | None = Field(serialization_alias="lastCheckedAt")
    next_check_by: WholeSecond | None = Field(serialization_alias="nextCheckBy")


@ROUTES.get(
    "/v1/watch/{id}/events",
    openapi.free(
        PollResponse,
        "watch_events",
        REFUSED | {422: "A cursor is invalid, or a query parameter is unknown"},
    ),
    request=SECURITY,
)
async def poll(
    service: Service,
    watch_id: WatchId,
    request: Request,
    since: Cursor = "0",
    watch_since: Cursor = "0",
) -> Response:
    """Poll the events of a watch."""
    return answer(
        await read_events(service, watch_id, bearer(request), since=since, watch_since=watch_since)
    )


async def read_events(
    service: Service, watch_id: str, secret: str, *, since: str, watch_since: str
) -> PollResponse:
    """Read the events, for the route and the MCP tool. Raises Problem 401, 404 or 422."""
    watch = await own_watch(service, watch_id, secret)
    after, last_poll_at = _cursor(since, "since")
    watched_after, _ = _cursor(watch_since, "watch_since")
    now = service.clock()
    store = service.store
    events, watch_changes, endpoint = await store.reading(
        _since_cursors, watch, after=after, watched_after=watched_after
    )
    total, scored, since_poll = await store.reading(
        _checks, watch, last_poll_at=last_poll_at, until=min(now, watch.reports_until)
    )
    resource = endpoint.resource if endpoint else ""
    last = events[-1].id if events else after
    live = watch.state is WatchState.ACTIVE
    return PollResponse.build(
        watch,
        resource=resource,
        events=[_event(service, event, watch, resource) for event in events],
        next_cursor=f"{last}.{last_poll_at if len(events) == PAGE_MAX else now}",
        watch_events=[_own_event(event) for event in watch_changes],
        watch_events_cursor=str(watch_changes[-1].id if watch_changes else watched_after),
        checked_times=scored,
        excluded_times=total - scored,
        probes_since_cursor=since_poll,
        last_checked_at=endpoint.last_probed if endpoint else None,
        next_check_by=endpoint.next_due + GRACE_MS if endpoint and live else None,
    )


def _event(service: Service, stored: StoredChange, watch: Watch, resource: str) -> EventResponse:
    return EventResponse(
        **alert_text.build_event(
            stored.change,
            event_id=rules.message_id(watch.id, rules.change_event(stored.id)),
            watch_id=watch.id,
            resource=resource,
            page=page_url(service.base_url, watch.endpoint_id),
        )
    )


def _since_cursors(
    tx: Connection, watch: Watch, *, after: int, watched_after: int
) -> tuple[tuple[StoredChange, ...], tuple[WatchEvent, ...], Endpoint | None]:
    """Load the events after the cursors, and the endpoint. Raises Problem 422."""
    _check_cursor(after, changes.newest(tx), "since")
    _check_cursor(watched_after, watch_events.newest(tx), "watch_since")
    return (
        watched_changes.of_watch(tx, watch, after=after, limit=PAGE_MAX),
        watch_events.of_watch(tx, watch.id, after=watched_after, limit=PAGE_MAX),
        endpoints.get(tx, watch.endpoint_id),
    )


def _checks(tx: Connection, watch: Watch, *, last_poll_at: int, until: int) -> tuple[int, int, int]:
    """Count the checks until a time (ms UTC): all, conclusive ones, and those since the last poll
    (`last_poll_at` is 0 before the first one).
    """
    total, scored = changes.checks(tx, watch, since=watch.created_at, until=until)
    if last_poll_at <= watch.created_at:
        return total, scored, total
    since_poll, _ = changes.checks(tx, watch, since=min(last_poll_at, until), until=until)
    return total, scored, since_poll


def _cursor(text: str, name: str) -> tuple[int, int]:
    """Parse a cursor into (event ID, time of the poll). Raises Problem 422."""
    match = CURSOR.fullmatch(text)
    if match is None:
        raise invalid(name, f"{name} must be a cursor from an earlier poll.")
    return int(match.group(1)), int(match.group(2) or 0)


def _check_cursor(after: int, newest: int, name: str) -> None:
    """Reject a cursor that is ahead of all events. Raises Problem 422."""
    # Such a cursor is from another server, or from before the database was restored. Continuing
    # from it would skip events.
    if after > newest:
        raise invalid(
            name, f"This cursor is not from this server. Omit {name} to read from the start."
        )


def _own_event(event: WatchEvent) -> WatchEventResponse:
    return WatchEventResponse.build(
        event,
        event_id=rules.message_id(event.watch_id, rules.own_event(event.id)),
        detail=alert_text.format_times(event.detail),
    )
