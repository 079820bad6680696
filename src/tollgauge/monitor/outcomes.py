"""Accept a payer's statement about delivery if an indexed settlement proves its payment."""

from __future__ import annotations

from enum import StrEnum

from sqlalchemy import Connection

from tollgauge.core.base.units import SECOND_MS
from tollgauge.core.endpoint.buyers_reports import SETTLEMENT_MS, OutcomeStatement
from tollgauge.store.chain import cursors, transfers
from tollgauge.store.endpoints import buyers_reports
from tollgauge.store.endpoints.buyers_reports import BuyerReport
from tollgauge.store.scores import trust_records


class Acceptance(StrEnum):
    """The result of a submitted statement."""

    ACCEPTED = "accepted"
    UNKNOWN_RESOURCE = "unknown-resource"
    NETWORK_NOT_INDEXED = "network-not-indexed"
    PAYTO_NOT_ADVERTISED = "payto-not-advertised"
    UNKNOWN_PAYMENT = "unknown-payment"
    ALREADY_REPORTED = "already-reported"


def submit(
    tx: Connection, statement: OutcomeStatement, endpoint_id: str, *, payer: str, signature: bytes
) -> Acceptance:
    """Store a statement of `payer` (lower-case hex) about an endpoint if its payment is proven.

    The same statement may be submitted again.
    """
    record = trust_records.get(tx, endpoint_id)
    if record is None:
        return Acceptance.UNKNOWN_RESOURCE
    if cursors.cursor(tx, statement.chain) is None:
        return Acceptance.NETWORK_NOT_INDEXED
    at = statement.at * SECOND_MS
    report = BuyerReport(
        chain=statement.chain,
        payer=bytes.fromhex(payer[2:]),
        nonce=statement.nonce,
        endpoint_id=endpoint_id,
        pay_to=bytes.fromhex(statement.pay_to[2:]),
        outcome=statement.outcome,
        at=at,
        signature=signature,
    )
    settled_at = transfers.find_settlement_time(
        tx,
        report.chain,
        wallet=report.pay_to,
        payer=report.payer,
        nonce=report.nonce,
        since=at - SETTLEMENT_MS,
        until=at + SETTLEMENT_MS,
    )
    # Offers come from probes of the endpoint. Listings do not count: anyone can publish one.
    advertised = [
        offer.until
        for offer in record.offers
        if (offer.network, offer.pay_to) == (f"eip155:{report.chain}", statement.pay_to)
    ]
    if not any(until is None or until >= (settled_at or at) for until in advertised):
        return Acceptance.PAYTO_NOT_ADVERTISED
    if settled_at is None:
        return Acceptance.UNKNOWN_PAYMENT
    is_stored = buyers_reports.add(tx, report)
    return Acceptance.ACCEPTED if is_stored else Acceptance.ALREADY_REPORTED
