"""The score loop: a batch is scored together, each endpoint independently."""

from __future__ import annotations

from dataclasses import replace

from tests.support.probe_archive import START, A, B

from tollgauge.core.base.units import DAY_MS
from tollgauge.core.endpoint.identity import endpoint_id
from tollgauge.core.probe.schedule import NORMAL
from tollgauge.db.engine import Store
from tollgauge.jobs import score
from tollgauge.jobs.loop_settings import ScoreSettings
from tollgauge.monitor import scoring
from tollgauge.store.endpoints import endpoints
from tollgauge.store.endpoints.endpoints import SCORE_LEASE_MS
from tollgauge.store.scores import scores

NOW = START + DAY_MS


async def test_endpoint_that_cannot_be_scored_does_not_stop_others(store: Store) -> None:
    resource = "https://odd.com/"
    odd = replace(
        A, id=endpoint_id(resource), resource=resource, host="odd.com", first_seen=-(2**60)
    )
    await store.writing(endpoints.insert, A, odd, B)

    async def run(now: int) -> dict[str, object]:
        return await score.run(store, settings=ScoreSettings(), cadence=NORMAL, clock=lambda: now)

    assert await run(NOW) == {"scored": 3, "failed": 1, "unverified": 2, "busy": False}
    saved = await store.reading(scores.results, [A.id, odd.id, B.id])
    assert saved.keys() == {A.id, B.id}
    assert await run(NOW) == {}, "the claim is still valid"
    assert await run(NOW + SCORE_LEASE_MS) == {"scored": 1, "failed": 1, "busy": False}


async def test_batch_is_saved_without_an_endpoint_that_was_removed_in_the_meantime(
    store: Store,
) -> None:
    await store.writing(endpoints.insert, A)
    (row,) = (await scoring.score_and_save(store, [A.id], cadence=NORMAL, now=NOW)).rows
    later = [replace(row, as_of=NOW + 1), replace(row, endpoint_id=B.id)]
    await store.writing(scores.save_many, later)
    assert await store.reading(scores.get, A.id) == later[0]
    assert await store.reading(scores.get, B.id) is None
