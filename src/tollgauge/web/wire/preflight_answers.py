"""A preflight as JSON: the decision about an offer, and what is known of its endpoint."""

from __future__ import annotations

from typing import Annotated

from tollgauge.core.guard.bundle import TrustRecord
from tollgauge.core.guard.preflight import Code, Decision, PreflightVerdict
from tollgauge.web.wire.figures import iso, tenths
from tollgauge.web.wire.response_model import Grade, OneOf, Percent, Recommendation, ResponseModel


class PreflightResponse(ResponseModel):
    """Whether to pay an offer: `allow`, `ask` whoever may decide, or `refuse`. `code` says which
    rule decided, null for `allow`, and `reason` the same in a sentence. The rest is what is known:
    `knownPayTo` are the addresses that the endpoint asked to be paid at in the last 30 days, newest
    first, `knownAmount` its price in atomic units of a dollar token with 6 decimals on
    `knownNetwork`; `asOf` is when its score was computed. Null is unknown.
    """

    decision: Annotated[str, OneOf(Decision)]
    code: Annotated[str, OneOf(Code)] | None
    reason: str
    resource: str
    recommendation: Recommendation | None
    grade: Grade | None
    score: Percent | None
    known_pay_to: list[str]
    known_amount: str | None
    known_network: str | None
    as_of: str | None


def preflight(
    verdict: PreflightVerdict, record: TrustRecord | None, *, resource: str
) -> PreflightResponse:
    """A verdict as JSON, with the record that it rests on, None where nothing is known."""
    return PreflightResponse(
        decision=verdict.decision,
        code=verdict.code,
        reason=verdict.reason,
        resource=resource,
        recommendation=record.recommendation if record else None,
        grade=record.grade if record else None,
        score=tenths(record.score_tenths) if record else None,
        known_pay_to=list(record.pay_to) if record else [],
        known_amount=None if record is None or record.amount is None else str(record.amount),
        known_network=record.network if record else None,
        as_of=iso(record.as_of) if record else None,
    )
