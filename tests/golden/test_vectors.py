"""Golden vectors: evidence documents with the score that policy 1 gives them.

`reference` is a second, slow implementation of the published rules, written on its own with plain
fractions over the JSON document: it shares no code with the package. Each vector must agree with
it and with the package. `python -m tests.golden.build_vectors` writes the vectors.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_right
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tollgauge.core.evidence import digest, from_json
from tollgauge.core.score import Score
from tollgauge.core.scoring import recompute, score

VECTORS = Path(__file__).with_name("vectors")
FILES = sorted(VECTORS.glob("*.json"))

DAY = 86_400_000
WINDOW = 2_592_000_000
BASE_USDC = "0x833589fcd6edb6e08f4c7c32d4f71b54bda02913"
LOWER_BOUNDS = [*range(128), *(2**e + i * 2 ** (e - 6) for e in range(7, 40) for i in range(64))]
CAPS = {
    "payto-changed-recently": 64,
    "decoy-price": 49,
    "not-payable": 49,
    "wildcard-402": 49,
    "down-now": 49,
}
SEVERITY = {
    "error": "down-now not-payable never-compliant payto-changed-recently decoy-price wildcard-402 "
    "tls-invalid",
    "warn": "price-above-client-cap unresolved-template price-changed validates-before-402 "
    "envelope-mismatch self-paid concentrated-payers tls-expiring delisted injection-suspected",
    "info": "payto-varies price-varies first-contact low-confidence shared-payto no-settlements",
}


def bucket(ms: int) -> int:
    """The bucket of a latency, by looking its lower bound up."""
    return bisect_right(LOWER_BOUNDS, ms) - 1


def table(points: list[tuple[int, int]], x: Fraction) -> Fraction:
    if x <= points[0][0]:
        return Fraction(points[0][1])
    for (x0, y0), (x1, y1) in pairwise(points):
        if x0 <= x <= x1:
            return y0 + (y1 - y0) * (x - x0) / Fraction(x1 - x0)
    return Fraction(points[-1][1])


def half_up(x: Fraction, digits: int) -> int:
    return math.floor(x * Fraction(10) ** digits + Fraction(1, 2))


def wilson(p: Fraction, probes: int) -> tuple[Fraction, Fraction]:
    n, z, zz = Fraction(probes, 3), Fraction("1.96"), Fraction("3.8416")
    inside = p * (1 - p) / n + zz / (4 * n * n)
    root = Fraction(math.isqrt(math.floor(inside * 10**12)), 10**6)
    centre, spread = p + zz / (2 * n), z * root
    low, high = (centre - spread) / (1 + zz / n), (centre + spread) / (1 + zz / n)
    return max(Fraction(0), min(p, low)), min(Fraction(1), max(p, high))


def activity(volumes: list[int], hosts: int) -> Fraction:
    total, squares = sum(volumes), sum(v * v for v in volumes)
    payers = Fraction(total * total, squares) if squares else Fraction(0)
    usd = Fraction(total, 1_000_000)
    p = table([(0, 0), (1, 5), (3, 30), (10, 60), (30, 80), (100, 100)], payers / hosts)
    v = table(
        [(0, 0), (1, 20), (10, 40), (100, 60), (1_000, 80), (10_000, 100)],
        usd / hosts,
    )
    return min(p, (p + v) / 2)


def organic_volumes(chain: dict[str, Any]) -> list[int]:
    left: dict[str, int] = {}
    for row in chain["payers"]:
        payer = row["payer"].lower()
        if payer != chain["payTo"].lower():
            left[payer] = left.get(payer, 0) + int(row["paid"]) - int(row["returned"])
    return [volume for volume in left.values() if volume > 0]


def reference(doc: dict[str, Any]) -> dict[str, Any]:
    """The expectation of a document, straight from the rules."""
    as_of = doc["asOf"]
    days = [d for d in doc["days"] if as_of - WINDOW < (d["day"] + 1) * DAY - 1]
    days = [d for d in days if d["day"] * DAY <= as_of]
    changes = [c for c in doc["changes"] if as_of - WINDOW < c["at"] <= as_of]
    scored, up = sum(d["scored"] for d in days), sum(d["up"] for d in days)
    half_hours = {(d["day"], i) for d in days for i in range(48) if d["slots"] >> i & 1}
    confidence = min(Fraction(len(half_hours), 1_440), Fraction(1))
    latencies = sorted(
        LOWER_BOUNDS[b] for d in days for b, count in d["latency"] for _ in range(count)
    )

    def seen(kind: str) -> int:
        sources = {c["source"] for c in changes}
        mine = [
            {
                json.dumps(c, sort_keys=True)
                for c in changes
                if (c["source"], c["kind"]) == (s, kind)
            }
            for s in sources
        ]
        return max((len(group) for group in mine), default=0)

    def rank(percent: int) -> int | None:
        return (
            latencies[math.ceil(Fraction(percent * len(latencies), 100)) - 1] if latencies else None
        )

    price, payto = seen("price-changed"), seen("payto-changed")
    chain = doc["chain"]
    volumes = organic_volumes(chain) if chain else []
    hosts = chain["sharedHosts"] if chain else 1
    median = rank(50)
    speed = [(200, 100), (500, 85), (1_000, 60), (2_000, 30), (5_000, 0)]
    sub = {
        "uptime": Fraction(100 * up, scored) if scored else Fraction(0),
        "compliance": Fraction(sum(d["compliance"] for d in days), scored or 1),
        "latency": Fraction(0) if median is None else table(speed, Fraction(median)),
        "age": min(
            Fraction(100), max(Fraction(0), Fraction(100 * (as_of - doc["firstSeen"]), 30 * DAY))
        ),
        "activity": activity(volumes, hosts),
        "stability": Fraction(max(0, 100 - min(60, 20 * price) - 50 * payto)),
    }
    flags = reference_flags(doc, days, changes, price=price, payto=payto, confidence=confidence)
    caps = sorted((CAPS[code], code) for code in flags if code in CAPS)
    limit = Fraction(min((points for points, _ in caps), default=100))

    def points(parts: dict[str, Fraction]) -> int:
        weights = dict(zip(sub, (35, 20, 5, 10, 15, 15), strict=True))
        return half_up(
            min(limit, sum((weights[k] * parts[k] for k in weights), Fraction(0)) / 100), 1
        )

    out: dict[str, Any] = {
        "scoreTenths": None, "lowTenths": None, "highTenths": None, "grade": None, "breakdown": {},
    }  # fmt: skip
    if scored:
        low, high = dict(sub), dict(sub)
        for name in ("uptime", "compliance"):
            lower, upper = wilson(sub[name] / 100, scored)
            low[name], high[name] = 100 * lower, 100 * upper
        if chain:
            by_payer: dict[str, int] = {}
            for row in chain["payers"]:
                by_payer[row["payer"].lower()] = by_payer.get(row["payer"].lower(), 0) + int(
                    row["paid"]
                )
            high["activity"] = max(sub["activity"], activity(list(by_payer.values()), 1))
        total = points(sub)
        grade = next(
            (g for g, least in zip("ABCD", (810, 650, 500, 350), strict=True) if total >= least),
            "F",
        )
        out = {
            "scoreTenths": total,
            "lowTenths": points(low),
            "highTenths": points(high),
            "grade": grade,
            "breakdown": {name: half_up(value, 1) for name, value in sub.items()},
        }
    indexed = Fraction(chain["indexedMs"] if chain else 0, WINDOW)
    mean = Fraction(sum(d["latencySum"] for d in days), len(latencies)) if latencies else None
    return {
        **out,
        "confidenceHundredths": half_up(confidence, 2),
        "economicHundredths": half_up(min(indexed, Fraction(1)), 2),
        "avgLatencyMs": None if mean is None else half_up(mean, 0),
        "p50LatencyMs": median,
        "p95LatencyMs": rank(95),
        "caps": [code for _, code in caps],
        "flags": flags,
        "recommendation": advice(doc, flags, grade=out["grade"], confidence=confidence),
    }


def reference_flags(
    doc: dict[str, Any],
    days: list[dict[str, Any]],
    changes: list[dict[str, Any]],
    *,
    price: int,
    payto: int,
    confidence: Fraction,
) -> dict[str, str]:
    """Code and severity of every flag."""
    as_of, last, chain, quote = doc["asOf"], doc["last"], doc["chain"], doc["quote"]
    templated = doc["templated"]
    scored, up = sum(d["scored"] for d in days), sum(d["up"] for d in days)
    paid = sum(d["payable"] + d["compliant"] for d in days)
    with_terms = last if last and last["accepts"] is not None else doc["envelope"] or last
    known = quote and quote["network"] == "eip155:8453" and quote["asset"].lower() == BASE_USDC
    micro = int(quote["amount"]) if known else 0
    fresh = [c for c in changes if c["kind"] == "payto-changed" and as_of - c["at"] <= 7 * DAY]
    volumes = organic_volumes(chain) if chain else []
    rows = chain["payers"] if chain else []
    own = sum(int(r["paid"]) for r in rows if r["payer"].lower() == chain["payTo"].lower())
    all_paid = sum(int(r["paid"]) for r in rows)
    back = all_paid - own - sum(volumes)
    effective = Fraction(sum(volumes) ** 2, sum(v * v for v in volumes) or 1)
    when = {
        "down-now": doc["recent"]["scored"] >= 6 and doc["recent"]["up"] == 0,
        "not-payable": bool(with_terms) and with_terms["accepts"] == 0,
        "never-compliant": up > 0 and paid == 0,
        "payto-changed-recently": bool(fresh) and not templated,
        "decoy-price": micro >= 1_000_000_000,
        "price-above-client-cap": micro > 1_000_000,
        "wildcard-402": doc["wildcard"],
        "unresolved-template": templated,
        "payto-varies": templated and payto > 0,
        "price-varies": templated and price > 0,
        "price-changed": not templated and price > 0,
        "validates-before-402": bool(last) and last["outcome"] == "validates-first",
        "envelope-mismatch": bool(last) and "envelope-mismatch" in {r[0] for r in last["rules"]},
        "first-contact": scored <= 1 or as_of - doc["firstSeen"] < DAY,
        "low-confidence": confidence < Fraction(20, 100),
        "shared-payto": bool(chain) and chain["sharedHosts"] > 1,
        "self-paid": own > 0 or (back > 0 and back * 2 >= all_paid),
        "concentrated-payers": (
            bool(volumes) and effective < 2 and sum(r["transfers"] for r in rows) > 10
        ),
        "no-settlements": not volumes,
        "tls-expiring": bool(last)
        and last["tlsNotAfter"] is not None
        and last["tlsNotAfter"] < as_of + 14 * DAY,
        "tls-invalid": bool(last) and last["outcome"] == "tls-failure",
        "delisted": not doc["listed"],
        "injection-suspected": doc["injection"],
    }
    severity = {code: name for name, codes in SEVERITY.items() for code in codes.split()}
    flags = {code: severity[code] for code, fires in when.items() if fires}
    order = ["error", "warn", "info"]
    for slug, level, _ in last["rules"] if last else ():
        code = f"lint:{slug}"
        flags[code] = min(flags.get(code, level), level, key=order.index)
    return flags


def advice(
    doc: dict[str, Any],
    flags: dict[str, str],
    *,
    grade: str | None,
    confidence: Fraction,
) -> str:
    errors = {code for code, severity in flags.items() if severity == "error"}
    host = {code for code in errors if not code.startswith("lint:")}
    if "not-payable" in errors:
        return "not-payable"
    if doc["templated"] and host <= {"down-now", "never-compliant"}:
        return "parameterize"
    if errors or grade in ("D", "F"):
        return "avoid"
    if grade is None:
        return "unverified"
    return "caution" if grade == "C" or confidence < Fraction(1, 5) else "proceed"


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
    assert observed(score(evidence)) == vector["expected"]
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


AS_OF = 1_780_000_000_000
SELLER = "0x" + "5" * 40
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
    assert observed(score(from_json(document))) == reference(document)
