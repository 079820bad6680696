"""`POST /v1/watch/{id}/rotate`: a new secret for a watch, for the wallet that paid for it.

The payer signs a text with the wallet that paid (EIP-191, `personal_sign`). The text names the
watch, this service and the time, so that a signature is valid only here, once, and for VALID_S
seconds (docs/watching.md). The old secret is invalid afterwards.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Annotated, Final

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
from tollgauge.web.dependencies import Dependencies
from tollgauge.web.edge.input import read_body
from tollgauge.web.edge.problem import Problem
from tollgauge.web.watches.watch_auth import WatchId, answer
from tollgauge.web.wire import openapi
from tollgauge.web.wire.request_model import RequestModel
from tollgauge.web.wire.watch_models import EXAMPLE_BASE_URL, EXAMPLE_ID, SnakeCaseResponse, links

_KEEP: Final = "Keep the secret: it is shown only once, and the old one has ended."
VALID_S: Final = 600
"""How many seconds the time of a signature may differ from the clock."""


class RotationRequest(RequestModel):
    """The signature of the text, and the time in it."""

    signed_at: Annotated[int, Field(ge=0, le=1 << 40)] = Field(
        description="The time in the signed text, in unix seconds"
    )
    signature: Annotated[
        str, Field(pattern="^0x(?:[0-9a-fA-F]{2}){65,4096}$", max_length=2 + 2 * 4096)
    ] = Field(
        description="The payer's signature of the text (EIP-191, personal_sign): "
        "`Rotate the secret of watch {id} at {service}.`, a line feed, `Signed at: {signed_at}`"
    )


class RotatedResponse(SnakeCaseResponse):
    """A watch's new secret, shown here only."""

    watch_id: str
    secret: str
    poll_url: str
    next_steps: list[str]


@dataclass(frozen=True, slots=True)
class Rotation:
    """The handler that gives out new secrets. The gate's chain checks signatures of contract
    wallets (ERC-1271).
    """

    dependencies: Dependencies

    async def rotate(self, id: WatchId, request: Request) -> Response:  # noqa: A002 - the path's name
        """Check the signature and replace the secret."""
        rotation = RotationRequest.read(await read_body(request))
        signed_at, signature = rotation.signed_at, bytes.fromhex(rotation.signature[2:])
        watch = await self._watch_of_signer(id, signed_at, signature)
        key = secrets.token_bytes(webhooks.SECRET_BYTES)
        secret = webhooks.new_secret(key)
        sealed = None
        if watch.sealed_key is not None:
            sealed = self.dependencies.sealer.seal(key, context=watch_context(id))
        rotated = await self.dependencies.store.writing(
            watches.rotate,
            id,
            secret_hash=webhooks.secret_hash(secret),
            sealed_key=sealed,
            signed_at=signed_at,
            now=self.dependencies.clock(),
        )
        if not rotated:
            raise Problem(
                409,
                "signature-used",
                "This signature, or one of a later instant, was used before. Sign the present "
                "time.",
            )
        urls = links(self.dependencies.base_url, id, "poll_url")
        steps = [
            _KEEP,
            "Deliveries are signed with it from now on.",
        ]
        return answer(RotatedResponse(watch_id=id, secret=secret, next_steps=steps, **urls))

    async def _watch_of_signer(self, watch_id: str, signed_at: int, signature: bytes) -> Watch:
        """The watch that the signer paid for. Raises Problem 403, 404, or 422 for a signature of
        another time.
        """
        if abs(self.dependencies.clock() // SECOND_MS - signed_at) > VALID_S:
            raise Problem(
                422,
                "signature-too-old",
                f"signed_at must be within {VALID_S // 60} minutes of the present time.",
            )
        watch, payer = await self._watch_and_payer(watch_id)
        text = rotation_text(watch_id, self.dependencies.base_url, signed_at)
        if not await self._signed_by(payer, text_digest(text), signature):
            raise Problem(
                403,
                "not-the-payer",
                f"The signature is not that of the wallet that paid, {payer[1]}. It signs "
                f"(personal_sign, EIP-191): {text!r}",
            )
        return watch

    async def _watch_and_payer(self, watch_id: str) -> tuple[Watch, tuple[str, str]]:
        """A watch, and the network and address of who paid for it. Raises Problem 404."""
        watch, payer = await self.dependencies.store.reading(_watch_and_payer, watch_id)
        if watch is not None and watch.state is WatchState.PENDING:
            await self.dependencies.store.writing(
                watch_payments.apply, now=self.dependencies.clock(), watch_id=watch_id
            )
            watch, payer = await self.dependencies.store.reading(_watch_and_payer, watch_id)
        if watch is None or payer is None or watch.state is WatchState.PENDING:
            raise Problem(404, "unknown-watch", "There is no such watch.")
        return watch, payer

    async def _signed_by(self, payer: tuple[str, str], digest: bytes, signature: bytes) -> bool:
        network, address = payer
        if recover_signer(digest, signature) == address:
            return True
        if self.dependencies.gate.chain is None:
            return False
        try:
            return await self.dependencies.gate.chain.accepts(network, address, digest, signature)
        except RpcError as error:
            raise Problem(
                503,
                "chain-unavailable",
                "The chain could not be asked whether the paying wallet signed this.",
                retry_after=5,
            ) from error


def _watch_and_payer(tx: Connection, watch_id: str) -> tuple[Watch | None, tuple[str, str] | None]:
    return watches.get(tx, watch_id), watch_payments.payer(tx, watch_id)


_EXAMPLE_BODY: Final = {"signed_at": 1767225600, "signature": "0x" + "1b" * 65}
_EXAMPLE: Final = {
    "watch_id": EXAMPLE_ID,
    "secret": webhooks.new_secret(bytes(webhooks.SECRET_BYTES)),
    **links(EXAMPLE_BASE_URL, EXAMPLE_ID, "poll_url"),
    "next_steps": [_KEEP],
}
ROTATE: Final = "A new secret for a watch, by signature of its payer"
REQUEST: Final = {"requestBody": RotationRequest.body(_EXAMPLE_BODY)}
ANSWERS: Final = openapi.free(
    RotatedResponse,
    _EXAMPLE,
    {
        400: "The body is not JSON",
        403: "The signature is not the payer's",
        404: "There is no such watch",
        409: "This signature, or a later one, was used before",
        422: "Invalid input, or a signature of another time",
    },
)
