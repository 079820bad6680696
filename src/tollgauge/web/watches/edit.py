"""Edit or cancel a watch (docs/watching.md)."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import BeforeValidator, ConfigDict
from sqlalchemy import Connection
from starlette.requests import Request
from starlette.responses import Response

from tollgauge.clients import webhooks
from tollgauge.clients.webhooks import SealError, destination_context, watch_context
from tollgauge.core.endpoint.identity import Endpoint
from tollgauge.core.watch.watch_rules import DestinationKind, Target, WatchState
from tollgauge.store.endpoints import endpoints
from tollgauge.store.watches import outbox, watches
from tollgauge.store.watches.watches import Destination, Watch
from tollgauge.web.dependencies import Service
from tollgauge.web.edge.messages import read_body
from tollgauge.web.edge.problem import Problem
from tollgauge.web.paid.delivery_test import DeliveryTester
from tollgauge.web.route import Routes
from tollgauge.web.watches.watch_secret import (
    REFUSED,
    SECURITY,
    WatchId,
    answer,
    bearer,
    missing_token,
    own_watch,
    unknown_watch,
)
from tollgauge.web.wire import openapi
from tollgauge.web.wire.examples import read_example
from tollgauge.web.wire.response_model import OneOf, from_attribute
from tollgauge.web.wire.watch_models import (
    SnakeCaseResponse,
    WatchFields,
    WatchStateName,
    WholeSecond,
    check_count,
)

ROUTES: Final = Routes(tag="watch", strict_query=True)
_PATH: Final = "/v1/watch/{id}"
_EXAMPLE: Final = read_example("watch_state")
_EDIT_EXAMPLE: Final = {"events": ["payto_change", "liveness_down"], "liveness_sensitivity_n": 3}


class EditRequest(WatchFields):
    """Changes of a watch."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1})


_DestinationState = Annotated[
    str,
    OneOf(("active", "disabled")),
    BeforeValidator(lambda disabled_at: "disabled" if disabled_at else "active"),
]


class DestinationResponse(SnakeCaseResponse):
    """A destination with a masked URL."""

    destination: str = from_attribute("masked")
    kind: Annotated[str, OneOf(DestinationKind)]
    state: _DestinationState = from_attribute("disabled_at")
    reason: str = from_attribute("disabled_reason")


class StateResponse(SnakeCaseResponse):
    """The current state of a watch."""

    watch_id: str = from_attribute("id")
    state: WatchStateName
    resource: str
    created_at: WholeSecond
    expires_at: WholeSecond
    events: list[str]
    liveness_sensitivity_n: int = from_attribute("sensitivity")
    digest: bool
    destinations: list[DestinationResponse]


@ROUTES.add(
    "PATCH",
    _PATH,
    openapi.free(
        StateResponse,
        _EXAMPLE,
        REFUSED
        | {
            400: "The body is not JSON",
            409: "Another edit changed the destinations at the same time",
            422: "Invalid input, no changes, a destination that failed its test, or an ended watch",
        },
    ),
    request=SECURITY | {"requestBody": EditRequest.body(_EDIT_EXAMPLE)},
)
async def edit(service: Service, watch_id: WatchId, request: Request) -> Response:
    """Edit the events and destinations of a watch. Omitted fields keep their values, also inside
    `delivery`.
    """
    secret = bearer(request)
    watch = await own_watch(service, watch_id, secret)
    return answer(await change(service, watch, secret, await read_body(request, bodyless=True)))


async def change(service: Service, watch: Watch, secret: str, document: object) -> StateResponse:
    """Edit a watch, for the route and the MCP tool. Raises Problem 409, 422 or 503."""
    changes = EditRequest.read(document, service.perimeter)
    if watch.state is not WatchState.ACTIVE:
        raise _ended_problem()
    if not changes.model_fields_set:
        names = ", ".join(EditRequest.model_fields)
        raise Problem(422, "nothing-to-change", f"Send at least one of: {names}.")
    # Tested before the watch is locked: a test waits for other servers.
    new = await _test_new(service, watch, changes.targets, secret)
    sealed_key = None
    if any(target.kind is DestinationKind.JSON for target in new):
        key = webhooks.secret_key(secret) or b""
        sealed_key = service.sealer.seal(key, context=watch_context(watch.id))
    await service.store.writing(_edit, service, watch, changes, new, sealed_key)
    return await _state(service, watch.id)


