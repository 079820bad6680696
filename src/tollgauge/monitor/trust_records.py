"""Trust records: what a client is told of an endpoint before it pays, from its rows."""

from __future__ import annotations

from sqlalchemy import Connection

from tollgauge.core.guard.trust_record import DECIMALS, PaidAddress, TrustRecord, addresses_of
from tollgauge.core.score.score import flag_codes
from tollgauge.store.scores import trust_records
from tollgauge.store.scores.trust_records import RecordRow


def record(tx: Connection, endpoint_id: str, *, now: int) -> TrustRecord | None:
    """The record of a public endpoint, None for an unknown one."""
    row = trust_records.get(tx, endpoint_id)
    return None if row is None else record_of(row, now=now)


def record_of(row: RecordRow, *, now: int) -> TrustRecord:
    """The record of an endpoint. Without a score it is unverified as of now."""
    quote = row.quote
    return TrustRecord(
        resource=row.resource,
        recommendation=row.ranked_recommendation or "unverified",
        grade=row.ranked_grade,
        score_tenths=row.ranked_score,
        addresses=_addresses(row, now=now),
        network=quote.network if quote else None,
        amount=quote.amount if quote and quote.decimals == DECIMALS else None,
        flags=() if row.result is None else flag_codes(row.result),
        as_of=now if row.ranked_at is None else row.ranked_at,
    )


def _addresses(row: RecordRow, *, now: int) -> tuple[PaidAddress, ...]:
    if row.quote is None:
        return ()
    pay_to = row.quote.pay_to
    return addresses_of(pay_to, row.payto_changes, first_seen=row.first_seen, now=now)
