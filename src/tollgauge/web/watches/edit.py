"""A watch as it stands, and what its owner changes about it: edit, cancel (docs/watching.md).

Rules:
- destinations are tested before the watch is locked; what an edit changes is worked out under the
  lock, so that of two at once neither is lost;
- a watch that has ended is changed no more, and can still be read for a while (web/watches/poll).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends
from pydantic import Field
from sqlalchemy import Connection
from starlette.requests import Request
from starlette.responses import Response

from tollgauge.clients import webhooks
from tollgauge.clients.seal import Sealer, SealError, destination_context, watch_context
from tollgauge.clients.webhooks import Signing
from tollgauge.core import notice
from tollgauge.core.endpoint import Perimeter
from tollgauge.core.watch import Kind, State, Target
from tollgauge.db.engine import Store
from tollgauge.store.endpoints import endpoints
from tollgauge.store.watches import destinations, outbox, watches
from tollgauge.store.watches.destinations import Destination
from tollgauge.store.watches.watches import Watch
from tollgauge.web.edge.problem import Problem
from tollgauge.web.paid import catalogue
from tollgauge.web.paid.request import check_query, read_body
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
from tollgauge.web.watches.watch_request import (
    FIELDS,
    check_count,
    replaced_kinds,
    targets_of,
    watch_request_of,
)
from tollgauge.web.wire import openapi

_EDIT_BODY: Final = {"type": "object", "minProperties": 1, "properties": FIELDS}
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Watching:
    """What the owner's changes need."""

    store: Store
    clock: Callable[[], int]
    perimeter: Perimeter
    sealer: Sealer
    delivery_tester: DeliveryTester

    def router(self) -> APIRouter:
        """The routes with their descriptions."""
        routes = APIRouter(default_response_class=Response, dependencies=[Depends(check_query)])
        content = {"application/json": {"schema": _EDIT_BODY, "example": _EDIT_EXAMPLE}}
        edit = {"required": True, "description": catalogue.FIELDS, "content": content}
        edited = {
            400: "The body is not JSON",
            422: "Invalid input, nothing to change, a destination that does not take its test, or "
            "an ended watch",
        }
        for method, handler, answers, words, extra in (
            (
                "PATCH",
                self.edit,
                openapi.free(StateShape, _EXAMPLE, REFUSED | edited),
                "Change what a watch listens to and where to",
                SECURITY | {"requestBody": edit},
            ),
            (
                "DELETE",
                self.cancel,
                openapi.free(
                    StateShape, _EXAMPLE | {"state": "cancelled"}, REFUSED | openapi.QUERY
                ),
                "End a watch; it can still be read",
                SECURITY,
            ),
        ):
            routes.add_api_route(
                "/v1/watch/{id}",
                handler,
                methods=[method],
                summary=words,
                operation_id=f"watch_{handler.__name__}",
                responses=answers,
                openapi_extra=extra,
                tags=["watch"],
            )
        return routes

    async def edit(self, id: WatchId, request: Request) -> Response:  # noqa: A002 - the path's name
        """Change a watch; what is left out stays, in `delivery` too."""
        found = await own_watch(self.store, id, bearer(request), clock=self.clock)
        document = await read_body(request, bodyless=True)
        if not isinstance(document, dict):
            raise catalogue.invalid("", "The body must be a JSON object.")
        catalogue.check_names(document, _EDIT_BODY)
        if found.state is not State.ACTIVE:
            raise _ended()
        if not FIELDS.keys() & document.keys():
            raise _nothing()
        watch_request_of(document, now=found.watch_request)
        targets = targets_of(document, self.perimeter) if "delivery" in document else None
        fresh = await self._connected(found, targets or (), bearer(request))
        sealed_key = None
        if any(target.kind is Kind.JSON for target in fresh):
            key = webhooks.secret_key(bearer(request)) or b""
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
            kept = destinations.of_watches(tx, [found.id])[found.id]
            wanted = {each.url: each.kind for each in targets}
            kinds = replaced_kinds(document)
            removed = [each.id for each in kept if self._replaced(each, wanted, kinds)]
            places = self._places(kept)
            new = {
                each: made for each, made in fresh.items() if (each.url, each.kind) not in places
            }
            added = list(new.values())
            check_count(len(kept) - len(removed) + len(added))
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
        found = await own_watch(self.store, id, bearer(request), clock=self.clock)
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
        places = self._places(kept)
        fresh = [each for each in targets if (each.url, each.kind) not in places]
        self.delivery_tester.check_ready(fresh)
        signing = Signing(key=webhooks.secret_key(secret) or b"", secret_hash=found.secret_hash)
        resource = endpoint.resource if endpoint else ""
        await self.delivery_tester.test(
            fresh, watch_id=found.id, resource=resource, signing=signing
        )
        made = self.delivery_tester.kept(fresh, watch_id=found.id, now=self.clock())
        return dict(zip(fresh, made, strict=True))

    def _replaced(self, kept: Destination, wanted: dict[str, Kind], kinds: frozenset[Kind]) -> bool:
        """Whether a destination goes when these URLs are wanted in place of those of some formats:
        it is of them, or its URL is named again, and it does not go on as it is.
        """
        url = self._url(kept)
        goes_on = wanted.get(url) is kept.kind and not kept.disabled_at
        return not goes_on and (url in wanted or kept.kind in kinds)

    def _places(self, kept: tuple[Destination, ...]) -> set[tuple[str, Kind]]:
        """The URLs and formats of destinations. A disabled one is none of them, so that naming it
        again tests it again.
        """
        return {(self._url(each), each.kind) for each in kept if not each.disabled_at}

    def _url(self, kept: Destination) -> str:
        """The URL of a destination, empty where it does not open any more."""
        try:
            return self.sealer.open(kept.sealed_url, context=destination_context(kept.id)).decode()
        except SealError:
            return ""

    async def _state(self, watch_id: str) -> Response:
        async with self.store.read() as tx:
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


def _nothing() -> Problem:
    return Problem(422, "nothing-to-change", f"Name what is to be changed: {', '.join(FIELDS)}.")


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
