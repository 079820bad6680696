"""A watch as it stands, and what its owner changes about it: edit, cancel (docs/watching.md).

Rules:
- destinations are tested before the watch is locked; what an edit changes is worked out under the
  lock, so that of two at once neither is lost;
- a watch that has ended is changed no more, and can still be read for a while (web/watches/poll).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Final

from pydantic import Field
from sqlalchemy import Connection
from starlette.requests import Request
from starlette.responses import Response

from tollgauge.clients import webhooks
from tollgauge.clients.seal import SealError, destination_context, watch_context
from tollgauge.clients.webhooks import Signing
from tollgauge.core import notice
from tollgauge.core.watch import Kind, State, Target
from tollgauge.store.endpoints import endpoints
from tollgauge.store.watches import destinations, outbox, watches
from tollgauge.store.watches.destinations import Destination
from tollgauge.store.watches.watches import Watch
from tollgauge.web.dependencies import Dependencies
from tollgauge.web.edge.problem import Problem
from tollgauge.web.paid import catalogue
from tollgauge.web.paid.request import read_body
from tollgauge.web.watches.delivery_test import DeliveryTester
from tollgauge.web.watches.shapes import EXAMPLE_ID, SnakeShape
from tollgauge.web.watches.watch_auth import (
    REFUSED,
    SECURITY,
    WatchId,
    answer,
    bearer,
    own_watch,
    unknown_watch,
)
from tollgauge.web.watches.watch_request import FIELDS, targets_of, watch_request_of
from tollgauge.web.wire import openapi

_EDIT_BODY: Final = {"type": "object", "properties": FIELDS}
_EDIT_EXAMPLE: Final = {"events": ["payto_change", "liveness_down"], "liveness_sensitivity_n": 3}


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


@dataclass(frozen=True, slots=True)
class Watching:
    """The handlers of an owner's changes."""

    dependencies: Dependencies

    async def edit(self, id: WatchId, request: Request) -> Response:  # noqa: A002 - the path's name
        """Change a watch; what is left out stays, a `delivery` replaces all destinations."""
        found = await own_watch(
            self.dependencies.store, id, bearer(request), clock=self.dependencies.clock
        )
        document = await read_body(request)
        if not isinstance(document, dict):
            raise catalogue.invalid("", "The body must be a JSON object.")
        catalogue.check_names(document, _EDIT_BODY)
        if found.state is not State.ACTIVE:
            raise _ended()
        watch_request_of(document, now=found.watch_request)
        targets = (
            targets_of(document, self.dependencies.perimeter) if "delivery" in document else None
        )
        fresh = await self._connected(found, targets or (), bearer(request))
        sealed_key = None
        if any(target.kind is Kind.JSON for target in fresh):
            key = webhooks.secret_key(bearer(request)) or b""
            sealed_key = self.dependencies.sealer.seal(key, context=watch_context(found.id))
        await self.dependencies.store.writing(
            self._edit, found.id, document, targets, fresh, sealed_key
        )
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
        now = self.dependencies.clock()
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
            watch_request=watch_request_of(document, now=found.watch_request),
            sealed_key=found.sealed_key or sealed_key,
            added=added,
            removed=removed,
            now=now,
        )

    async def cancel(self, id: WatchId, request: Request) -> Response:  # noqa: A002 - the path's name
        """End a watch at once; doing it again changes nothing."""
        found = await own_watch(
            self.dependencies.store, id, bearer(request), clock=self.dependencies.clock
        )
        now = self.dependencies.clock()
        async with self.dependencies.store.write() as tx:
            if await watches.end(tx, found, State.CANCELLED, now=now) is not None:
                await outbox.drop(tx, found.id, now=now)
        return await self._state(found.id)

    async def _connected(
        self, found: Watch, targets: tuple[Target, ...], secret: str
    ) -> dict[Target, Destination]:
        """Those of some targets that the watch has not yet, tested and sealed."""
        if not targets:
            return {}
        async with self.dependencies.store.read() as tx:
            kept = (await destinations.of_watches(tx, [found.id]))[found.id]
            endpoint = await endpoints.get(tx, found.endpoint_id)
        places = set(self._kept(kept).values())
        fresh = [each for each in targets if (each.url, each.kind) not in places]
        tester = DeliveryTester(self.dependencies)
        tester.check_ready(fresh)
        signing = Signing(key=webhooks.secret_key(secret) or b"", secret_hash=found.secret_hash)
        resource = endpoint.resource if endpoint else ""
        await tester.test(fresh, watch_id=found.id, resource=resource, signing=signing)
        made = tester.kept(fresh, watch_id=found.id, now=self.dependencies.clock())
        return dict(zip(fresh, made, strict=True))

    def _kept(self, kept: tuple[Destination, ...]) -> dict[str, tuple[str, Kind]]:
        """The URLs and formats of destinations by their ids. A disabled one, and one whose URL
        does not open any more, has no URL here, so that naming it again tests it again.
        """
        found: dict[str, tuple[str, Kind]] = {}
        for each in kept:
            context = destination_context(each.id)
            try:
                url = self.dependencies.sealer.open(each.sealed_url, context=context).decode()
            except SealError:
                url = ""
            found[each.id] = ("" if each.disabled_at else url, each.kind)
        return found

    async def _state(self, watch_id: str) -> Response:
        async with self.dependencies.store.read() as tx:
            found = await watches.get(tx, watch_id)
            kept = (await destinations.of_watches(tx, [watch_id]))[watch_id]
            endpoint = await endpoints.get(tx, found.endpoint_id) if found else None
        if found is None:
            raise unknown_watch()
        shape = StateShape(
            watch_id=found.id,
            state=found.state.value,
            resource=endpoint.resource if endpoint else "",
            created_at=notice.iso(found.created_at),
            expires_at=notice.iso(found.expires_at),
            events=list(found.watch_request.events),
            liveness_sensitivity_n=found.watch_request.sensitivity,
            digest=found.watch_request.digest,
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
        return answer(shape)


def _ended() -> Problem:
    return Problem(422, "watch-ended", "This watch has ended and cannot be changed.")


_EXAMPLE: Final = {
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
EDIT: Final = "Change what a watch listens to and where to"
EDIT_REQUEST: Final = SECURITY | {
    "requestBody": {
        "required": True,
        "description": catalogue.FIELDS,
        "content": {"application/json": {"schema": _EDIT_BODY, "example": _EDIT_EXAMPLE}},
    }
}
EDIT_ANSWERS: Final = openapi.free(
    StateShape,
    _EXAMPLE,
    REFUSED
    | {
        400: "The body is not JSON",
        422: "Invalid input, a destination that does not take its test, or an ended watch",
    },
)
CANCEL: Final = "End a watch; it can still be read"
CANCEL_ANSWERS: Final = openapi.free(StateShape, _EXAMPLE | {"state": "cancelled"}, REFUSED)
