"""`POST /v1/x402-trust`: the live-probed trust report.

The score of a report is the endpoint's newest: it is kept, so that the free snapshot never says
less than what was sold.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from sqlalchemy import Connection

from tollgauge.core.endpoint import Resource
from tollgauge.monitor import reports
from tollgauge.store.endpoints import scores
from tollgauge.store.ledger import payer_limit
from tollgauge.web import wire
from tollgauge.web.paid import catalogue
from tollgauge.web.paid.catalogue import PaidDependencies, Product
from tollgauge.web.paid.claim import HeldClaim
from tollgauge.web.paid.live_probe import known_now

BODY: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["resource"],
    "properties": {"resource": catalogue.resource_field()},
}
EXAMPLE: Final = {"resource": "https://api.example.com/weather"}


def product(dependencies: PaidDependencies) -> Product:
    """The trust report of one endpoint."""
    return Product(
        dependencies=dependencies,
        route=catalogue.TRUST,
        summary="The live-probed trust report of an endpoint",
        description="Trust report of a pay-per-call (x402) endpoint, from a live probe: "
        "score 0 to 100, grade, breakdown, flags, price and payTo history, settlements.",
        body=BODY,
        example=dict(EXAMPLE),
        answer=EXAMPLE | {"score": 84.2, "grade": "A", "recommendation": "proceed"},
        shape=wire.TrustReportShape,
        validate=partial(_order, dependencies),
        compute=partial(_answer, dependencies),
        hosts=lambda order: (payer_limit.for_probe(order.host),),
        check=dependencies.live.check,
    )


def _order(dependencies: PaidDependencies, document: object) -> Resource:
    fields = catalogue.json_object(document)
    return catalogue.resource_of(fields.get("resource"), dependencies.perimeter)


async def _answer(dependencies: PaidDependencies, order: Resource, claim: HeldClaim) -> bytes:
    report = await dependencies.store.reading(_shared, order.id, now=dependencies.clock())
    if report is None:
        endpoint, probe = await dependencies.live.fresh_result(order, claim)
        report = await dependencies.store.reading(
            reports.live, endpoint, probe, now=dependencies.clock()
        )
        await claim.writing(scores.save, report.row)
    return wire.dump(wire.trust_report(report))


def _shared(tx: Connection, endpoint_id: str, *, now: int) -> reports.TrustReport | None:
    """The report of a probe that is young enough to be shared: its report is as well."""
    endpoint, probe = known_now(tx, endpoint_id, now=now)
    if endpoint is None or probe is None:
        return None
    return reports.shared(tx, endpoint, probe)
