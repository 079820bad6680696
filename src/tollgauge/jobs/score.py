"""Loops of scores: compute scores, test forecasts, rank endpoints, count better alternatives and
build the bundles of trust records.

A score is also recomputed at least every 24 hours, because its window moves. Forecasts are stored
once per hour, and those of a complete day are compared with the outcomes once per day
(monitor/calibration). Ranking and statistics are stored for all readers (monitor/ranking,
monitor/statistics). Numbers of better alternatives come from the similarity index; only changed
ones are written.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tollgauge.core.base.units import HOUR_MS, Clock
from tollgauge.core.guard.bundle import Bundle
from tollgauge.core.probe.schedule import Cadence
from tollgauge.core.sale.signature import SigningKey
from tollgauge.core.score.calibration import Sums, sample
from tollgauge.db.engine import Store
from tollgauge.jobs.loop_settings import BundleSettings, CalibrationSettings, ScoreSettings
from tollgauge.monitor import calibration, directories, ranking, scoring, statistics, trust_records
from tollgauge.monitor.alternatives import Alternatives
from tollgauge.observe import SCORES, log
from tollgauge.store import rows
from tollgauge.store.endpoints import endpoints, rated_endpoints
from tollgauge.store.scores import forecasts
from tollgauge.store.scores import trust_records as trust_record_rows
from tollgauge.store.scores.trust_records import StoredBundle


async def run(
    store: Store, *, settings: ScoreSettings, cadence: Cadence, clock: Clock
) -> dict[str, object]:
    """Score a batch of dirty or stale endpoints. The tally counts grades."""
    ids = await store.writing(
        endpoints.claim_dirty, now=clock(), limit=settings.batch, max_age_ms=settings.max_age_ms
    )
    tally: Counter[str] = Counter()
    outcome = await scoring.score_and_save(store, ids, cadence=cadence, now=clock())
    for id_, error in outcome.failed.items():
        log().error("score.fail", endpoint=id_, error=str(error))
    SCORES.inc(len(outcome.rows))
    tally["scored"] += len(outcome.rows) + len(outcome.failed)
    tally["failed"] += len(outcome.failed)
    figures = (row.figures for row in outcome.rows if row.figures is not None)
    tally.update(row.grade or "unverified" for row in figures)
    return {**+tally, "busy": len(ids) >= settings.batch} if ids else {}


BATCH_SIZE: Final = 50  # forecasts stored or compared per transaction


async def calibrate(
    store: Store, *, settings: CalibrationSettings, clock: Clock
) -> dict[str, object]:
    """Store this hour's forecasts and compare those of one day. The tally counts both."""
    kept = await _store_forecasts(store, limit=settings.forecasts_per_hour, now=clock())
    last = calibration.last_complete_day(clock())
    days = await store.reading(forecasts.unscored_days, before=last + 1)
    scored = await _score_day(store, days[0]) if days else 0
    return {"kept": kept, "scored": scored, "busy": len(days) > 1}


async def _store_forecasts(store: Store, *, limit: int, now: int) -> int:
    hour = forecasts.hour_of(now)
    if await store.reading(forecasts.latest_hour) == hour:
        return 0
    probed = await store.reading(forecasts.find_probed_since, now - HOUR_MS)
    new = []
    for ids in rows.chunks(sample(probed, hour, limit=limit), BATCH_SIZE):
        new += await store.reading(calibration.make, ids, now=now)
    await store.writing(forecasts.add, new)
    return len(new)


async def _score_day(store: Store, day: int) -> int:
    of_day = await store.reading(forecasts.of_day, day)
    sums: dict[int, Sums] = {}
    for batch in rows.chunks(of_day, BATCH_SIZE):
        for version, counted in (await store.reading(calibration.outcomes, batch)).items():
            sums.setdefault(version, Sums()).update(counted)
    await store.writing(forecasts.save_day, day, sums)
    return len(of_day)


if TYPE_CHECKING:
    from tollgauge.core.similarity.similarity_index import SimilarityIndex


async def rank_endpoints(store: Store, *, clock: Clock) -> dict[str, object]:
    """Compute ranking, statistics and figures of directories if they are due. The tally contains
    the ranked endpoints.
    """
    now = clock()
    if await store.reading(statistics.is_due, now=now):
        await store.writing(statistics.keep, await store.reading(statistics.count, now=now))
    if await store.reading(directories.is_due, now=now):
        await store.writing(directories.keep, await store.reading(directories.count, now=now))
    if not await store.reading(ranking.is_due, now=now):
        return {}
    counted = await store.reading(ranking.count, now=now)
    stored = await store.writing(ranking.keep, counted)
    return {"ranked": counted.population.scored} if stored else {}


SLICE: Final = 500  # endpoints per read of the database
# Pause after a count as a multiple of its duration: 100,000 endpoints keep a core busy.
REST_FACTOR: Final = 4


@dataclass(slots=True)
class CountingPause:
    """The time before which the next count must not begin (ms UTC)."""

    resting_until: int = 0


async def count_alternatives(
    store: Store, alternatives: Alternatives, *, pause: CountingPause, clock: Clock
) -> dict[str, object]:
    """Refresh the index and count alternatives. The tally contains the endpoints and the changed
    counts.
    """
    began = clock()
    if began < pause.resting_until:
        return {}
    index = await alternatives.index.refresh(store)
    changed = 0
    for first in range(0, index.size, SLICE):
        changed += await _count_slice(store, index, first)
    alternatives.release()
    ended = clock()
    pause.resting_until = ended + REST_FACTOR * (ended - began)
    return {"counted": index.size, "changed": changed} if changed else {}


async def _count_slice(store: Store, index: SimilarityIndex, first: int) -> int:
    """Count one slice and store the changed counts."""
    counts = dict(await asyncio.to_thread(index.count_alternatives, first, first + SLICE))
    before = await store.reading(rated_endpoints.count_better, counts)
    changed = {id_: better for id_, better in counts.items() if before.get(id_) != better}
    if changed:
        await store.writing(rated_endpoints.save_better, changed)
    return len(changed)


async def build_bundles(
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
    stored = await asyncio.to_thread(_sign_bundles, built, key, now=clock(), took_ms=took_ms)
    await store.writing(trust_record_rows.save_bundles, stored)
    return {"records": built[0].records, "bytes": len(built[0].body)}


def _sign_bundles(
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
