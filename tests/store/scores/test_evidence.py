"""Evidence cited by sold reports: retention and update of the citation time."""

from __future__ import annotations

from dataclasses import replace

from tests.support.statements import fetch

from tollgauge.core.base.units import DAY_MS
from tollgauge.core.watch.watch_rules import EVIDENCE_MS
from tollgauge.db.engine import Store
from tollgauge.store.scores import scores
from tollgauge.store.scores.scores import ScoreRow

NOW = 1_760_000_000_000
SCORE = ScoreRow(
    endpoint_id="a" * 16,
    as_of=NOW,
    policy_version=1,
    score_tenths=None,
    evidence=b'{"some": "evidence"}',
    result=b"{}",
)


async def read_named_time(store: Store) -> int | None:
    rows = (await fetch(store, scores.evidence_table.select())).all()
    return rows[0].named_at if rows else None


async def test_evidence_is_kept_for_ninety_days_after_the_last_citation(store: Store) -> None:
    await store.writing(scores.keep_evidence, SCORE, now=NOW)
    last = NOW + DAY_MS - 1  # within a day nothing is written
    cited = replace(SCORE, named_at=await read_named_time(store))
    await store.writing(scores.keep_evidence, cited, now=last)
    assert await read_named_time(store) == NOW
    assert await store.writing(scores.forget_evidence, now=last + EVIDENCE_MS, limit=9) == 0
    assert await store.reading(scores.get_evidence, SCORE.digest) == SCORE.evidence
    forgotten = NOW + EVIDENCE_MS + DAY_MS + 1
    assert await store.writing(scores.forget_evidence, now=forgotten, limit=9) == 1
    assert await store.reading(scores.get_evidence, SCORE.digest) is None


async def test_citation_time_is_updated_once_per_day(store: Store) -> None:
    await store.writing(scores.keep_evidence, SCORE, now=NOW)
    later = NOW + DAY_MS
    cited = replace(SCORE, named_at=await read_named_time(store))
    await store.writing(scores.keep_evidence, cited, now=later)
    assert await read_named_time(store) == later
