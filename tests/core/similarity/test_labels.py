"""Relevance on services that others sorted into categories, against the real labels.

The minimums are slightly below the measurements of the chosen method (docs/similarity.md):
a change of the method that loses quality on any catalogue shows here.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from tests.support.recorded import FOLDER, needs_recorded_inputs

from bench import relevance
from bench.relevance import Quality, Service
from tollgauge.core.similarity.tokenizer import ProviderText

LABELS = FOLDER / "similarity/labels.jsonl"
pytestmark = needs_recorded_inputs
FLOORS = {
    "coinbase-ecosystem": (0.56, 0.55),
    "kelm": (0.82, 0.63),
    "pay-skills": (0.41, 0.27),
    "trust-layer": (0.58, 0.52),
    "wintyx": (0.85, 0.57),
}


@pytest.fixture(scope="module")
def services() -> tuple[Service, ...]:
    return relevance.read_labels(LABELS)


def mean(by_source: dict[str, Quality]) -> float:
    return sum(row.ndcg for row in by_source.values()) / len(by_source)


def test_alternatives_are_of_the_same_category_in_every_catalogue(
    services: Sequence[Service],
) -> None:
    by_source = relevance.quality(services, relevance.ours(services))
    assert by_source.keys() == FLOORS.keys()
    for source, (ndcg, precision) in FLOORS.items():
        assert by_source[source].ndcg >= ndcg, source
        assert by_source[source].precision >= precision, source


def test_default_is_better_than_the_alternatives(services: Sequence[Service]) -> None:
    ours = mean(relevance.quality(services, relevance.ours(services)))
    for way in (relevance.words, relevance.characters, relevance.bm25):
        assert ours > mean(relevance.quality(services, way(services))) + 0.03


def make_labelled(*labels: str) -> list[Service]:
    return [Service(source="s", label=label, wording=ProviderText()) for label in labels]


def test_quality_is_one_when_the_relevant_come_first_and_falls_with_their_place() -> None:
    rows = make_labelled("a", "a", "b", "c", "c")
    best = np.array([[label.label == other.label for other in rows] for label in rows], float)
    assert relevance.quality(rows, best)["s"] == Quality(ndcg=1.0, precision=0.2, queries=4)
    third = np.array(
        [[0, 1, 3, 2, 2], [1, 0, 3, 2, 2], [0] * 5, [3, 3, 2, 0, 1], [3, 3, 2, 1, 0]], float
    )
    # The one relevant service comes fourth in all four queries.
    assert relevance.quality(rows, third)["s"].ndcg == pytest.approx(1 / np.log2(5))


def test_single_service_in_a_category_is_not_a_query() -> None:
    assert relevance.quality(make_labelled("a", "b"), np.ones((2, 2))) == {}
