"""A second, slow implementation of the published rules, written on its own with plain fractions
over the JSON form of the evidence. It imports nothing of the package.
"""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

from tests.golden.figures import (
    DAY,
    WINDOW,
    activity,
    by_source,
    chain_sums,
    effective,
    fired,
    grade_of,
    half_hours,
    half_up,
    latencies,
    lint_flags,
    named,
    speed,
    table,
    wilson,
)

VECTORS = Path(__file__).with_name("vectors")
HOUR = 3_600_000
WEIGHTS = {
    "uptime": 35, "compliance": 20, "latency": 5, "age": 10, "activity": 15, "stability": 15,
}  # fmt: skip
CAPS = {
    "payto-changed-recently": 490,
    "decoy-price": 490,
    "not-payable": 490,
    "never-compliant": 490,
    "wildcard-402": 490,
    "paid-not-delivered": 490,
    "signed-offer-mismatch": 490,
    "price-jumped": 649,
}
FORECAST_CAPS = {
    "dead": 349,
    "not-payable-soon": 490,
    "doubtful-tomorrow": 649,
    "unsure-tomorrow": 809,
}
SEVERITY = {
    "error": "not-payable never-compliant payto-changed-recently decoy-price wildcard-402 "
    "paid-not-delivered signed-offer-mismatch",
    "warn": "down-now stale refuses-probes price-jumped tls-invalid price-above-client-cap "
    "unresolved-template price-changed validates-before-402 envelope-mismatch self-paid "
    "concentrated-payers tls-expiring delisted injection-suspected",
    "info": "payto-varies price-varies first-contact low-confidence shared-payto no-settlements "
    "settlements-not-measured new-path-of-known-site not-evaluated",
}
NOBODY = {"payers": 0, "volume": "0", "squares": "0", "top": "0", "weight": 0}


def day_weight(k: int) -> int:
    """1000 x 2^(-k/7), rounded half up: the largest n with n - 1/2 <= 1000 x 2^(-k/7)."""
    return next(n for n in range(1_000, -1, -1) if (2 * n - 1) ** 7 * 2**k <= 2_000**7)


def state_changes(days: list[dict[str, Any]]) -> Fraction:
    """How many independent observations the range rests on."""
    spans = [d["spans"] for d in days]
    watched = Fraction(sum(s["up"] + s["down"] for s in spans), DAY)
    changes: int = sum(s["failures"] + s["repairs"] for s in spans)
    return Fraction(1, 3) + 2 * watched / (1 + changes)


class Forecast:
    """The chance of being payable in h hours, from hours payable and not payable."""

    def __init__(self, days: list[dict[str, Any]]) -> None:
        total = {name: sum(int(d["spans"][name]) for d in days) for name in SPAN_SUMS}
        never = total["payable"] == 0 and total["failures"] == 0
        up = Fraction(total["payable"], HOUR)
        down = Fraction(total["up"] + total["down"] - total["payable"], HOUR)
        self.fails: Fraction = (total["failures"] + Fraction(1, 2)) / (up + 72)
        self.mends: Fraction = (total["repairs"] + 1) / (down + 8)
        waits = down + Fraction(1, 2) + (72 if never else 0)
        self.returns: Fraction = (total["repairs"] + Fraction(1, 4)) / waits

    def at(self, hours: Fraction, *, payable: bool) -> Fraction:
        if payable:
            return 1 - self.fails * hours / (1 + (self.fails + self.mends) * hours)
        return self.returns * hours / (1 + self.returns * hours + self.fails * hours)

    def both(self, *, payable: bool) -> tuple[Fraction, Fraction]:
        return self.at(Fraction(1, 2), payable=payable), self.at(Fraction(24), payable=payable)


SPAN_SUMS = ("up", "payable", "down", "failures", "repairs")


def amount(text: str) -> int:
    """The amount of a price; its asset stands behind it where that changed."""
    return int(text.split(" ")[0])


def price_step(change: dict[str, Any]) -> int:
    return 20 if amount(change["after"]) > 2 * amount(change["before"]) else 10


def price_jumped(changes: list[dict[str, Any]], as_of: int) -> bool:
    """Whether one source's last price is more than twice the least one of the last 7 days."""
    for group in by_source(changes, "price-changed"):
        week = [c for c in group if as_of - c["at"] < 7 * DAY]
        week.sort(key=lambda c: (c["at"], c["before"], c["after"]))
        if week and amount(week[-1]["after"]) > 2 * min(amount(c["before"]) for c in week):
            return True
    return False


