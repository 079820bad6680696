"""An independent, slow implementation of the published rules with plain fractions over the JSON
form of the evidence. It imports nothing from the package.
"""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

from tests.golden.figures import (
    DAY,
    WINDOW,
    by_source,
    chains_of,
    demand_of,
    evaluate_flags,
    grade_of,
    half_up,
    latencies,
    lint_flags,
    name_flags,
    speed,
    sum_of_weights,
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
    "down-now": 649,
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
    "warn": "down-now stale refuses-probes unprobeable price-jumped tls-invalid "
    "price-above-client-cap unresolved-template price-changed validates-before-402 "
    "envelope-mismatch self-paid tls-expiring delisted injection-suspected",
    "info": "payto-varies price-varies first-contact low-confidence shared-payto no-settlements "
    "settlements-not-measured new-path-of-known-site not-evaluated",
}
REFUSALS = {"forbidden", "throttled", "blocked"}


def day_weight(k: int) -> int:
    """1000 x 2^(-k/7), rounded half up: the largest n with n - 1/2 <= 1000 x 2^(-k/7)."""
    return next(n for n in range(1_000, -1, -1) if (2 * n - 1) ** 7 * 2**k <= 2_000**7)


def state_changes(days: list[dict[str, Any]]) -> Fraction:
    """How many independent observations the range rests on."""
    spans = [d["spans"] for d in days]
    watched = Fraction(sum(s["up"] + s["down"] for s in spans), DAY)
    changes: int = sum(s["failures"] + s["repairs"] for s in spans)
    return Fraction(1, 3) + 2 * watched / (1 + changes)


def recent_weight(d: int) -> Fraction:
    """1000 x 2^(-d/2), rounded half up, in thousandths: the largest n with n - 1/2 below it."""
    n = next(n for n in range(1_000, -1, -1) if not n or (2 * n - 1) ** 2 * 2**d <= 2_000**2)
    return Fraction(n, 1_000)


