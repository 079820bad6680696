"""What a watch's owner may do with its secret: poll, edit, cancel (docs/watching.md).

Rules:
- no bearer, or one that nobody has, is 401; the bearer of another watch is 404, whether or not
  the watch that was asked for exists;
- a poll gives what happened after its two cursors, oldest first, and how often the endpoint was
  checked, so that silence is evidence; nothing between two polls is lost;
- a cancelled watch can be read until its period ends and 30 days on;
- destinations are tested before the watch is locked; what an edit changes is worked out under the
  lock, so that of two at once neither is lost.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Final

from fastapi import APIRouter, Path, Query
from pydantic import Field
from sqlalchemy import Connection
from starlette.requests import Request
from starlette.responses import Response

from tollgauge.clients import webhooks
from tollgauge.clients.seal import Sealer, SealError, destination_context, watch_context
from tollgauge.clients.webhooks import Signing
from tollgauge.core import notice
from tollgauge.core import watch as rules
from tollgauge.core.endpoint import Perimeter
from tollgauge.core.flips import EVENTS
from tollgauge.core.units import MINUTE_MS
from tollgauge.core.watch import Kind, State, Target
from tollgauge.store import (
    destinations,
    endpoints,
    flips,
    outbox,
    watch_events,
    watch_payments,
    watches,
)
from tollgauge.store.destinations import Destination
from tollgauge.store.engine import Store
from tollgauge.store.watch_events import WatchEvent
from tollgauge.store.watches import Watch
from tollgauge.web import describe, paid, wire
from tollgauge.web.connect import Connector
from tollgauge.web.incoming import read_body
from tollgauge.web.problem import Problem
from tollgauge.web.products.watch import EXAMPLE_ID, SnakeShape
from tollgauge.web.wishes import FIELDS, targets_of, wish_of

PAGE_MAX: Final = 500
GRACE_MS: Final = MINUTE_MS
"""How much later than due a check may be before `nextCheckBy` was no promise kept."""
CURSOR: Final = re.compile(r"([0-9]{1,15})(?:\.([0-9]{1,15}))?", re.ASCII)
_BEARER: Final = re.compile(r"bearer +(\S{1,200})", re.ASCII | re.IGNORECASE)
_ID: Final = "^wat_[0-9a-f]{24}$"
_EDIT_BODY: Final = {"type": "object", "properties": FIELDS}
_EDIT_EXAMPLE: Final = {"events": ["payto_change", "liveness_down"], "liveness_sensitivity_n": 3}
_REFUSED: Final = {
    401: "No bearer, or one that nobody has",
    404: "There is no such watch of this bearer",
}
WatchId = Annotated[
    str,
    Path(description="The watch's id", examples=[EXAMPLE_ID], json_schema_extra={"pattern": _ID}),
]
Cursor = Annotated[
    str,
    Query(
        description="What the last poll gave; leave it out to read from the start",
        examples=["0"],
        json_schema_extra={"pattern": f"^{CURSOR.pattern}$"},
    ),
]


class EventShape(SnakeShape):
    """A change of the endpoint. `observed_at` is in unix seconds."""

    event_id: str
    type: Annotated[str, Field(json_schema_extra={"enum": list(EVENTS)})]
    severity: wire.Severity
    observed_at: int
    observed_at_iso: str
    watch_id: str
    resource: str
    reason: str
    before: dict[str, Any]
    after: dict[str, Any]
    evidence: dict[str, Any]
    endpoint_page: str


class WatchEventShape(SnakeShape):
    """Something that happened to the watch itself."""

    event_id: str
    type: Annotated[str, Field(json_schema_extra={"enum": list(rules.LIFECYCLE)})]
    observed_at: int
    observed_at_iso: str
    detail: dict[str, Any]


class PollShape(SnakeShape):
    """What happened after the cursors, and the heartbeat: `checkedTimes` checks with a verdict
    since the watch began, `excludedTimes` more that failed on our side, `probesSinceCursor`
    checks since the last poll, and the instant until which the next one will have been made.
    """

    watch_id: str
    state: Annotated[str, Field(json_schema_extra={"enum": ["active", "cancelled", "expired"]})]
    resource: str
    expires_at: str
    events: list[EventShape]
    next_cursor: str
    watch_events: list[WatchEventShape]
    watch_events_cursor: str
    checkedTimes: int  # noqa: N815 - the name on the wire
    excludedTimes: int  # noqa: N815
    probesSinceCursor: int  # noqa: N815
    lastCheckedAt: str | None  # noqa: N815
    nextCheckBy: str | None  # noqa: N815


class DestinationShape(SnakeShape):
    """A destination; its URL is masked."""

    destination: str
    kind: Annotated[str, Field(json_schema_extra={"enum": [kind.value for kind in Kind]})]
    state: Annotated[str, Field(json_schema_extra={"enum": ["active", "disabled"]})]
    reason: str


class StateShape(SnakeShape):
    """A watch as it stands."""

    watch_id: str
    state: Annotated[str, Field(json_schema_extra={"enum": ["active", "cancelled", "expired"]})]
    resource: str
    created_at: str
    expires_at: str
    events: list[str]
    liveness_sensitivity_n: int
    digest: bool
    destinations: list[DestinationShape]


class UnauthorizedProblem(Problem):
    """401: no bearer, or one that nobody has."""

    def __init__(self) -> None:
        super().__init__(
            401, "unauthorized", "Send the watch's secret: Authorization: Bearer <secret>."
        )

    def headers(self) -> dict[str, str]:
        """With the challenge that RFC 9110 wants."""
        return super().headers() | {"WWW-Authenticate": "Bearer"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Watching:
    """What the owner's routes need."""

    store: Store
    clock: Callable[[], int]
    base_url: str
    perimeter: Perimeter
    sealer: Sealer
    connector: Connector

    def router(self) -> APIRouter:
        """The routes with their descriptions."""
        routes = APIRouter(default_response_class=Response)
        bearer: dict[str, Any] = {"security": [{"bearer": []}]}
        content = {"application/json": {"schema": _EDIT_BODY, "example": _EDIT_EXAMPLE}}
        edit = {"required": True, "description": paid.FIELDS, "content": content}
        invalid = {422: "A cursor that no poll gave"}
        edited = {
            400: "The body is not JSON",
            422: "Invalid input, a destination that does not take its test, or an ended watch",
        }
        for method, path, handler, answers, words, extra in (
            (
                "GET",
                "/v1/watch/{id}/events",
                self.poll,
                describe.free(PollShape, _POLL_EXAMPLE, _REFUSED | invalid),
                "What a watch has seen",
                bearer,
            ),
            (
                "PATCH",
                "/v1/watch/{id}",
                self.edit,
                describe.free(StateShape, _STATE_EXAMPLE, _REFUSED | edited),
                "Change what a watch listens to and where to",
                bearer | {"requestBody": edit},
            ),
            (
                "DELETE",
                "/v1/watch/{id}",
                self.cancel,
                describe.free(StateShape, _STATE_EXAMPLE | {"state": "cancelled"}, _REFUSED),
                "End a watch; it can still be read",
                bearer,
            ),
        ):
            routes.add_api_route(
                path,
                handler,
                methods=[method],
                summary=words,
                operation_id=f"watch_{handler.__name__}",
                responses=answers,
                openapi_extra=extra,
                tags=["watch"],
            )
        return routes

    async def poll(
        self,
        id: WatchId,  # noqa: A002 - the path's name
        request: Request,
        since: Cursor = "0",
        watch_since: Cursor = "0",
    ) -> Response:
        """Everything after the cursors."""
        return _json(await self.read(id, _bearer(request), since=since, watch_since=watch_since))

    async def read(self, id: str, secret: str, *, since: str, watch_since: str) -> PollShape:  # noqa: A002
        """What a poll answers, whatever carried it. Raises Problem 401, 404 or 422."""
        found = await self._own(id, secret)
        after, looked = _cursor(since, "since")
        watched_after, _ = _cursor(watch_since, "watch_since")
        now = self.clock()
        async with self.store.read() as tx:
            _check_cursor(after, await flips.newest(tx), "since")
            _check_cursor(watched_after, await watch_events.newest(tx), "watch_since")
            told = await flips.of_watch(tx, found, after=after, limit=PAGE_MAX)
            own = await watch_events.of_watch(tx, found.id, after=watched_after, limit=PAGE_MAX)
            endpoint = await endpoints.get(tx, found.endpoint_id)
            until = min(now, found.told_until)
            made, scored = await flips.checks(
                tx, found.endpoint_id, since=found.created_at, until=until
            )
            begin = max(looked, found.created_at)
            since_cursor = made
            if begin > found.created_at:
                since_cursor, _ = await flips.checks(
                    tx, found.endpoint_id, since=min(begin, until), until=until
                )
        resource = endpoint.resource if endpoint else ""
        page = notice.page(self.base_url, found.endpoint_id)
        last = told[-1].id if told else after
        probed = endpoint.last_probed if endpoint else None
        live = found.state is State.ACTIVE
        return PollShape(
            watch_id=found.id,
            state=found.state.value,
            resource=resource,
            expires_at=notice.iso(found.expires_at),
            events=[
                EventShape(
                    **notice.flip_event(
                        each.flip,
                        event_id=rules.message_id(found.id, f"flip:{each.id}"),
                        watch_id=found.id,
                        resource=resource,
                        page=page,
                    )
                )
                for each in told
            ],
            next_cursor=f"{last}.{looked if len(told) == PAGE_MAX else now}",
            watch_events=[_own_event(each) for each in own],
            watch_events_cursor=str(own[-1].id if own else watched_after),
            checkedTimes=scored,
            excludedTimes=made - scored,
            probesSinceCursor=since_cursor,
            lastCheckedAt=None if probed is None else notice.iso(probed),
            nextCheckBy=notice.iso(endpoint.next_due + GRACE_MS) if endpoint and live else None,
        )

    async def edit(self, id: WatchId, request: Request) -> Response:  # noqa: A002
        """Change a watch; what is left out stays, a `delivery` replaces all destinations."""
        found = await self._own(id, _bearer(request))
        document = await read_body(request)
        if not isinstance(document, dict):
            raise paid.invalid("", "The body must be a JSON object.")
        paid.check_names(document, _EDIT_BODY)
        if found.state is not State.ACTIVE:
            raise _ended()
        wish_of(document, now=found.wish)
        targets = targets_of(document, self.perimeter) if "delivery" in document else None
        fresh = await self._connected(found, targets or (), _bearer(request))
        sealed_key = None
        if any(target.kind is Kind.JSON for target in fresh):
            key = webhooks.secret_key(_bearer(request)) or b""
            sealed_key = self.sealer.seal(key, context=watch_context(found.id))
        await self.store.writing(self._edit, found.id, document, targets, fresh, sealed_key)
        return await self._state(found.id)

    def _edit(
        self,
        tx: Connection,
        watch_id: str,
        document: dict[str, Any],
        targets: tuple[Target, ...] | None,
        fresh: dict[Target, Destination],
        sealed_key: bytes | None,
    ) -> None:
        """Change a watch as it is now; None as `targets` leaves its destinations alone."""
        found = watches.get(tx, watch_id, lock=True)
        if found is None or found.state is not State.ACTIVE:
            raise _ended()
        now = self.clock()
        added: list[Destination] = []
        removed: list[str] = []
        if targets is not None:
            kept = self._kept(destinations.of_watches(tx, [found.id])[found.id])
            wanted = {(each.url, each.kind) for each in targets}
            removed = [id_ for id_, place in kept.items() if place not in wanted]
            places = set(kept.values())
            new = {
                each: made for each, made in fresh.items() if (each.url, each.kind) not in places
            }
            added = list(new.values())
            outbox.drop(tx, found.id, now=now, to=removed)
        watches.edit(
            tx,
            found,
            wish=wish_of(document, now=found.wish),
            sealed_key=found.sealed_key or sealed_key,
            added=added,
            removed=removed,
            now=now,
        )

    async def cancel(self, id: WatchId, request: Request) -> Response:  # noqa: A002
        """End a watch at once; doing it again changes nothing."""
        found = await self._own(id, _bearer(request))
        now = self.clock()
        async with self.store.write() as tx:
            if await watches.end(tx, found, State.CANCELLED, now=now) is not None:
                await outbox.drop(tx, found.id, now=now)
        return await self._state(found.id)

    async def _connected(
        self, found: Watch, targets: tuple[Target, ...], secret: str
    ) -> dict[Target, Destination]:
        """Those of some targets that the watch has not yet, tested and sealed."""
        if not targets:
            return {}
        async with self.store.read() as tx:
            kept = (await destinations.of_watches(tx, [found.id]))[found.id]
            endpoint = await endpoints.get(tx, found.endpoint_id)
        places = set(self._kept(kept).values())
        fresh = [each for each in targets if (each.url, each.kind) not in places]
        self.connector.check_ready(fresh)
        signing = Signing(key=webhooks.secret_key(secret) or b"", secret_hash=found.secret_hash)
        resource = endpoint.resource if endpoint else ""
        await self.connector.test(fresh, watch_id=found.id, resource=resource, signing=signing)
        made = self.connector.kept(fresh, watch_id=found.id, now=self.clock())
        return dict(zip(fresh, made, strict=True))

    def _kept(self, kept: tuple[Destination, ...]) -> dict[str, tuple[str, Kind]]:
        """The URLs and formats of destinations by their ids. A disabled one, and one whose URL
        does not open any more, has no URL here, so that naming it again tests it again.
        """
        found: dict[str, tuple[str, Kind]] = {}
        for each in kept:
            context = destination_context(each.id)
            try:
                url = self.sealer.open(each.sealed_url, context=context).decode()
            except SealError:
                url = ""
            found[each.id] = ("" if each.disabled_at else url, each.kind)
        return found

    async def _state(self, watch_id: str) -> Response:
        async with self.store.read() as tx:
            found = await watches.get(tx, watch_id)
            kept = (await destinations.of_watches(tx, [watch_id]))[watch_id]
            endpoint = await endpoints.get(tx, found.endpoint_id) if found else None
        if found is None:
            raise _unknown()
        shape = StateShape(
            watch_id=found.id,
            state=found.state.value,
            resource=endpoint.resource if endpoint else "",
            created_at=notice.iso(found.created_at),
            expires_at=notice.iso(found.expires_at),
            events=list(found.wish.events),
            liveness_sensitivity_n=found.wish.sensitivity,
            digest=found.wish.digest,
            destinations=[
                DestinationShape(
                    destination=each.masked,
                    kind=each.kind.value,
                    state="disabled" if each.disabled_at else "active",
                    reason=each.disabled_reason,
                )
                for each in kept
            ],
        )
        return _json(shape)

    async def _own(self, watch_id: str, secret: str) -> Watch:
        """The watch of the bearer, if it is the one that was asked for. A watch whose payment has
        just settled begins here, if the loop has not begun it yet.
        """
        hashed = webhooks.secret_hash(secret)
        async with self.store.read() as tx:
            found = await watches.by_secret(tx, hashed)
            waits = found is not None and await watch_payments.waiting(tx, found.id)
        if found is None or not hmac.compare_digest(found.secret_hash, hashed):
            raise UnauthorizedProblem
        if found.id != watch_id:
            raise _unknown()
        if waits:
            async with self.store.write() as tx:
                await watch_payments.apply(tx, now=self.clock(), watch_id=found.id)
                found = await watches.get(tx, watch_id) or found
        if found.state is State.PENDING:
            raise _unknown()
        return found


