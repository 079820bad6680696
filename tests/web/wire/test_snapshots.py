"""JSON of snapshots: improvements and the provider's statement."""

from __future__ import annotations

import orjson
from tests.support.page_reader import BASE, NOW, snapshot

from tollgauge.core.score.improvement import Improvement
from tollgauge.store.endpoints.seller_file_states import StoredSellerFile
from tollgauge.web.wire import snapshots
from tollgauge.web.wire.response_model import dump


def test_provider_statement_is_a_separate_field_and_absent_if_empty() -> None:
    file = StoredSellerFile(
        host="api.example.com",
        read_at=1_767_225_600_000,
        contact="ops@example.com",
        statement="We moved.",
        opt_out=False,
        problems=("ours",),
    )
    model = snapshots.snapshot(snapshot(seller_file=file), now=NOW, base_url=BASE)
    assert orjson.loads(dump(model))["providerStatement"] == {
        "statement": "We moved.",
        "contact": "ops@example.com",
        "optOut": False,
        "readAt": "2026-01-01T00:00:00Z",
    }
    without = dump(snapshots.snapshot(snapshot(), now=NOW, base_url=BASE))
    assert b"providerStatement" not in without


def test_improvements_have_points_score_grade_and_fix() -> None:
    row = Improvement(
        code="down-now",
        points_tenths=415,
        score_tenths=905,
        grade="A",
        fix="Bring it back.",
        in_days=0,
    )
    model = snapshots.snapshot(snapshot(improvements=(row,)), now=NOW, base_url=BASE)
    assert orjson.loads(dump(model))["improvements"] == [
        {
            "code": "down-now",
            "points": 41.5,
            "score": 90.5,
            "grade": "A",
            "fix": "Bring it back.",
            "inDays": 0,
        }
    ]