class Forecast:
    """The chance of being payable in h hours, from the hours payable and not payable."""

    def __init__(
        self, days: list[dict[str, Any]], *, payable: bool, since: int, as_of: int, never: bool
    ) -> None:
        def sum_days(name: str, *, weighted: bool = True) -> Fraction:
            return sum(
                (
                    (recent_weight(as_of // DAY - d["day"]) if weighted else 1)
                    * Fraction(d["spans"][name])
                    for d in days
                ),
                Fraction(0),
            )

        def before(d: dict[str, Any]) -> Fraction:
            """Hours of a day not payable, without the present outage."""
            spans = d["spans"]
            down = spans["up"] + spans["down"] - spans["payable"]
            if not payable:
                begin = max(since, d["day"] * DAY)
                down -= max(0, min(as_of, d["day"] * DAY + DAY) - begin)
            return Fraction(max(0, down), HOUR)

        f, r, u = sum_days("failures"), sum_days("repairs"), sum_days("payable") / HOUR
        b = sum((recent_weight(as_of // DAY - d["day"]) * before(d) for d in days), Fraction(0))
        f31, r31 = sum_days("failures", weighted=False), sum_days("repairs", weighted=False)
        u31 = sum_days("payable", weighted=False) / HOUR
        a = Fraction(max(0, as_of - since), HOUR) + (72 if never else 0)
        base = (f31 + Fraction(1, 6)) / (u31 + 380)
        lately = 3 / (1 + a) if r31 > 0 else Fraction(0)
        m = (b + Fraction(3, 4)) / (r + 1)
        q = 6 * r / (6 + r)
        self.payable = payable
        most = Fraction(2)
        self.rests = min(most, (f + base) / (u + 1))
        self.fails = min(most, (f + base + lately) / (u + 1))
        self.mends = min(most, 1 / m)
        self.returns = min(most, (Fraction(1, 6) + q) / (a + Fraction(1, 7) + q * m))

    def at(self, hours: Fraction, least: Fraction) -> Fraction:
        if self.payable:
            chance = 1 - compute_rate(self.fails, self.mends, hours)
        else:
            chance = compute_rate(self.returns, self.rests, hours)
        return min(max(chance, least), 1 - least)

    def both(self) -> tuple[Fraction, Fraction]:
        return self.at(Fraction(1, 2), Fraction(1, 1_000)), self.at(Fraction(24), Fraction(1, 500))


def compute_rate(x: Fraction | int, y: Fraction | int, h: Fraction) -> Fraction:
    rest = max(Fraction(0), 1 - Fraction(x + y) / 2) / (1 + (x + y) * (h - Fraction(1, 2)))
    return Fraction(x) / (x + y) * (1 - rest)


def differs(amount: int, other: int) -> bool:
    return abs(amount - other) > Fraction(other, 10)


def is_increase(price: dict[str, Any]) -> bool:
    if price["usual"] is None:
        return True
    return int(price["after"]) > 2 * max(int(price["usual"]), int(price["upper"]))


def price_cost(group: list[dict[str, Any]]) -> int:
    """Return the deduction from stability for the price changes of one source."""
    cost, last = 0, None
    for price in (c["price"] for c in in_time(group)):
        unit, after = price["unit"], int(price["after"])
        if last is None and price["before"] is not None:
            last = unit, int(price["before"])
        if is_increase(price):
            cost += 20
        elif differs(after, int(price["usual"])) and (
            last is None or last[0] != unit or differs(after, last[1])
        ):
            cost += 10
        else:
            continue
        last = unit, after
    return min(cost, 60)


def in_time(group: list[dict[str, Any]]) -> list[dict[str, Any]]:
    def order(change: dict[str, Any]) -> tuple[Any, ...]:
        price = [(value is None, value) for _, value in sorted(change["price"].items())]
        return *(change[name] for name in ("at", "source", "before", "after")), price

    return sorted(group, key=order)


def price_jumped(changes: list[dict[str, Any]], as_of: int) -> bool:
    """Whether the last increase is less than 7 days old and the price is still too high."""
    prices = in_time([c for c in changes if c["kind"] == "price-changed"])
    increases = [c for c in prices if is_increase(c["price"])]
    if not increases or as_of - increases[-1]["at"] >= 7 * DAY:
        return False
    kept, now = increases[-1]["price"], prices[-1]["price"]
    if kept["usual"] is None or kept["unit"] != now["unit"]:
        return True
    return int(now["after"]) > 2 * int(kept["usual"])


def reference(doc: dict[str, Any]) -> dict[str, Any]:
    """The expectation of a document, straight from the rules."""
    as_of, state = doc["asOf"], doc["state"]
    today = as_of // DAY
    days = [d for d in doc["days"] if today - 30 <= d["day"] <= today]
    changes = [c for c in doc["changes"] if as_of - WINDOW < c["at"] <= as_of]
    if doc.get("payToVaries"):
        changes = [c for c in changes if c["kind"] != "payto-changed"]
    prices = by_source(changes, "price-changed")
    payto = max(map(len, by_source(changes, "payto-changed")), default=0)
    moved = [c for c in changes if not c.get("announced")]
    unannounced = max(map(len, by_source(moved, "payto-changed")), default=0)
    latency = latencies(days)
    never = not state or not (state["payable"] or state["payableSince"] is not None)
    covered = sum(d["spans"]["up"] + down_time(d, never) for d in days)

    def weigh(name: str) -> int:
        return sum(day_weight(today - d["day"]) * d["spans"][name] for d in days)

    time = weigh("up") + sum(day_weight(today - d["day"]) * down_time(d, never) for d in days)
    sub = {
        "uptime": share(weigh("up") * 100, time, bool(state) and state["up"]),
        "compliance": share(weigh("compliance"), time, bool(state) and state["payable"]),
        "latency": speed(latency["p50LatencyMs"]),
        "age": table(
            [(0, 0), (1, 20), (3, 35), (7, 55), (14, 75), (30, 100)],
            Fraction(as_of - doc["firstSeen"], DAY),
        ),
        "activity": table(
            [(0, 0), (1, 5), (3, 30), (10, 60), (30, 80), (100, 100)],
            sum_of_weights(doc),
        ),
        "stability": Fraction(
            max(0, 100 - max(map(price_cost, prices), default=0) - 50 * unannounced)
        ),
    }
    flags = flags_of(doc, days, changes, payto=payto, never=never, covered=covered)
    refuses = never and bool(state) and state["outcome"] in REFUSALS and covered == 0
    unscored = {"not-evaluated", "unprobeable"} & set(flags)
    graded = bool(state) and not unscored and not refuses
    caps = {code: CAPS[code] for code in flags if code in CAPS}
    out: dict[str, Any] = {
        "scoreTenths": None, "lowTenths": None, "highTenths": None, "grade": None, "breakdown": {},
        "payableNowPermille": None, "payable24hPermille": None,
    }  # fmt: skip
    if state:
        started = state["payableSince"] if state["payable"] else state.get("since")
        known = {"days": days, "as_of": as_of, "never": never}
        present = Forecast(payable=state["payable"], since=started or state["at"], **known)
        now, tomorrow = present.both()
        limiting = now, tomorrow
        if state["unconfirmed"]:
            caps.pop("down-now", None)
            earlier = state["payableSince"]
            earlier = state["at"] if earlier is None else earlier
            known["never"] = False
            limiting = Forecast(payable=True, since=earlier, **known).both()
        caps |= forecast_caps(*limiting)
        if doc["siteMedianTenths"] is not None:
            least = 649 if limiting[1] >= Fraction(19, 20) else 0
            caps["new-path-of-known-site"] = max(doc["siteMedianTenths"], least)
        low, high = dict(sub), dict(sub)
        for name in ("uptime", "compliance"):
            lower, upper = wilson(sub[name] / 100, state_changes(days))
            low[name], high[name] = 100 * lower, 100 * upper
        low["activity"] = Fraction(0)
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
    indexed = Fraction(min((one["indexedMs"] for one in chains_of(doc)), default=0), WINDOW)
    return {
        **out,
        "demand": shown_demand(doc),
        "confidenceHundredths": half_up(min(Fraction(covered, 720 * HOUR), Fraction(1)), 2),
        "economicHundredths": half_up(min(indexed, Fraction(1)), 2),
        **latency,
        "caps": [[code, limit] for limit, code in sorted((n, code) for code, n in caps.items())]
        if graded
        else [],
        "flags": flags,
        "recommendation": advice(doc, flags, changes, grade=out["grade"], covered=covered),
    }


def down_time(day: dict[str, Any], never: bool) -> int:
    """Refusals of an endpoint that was never payable are neither up nor down."""
    down: int = day["spans"]["down"]
    return down - day["spans"]["refused"] if never else down


def shown_demand(doc: dict[str, Any]) -> list[int] | None:
    demand = demand_of(doc)
    if not demand:
        return None
    names = ("payers", "volume", "provenPayers", "provenVolume")
    return [int(demand[name]) for name in names]


def share(part: int, whole: int, otherwise: bool) -> Fraction:
    """Return a share of 100; without any time it follows from the state."""
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
    never: bool,
    covered: int,
) -> dict[str, str]:
    """Code and severity of every flag."""
    as_of, state, last = doc["asOf"], doc["state"], doc["last"]
    confidence = Fraction(covered, 720 * HOUR)
    price = sum(map(len, by_source(changes, "price-changed")))
    raised = evaluate_flags(doc, days, changes, price=price, payto=payto, confidence=confidence)
    raised |= {
        "down-now": bool(state) and not state["payable"],
        "stale": bool(state) and as_of - state["at"] > max(3 * HOUR, 6 * doc["interval"]),
        "refuses-probes": bool(state)
        and state["outcome"] in REFUSALS
        and state["at"] - (state.get("since") or state["at"]) >= 6 * HOUR,
        "unprobeable": never and unprobeable(doc, days),
        "price-jumped": not doc["templated"] and price_jumped(changes, as_of),
        "paid-not-delivered": doc["paidNotDelivered"],
        "new-path-of-known-site": doc["siteMedianTenths"] is not None,
        "not-evaluated": not evaluate(doc, days),
        "signed-offer-mismatch": bool(last)
        and "signed-offer-mismatch" in {rule for rule, _, _ in last["rules"]},
    }
    cannot_pay = (
        bool(last)
        and last["accepts"] is not None
        and not last["payable"]
        and not (state and state["unconfirmed"])
    )
    return name_flags(raised, SEVERITY) | lint_flags(last, "error" if cannot_pay else "warn")


def unprobeable(doc: dict[str, Any], days: list[dict[str, Any]]) -> bool:
    week = [d for d in days if d["day"] > doc["asOf"] // DAY - 7]
    blocked = sum(d["blocked"] for d in week)
    return bool(blocked > 0 and 10 * blocked >= 9 * sum(d["scored"] for d in week))


def evaluate(doc: dict[str, Any], days: list[dict[str, Any]]) -> bool:
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
    covered: int,
) -> str:
    errors = {code for code, severity in flags.items() if severity == "error"}
    host = {code for code in errors if not code.startswith("lint:")}
    state = doc["state"]
    if grade is None:
        if "not-evaluated" not in flags:
            return "unverified"
        return "unverified" if state and state["payable"] else "avoid"
    if "not-payable" in errors:
        return "not-payable"
    if doc["templated"] and host <= {"never-compliant"}:
        return "parameterize"
    if grade in ("D", "F") or ("stale" in flags and not state["payable"]):
        return "avoid"
    if "stale" in flags:
        return "unverified"
    moved = [c for c in changes if c["kind"] == "payto-changed" and not c.get("announced")]
    careful = (
        grade == "C",
        not state["payable"],
        "price-jumped" in flags,
        any(doc["asOf"] - c["at"] <= 30 * DAY for c in moved),
        covered < 12 * HOUR,
    )
    return "caution" if any(careful) else "proceed"
