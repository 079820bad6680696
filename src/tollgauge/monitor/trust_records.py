"""Build trust records, which clients read before they pay, and bundles of all of them.

A bundle is built in batches, in the order of endpoint IDs. Each record is read in one transaction
and never mixes two states; it may be some seconds newer than the bundle's `as_of`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from sqlalchemy import Connection

from tollgauge.core.guard.bundle import (
    DECIMALS,
    Bundle,
    TrustRecord,
    Variant,
    build_bundle,
    line_of,
    list_addresses,
    variants_of,
)
from tollgauge.core.score.policy import POLICY
from tollgauge.core.score.score import flag_codes
from tollgauge.db.engine import Store
from tollgauge.store.endpoints import ranking
from tollgauge.store.scores import bundles, trust_records
from tollgauge.store.scores.trust_records import RecordRow

BATCH: Final = 500
EARLY: Final = 12  # once scored endpoints doubled, rebuild after 1/12 of the interval


def record(tx: Connection, endpoint_id: str, *, now: int) -> TrustRecord | None:
    """Return the trust record of a public endpoint, or None if it is unknown."""
    row = trust_records.get(tx, endpoint_id)
    return None if row is None else record_of(row, now=now)


def record_of(row: RecordRow, *, now: int) -> TrustRecord:
    """Build the trust record of an endpoint. Without a score it is unverified as of now."""
    endpoint = row.endpoint
    quote = endpoint.quote
    return TrustRecord(
        resource=endpoint.resource,
        recommendation=endpoint.recommendation,
        grade=endpoint.grade,
        score_tenths=endpoint.score_tenths,
        addresses=()
        if quote is None
        else list_addresses(
            quote.pay_to, row.payto_changes, first_seen=endpoint.first_seen, now=now
        ),
        network=endpoint.network,
        amount=quote.amount if quote and quote.decimals == DECIMALS else None,
        flags=() if row.result is None else flag_codes(row.result),
        as_of=now if endpoint.scored_at is None else endpoint.scored_at,
    )


def is_due(tx: Connection, *, now: int, every_ms: int, key_id: str | None) -> bool:
    """Return whether the bundles must be built again.

    They are rebuilt after `every_ms`, after a change of policy or signing key, and earlier while a
    new service scores its first endpoints. `key_id` names the signing key, None without one.
    """
    newest = bundles.newest(tx)
    if newest is None or (newest.policy_version, newest.key_id) != (POLICY.version, key_id):
        return True
    age = now - newest.as_of
    if age >= every_ms or age < 0:
        return True
    return age >= every_ms // EARLY and ranking.population(tx).scored >= max(1, 2 * newest.scored)


async def build(store: Store, *, salt: bytes, now: int) -> tuple[Bundle, ...]:
    """Build the bundle of each variant as of now."""
    draft, after = _Draft(salt=salt, now=now), ""
    # Hashing and compression run in a thread, one batch at a time, so that requests are still
    # served.
    while batch := await store.reading(trust_records.listed, after=after, limit=BATCH, now=now):
        await asyncio.to_thread(draft.add, batch)
        after = batch[-1].endpoint.id
    return tuple([await asyncio.to_thread(draft.bundle, variant) for variant in Variant])


@dataclass(slots=True, kw_only=True)
class _Draft:
    """The lines of each variant and the number of those with a score."""

    salt: bytes
    now: int
    lines: dict[Variant, list[bytes]] = field(
        default_factory=lambda: {variant: [] for variant in Variant}
    )
    scored: Counter[Variant] = field(default_factory=Counter)

    def add(self, batch: Sequence[RecordRow]) -> None:
        for row in batch:
            record = record_of(row, now=self.now)
            line = line_of(record, self.salt)
            for variant in variants_of(record):
                self.lines[variant].append(line)
                self.scored[variant] += record.score_tenths is not None

    def bundle(self, variant: Variant) -> Bundle:
        return build_bundle(
            self.lines[variant],
            variant=variant,
            salt=self.salt,
            policy_version=POLICY.version,
            as_of=self.now,
            scored=self.scored[variant],
        )
