"""The secret of a watch: it authenticates the owner, and the payer can replace it.

A missing or invalid bearer token is 401. The token of another watch is 404, whether or not the
watch in the path exists.

`POST /v1/watch/{id}/rotate` replaces the secret. The payer signs a text with the paying wallet
(EIP-191, `personal_sign`). The text contains the watch, this service and a time, so that a
signature is valid only here, for VALID_S seconds, and once (docs/watching.md). The old secret
becomes invalid immediately.
"""

from __future__ import annotations

import hmac
import re
import secrets
from typing import Annotated, Any, Final

from pydantic import Field
from sqlalchemy import Connection
from starlette.requests import Request
from starlette.responses import Response

from tollgauge.clients import webhooks
from tollgauge.clients.chain.rpc import RpcError
from tollgauge.clients.webhooks import watch_context
from tollgauge.core.base.signature import recover_signer, text_digest
from tollgauge.core.base.units import SECOND_MS
from tollgauge.core.watch.watch_rules import WatchState, rotation_text
from tollgauge.store.watches import watch_payments, watches
from tollgauge.store.watches.watches import Watch
from tollgauge.web.dependencies import Service
from tollgauge.web.edge.messages import read_body
from tollgauge.web.edge.problem import Problem
from tollgauge.web.route import Routes
from tollgauge.web.wire import openapi
from tollgauge.web.wire.parameters import path
from tollgauge.web.wire.request_model import RequestModel
from tollgauge.web.wire.response_model import ResponseModel, dump
from tollgauge.web.wire.watch_models import EXAMPLE_ID, ID_PATTERN, SnakeCaseResponse, links

ROUTES: Final = Routes(tag="watch", strict_query=True)
SECURITY: Final[dict[str, Any]] = {"security": [{"bearer": []}]}
"""OpenAPI security requirement of the owner's routes."""
REFUSED: Final = {
    401: "Missing or invalid bearer token",
    404: "No watch with this ID for this token",
}
_BEARER: Final = re.compile(r"bearer +(\S{1,200})", re.ASCII | re.IGNORECASE)
WatchId = Annotated[str, path("ID of the watch", EXAMPLE_ID, alias="id", pattern=ID_PATTERN)]
_KEEP: Final = "Store the secret: it is shown only once. The old secret is invalid now."
VALID_S: Final = 600
"""Maximum difference between the signed time and the clock."""


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


async def own_watch(service: Service, watch_id: str, secret: str) -> Watch:
    """Load a watch and check its secret. Raises Problem 401 or 404."""
    hashed = webhooks.secret_hash(secret)
    store = service.store
    watch, waiting = await store.reading(_watch_and_waiting, hashed)
    if watch is None or not hmac.compare_digest(watch.secret_hash, hashed):
        raise missing_token()
    if watch.id != watch_id:
        raise unknown_watch()
    if waiting:  # its payment has just settled, and the loop (jobs/alert) has not started it yet
        await store.writing(watch_payments.apply, now=service.clock(), watch_id=watch_id)
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
    headers = {"Cache-Control": "no-store, private"}
    return Response(dump(model), media_type="application/json", headers=headers)


_EXAMPLE: Final = {"signed_at": 1767225600, "signature": "0x" + "1b" * 65}


class RotationRequest(RequestModel):
    """The signature and the time in the signed text."""

    signed_at: Annotated[int, Field(ge=0, le=1 << 40)] = Field(
        description="Time in the signed text, in unix seconds"
    )
    signature: Annotated[
        str, Field(pattern="^0x(?:[0-9a-fA-F]{2}){65,4096}$", max_length=2 + 2 * 4096)
    ] = Field(
        description="Signature of the payer (EIP-191, personal_sign) over the text "
        "`Rotate the secret of watch {id} at {service}.`, a line feed, `Signed at: {signed_at}`"
    )


class RotatedResponse(SnakeCaseResponse):
    """The new secret of a watch, which is not shown again."""

    watch_id: str
    secret: str
    poll_url: str
    next_steps: list[str]


