"""Golden vectors: evidence documents with the score that policy 1 gives them.

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
from hypothesis import strategies as st
from tests.golden.reference import (
    AS_OF,
    BASE_USDC,
    CAPS,
    DAY,
    SELLER,
    SEVERITY,
    VECTORS,
    WINDOW,
    bucket,
    reference,
)

from tollgauge.core.evidence import digest, from_json
from tollgauge.core.policy import POLICY_1
from tollgauge.core.score import Score
from tollgauge.core.scoring import recompute, score

FILES = sorted(VECTORS.glob("*.json"))


def observed(result: Score) -> dict[str, Any]:
    """What the package says, in the words of `reference`."""
    return {
        "scoreTenths": result.score_tenths,
        "lowTenths": result.low_tenths,
        "highTenths": result.high_tenths,
        "grade": result.grade,
        "breakdown": {row.name: row.tenths for row in result.components},
        "confidenceHundredths": result.confidence_hundredths,
        "economicHundredths": result.economic_hundredths,
        "avgLatencyMs": result.stats.avg_latency_ms,
        "p50LatencyMs": result.stats.p50_latency_ms,
        "p95LatencyMs": result.stats.p95_latency_ms,
        "caps": [cap.code for cap in result.caps],
        "flags": {flag.code: flag.severity.value for flag in result.flags},
        "recommendation": result.recommendation,
    }


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


ADDRESSES = st.sampled_from(
    [SELLER, SELLER.upper().replace("0X", "0x"), *(f"0x{i:040x}" for i in range(6))]
)
INSTANTS = st.integers(AS_OF - WINDOW - 2, AS_OF + 2)


@st.composite
def day_rows(draw: st.DrawFn) -> dict[str, Any]:
    scored = draw(st.integers(0, 60))
    up = draw(st.integers(0, scored))
    values = draw(st.lists(st.integers(0, 12_000), min_size=up, max_size=up))
    compliant = draw(st.integers(0, up))
    counts = {b: sum(bucket(v) == b for v in values) for b in {bucket(v) for v in values}}
    last = AS_OF // DAY
    return {
        "day": draw(
            st.sampled_from([last - 32, last - 31, last - 30, last - 29, last - 5, last, last + 1])
        ),
        "probes": scored + 1,
        "scored": scored,
        "up": up,
        "compliant": compliant,
        "payable": draw(st.integers(0, up)),
        "compliance": draw(st.integers(0, 100 * up)),
        "slots": draw(st.integers(0, 2 ** min(scored, 48) - 1)),
        "latencySum": sum(values),
        "latency": sorted([b, n] for b, n in counts.items()),
        "excluded": [["dns-failed", 1]],
    }


def probe_rows() -> st.SearchStrategy[dict[str, Any]]:
    slugs = st.sampled_from(["cache-control", "envelope-mismatch", "network-form"])
    rule = st.tuples(slugs, st.sampled_from(["error", "warn", "info"]), st.just("Mend it.")).map(
        list
    )
    return st.fixed_dictionaries(
        {
            "at": st.just(AS_OF - 60_000),
            "outcome": st.sampled_from(["payment-required", "validates-first", "tls-failure"]),
            "up": st.booleans(),
            "payable": st.booleans(),
            "accepts": st.sampled_from([None, 0, 1]),
            "tlsNotAfter": st.sampled_from([None, AS_OF, AS_OF + 14 * DAY - 1, AS_OF + 14 * DAY]),
            "rules": st.lists(rule, max_size=3),
        }
    )


def _payer(row: dict[str, Any]) -> str:
    return str(row["payer"]).lower()


def documents() -> st.SearchStrategy[dict[str, Any]]:
    """Evidence documents of any kind, contradictions excepted."""
    amounts = st.sampled_from(["0", "1", "5000", "1000000", "1000001", "999999999", "1000000000"])
    change = st.fixed_dictionaries(
        {
            "at": INSTANTS | st.sampled_from([AS_OF - 7 * DAY, AS_OF - 7 * DAY - 1]),
            "kind": st.sampled_from(["price-changed", "payto-changed", "network-changed"]),
            "source": st.sampled_from(["probe", "bazaar"]),
            "before": st.just("1"),
            "after": st.just("2"),
        }
    )
    payer: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
        {
            "payer": ADDRESSES,
            "transfers": st.integers(1, 20),
            "paid": st.integers(0, 10**9).map(str),
            "returned": st.one_of(st.just("0"), st.integers(0, 10**9).map(str)),
        }
    )
    chain = st.fixed_dictionaries(
        {
            "network": st.just("eip155:8453"),
            "payTo": st.just(SELLER),
            "indexedMs": st.integers(0, WINDOW + 10),
            "indexedToBlock": st.none(),
            "indexedTo": st.none(),
            "sharedHosts": st.integers(1, 5),
            "payers": st.lists(payer, max_size=6, unique_by=_payer),
        }
    )
    quote = st.fixed_dictionaries(
        {
            "network": st.sampled_from(["eip155:8453", "eip155:1"]),
            "asset": st.just(BASE_USDC),
            "amount": amounts,
            "payTo": st.just(SELLER),
        }
    )
    return st.fixed_dictionaries(
        {
            "format": st.just(1),
            "resource": st.just("https://api.seller.dev/v1/quote"),
            "asOf": st.just(AS_OF),
            "firstSeen": st.integers(AS_OF - 40 * DAY, AS_OF + 1),
            "listed": st.booleans(),
            "templated": st.booleans(),
            "wildcard": st.booleans(),
            "injection": st.booleans(),
            "quote": st.none() | quote,
            "days": st.lists(day_rows(), max_size=5),
            "recent": st.sampled_from([{"scored": 0, "up": 0}, {"scored": 5, "up": 0}])
            | st.sampled_from([{"scored": 6, "up": 0}, {"scored": 6, "up": 1}]),
            "last": st.none() | probe_rows(),
            "envelope": st.none() | probe_rows(),
            "changes": st.lists(change, max_size=5),
            "chain": st.none() | chain,
        }
    )


@settings(max_examples=150, deadline=None)
@given(documents())
def test_any_evidence_scores_as_the_reference_says(document: dict[str, Any]) -> None:
    assert observed(score(from_json(document), POLICY_1)) == reference(document)
