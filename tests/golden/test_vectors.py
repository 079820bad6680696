"""Golden vectors: evidence documents with their scores.

`reference` is a second, slow implementation of the published rules over the JSON document: it
shares no code with the package. Each vector must agree with it and with the package.
`python -m tests.golden.build_vectors` writes the vectors.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest
import rfc8785
from hypothesis import given, settings
from tests.golden.documents import documents
from tests.golden.observed import summarize_score
from tests.golden.reference import (
    CAPS,
    FORECAST_CAPS,
    SEVERITY,
    day_weight,
    reference,
)
from tests.golden.reference import (
    VECTORS as FOLDER,
)
from tests.support.examples import examples

from tollgauge.core.score.evidence_document import digest, from_json
from tollgauge.core.score.policy import POLICY
from tollgauge.core.score.scoring import FLAG_RULES, recompute, score

FILES = sorted(FOLDER.glob("*.json"))
VECTORS = {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in FILES}
SEVERITIES = {code: severity for severity, codes in SEVERITY.items() for code in codes.split()}

PUBLISHED = {
    "always-payable-fast": ("A", 850, 850),
    "always-payable-slow": ("A", 820, 825),
    "known-for-nine-days": ("A", 810, 815),
    "known-for-seventeen-days-slow": ("A", 810, 815),
    "payable-93.5": ("B", 785, 800),
    "payable-43.7": ("D", 485, 495),
    "never-up": ("F", 250, 250),
}
"""The published limits of these scores: grade, minimum and maximum tenths."""

TRICKS = {
    "429-while-down": ("avoid", 438),
    "blocked-while-down": ("avoid", 438),
    "dead-behind-429-for-24-days": ("avoid", 349),
    "429-for-five-hours": ("avoid", 490),
    "429-since-it-is-known": ("unverified", 0),
    "always-blocked": ("unverified", 0),
    "503-with-a-pause-of-six-hours": ("caution", 649),
    "delisted-then-dead": ("avoid", 349),
    "new-path-after-a-bad-record": ("caution", 649),
    "new-path-of-a-bad-site-unsure": ("avoid", 490),
    "price-times-100": ("caution", 649),
    "price-in-four-steps-of-1.9": ("caution", 649),
    "price-times-100-for-ten-minutes-a-day": ("proceed", 760),
    "payto-hijack-of-day-3": ("avoid", 490),
    "payto-hijack-of-day-8": ("caution", 775),
    "hundred-wallets-of-dust": ("proceed", 850),
    "hundred-wallets-of-a-dollar": ("proceed", 850),
    "one-bought-anchor": ("proceed", 850),
    "anchors-of-one-owner": ("proceed", 850),
    "another-site's-address": ("proceed", 850),
    "wildcard-402": ("avoid", 490),
    "signed-offer-of-a-stranger": ("avoid", 490),
}
"""The recommendation and the maximum tenths that each trick achieves. An honest seller without
settlements has 850.
"""


def change_order(row: dict[str, Any]) -> list[Any]:
    names = ("at", "kind", "source", "before", "after")
    return [*(row[name] for name in names), rfc8785.dumps(row.get("price"))]


def canonical_digest(document: dict[str, Any]) -> str:
    """The digest by RFC 8785, of a document whose parts without order are sorted."""
    ordered = document | {
        "days": sorted(document["days"], key=lambda row: row["day"]),
        "changes": sorted(document["changes"], key=change_order),
    }
    for name in ("last", "envelope"):
        if probe := document[name]:
            ordered[name] = probe | {"rules": sorted(probe["rules"])}
    return hashlib.sha256(rfc8785.dumps(ordered)).hexdigest()


@pytest.mark.parametrize("name", VECTORS)
def test_vector_agrees_with_package_and_reference(name: str) -> None:
    document, expected = VECTORS[name]["evidence"], VECTORS[name]["expected"]
    assert reference(document) == expected
    evidence = from_json(document)
    assert summarize_score(score(evidence)) == expected
    assert summarize_score(recompute(json.dumps(document).encode())) == expected


@pytest.mark.parametrize("name", VECTORS)
def test_digest_of_a_vector_matches_its_canonical_text(name: str) -> None:
    document = VECTORS[name]["evidence"]
    assert canonical_digest(document) == VECTORS[name]["digest"]
    assert digest(from_json(document)) == VECTORS[name]["digest"]


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_pairs_hold(name: str) -> None:
    grade, least, most = PUBLISHED[name]
    expected = VECTORS[name]["expected"]
    assert expected["grade"] == grade
    assert least <= expected["scoreTenths"] <= most


@pytest.mark.parametrize("name", TRICKS)
def test_trick_does_not_raise_the_score_beyond_its_value(name: str) -> None:
    advice, most = TRICKS[name]
    expected = VECTORS[name]["expected"]
    assert expected["recommendation"] == advice
    assert (expected["scoreTenths"] or 0) <= most


def test_refusal_during_an_outage_counts_as_a_failure() -> None:
    scores = {
        VECTORS[f"{cause}-while-down"]["expected"]["scoreTenths"]
        for cause in ("429", "503", "blocked")
    }
    assert len(scores) == 1


def test_vectors_are_numerous_and_named_like_their_files() -> None:
    assert [(v["name"], v["policy"]) for v in VECTORS.values()] == [(f.stem, 3) for f in FILES]
    assert len(VECTORS) >= 40


def test_vectors_cover_every_flag_cap_grade_and_recommendation() -> None:
    wanted = [vector["expected"] for vector in VECTORS.values()]
    flags = {code: level for e in wanted for code, level in e["flags"].items()}
    assert {code for code in flags if not code.startswith("lint:")} == set(SEVERITIES)
    lint = {level for e in wanted for code, level in e["flags"].items() if code.startswith("lint:")}
    assert lint == {"error", "warn", "info"}
    assert {code for e in wanted for code, _ in e["caps"]} == {
        *CAPS, *FORECAST_CAPS, "new-path-of-known-site",
    }  # fmt: skip
    assert {e["grade"] for e in wanted} == {"A", "B", "C", "D", "F", None}
    assert {e["recommendation"] for e in wanted} == {
        "proceed", "caution", "avoid", "unverified", "not-payable", "parameterize",
    }  # fmt: skip


def test_every_forecast_cap_is_the_lowest_in_some_vector() -> None:
    lowest = {e["caps"][0][0] for v in VECTORS.values() if (e := v["expected"])["caps"]}
    assert set(FORECAST_CAPS) <= lowest


def test_flags_have_the_severity_of_the_reference() -> None:
    assert {rule.code: rule.severity.value for rule in FLAG_RULES} == SEVERITIES


def test_error_flags_have_a_cap_of_49_or_less() -> None:
    limits = {cap.code: cap.limit_tenths for cap in POLICY.caps}
    errors = SEVERITY["error"].split()
    assert all(limits[code] <= 490 for code in errors)


def test_weight_of_a_day_halves_in_a_week() -> None:
    assert POLICY.day_weights == tuple(map(day_weight, range(31)))
    assert [day_weight(7 * weeks) for weeks in range(5)] == [1_000, 500, 250, 125, 63]


@settings(max_examples=examples(200), deadline=None)
@given(documents())
def test_random_evidence_scores_like_the_reference(document: dict[str, Any]) -> None:
    evidence = from_json(document)
    assert summarize_score(score(evidence)) == reference(document)
