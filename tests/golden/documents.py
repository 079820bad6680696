"""Random evidence documents for hypothesis."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from tests.golden.figures import AS_OF, BASE_USDC, DAY, SELLER, WINDOW, bucket
from tests.golden.history import OWNERS
from tests.golden.reference import HOUR

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
        "blocked": draw(st.sampled_from([0, 0, scored])),
    }


def probe_rows() -> st.SearchStrategy[dict[str, Any]]:
    slugs = st.sampled_from(["cache-control", "envelope-mismatch", "network-form"])
    rule = st.tuples(slugs, st.sampled_from(["error", "warn", "info"]), st.just("Mend it.")).map(
        list
    )
    return st.fixed_dictionaries(
        {
            "at": st.just(AS_OF - 60_000),
            "outcome": st.sampled_from(
                ["payment-required", "validates-first", "tls-failure", "blocked"]
            ),
            "up": st.booleans(),
            "payable": st.booleans(),
            "accepts": st.sampled_from([None, 0, 1]),
            "tlsNotAfter": st.sampled_from([None, AS_OF, AS_OF + 14 * DAY - 1, AS_OF + 14 * DAY]),
            "rules": st.lists(rule, max_size=3),
        }
    )


def _parts() -> st.SearchStrategy[dict[str, Any]]:
    """The parts of an evidence document that need no other; the days come with their spans."""
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
    chain = st.fixed_dictionaries(
        {
            "network": st.just("eip155:8453"),
            "payTo": st.just(SELLER),
            "indexedMs": st.integers(0, WINDOW + 10),
            "indexedToBlock": st.none(),
            "indexedTo": st.none(),
            "sharedHosts": st.integers(1, 5),
            "owner": st.sampled_from([None, None, None, "shop.example"]),
            "shares": st.integers(1, 3),
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
            "format": st.just(3),
            "resource": st.just("https://api.seller.dev/v1/quote"),
            "asOf": st.just(AS_OF),
            "firstSeen": st.integers(AS_OF - 40 * DAY, AS_OF + 1),
            "listed": st.booleans(),
            "templated": st.booleans(),
            "wildcard": st.booleans(),
            "injection": st.booleans(),
            "quote": st.none() | quote,
            "last": st.none() | probe_rows(),
            "envelope": st.none() | probe_rows(),
            "changes": st.lists(change, max_size=5),
            "chain": st.none() | chain,
        }
    )


@st.composite
def spans(draw: st.DrawFn) -> dict[str, Any]:
    """The time of one day: often all of it payable, or down, or none known."""
    whole = {"up": DAY, "payable": DAY, "down": 0, "compliance": 100 * DAY, "refused": 0}
    unknown = dict.fromkeys(whole, 0)
    turns = st.sampled_from([0, 0, 0, 1, 2, 9])
    up = draw(st.integers(0, DAY))
    any_time = {
        "up": up,
        "payable": draw(st.integers(0, up)),
        "down": draw(st.integers(0, DAY - up)),
        "refused": 0,
        "compliance": draw(st.integers(0, 100 * up)),
    }
    time = draw(
        st.sampled_from([whole, whole, unknown | {"down": DAY}, unknown])
        | st.sampled_from([unknown | {"down": DAY, "refused": part} for part in (DAY, DAY // 3)])
        | st.sampled_from([unknown | {"up": DAY}, any_time])
    )
    return {**time, "failures": draw(turns), "repairs": draw(turns)}


PRICES = st.fixed_dictionaries(
    {
        "unit": st.sampled_from(["USD", "USD", "eip155:8453 0x9"]),
        "before": st.sampled_from([None, "0", "1", "100", "110"]),
        "after": st.sampled_from(["0", "1", "2", "3", "99", "110", "111", "200", "201"]),
    }
)
USUAL = st.sampled_from(
    [None, ("0", "0"), ("1", "1"), ("100", "100"), ("1", "100"), ("100", "101")]
)


@st.composite
def demands(draw: st.DrawFn) -> dict[str, Any]:
    """What some payers add up to, whatever each of them weighs."""
    weights = draw(
        st.just([])
        | st.lists(st.integers(0, 120_000_000), min_size=3, max_size=3).map(
            lambda sums: [list(row) for row in zip(OWNERS, sums, strict=True)]
        )
    )
    amounts = st.sampled_from(["0", "0", "1", "500000", "1000000000"])
    return {
        "transfers": draw(st.integers(0, 20)),
        "payers": draw(st.integers(0, 20)),
        "volume": draw(amounts),
        "own": draw(amounts),
        "returned": draw(amounts),
        "provenPayers": draw(st.integers(0, 5)),
        "provenVolume": draw(amounts),
        "weights": weights,
    }


@st.composite
def documents(draw: st.DrawFn) -> dict[str, Any]:
    """Evidence documents of any kind, contradictions excepted."""
    doc = draw(_parts())
    start = AS_OF - AS_OF % DAY
    day_numbers = st.integers(start // DAY - 33, start // DAY + 1)
    days = draw(st.lists(st.tuples(day_rows(), spans(), day_numbers), max_size=8))
    if doc["chain"]:
        doc["chain"]["demand"] = draw(st.none() | demands())
    for row in doc["changes"]:
        if row["kind"] == "price-changed":
            usual = draw(USUAL) or (None, None)
            row["price"] = draw(PRICES) | {"usual": usual[0], "upper": usual[1]}
    for name in ("last", "envelope"):
        if doc[name]:
            ages = [60_000, 6 * HOUR, 6 * HOUR + 60_000, 7 * HOUR]
            doc[name]["at"] = AS_OF - draw(st.sampled_from(ages))
    state = {
        "at": st.sampled_from([0, 60_000, 3 * HOUR, 3 * HOUR + 1, 12 * HOUR, 12 * HOUR + 1]).map(
            lambda age: AS_OF - age
        ),
        "outcome": st.sampled_from(["payment-required", "throttled", "blocked", "timeout"]),
        "up": st.booleans(),
        "payable": st.booleans(),
        "unconfirmed": st.booleans(),
        "payableSince": st.none() | st.sampled_from([AS_OF - 40 * DAY, AS_OF - DAY - 7, AS_OF - 9]),
    }
    outage = {"since": st.sampled_from([AS_OF - 40 * DAY, AS_OF - 7 * HOUR, AS_OF - HOUR])}
    owners = draw(st.sampled_from([0, 1, 2, 3, 3, 3]))
    return doc | {
        "asOf": draw(st.sampled_from([AS_OF, AS_OF, start, start + DAY - 1])),
        "days": [row | {"day": day, "spans": time} for row, time, day in days],
        "state": draw(st.none() | st.fixed_dictionaries(state, optional=outage)),
        "anchors": [
            {"owner": owner, "since": 0, "addresses": ["0x" + "a" * 40]}
            for owner in OWNERS[:owners]
        ],
        "interval": draw(st.sampled_from([0, HOUR // 2, HOUR // 2 + 1, 2 * HOUR])),
        "siteMedianTenths": draw(st.none() | st.none() | st.integers(0, 1_000)),
        "paidNotDelivered": draw(st.sampled_from([False, False, True])),
    }
