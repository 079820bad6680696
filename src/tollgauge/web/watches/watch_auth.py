"""Authentication of a watch's owner by its secret (docs/watching.md).

A missing or invalid bearer token is 401. The token of another watch is 404, whether or not the
watch in the path exists.
"""

from __future__ import annotations

import hmac
import re
from typing import Annotated, Any, Final

from sqlalchemy import Connection
from starlette.requests import Request
from starlette.responses import Response

from tollgauge.clients import webhooks
from tollgauge.core.watch.watch_rules import WatchState
from tollgauge.store.watches import watch_payments, watches
from tollgauge.store.watches.watches import Watch
from tollgauge.web.dependencies import Dependencies
from tollgauge.web.edge.problem import Problem
from tollgauge.web.wire.parameters import path
from tollgauge.web.wire.response_model import ResponseModel
from tollgauge.web.wire.watch_models import EXAMPLE_ID, ID_PATTERN

SECURITY: Final[dict[str, Any]] = {"security": [{"bearer": []}]}
"""OpenAPI security requirement of the owner's routes."""
REFUSED: Final = {
    401: "Missing or invalid bearer token",
    404: "No watch with this ID for this token",
}
_BEARER: Final = re.compile(r"bearer +(\S{1,200})", re.ASCII | re.IGNORECASE)
WatchId = Annotated[str, path("ID of the watch", EXAMPLE_ID, pattern=ID_PATTERN)]


def missing_token() -> Problem:
    """Return Problem 401, with the challenge that RFC 9110 section 15.5.2 requires."""
    return Problem(
        401,
        "unauthorized",
        "Send the watch's secret: Authorization: Bearer <secret>.",
        headers={"WWW-Authenticate": "Bearer"},
    )


def bearer(request: Request) -> str:
    """Return the bearer token of a request. Raises Problem 401."""
    match = _BEARER.fullmatch(request.headers.get("authorization", ""))
    if match is None:
        raise missing_token()
    return match.group(1)


async def own_watch(dependencies: Dependencies, watch_id: str, secret: str) -> Watch:
    """Load a watch and check its secret. Raises Problem 401 or 404."""
    hashed = webhooks.secret_hash(secret)
    store = dependencies.store
    watch, waiting = await store.reading(_watch_and_waiting, hashed)
    if watch is None or not hmac.compare_digest(watch.secret_hash, hashed):
        raise missing_token()
    if watch.id != watch_id:
        raise unknown_watch()
    if waiting:  # its payment has just settled, and the loop (jobs/alert) has not started it yet
        await store.writing(watch_payments.apply, now=dependencies.clock(), watch_id=watch_id)
        watch = await store.reading(watches.get, watch_id) or watch
    if watch.state is WatchState.PENDING:
        raise unknown_watch()
    return watch


def _watch_and_waiting(tx: Connection, secret_hash: str) -> tuple[Watch | None, bool]:
    # Both are read in one transaction, because another request can apply the payment in between.
    watch = watches.by_secret(tx, secret_hash)
    return watch, watch is not None and watch_payments.has_unapplied(tx, watch.id)


def unknown_watch() -> Problem:
    """Return Problem 404."""
    return Problem(404, "unknown-watch", "No watch with this ID for this token.")


def answer(model: ResponseModel) -> Response:
    """Build a JSON response for the owner, which caches must not store."""
    body = model.model_dump_json().encode()
    return Response(
        body, media_type="application/json", headers={"Cache-Control": "no-store, private"}
    )
