"""`POST /v1/watch/{id}/renew`: renew a watch for 30 days, with the same secret."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field
from sqlalchemy import Connection

from tollgauge.core.base.units import iso_seconds
from tollgauge.core.watch.watch_rules import WatchState
from tollgauge.store.endpoints import endpoints
from tollgauge.store.watches import watch_payments, watches
from tollgauge.web.edge.problem import Problem
from tollgauge.web.paid.product import Call, PaidDependencies, Product, ToolSpec
from tollgauge.web.paid.sale import HeldClaim
from tollgauge.web.wire.examples import read_example
from tollgauge.web.wire.request_model import RequestModel
from tollgauge.web.wire.response_model import dump
from tollgauge.web.wire.watch_models import (
    EXAMPLE_ID,
    ID,
    ID_PATTERN,
    SnakeCaseResponse,
    links,
)

_NO_WATCH: Final = "No watch with this ID. Nothing was charged."


class RenewedResponse(SnakeCaseResponse):
    """A renewed watch."""

    watch_id: str
    resource: str
    expires_at: str
    poll_url: str
    renew_url: str


class RenewalRequest(RequestModel):
    """An empty request: the path names the watch."""


class RenewalArguments(RequestModel):
    """The arguments of the tool, which has no path."""

    watch_id: Annotated[str, Field(pattern=ID_PATTERN)] = Field(description="ID of the watch")


def _prepare(
    _dependencies: PaidDependencies, request: RenewalRequest | RenewalArguments, call: Call | None
) -> str:
    """Return the ID of the watch. Raises Problem 404."""
    if isinstance(request, RenewalArguments):
        return request.watch_id
    watch_id = call.parameters.get("id", "") if call else ""
    if not ID.fullmatch(watch_id):
        raise Problem(404, "unknown-watch", _NO_WATCH)
    return watch_id


async def _renew(dependencies: PaidDependencies, watch_id: str, claim: HeldClaim) -> bytes:
    resource, until = await claim.writing(
        _record_renewal, watch_id, payment_id=claim.payment_id, now=dependencies.clock()
    )
    model = RenewedResponse(
        watch_id=watch_id,
        resource=resource,
        expires_at=iso_seconds(until),
        **links(dependencies.base_url, watch_id, "poll_url", "renew_url"),
    )
    return dump(model)


def _record_renewal(tx: Connection, watch_id: str, *, payment_id: str, now: int) -> tuple[str, int]:
    """Record the renewal; returns the watched resource, and when the watch will end (ms UTC).
    Raises Problem 404 or 422.
    """
    watch_payments.apply(tx, now=now, watch_id=watch_id)
    watch = watches.get(tx, watch_id)
    if watch is None or watch.state is WatchState.PENDING:
        raise Problem(404, "unknown-watch", _NO_WATCH)
    if watch.state is WatchState.CANCELLED:
        raise Problem(
            422,
            "watch-cancelled",
            "This watch was canceled. Buy a new one. Nothing was charged.",
            extra={"notCharged": True},
        )
    until = watch_payments.renew(tx, watch.id, payment_id=payment_id, now=now)
    endpoint = endpoints.get(tx, watch.endpoint_id)
    return endpoint.resource if endpoint else "", until


PRODUCT: Final = Product(
    path="/v1/watch/{id}/renew",
    position=70,
    price="0.200000",
    summary="Renew a watch for 30 days",
    description="Renew a watch of a pay-per-call (x402) endpoint for 30 more days.",
    request=RenewalRequest,
    example={},
    answer=read_example("watch_renewal"),
    response=RenewedResponse,
    prepare=_prepare,
    compute=_renew,
    tool=ToolSpec(
        name="x402_watch_renew", request=RenewalArguments, example={"watch_id": EXAMPLE_ID}
    ),
    parameters=(
        {
            "name": "id",
            "in": "path",
            "required": True,
            "description": "ID of the watch",
            "schema": {"type": "string", "pattern": ID_PATTERN, "examples": [EXAMPLE_ID]},
        },
    ),
    refusals={
        404: "No watch with this ID; nothing was charged",
        422: "The watch was canceled; nothing was charged",
    },
)
PRODUCTS: Final = (PRODUCT,)
