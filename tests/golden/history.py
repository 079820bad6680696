"""Evidence from a story: what each probe met, half hour by half hour."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from tests.golden.figures import AS_OF, BASE_USDC, DAY, SELLER, WINDOW, added_up, bucket
from tests.golden.reference import HOUR

Json = dict[str, Any]
HALF_HOUR = HOUR // 2
START = AS_OF // DAY * DAY - 30 * DAY
"""The first instant of the window."""


def quote(amount: int = 5_000) -> Json:
    return {
        "network": "eip155:8453",
        "asset": BASE_USDC,
        "amount": str(amount),
        "payTo": SELLER,
    }


def change(kind: str, days_ago: int, source: str = "probe") -> Json:
    old, new = ("5000", "6000") if kind == "price-changed" else ("0x" + "4" * 40, SELLER)
    return {
        "at": AS_OF - days_ago * DAY,
        "kind": kind,
        "source": source,
        "before": old,
        "after": new,
    }


def last(**more: Any) -> Json:
    row = {
        "at": AS_OF - 60_000,
        "outcome": "payment-required",
        "up": True,
        "payable": True,
        "accepts": 1,
        "tlsNotAfter": AS_OF + 60 * DAY,
        "rules": [],
    }
    return {**row, **more}


class Kind(NamedTuple):
    """What a probe met. `counts` says whether it is scored, `answers` whether its count is one of
    up; `time` is whether the endpoint is up, as time, None where the probe speaks for none.
    `confirms` a failure: it speaks for time and is in no count.
    """

    outcome: str
    counts: bool = True
    answers: bool = False
    time: bool | None = False
    payable: bool = False
    compliance: int = 0
    accepts: int | None = None
    confirms: bool = False


KINDS = {
    "payable": Kind("payment-required", True, True, True, True, 100, 1),
    "warned": Kind("payment-required", True, True, True, True, 92, 1),
    "unread": Kind("payment-required", True, True, True, True, 0, 1),
    "wrong": Kind("payment-required", True, True, True, False, 0, 1),
    "free": Kind("payment-required", True, True, True, False, 0, 0),
    "open": Kind("open", True, True, True),
    "validates": Kind("validates-first", True, True, True),
    "forbidden": Kind("forbidden", True, True, False),
    "refused": Kind("throttled", False),
    "timeout": Kind("timeout"),
    "tls": Kind("tls-failure"),
    "odd": Kind("teapot"),
    "ours": Kind("local-failure", False, False, None),
    "mended": Kind("payment-required", False, True, True, True, 100, 1, confirms=True),
    "confirmed": Kind("timeout", False, confirms=True),
}
Probe = tuple[int, str]
"""When, and the name of its kind."""


def probes(
    story: Callable[[int], str | None], *, since: int = START, until: int = AS_OF - 60_000
) -> list[Probe]:
    """A probe every half hour; the story says what each one met, None for no probe."""
    count = (until - since) // HALF_HOUR + 1
    asked = ((until - i * HALF_HOUR, story(i)) for i in reversed(range(count)))
    return [(at, kind) for at, kind in asked if kind]


def hold(kind: str, interval: int) -> int:
    """How long a probe speaks at most."""
    return 2 * HOUR if KINDS[kind].payable else min(max(interval * 3 // 2, 2 * HOUR), DAY)


def day_row(day: int, of_day: list[Probe], ms: int) -> Json:
    """The counts of a day's probes, without any time."""
    scored = [(at, KINDS[kind]) for at, kind in of_day if KINDS[kind].counts]
    up = sum(kind.answers for _, kind in scored)
    excluded = [KINDS[kind].outcome for _, kind in of_day if not KINDS[kind].counts]
    return {
        "day": day,
        "probes": len(of_day),
        "scored": len(scored),
        "up": up,
        "compliant": sum(kind.compliance > 50 for _, kind in scored),
        "payable": sum(kind.payable for _, kind in scored),
        "compliance": sum(kind.compliance for _, kind in scored),
        "slots": sum({1 << at % DAY // HALF_HOUR for at, _ in scored}),
        "latencySum": ms * up,
        "latency": [[bucket(ms), up]] if up else [],
        "excluded": [[reason, excluded.count(reason)] for reason in sorted(set(excluded))],
        "spans": {
            "up": 0, "payable": 0, "down": 0, "compliance": 0, "failures": 0, "repairs": 0
        },
    }  # fmt: skip


def add_time(rows: dict[int, Json], history: list[Probe], *, as_of: int, interval: int) -> None:
    """Each probe speaks until the next one that speaks, at most as long as it holds."""
    spoken = [(at, kind) for at, kind in history if KINDS[kind].time is not None]
    before: Kind | None = None
    ends = [*(at for at, _ in spoken), as_of][1:]
    for (start, name), end in zip(spoken, ends, strict=True):
        kind = KINDS[name]
        if before and before.payable != kind.payable:
            rows[start // DAY]["spans"]["failures" if before.payable else "repairs"] += 1
        at, end = start, min(end, start + hold(name, interval))
        while at < end:
            part = min(end, (at // DAY + 1) * DAY) - at
            spans = rows.setdefault(at // DAY, day_row(at // DAY, [], 0))["spans"]
            spans["up" if kind.time else "down"] += part
            spans["payable"] += part * kind.payable
            spans["compliance"] += part * kind.compliance
            at += part
        before = kind


def seen(at: int, kind: Kind, **more: Any) -> Json:
    """The last probe, or the last envelope."""
    row = last(
        at=at, outcome=kind.outcome, up=kind.answers, payable=kind.payable, accepts=kind.accepts
    )
    return row | ({} if kind.answers else {"tlsNotAfter": None}) | more


def evidence_2(
    history: Iterable[Probe], *, ms: int = 180, hold_for: int = HALF_HOUR, **more: Any
) -> Json:
    """The evidence of probes; `ms` is the latency, `hold_for` the interval to the next due time
    that failures speak for; `more` replaces properties.
    """
    history, as_of = list(history), more.get("asOf", AS_OF)
    days = sorted({at // DAY for at, _ in history})
    counted = [probe for probe in history if not KINDS[probe[1]].confirms]
    rows = {d: day_row(d, [probe for probe in counted if probe[0] // DAY == d], ms) for d in days}
    add_time(rows, history, as_of=as_of, interval=hold_for)
    scored = [(at, KINDS[kind]) for at, kind in history if KINDS[kind].counts]
    spoken = [(at, KINDS[kind]) for at, kind in history if KINDS[kind].time is not None]
    envelopes = [probe for probe in scored if probe[1].accepts is not None]
    recent = [kind for at, kind in scored if at > as_of - 3 * HOUR]
    state = spoken and {
        "at": spoken[-1][0],
        "outcome": spoken[-1][1].outcome,
        "up": spoken[-1][1].time,
        "payable": spoken[-1][1].payable,
        "unconfirmed": False,
    }
    document: Json = {
        "format": 2,
        "resource": "https://api.seller.dev/v1/quote",
        "asOf": as_of,
        "firstSeen": as_of - 365 * DAY,
        "listed": True,
        "templated": False,
        "wildcard": False,
        "injection": False,
        "quote": quote() if envelopes else None,
        "days": [rows[day] for day in sorted(rows)],
        "recent": {"scored": len(recent), "up": sum(kind.answers for kind in recent)},
        "last": seen(*scored[-1]) if scored else None,
        "envelope": seen(*envelopes[-1]) if envelopes and envelopes[-1] != scored[-1] else None,
        "changes": [],
        "chain": chain_2(),
        "state": state or None,
        "interval": HALF_HOUR,
        "siteMedianTenths": None,
        "paidNotDelivered": False,
    }
    return document | more


def payers(volumes: list[int], weight: int | None = None) -> Json:
    """Sums over payers; the weight is theirs, each payer whole where it is None."""
    sums = added_up(volumes)
    return sums if weight is None else sums | {"weight": weight}


def chain_2(
    raw: list[int] | None = None,
    *,
    organic: list[int] | None = None,
    high: list[int] | None = None,
    low: list[int] | None = None,
    weight: int | None = None,
    hosts: int = 1,
    **more: Any,
) -> Json:
    """Settlements: what each payer paid, and what is left of it in each reading; by default
    `organic` is all of `raw`, `high` all of `organic`, and `low` nobody.
    """
    raw = raw or []
    organic = raw if organic is None else organic
    high = organic if high is None else high
    sums = {
        "transfers": len(raw),
        "own": "0",
        "returned": str(sum(raw) - sum(organic)),
        "clusters": 0,
        "raw": payers(raw),
        "organic": payers(organic),
        "high": payers(high),
        "low": payers(low or [], weight),
    }
    return {
        "network": "eip155:8453",
        "payTo": SELLER,
        "indexedMs": WINDOW,
        "indexedToBlock": 31_000_000,
        "indexedTo": AS_OF - 120_000,
        "sharedHosts": hosts,
        "sums": sums | more,
    }