def _bearer(request: Request) -> str:
    found = _BEARER.fullmatch(request.headers.get("authorization", ""))
    if found is None:
        raise UnauthorizedProblem
    return found.group(1)


def _unknown() -> Problem:
    return Problem(404, "unknown-watch", "There is no such watch of this bearer.")


def _ended() -> Problem:
    return Problem(422, "watch-ended", "This watch has ended and cannot be changed.")


def _cursor(text: str, name: str) -> tuple[int, int]:
    """(id, instant) of a cursor. Raises Problem 422."""
    found = CURSOR.fullmatch(text)
    if found is None:
        raise paid.invalid(name, "A cursor is what an earlier poll gave.")
    return int(found.group(1)), int(found.group(2) or 0)


def _check_cursor(after: int, newest: int, name: str) -> None:
    """A cursor ahead of everything is of another server, or of a database that was set back: to
    read on from it would pass events by. Raises Problem 422.
    """
    if after > newest:
        raise paid.invalid(
            name, f"No poll here gave this cursor. Leave {name} out to read from the start."
        )


def _own_event(each: WatchEvent) -> WatchEventShape:
    return WatchEventShape(
        event_id=rules.message_id(each.watch_id, rules.own_event(each.id)),
        type=each.type,
        observed_at=each.at // 1000,
        observed_at_iso=notice.iso(each.at),
        detail=notice.instants(each.detail),
    )


