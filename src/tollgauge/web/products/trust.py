"""`POST /v1/x402-trust`: the live-probed trust report.

The score of a report is the endpoint's newest: it is kept, so that the free snapshot never says
less than what was sold.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from sqlalchemy import Connection

from tollgauge import reports
from tollgauge.core.endpoint import Endpoint, Resource
from tollgauge.core.probe import ProbeResult
from tollgauge.store import scores
from tollgauge.web import paid, wire
from tollgauge.web.paid import Product, Shop

BODY: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["resource"],
    "properties": {"resource": paid.resource_field()},
}
EXAMPLE: Final = {"resource": "https://api.example.com/weather"}


def product(shop: Shop) -> Product:
    """The trust report of a shop."""
    return Product(
        shop=shop,
        route=paid.TRUST,
        summary="The live-probed trust report of an endpoint",
        description="Trust report of a pay-per-call (x402) endpoint, from a live probe: "
        "score 0 to 100, grade, breakdown, flags, price and payTo history, settlements.",
        body=BODY,
        example=dict(EXAMPLE),
        answer=EXAMPLE | {"score": 84.2, "grade": "A", "recommendation": "proceed"},
        shape=wire.TrustReportShape,
        validate=partial(_order, shop),
        compute=partial(_answer, shop),
    )


def _order(shop: Shop, document: object) -> Resource:
    if not isinstance(document, dict):
        raise paid.invalid("", "The body must be a JSON object.")
    return paid.resource_of(document.get("resource"), shop.perimeter)


async def _answer(shop: Shop, order: Resource) -> bytes:
    endpoint, probe = await shop.live.look(order)
    report, made = await shop.store.reading(_report, endpoint, probe, now=shop.clock())
    if made:
        await shop.store.writing(scores.save, report.row)
    return wire.dump(wire.trust_report(report))


def _report(
    tx: Connection, endpoint: Endpoint, probe: ProbeResult, *, now: int
) -> tuple[reports.TrustReport, bool]:
    """The report, and whether it is a new one: those who share a probe share its report."""
    known = reports.shared(tx, endpoint, probe)
    return known or reports.live(tx, endpoint, probe, now=now), known is None
