"""Build evidence from a story: the outcome of each probe, every half hour."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from tests.golden.figures import AS_OF, BASE_USDC, DAY, SELLER, WINDOW, bucket
from tests.golden.reference import HOUR

Json = dict[str, Any]
HALF_HOUR = HOUR // 2
START = AS_OF // DAY * DAY - 30 * DAY
"""The start of the window."""


def quote(amount: int = 5_000) -> Json:
    return {
        "network": "eip155:8453",
        "asset": BASE_USDC,
        "amount": str(amount),
        "payTo": SELLER,
    }


def change(kind: str, days_ago: int, source: str = "probe") -> Json:
    return {
        "at": AS_OF - days_ago * DAY,
        "kind": kind,
        "source": source,
        "before": "0x" + "4" * 40,
        "after": SELLER,
    }


def usd(amount: int) -> str:
    """Atomic USDC as an amount of 10^-18 dollars."""
    return str(amount * 10**12)


def price(
    days_ago: int,
    before: int,
    after: int,
    *,
    usual: int | None = None,
    upper: int | None = None,
    source: str = "probe",
) -> Json:
    """A price change; by default the previous price was the usual one."""
    usual = before if usual is None else usual
    compared = {
        "unit": "USD",
        "before": usd(before),
        "after": usd(after),
        "usual": usd(usual),
        "upper": usd(usual if upper is None else upper),
    }
    texts = {"before": str(before), "after": str(after), "price": compared}
    return change("price-changed", days_ago, source) | texts


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
    """The outcome of a probe.

    `counts`: it is scored; `answers`: it counts as up; `time`: whether its time counts as up, None
    if its time is not counted; `confirms`: it confirms a failure, so only its time is counted.
    """

    outcome: str
    counts: bool = True
    answers: bool = False
    time: bool | None = False
    payable: bool = False
    compliance: int = 0
    accepts: int | None = None
    confirms: bool = False
    refuses: bool = False


KINDS = {
    "payable": Kind("payment-required", True, True, True, True, 100, 1),
    "warned": Kind("payment-required", True, True, True, True, 92, 1),
    "unread": Kind("payment-required", True, True, True, True, 0, 1),
    "wrong": Kind("payment-required", True, True, True, False, 0, 1),
    "free": Kind("payment-required", True, True, True, False, 0, 0),
    "open": Kind("open", True, True, True),
    "validates": Kind("validates-first", True, True, True),
    "forbidden": Kind("forbidden", refuses=True),
    "refused": Kind("throttled", refuses=True),
    "blocked": Kind("blocked", refuses=True),
    "timeout": Kind("timeout"),
    "tls": Kind("tls-failure"),
    "odd": Kind("teapot"),
    "ours": Kind("local-failure", False, False, None),
    "mended": Kind("payment-required", False, True, True, True, 100, 1, confirms=True),
    "confirmed": Kind("timeout", False, confirms=True),
}
Probe = tuple[int, str]
"""Time, and the name of the kind."""


def probes(
    story: Callable[[int], str | None], *, since: int = START, until: int = AS_OF - 60_000
) -> list[Probe]:
    """A probe every half hour; the story returns the kind of each, None for no probe."""
    count = (until - since) // HALF_HOUR + 1
    asked = ((until - i * HALF_HOUR, story(i)) for i in reversed(range(count)))
    return [(at, kind) for at, kind in asked if kind]


def hold(kind: str, interval: int) -> int:
    """Return the maximum validity of a probe."""
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
        "blocked": sum(kind.outcome == "blocked" for _, kind in scored),
        "latencySum": ms * up,
        "latency": [[bucket(ms), up]] if up else [],
        "excluded": [[reason, excluded.count(reason)] for reason in sorted(set(excluded))],
        "spans": {
            "up": 0, "payable": 0, "down": 0, "compliance": 0, "failures": 0, "repairs": 0,
            "refused": 0,
        },
    }  # fmt: skip


def add_time(rows: dict[int, Json], history: list[Probe], *, as_of: int, interval: int) -> None:
    """Return spans: each probe is valid until the next one, at most for its validity."""
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
            spans["refused"] += part * kind.refuses
            at += part
        before = kind


def make_change(at: int, kind: Kind, **more: Any) -> Json:
    """The last probe, or the last envelope."""
    row = last(
        at=at, outcome=kind.outcome, up=kind.answers, payable=kind.payable, accepts=kind.accepts
    )
    return row | ({} if kind.answers else {"tlsNotAfter": None}) | more


def evidence(
    history: Iterable[Probe], *, ms: int = 180, hold_for: int = HALF_HOUR, **more: Any
) -> Json:
    """The evidence of probes; `ms` is the latency, `hold_for` the interval to the next due time
    covered by failures; `more` replaces properties.
    """
    history, as_of = list(history), more.get("asOf", AS_OF)
    days = sorted({at // DAY for at, _ in history})
    counted = [probe for probe in history if not KINDS[probe[1]].confirms]
    rows = {d: day_row(d, [probe for probe in counted if probe[0] // DAY == d], ms) for d in days}
    add_time(rows, history, as_of=as_of, interval=hold_for)
    scored = [(at, KINDS[kind]) for at, kind in history if KINDS[kind].counts]
    spoken = [(at, KINDS[kind]) for at, kind in history if KINDS[kind].time is not None]
    envelopes = [probe for probe in scored if probe[1].accepts is not None]
    state = spoken and {
        "at": spoken[-1][0],
        "outcome": spoken[-1][1].outcome,
        "up": spoken[-1][1].time,
        "payable": spoken[-1][1].payable,
        "unconfirmed": False,
        **began(spoken),
    }
    document: Json = {
        "format": 3,
        "resource": "https://api.seller.dev/v1/quote",
        "asOf": as_of,
        "firstSeen": as_of - 365 * DAY,
        "listed": True,
        "templated": False,
        "wildcard": False,
        "injection": False,
        "quote": quote() if envelopes else None,
        "days": [rows[day] for day in sorted(rows)],
        "last": make_change(*scored[-1]) if scored else None,
        "envelope": make_change(*envelopes[-1])
        if envelopes and envelopes[-1] != scored[-1]
        else None,
        "changes": [],
        "chain": chain(),
        "anchors": ANCHORS,
        "state": state or None,
        "interval": HALF_HOUR,
        "siteMedianTenths": None,
        "paidNotDelivered": False,
    }
    return document | more


def began(spoken: list[tuple[int, Kind]]) -> Json:
    """Start of the current outage, and of the last payable period."""
    since = payable_since = None
    for at, kind in spoken:
        if kind.payable:
            payable_since = at if since is not None or payable_since is None else payable_since
            since = None
        else:
            since = at if since is None else since
    outage = {"since": since} if since is not None and since < spoken[-1][0] else {}
    return {"payableSince": payable_since, **outage}


OWNERS = ("books.example", "maps.example", "news.example")
ANCHORS = [
    {"owner": owner, "since": AS_OF - 200 * DAY, "addresses": ["0x" + digit * 40]}
    for owner, digit in zip(OWNERS, "abc", strict=True)
]


def chain(
    payers: int = 0,
    volume: int = 0,
    *,
    proven: int = 0,
    weights: tuple[int, ...] = (),
    **more: Any,
) -> Json:
    """Settlements; `weights` are the sums of weights without each anchor, in millionths."""
    demand = {
        "transfers": payers,
        "payers": payers,
        "volume": str(volume),
        "own": "0",
        "returned": "0",
        "provenPayers": proven,
        "provenVolume": str(volume * proven // max(payers, 1)),
        "weights": [list(row) for row in zip(OWNERS, weights, strict=False)],
    }
    settled = {
        "network": "eip155:8453",
        "payTo": SELLER,
        "indexedMs": WINDOW,
        "indexedToBlock": 31_000_000,
        "indexedTo": AS_OF - 120_000,
        "sharedHosts": 1,
        "owner": None,
        "shares": 1,
    }
    changed = {name: more.pop(name) for name in settled if name in more}
    return settled | changed | {"demand": demand | more}