def activity_ends(chain: dict[str, Any] | None) -> tuple[Fraction, Fraction]:
    """The activity of the low and of the high end of the organic interval."""
    sums, hosts = chain_sums(chain), chain["sharedHosts"] if chain else 1
    low, high = sums.get("low", NOBODY), sums.get("high", NOBODY)
    credited = min(effective(low), Fraction(low["weight"], 1_000_000))
    at_least = activity(int(low["volume"]), credited, hosts)
    return at_least, max(at_least, activity(int(high["volume"]), effective(high), hosts))


def reference(doc: dict[str, Any]) -> dict[str, Any]:
    """The expectation of a document, straight from the rules."""
    as_of, state, chain = doc["asOf"], doc["state"], doc["chain"]
    today = as_of // DAY
    days = [d for d in doc["days"] if today - 30 <= d["day"] <= today]
    changes = [c for c in doc["changes"] if as_of - WINDOW < c["at"] <= as_of]
    if doc.get("payToVaries"):
        changes = [c for c in changes if c["kind"] != "payto-changed"]
    slots = len(half_hours(days))
    prices = by_source(changes, "price-changed")
    payto = max(map(len, by_source(changes, "payto-changed")), default=0)
    latency = latencies(days)
    forecast = Forecast(days)
    low_end, high_end = activity_ends(chain)
    known = bool(chain) and bool(chain["sums"])

    def weighed(*names: str) -> int:
        return sum(day_weight(today - d["day"]) * d["spans"][n] for d in days for n in names)

    time = weighed("up", "down")
    sub = {
        "uptime": share(weighed("up") * 100, time, bool(state) and state["up"]),
        "compliance": share(weighed("compliance"), time, bool(state) and state["payable"]),
        "latency": speed(latency["p50LatencyMs"]),
        "age": table(
            [(0, 0), (1, 20), (3, 35), (7, 55), (14, 75), (30, 100)],
            Fraction(as_of - doc["firstSeen"], DAY),
        ),
        "activity": min(high_end, low_end + 20),
        "stability": Fraction(
            max(
                0,
                100
                - min(60, max((sum(map(price_step, group)) for group in prices), default=0))
                - 50 * payto,
            )
        ),
    }
    flags = flags_of(doc, days, changes, payto=payto)
    graded = bool(state) and "not-evaluated" not in flags
    caps = {code: CAPS[code] for code in flags if code in CAPS}
    if any(code.startswith("lint:") and flags[code] == "error" for code in flags):
        caps["lint-error"] = 490
    if doc["siteMedianTenths"] is not None:
        caps["new-path-of-known-site"] = doc["siteMedianTenths"]
    out: dict[str, Any] = {
        "scoreTenths": None, "lowTenths": None, "highTenths": None, "grade": None, "breakdown": {},
        "payableNowPermille": None, "payable24hPermille": None,
    }  # fmt: skip
    if state:
        caps |= forecast_caps(*forecast.both(payable=state["payable"] or state["unconfirmed"]))
        now, tomorrow = forecast.both(payable=state["payable"])
        low, high = dict(sub), dict(sub)
        for name in ("uptime", "compliance"):
            lower, upper = wilson(sub[name] / 100, state_changes(days))
            low[name], high[name] = 100 * lower, 100 * upper
        low["activity"], high["activity"] = min(low_end, sub["activity"]), high_end
        total = points(sub, caps)
        out = {
            "scoreTenths": total,
            "lowTenths": points(low, caps),
            "highTenths": points(high, caps),
            "grade": grade_of(total),
            "breakdown": {name: half_up(value, 1) for name, value in sub.items()},
            "payableNowPermille": half_up(now, 3),
            "payable24hPermille": half_up(tomorrow, 3),
        }
        if not graded:
            out |= dict.fromkeys(("scoreTenths", "lowTenths", "highTenths", "grade"))
            out["breakdown"] = {}
    indexed = Fraction(chain["indexedMs"] if chain else 0, WINDOW)
    return {
        **out,
        "activity": [half_up(low_end, 1), half_up(high_end, 1), chain["sums"]["clusters"]]
        if known
        else None,
        "confidenceHundredths": half_up(min(Fraction(slots, 1_440), Fraction(1)), 2),
        "economicHundredths": half_up(min(indexed, Fraction(1)), 2),
        **latency,
        "caps": [[code, limit] for limit, code in sorted((n, code) for code, n in caps.items())]
        if graded
        else [],
        "flags": flags,
        "recommendation": advice(doc, flags, changes, grade=out["grade"], slots=slots),
    }


