"""The bundle loop: build, sign and store bundles of trust records when due
(monitor/trust_records).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Annotated

from pydantic import Field
from pydantic.dataclasses import dataclass

from tollgauge.core.base.units import HOUR_MS, SECOND_MS, Clock
from tollgauge.core.guard.bundle import Bundle
from tollgauge.core.sale.answer_signature import SigningKey
from tollgauge.db.engine import Store
from tollgauge.monitor import trust_records
from tollgauge.store.scores import trust_records as trust_record_rows
from tollgauge.store.scores.trust_records import StoredBundle


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleSettings:
    """Interval of the bundle loop."""

    every_ms: Annotated[int, Field(ge=SECOND_MS, le=HOUR_MS)] = HOUR_MS
    """Time between two builds; at most one hour, after which clients fetch again."""


async def run(
    store: Store, *, settings: BundleSettings, key: SigningKey | None, clock: Clock
) -> dict[str, object]:
    """Build the bundles if they are due. The tally contains the numbers of records and bytes.

    An empty bundle is not stored before the first endpoint is listed.
    """
    now, key_id = clock(), key.fingerprint if key else None
    due = await store.reading(
        trust_records.is_due, now=now, every_ms=settings.every_ms, key_id=key_id
    )
    if not due:
        return {}
    built = await trust_records.build(store, now=now)
    if not built[0].records and await store.reading(trust_record_rows.newest_bundle) is None:
        return {}
    took_ms = clock() - now
    stored = await asyncio.to_thread(_sign, built, key, now=clock(), took_ms=took_ms)
    await store.writing(trust_record_rows.save_bundles, stored)
    return {"records": built[0].records, "bytes": len(built[0].body)}


def _sign(
    built: Iterable[Bundle], key: SigningKey | None, *, now: int, took_ms: int
) -> list[tuple[StoredBundle, bytes]]:
    """Return the bundles to store, signed at `now` (ms UTC)."""
    return [
        (
            StoredBundle(
                variant=bundle.variant,
                as_of=bundle.as_of,
                took_ms=took_ms,
                policy_version=bundle.policy_version,
                records=bundle.records,
                scored=bundle.scored,
                size=len(bundle.body),
                digest=bundle.digest,
                signature=key.sign(bundle.body, "tollgauge-bundle", now) if key else None,
                key_id=key.fingerprint if key else None,
            ),
            bundle.body,
        )
        for bundle in built
    ]
