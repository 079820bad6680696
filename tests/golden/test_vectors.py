"""Golden vectors of policy 1: evidence documents with the score that it gives them.

`reference` is a second, slow implementation of the published rules, written on its own with plain
fractions over the JSON document: it shares no code with the package. Each vector must agree with
it and with the package. `python -m tests.golden.build_vectors` writes the vectors.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from tests.golden.documents import documents
from tests.golden.observed import observed
from tests.golden.reference import CAPS, SEVERITY, VECTORS, reference
from tests.support.examples import examples

from tollgauge.core.evidence import digest, from_json
from tollgauge.core.policy import POLICY_1
from tollgauge.core.scoring import recompute, score

FILES = sorted(VECTORS.glob("*.json"))


PUBLISHED = {
    "perfect-fast": ("A", 850, 850),
    "perfect-slow": ("A", 820, 825),
    "uptime-43.7-slow": ("D", 485, 495),
    "uptime-43.7-payable": ("D", 485, 495),
    "age-and-stability-only": ("F", 250, 250),
    "uptime-93.5": ("B", 785, 795),
}
"""What is published of such scores: grade, least and most tenths."""


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_vector_agrees_with_the_package_and_with_the_reference(file: Path) -> None:
    vector = json.loads(file.read_text(encoding="utf-8"))
    assert reference(vector["evidence"]) == vector["expected"]
    evidence = from_json(vector["evidence"])
    assert digest(evidence) == vector["digest"]
    assert observed(score(evidence, POLICY_1)) == vector["expected"]
    assert observed(recompute(json.dumps(vector["evidence"]).encode())) == vector["expected"]


@pytest.mark.parametrize("name", sorted(PUBLISHED))
def test_published_pairs_hold(name: str) -> None:
    grade, least, most = PUBLISHED[name]
    vector = json.loads((VECTORS / f"{name}.json").read_text(encoding="utf-8"))
    assert vector["expected"]["grade"] == grade
    assert least <= vector["expected"]["scoreTenths"] <= most


def test_there_are_enough_vectors_and_each_is_named_as_its_file() -> None:
    names = [json.loads(file.read_text(encoding="utf-8"))["name"] for file in FILES]
    assert names == [file.stem for file in FILES]
    assert len(names) >= 16


def test_the_vectors_reach_every_flag_cap_grade_and_recommendation() -> None:
    wanted = [json.loads(file.read_text(encoding="utf-8"))["expected"] for file in FILES]
    assert {code for e in wanted for code in e["flags"] if not code.startswith("lint:")} == {
        code for codes in SEVERITY.values() for code in codes.split()
    }
    assert {code for e in wanted for code in e["caps"]} == set(CAPS)
    assert {e["grade"] for e in wanted} == {"A", "B", "C", "D", "F", None}
    assert {e["recommendation"] for e in wanted} == {
        "proceed", "caution", "avoid", "unverified", "not-payable", "parameterize",
    }  # fmt: skip


@settings(max_examples=examples(150), deadline=None)
@given(documents())
def test_any_evidence_scores_as_the_reference_says(document: dict[str, Any]) -> None:
    assert observed(score(from_json(document), POLICY_1)) == reference(document)