def share(part: int, whole: int, otherwise: bool) -> Fraction:
    """A share of 100; without any time, what the state says."""
    return Fraction(part, whole) if whole else Fraction(100 if otherwise else 0)


def points(parts: dict[str, Fraction], caps: dict[str, int]) -> int:
    total = sum((WEIGHTS[name] * value for name, value in parts.items()), Fraction(0)) / 100
    return half_up(min(total, Fraction(min(caps.values(), default=1_000), 10)), 1)


def forecast_caps(now: Fraction, tomorrow: Fraction) -> dict[str, int]:
    holds = {
        "dead": now < Fraction(1, 5) and tomorrow < Fraction(1, 5),
        "not-payable-soon": now < Fraction(2, 5),
        "doubtful-tomorrow": tomorrow < Fraction(17, 20),
        "unsure-tomorrow": tomorrow < Fraction(19, 20),
    }
    return {code: FORECAST_CAPS[code] for code, applies in holds.items() if applies}


def flags_of(
    doc: dict[str, Any],
    days: list[dict[str, Any]],
    changes: list[dict[str, Any]],
    *,
    payto: int,
) -> dict[str, str]:
    """Code and severity of every flag."""
    as_of, state, last = doc["asOf"], doc["state"], doc["last"]
    confidence = Fraction(len(half_hours(days)), 1_440)
    price = sum(map(len, by_source(changes, "price-changed")))
    raised = fired(doc, days, changes, price=price, payto=payto, confidence=confidence)
    scored_at = last["at"] if last else doc["firstSeen"]
    raised |= {
        "down-now": bool(state) and not state["payable"],
        "stale": bool(state) and as_of - state["at"] > max(3 * HOUR, 6 * doc["interval"]),
        "refuses-probes": bool(state)
        and state["outcome"] == "throttled"
        and state["at"] - scored_at >= 6 * HOUR,
        "price-jumped": not doc["templated"] and price_jumped(changes, as_of),
        "paid-not-delivered": doc["paidNotDelivered"],
        "new-path-of-known-site": doc["siteMedianTenths"] is not None,
        "not-evaluated": not evaluated(doc, days),
        "signed-offer-mismatch": bool(last)
        and "signed-offer-mismatch" in {rule for rule, _, _ in last["rules"]},
    }
    cannot_pay = (
        bool(last)
        and last["accepts"] is not None
        and not last["payable"]
        and not (state and state["unconfirmed"])
    )
    return named(raised, SEVERITY) | lint_flags(last, "error" if cannot_pay else "warn")


def evaluated(doc: dict[str, Any], days: list[dict[str, Any]]) -> bool:
    """Whether the window has an offer of which the linter can say if a client pays it."""
    last = doc["last"]
    probe = last if last and last["accepts"] is not None else doc["envelope"]
    rules = probe["rules"] if probe else []
    unread = any(slug == "not-evaluated" for slug, _, _ in rules)
    broken = any(severity == "error" for _, severity, _ in rules)
    return not unread or broken or any(d["spans"]["compliance"] for d in days)


def advice(
    doc: dict[str, Any],
    flags: dict[str, str],
    changes: list[dict[str, Any]],
    *,
    grade: str | None,
    slots: int,
) -> str:
    errors = {code for code, severity in flags.items() if severity == "error"}
    host = {code for code in errors if not code.startswith("lint:")}
    state = doc["state"]
    if "not-payable" in errors:
        return "not-payable"
    if doc["templated"] and host <= {"never-compliant"}:
        return "parameterize"
    if "not-evaluated" in flags:
        return "unverified" if state and state["payable"] else "avoid"
    if state is None or "stale" in flags:
        return "unverified"
    if grade in ("D", "F"):
        return "avoid"
    moved = [c for c in changes if c["kind"] == "payto-changed" and not c.get("announced")]
    payto = any(doc["asOf"] - c["at"] <= 30 * DAY for c in moved)
    careful = (
        grade == "C",
        not state["payable"] or state["unconfirmed"],
        "price-jumped" in flags,
        payto and not doc["templated"],
        slots < 24,
    )
    return "caution" if any(careful) else "proceed"