@ROUTES.post(
    "/v1/watch/{id}/rotate",
    openapi.free(
        RotatedResponse,
        "watch_rotation",
        {
            400: "The body is not JSON",
            403: "The signature is not the payer's",
            404: "No watch with this ID",
            409: "This signature, or a later one, was already used",
            422: "Invalid input, or the signed time is too far from the current time",
        },
    ),
    request={"requestBody": RotationRequest.body(_EXAMPLE)},
)
async def rotate(service: Service, watch_id: WatchId, request: Request) -> Response:
    """Replace the secret of a watch with a signature of its payer."""
    rotation = RotationRequest.read(await read_body(request))
    signed_at, signature = rotation.signed_at, bytes.fromhex(rotation.signature[2:])
    watch = await _load_signers_watch(service, watch_id, signed_at, signature)
    key = secrets.token_bytes(webhooks.SECRET_BYTES)
    secret = webhooks.new_secret(key)
    # Also without destinations that need it: a concurrent edit may add one.
    sealed = None
    if watch.sealed_key is not None or service.sealer.ready:
        sealed = service.sealer.seal(key, context=watch_context(watch_id))
    rotated = await service.store.writing(
        watches.rotate,
        watch_id,
        secret_hash=webhooks.secret_hash(secret),
        sealed_key=sealed,
        signed_at=signed_at,
        now=service.clock(),
    )
    if not rotated:
        raise Problem(
            409,
            "signature-used",
            "This signature, or one with a later time, was already used. Sign the current time.",
        )
    urls = links(service.base_url, watch_id, "poll_url")
    steps = [_KEEP, "Deliveries are signed with the new secret from now on."]
    return answer(RotatedResponse(watch_id=watch_id, secret=secret, next_steps=steps, **urls))


async def _load_signers_watch(
    service: Service, watch_id: str, signed_at: int, signature: bytes
) -> Watch:
    """Load the watch and verify that the signer paid for it. Raises Problem 403, 404 or 422."""
    if abs(service.clock() // SECOND_MS - signed_at) > VALID_S:
        raise Problem(
            422,
            "signature-too-old",
            f"signed_at must be within {VALID_S // 60} minutes of the current time.",
        )
    watch, payer = await _load_watch_and_payer(service, watch_id)
    text = rotation_text(watch_id, service.base_url, signed_at)
    if not await _is_signed_by(service, payer, text_digest(text), signature):
        raise Problem(
            403,
            "not-the-payer",
            f"The signature is not from the wallet that paid, {payer[1]}. Sign this text with "
            f"it (personal_sign, EIP-191): {text!r}",
        )
    return watch


async def _load_watch_and_payer(service: Service, watch_id: str) -> tuple[Watch, tuple[str, str]]:
    """Load a watch, and the network and address of its payer. Raises Problem 404."""
    watch, payer = await service.store.reading(_watch_and_payer, watch_id)
    if watch is not None and watch.state is WatchState.PENDING:
        await service.store.writing(watch_payments.apply, now=service.clock(), watch_id=watch_id)
        watch, payer = await service.store.reading(_watch_and_payer, watch_id)
    if watch is None or payer is None or watch.state is WatchState.PENDING:
        raise Problem(404, "unknown-watch", "No watch with this ID.")
    return watch, payer


async def _is_signed_by(
    service: Service, payer: tuple[str, str], digest: bytes, signature: bytes
) -> bool:
    network, address = payer
    if recover_signer(digest, signature) == address:
        return True
    if service.gate.chain is None:
        return False
    try:
        return await service.gate.chain.accepts(network, address, digest, signature)
    except RpcError as error:
        raise Problem(
            503,
            "chain-unavailable",
            "The signature could not be verified, because the chain node failed. Retry.",
            retry_after=5,
        ) from error


def _watch_and_payer(tx: Connection, watch_id: str) -> tuple[Watch | None, tuple[str, str] | None]:
    return watches.get(tx, watch_id), watch_payments.payer(tx, watch_id)