def _json(shape: wire.Shape) -> Response:
    body = shape.model_dump_json().encode()
    return Response(
        body, media_type="application/json", headers={"Cache-Control": "no-store, private"}
    )


_POLL_EXAMPLE: Final = {
    "watch_id": EXAMPLE_ID,
    "state": "active",
    "resource": "https://api.example.com/weather",
    "expires_at": "2026-01-31T00:00:00Z",
    "events": [
        {
            "event_id": "evt_0123456789abcdef0123456789abcdef",
            "type": "payto_change",
            "severity": "error",
            "observed_at": 1767225600,
            "observed_at_iso": "2026-01-01T00:00:00Z",
            "watch_id": EXAMPLE_ID,
            "resource": "https://api.example.com/weather",
            "reason": "Payments go to another address than before.",
            "before": {"payTo": "0x1111111111111111111111111111111111111111"},
            "after": {"payTo": "0x2222222222222222222222222222222222222222"},
            "evidence": {"source": "probe"},
            "endpoint_page": "https://trust.example.com/endpoint/0123456789abcdef",
        }
    ],
    "next_cursor": "17.1767225700000",
    "watch_events": [
        {
            "event_id": "evt_fedcba9876543210fedcba9876543210",
            "type": "created",
            "observed_at": 1767225500,
            "observed_at_iso": "2025-12-31T23:58:20Z",
            "detail": {},
        }
    ],
    "watch_events_cursor": "3",
    "checkedTimes": 12,
    "excludedTimes": 0,
    "probesSinceCursor": 12,
    "lastCheckedAt": "2026-01-01T00:00:00Z",
    "nextCheckBy": "2026-01-01T00:06:00Z",
}
_STATE_EXAMPLE: Final = {
    "watch_id": EXAMPLE_ID,
    "state": "active",
    "resource": "https://api.example.com/weather",
    "created_at": "2026-01-01T00:00:00Z",
    "expires_at": "2026-01-31T00:00:00Z",
    "events": ["payto_change", "liveness_down"],
    "liveness_sensitivity_n": 3,
    "digest": False,
    "destinations": [
        {
            "destination": "https://alerts.example.com/…",
            "kind": "webhook",
            "state": "active",
            "reason": "",
        }
    ],
}
