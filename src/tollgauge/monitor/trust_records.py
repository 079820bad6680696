"""Build trust records, which clients read before they pay, and bundles of all of them.

A bundle is built in batches, in the order of endpoint IDs. Each record is read in one transaction
and never mixes two states; it may be some seconds newer than the bundle's `as_of`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from sqlalchemy import Connection

from tollgauge.core.endpoint.terms import OFFERS_MS, KnownOffer
from tollgauge.core.guard.bundle import Bundle, BundleDraft, TrustRecord, Variant
from tollgauge.core.score.policy import POLICY
from tollgauge.core.score.score import flag_codes
from tollgauge.db.engine import Store
from tollgauge.store.endpoints import ranking
from tollgauge.store.scores import trust_records
from tollgauge.store.scores.trust_records import RecordRow

BATCH: Final = 500
EARLY: Final = 12  # once scored endpoints doubled, rebuild after 1/12 of the interval


def record(tx: Connection, endpoint_id: str, *, now: int) -> TrustRecord | None:
    """Return the trust record of a public endpoint, or None if it is unknown."""
    row = trust_records.get(tx, endpoint_id)
    return None if row is None else build_record(row, now=now)


def build_record(row: RecordRow, *, now: int) -> TrustRecord:
    """Build the trust record of an endpoint. Without a score it is unverified as of now."""
    endpoint = row.endpoint
    return TrustRecord(
        resource=endpoint.resource,
        recommendation=endpoint.recommendation,
        grade=endpoint.grade,
        score_tenths=endpoint.score_tenths,
        offers=_known_offers(row, now=now),
        flags=() if row.result is None else flag_codes(row.result),
        demand=endpoint.demand,
        reports=row.reports,
        is_down=endpoint.down is not None and endpoint.down.confirmed,
        is_templated=row.templated,
        as_of=now if endpoint.scored_at is None else endpoint.scored_at,
    )


def _known_offers(row: RecordRow, *, now: int) -> tuple[KnownOffer, ...]:
    """Return the offers of 30 days.

    Until a probe has seen an envelope, it is the price that a directory states. After that,
    listings do not count, because anyone can publish one.
    """
    quote = row.endpoint.quote
    if row.offers or quote is None:
        return tuple(
            offer for offer in row.offers if offer.until is None or offer.until > now - OFFERS_MS
        )
    return (KnownOffer(quote.network, "exact", quote.pay_to, quote.micro_usd),)


def is_due(tx: Connection, *, now: int, every_ms: int, key_id: str | None) -> bool:
    """Return whether the bundles must be built again.

    They are rebuilt after `every_ms`, after a change of policy or signing key, and earlier while a
    new service scores its first endpoints. `key_id` names the signing key, None without one.
    """
    newest = trust_records.newest_bundle(tx)
    if newest is None or (newest.policy_version, newest.key_id) != (POLICY.version, key_id):
        return True
    age = now - newest.as_of
    if age >= every_ms or age < 0:
        return True
    return age >= every_ms // EARLY and ranking.population(tx).scored >= max(1, 2 * newest.scored)


async def build(store: Store, *, now: int) -> tuple[Bundle, ...]:
    """Build the bundle of each variant as of now."""
    draft, after = BundleDraft(policy_version=POLICY.version, as_of=now), ""

    def add(batch: Sequence[RecordRow]) -> None:
        for row in batch:
            draft.add(build_record(row, now=now))

    # Hashing and compression run in a thread, one batch at a time, so that requests are still
    # served.
    while batch := await store.reading(
        trust_records.load_listed, after=after, limit=BATCH, now=now
    ):
        await asyncio.to_thread(add, batch)
        after = batch[-1].endpoint.id
    return tuple([await asyncio.to_thread(draft.build, variant) for variant in Variant])