def _edit(
    tx: Connection,
    service: Service,
    seen: Watch,
    changes: EditRequest,
    new: dict[Target, Destination],
    sealed_key: bytes | None,
) -> None:
    # Everything is decided under the row lock, so that concurrent edits are not lost.
    watch = watches.get(tx, seen.id, lock=True)
    if watch is None or watch.state is not WatchState.ACTIVE:
        raise _ended_problem()
    if watch.secret_hash != seen.secret_hash:
        raise missing_token()  # rotated during the test: `sealed_key` is that of the old secret
    now = service.clock()
    added: list[Destination] = []
    removed: list[str] = []
    if "delivery" in changes.model_fields_set:
        old = watches.load_destinations(tx, [watch.id])[watch.id]
        wanted = {target.url: target.kind for target in changes.targets}
        kinds = changes.replaced_kinds
        removed = [row.id for row in old if _is_replaced(service, row, wanted, kinds)]
        known = _urls_and_kinds(service, old)
        missing = [one for one in changes.targets if (one.url, one.kind) not in known]
        if not new.keys() >= {*missing}:
            raise _changed_problem()  # removed since the test, which skipped it
        added = [new[target] for target in missing]
        check_count(len(old) - len(removed) + len(added))
        outbox.drop(tx, watch.id, now=now, to=removed)
    watches.edit(
        tx,
        watch,
        watch_request=changes.watch_request(watch.watch_request),
        sealed_key=watch.sealed_key or sealed_key,
        added=added,
        removed=removed,
        now=now,
    )


@ROUTES.add(
    "DELETE",
    _PATH,
    openapi.free(StateResponse, _EXAMPLE | {"state": "cancelled"}, REFUSED | openapi.QUERY),
    request=SECURITY,
)
async def cancel(service: Service, watch_id: WatchId, request: Request) -> Response:
    """Cancel a watch; its events can still be read. The operation is idempotent."""
    return answer(await end(service, await own_watch(service, watch_id, bearer(request))))


async def end(service: Service, watch: Watch) -> StateResponse:
    """End a watch, for the route and the MCP tool."""
    await service.store.writing(_cancel, watch, now=service.clock())
    return await _state(service, watch.id)


async def _test_new(
    service: Service, watch: Watch, targets: tuple[Target, ...], secret: str
) -> dict[Target, Destination]:
    """Test and encrypt the targets that the watch does not have yet.

    Raises Problem 422 if a test fails, and 503 if no encryption key is configured.
    """
    if not targets:
        return {}
    store = service.store
    old = (await store.reading(watches.load_destinations, [watch.id]))[watch.id]
    endpoint = await store.reading(endpoints.get, watch.endpoint_id)
    known = _urls_and_kinds(service, old)
    new = [target for target in targets if (target.url, target.kind) not in known]
    tester = DeliveryTester(service)
    tester.check_ready(new)
    key = webhooks.secret_key(secret) or b""
    resource = endpoint.resource if endpoint else ""
    await tester.test(new, watch_id=watch.id, resource=resource, key=key)
    sealed = tester.seal_targets(new, watch_id=watch.id, now=service.clock())
    return dict(zip(new, sealed, strict=True))


def _is_replaced(
    service: Service,
    destination: Destination,
    wanted: dict[str, DestinationKind],
    kinds: frozenset[DestinationKind],
) -> bool:
    """Return whether a destination is removed when `wanted` replaces those of `kinds`.

    A destination of these kinds is removed unless it is wanted unchanged. A wanted URL that was
    disabled, or that is wanted in another format, is removed and added again.
    """
    url = _url(service, destination)
    unchanged = wanted.get(url) is destination.kind and not destination.disabled_at
    return not unchanged and (url in wanted or destination.kind in kinds)


def _urls_and_kinds(
    service: Service, old: tuple[Destination, ...]
) -> set[tuple[str, DestinationKind]]:
    # Without disabled destinations, so that a disabled URL in an edit is tested again.
    active = (destination for destination in old if not destination.disabled_at)
    return {(_url(service, destination), destination.kind) for destination in active}


def _url(service: Service, destination: Destination) -> str:
    """Decrypt the URL of a destination; empty if the key is no longer available."""
    context = destination_context(destination.id)
    try:
        return service.sealer.open(destination.sealed_url, context=context).decode()
    except SealError:
        return ""


async def _state(service: Service, watch_id: str) -> StateResponse:
    watch, watch_destinations, endpoint = await service.store.reading(_watch_with_parts, watch_id)
    if watch is None:
        raise unknown_watch()
    return StateResponse.build(
        watch,
        watch.watch_request,
        resource=endpoint.resource if endpoint else "",
        destinations=watch_destinations,
    )


def _cancel(tx: Connection, watch: Watch, *, now: int) -> None:
    if watches.end(tx, watch, WatchState.CANCELLED, now=now) is not None:
        outbox.drop(tx, watch.id, now=now)


def _watch_with_parts(
    tx: Connection, watch_id: str
) -> tuple[Watch | None, tuple[Destination, ...], Endpoint | None]:
    watch = watches.get(tx, watch_id)
    endpoint = endpoints.get(tx, watch.endpoint_id) if watch else None
    return watch, watches.load_destinations(tx, [watch_id])[watch_id], endpoint


def _changed_problem() -> Problem:
    return Problem(
        409,
        "watch-changed",
        "Another edit removed one of these destinations at the same time. Nothing was changed; "
        "send the edit again.",
    )


def _ended_problem() -> Problem:
    return Problem(422, "watch-ended", "This watch has ended and cannot be changed.")
