"""Choosing weights on one part of the labels and evaluating them on the rest."""

from __future__ import annotations

from itertools import islice

from bench import tuning
from bench.relevance import Service
from tollgauge.core.similarity.tokenizer import ProviderText, Weights


def services() -> list[Service]:
    return [
        Service(
            source=source,
            label=label,
            wording=ProviderText(service_name=f"{label} {number}", tags=(label,)),
        )
        for source in ("one", "two")
        for label in ("weather", "music")
        for number in range(4)
    ]


def test_halves_split_every_catalogue_evenly_without_overlap() -> None:
    rows = services()
    for on, rest in islice(tuning.split(rows), 4):
        assert sorted([*on, *rest]) == list(range(len(rows)))
        for part in (on, rest):
            assert [rows[at].source for at in part].count("one") == 4


def test_left_out_catalogue_is_used_only_for_evaluation() -> None:
    on, rest = tuning.leave_out(services(), "two")
    assert {services()[at].source for at in on} == {"one"}
    assert {services()[at].source for at in rest} == {"two"}


def test_best_weights_of_one_part_are_evaluated_on_the_rest() -> None:
    asked: list[tuple[Weights, tuple[int, ...]]] = []

    def judge(weights: Weights, places: tuning.Places) -> float:
        asked.append((weights, tuple(places)))
        return float(weights.whole) if tuple(places) == (1,) else 0.5

    choice = tuning.choose(judge, (1,), (2,))
    best = max(setting.whole for setting in tuning.GRID)
    assert choice["chosen"]["whole"] == best
    assert (choice["seen"], choice["unseen"]) == (float(best), 0.5)


def test_services_that_name_their_category_are_found_with_any_weights() -> None:
    rows = services()
    judge = tuning.judge_of(rows)
    assert judge(tuning.PLAIN, range(len(rows))) == 1.0
