"""Figures of the reference (reference.py): sums, tables and flags with plain fractions over the
JSON form of the evidence. It does not import the package.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_right
from fractions import Fraction
from itertools import pairwise
from typing import Any

DAY = 86_400_000
WINDOW = 2_592_000_000
BASE_USDC = "0x833589fcd6edb6e08f4c7c32d4f71b54bda02913"
LOWER_BOUNDS = [*range(128), *(2**e + i * 2 ** (e - 6) for e in range(7, 40) for i in range(64))]


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


def wilson(p: Fraction, n: Fraction) -> tuple[Fraction, Fraction]:
    z, zz = Fraction("1.96"), Fraction("3.8416")
    inside = p * (1 - p) / n + zz / (4 * n * n)
    root = Fraction(math.isqrt(math.floor(inside * 10**12)), 10**6)
    centre, spread = p + zz / (2 * n), z * root
    low, high = (centre - spread) / (1 + zz / n), (centre + spread) / (1 + zz / n)
    return max(Fraction(0), min(p, low)), min(Fraction(1), max(p, high))


def chains_of(doc: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the settlements to all addresses that the endpoint offers."""
    return [doc["chain"], *doc.get("otherChains", ())] if doc["chain"] else []


def demand_of(doc: dict[str, Any]) -> dict[str, int] | None:
    """Return the demand on all networks; None if it is unknown."""
    demands = [chain["demand"] for chain in chains_of(doc) if chain["demand"]]
    names = {name for demand in demands for name in demand if name != "weights"}
    return {name: sum(int(one[name]) for one in demands) for name in names} if demands else None


def sum_of_weights(doc: dict[str, Any]) -> Fraction:
    """Return the weighted payers of a seller without the anchor that adds most."""
    sums: dict[str, Fraction] = {}
    for chain in chains_of(doc):
        for owner, weight in (chain["demand"] or {}).get("weights", ()):
            share = Fraction(weight, 1_000_000 * chain["shares"])
            sums[owner] = sums.get(owner, Fraction(0)) + share
    return min(sums.values(), default=Fraction(0)) if len(doc["anchors"]) > 1 else Fraction(0)


def latencies(days: list[dict[str, Any]]) -> dict[str, int | None]:
    """Mean, median and 95th percentile."""
    every = sorted(LOWER_BOUNDS[b] for d in days for b, count in d["latency"] for _ in range(count))

    def rank(percent: int) -> int | None:
        return every[math.ceil(Fraction(percent * len(every), 100)) - 1] if every else None

    mean = Fraction(sum(d["latencySum"] for d in days), len(every) or 1)
    return {
        "avgLatencyMs": half_up(mean, 0) if every else None,
        "p50LatencyMs": rank(50),
        "p95LatencyMs": rank(95),
    }


def speed(median: int | None) -> Fraction:
    points = [(200, 100), (500, 85), (1_000, 60), (2_000, 30), (5_000, 0)]
    return Fraction(0) if median is None else table(points, Fraction(median))


def by_source(changes: list[dict[str, Any]], kind: str) -> list[list[dict[str, Any]]]:
    """The changes of a kind that each source saw, each one once."""
    groups: dict[str, dict[str, dict[str, Any]]] = {}
    for c in changes:
        if c["kind"] == kind:
            groups.setdefault(c["source"], {})[json.dumps(c, sort_keys=True)] = c
    return [list(group.values()) for group in groups.values()]


def grade_of(tenths: int) -> str:
    letters = zip("ABCD", (810, 650, 500, 350), strict=True)
    return next((letter for letter, least in letters if tenths >= least), "F")


def evaluate_flags(
    doc: dict[str, Any],
    days: list[dict[str, Any]],
    changes: list[dict[str, Any]],
    *,
    price: int,
    payto: int,
    confidence: Fraction,
) -> dict[str, bool]:
    """Whether each flag is raised."""
    as_of, last, chain, quote = doc["asOf"], doc["last"], doc["chain"], doc["quote"]
    templated = doc["templated"]
    scored, up = sum(d["scored"] for d in days), sum(d["up"] for d in days)
    paid = sum(d["payable"] + d["compliant"] for d in days)
    with_terms = last if last and last["accepts"] is not None else doc["envelope"] or last
    known = quote and quote["network"] == "eip155:8453" and quote["asset"].lower() == BASE_USDC
    micro = int(quote["amount"]) if known else 0
    moved = [c for c in changes if c["kind"] == "payto-changed" and not c.get("announced")]
    fresh = [c for c in moved if as_of - c["at"] <= 7 * DAY]
    demand = demand_of(doc) or {}
    volume, back = int(demand.get("volume", 0)), int(demand.get("returned", 0))
    owner = chain["owner"] if chain else None
    network = chain["network"] if chain else ""
    usual = f"{network} {'eip3009' if network.startswith('eip155:') else 'exact'}"
    readable = {f"{one['network']} eip3009" for one in chains_of(doc) if one["indexedMs"]}
    unread = set(doc.get("forms") or [usual]) - readable
    return {
        "not-payable": bool(with_terms) and with_terms["accepts"] == 0,
        "never-compliant": up > 0 and paid == 0,
        "payto-changed-recently": bool(fresh) and not templated,
        "decoy-price": micro >= 1_000_000_000,
        "price-above-client-cap": micro > 1_000_000,
        "wildcard-402": doc["wildcard"],
        "unresolved-template": templated,
        "payto-varies": (templated and payto > 0) or doc.get("payToVaries", False),
        "price-varies": templated and price > 0,
        "price-changed": not templated and price > 0,
        "validates-before-402": bool(last) and last["outcome"] == "validates-first",
        "envelope-mismatch": bool(last) and "envelope-mismatch" in {r[0] for r in last["rules"]},
        "first-contact": scored <= 1 or as_of - doc["firstSeen"] < DAY,
        "low-confidence": confidence < Fraction(20, 100),
        "shared-payto": owner is not None,
        "self-paid": int(demand.get("own", 0)) > 0 or (back > 0 and back * 2 >= volume),
        "no-settlements": not demand.get("payers") and not unread and owner is None,
        "settlements-not-measured": bool(unread),
        "tls-expiring": bool(last)
        and last["tlsNotAfter"] is not None
        and last["tlsNotAfter"] < as_of + 14 * DAY,
        "tls-invalid": bool(last) and last["outcome"] == "tls-failure",
        "delisted": not doc["listed"],
        "injection-suspected": doc["injection"],
    }


def name_flags(raised: dict[str, bool], severities: dict[str, str]) -> dict[str, str]:
    """Code and severity of the flags that are raised."""
    severity = {code: name for name, codes in severities.items() for code in codes.split()}
    return {code: severity[code] for code, raises in raised.items() if raises and code in severity}


def lint_flags(last: dict[str, Any] | None, error: str) -> dict[str, str]:
    """One flag for each lint rule, the worst of its severities; an error is an `error`."""
    flags: dict[str, str] = {}
    order = ["error", "warn", "info"]
    for slug, severity, _ in last["rules"] if last else ():
        code, level = f"lint:{slug}", error if severity == "error" else severity
        flags[code] = min(flags.get(code, level), level, key=order.index)
    return flags


AS_OF = 1_780_000_000_000
SELLER = "0x" + "5" * 40
