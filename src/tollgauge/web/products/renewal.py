"""`POST /v1/watch/{id}/renew`: 30 more days of a watch; its secret stays."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from tollgauge.core import notice
from tollgauge.core.watch import State
from tollgauge.store import endpoints, watch_payments, watches
from tollgauge.web import paid, wire
from tollgauge.web.paid import Call, Product, Shop
from tollgauge.web.problem import Problem
from tollgauge.web.products.watching import EXAMPLE_ID, ID, SnakeShape, links

BODY: Final[dict[str, Any]] = {"type": "object"}
_NO_WATCH: Final = "There is no such watch. Nothing was charged."


class RenewedShape(SnakeShape):
    """A renewed watch."""

    watch_id: str
    resource: str
    expires_at: str
    poll_url: str
    renew_url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RenewOrder:
    """Which watch to renew, and by which payment."""

    watch_id: str
    payment_id: str


def product(shop: Shop) -> Product:
    """30 more days of a watch."""
    return Product(
        shop=shop,
        route=paid.RENEW,
        summary="30 more days of a watch; its secret stays",
        description="Renew a watch of a pay-per-call (x402) endpoint for 30 more days.",
        body=BODY,
        example={},
        answer={
            "watch_id": EXAMPLE_ID,
            "resource": "https://api.example.com/weather",
            "expires_at": "2026-03-02T00:00:00Z",
            **links("https://trust.example.com", EXAMPLE_ID, "poll_url", "renew_url"),
        },
        shape=RenewedShape,
        validate=_no_order,
        compute=partial(_renew, shop),
        place=_placed,
        parameters=(("id", "^wat_[0-9a-f]{24}$", EXAMPLE_ID),),
        refusals={
            404: "There is no such watch; nothing was charged",
            422: "The watch was cancelled; nothing was charged",
        },
    )


def _no_order(document: object) -> None:
    if document is not None and not isinstance(document, dict):
        raise paid.invalid("", "The body must be a JSON object, or nothing.")


def _placed(_order: object, call: Call) -> RenewOrder:
    watch_id = call.parameters.get("id", "")
    if not ID.fullmatch(watch_id):
        raise Problem(404, "unknown-watch", _NO_WATCH)
    return RenewOrder(watch_id=watch_id, payment_id=call.payment_id)


async def _renew(shop: Shop, order: RenewOrder) -> bytes:
    now = shop.clock()
    async with shop.store.write() as tx:
        await watch_payments.apply(tx, now=now, watch_id=order.watch_id)
        found = await watches.get(tx, order.watch_id)
        if found is None or found.state is State.PENDING:
            raise Problem(404, "unknown-watch", _NO_WATCH)
        if found.state is State.CANCELLED:
            raise Problem(
                422,
                "watch-cancelled",
                "This watch was cancelled; make a new one. Nothing was charged.",
                extra={"notCharged": True},
            )
        until = await watch_payments.renew(tx, found.id, payment_id=order.payment_id, now=now)
        endpoint = await endpoints.get(tx, found.endpoint_id)
    shape = RenewedShape(
        watch_id=found.id,
        resource=endpoint.resource if endpoint else "",
        expires_at=notice.iso(until),
        **links(shop.base_url, found.id, "poll_url", "renew_url"),
    )
    return wire.dump(shape)
