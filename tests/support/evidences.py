"""Evidence documents: random ones, and those of given probes."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

from hypothesis import strategies as st
from msgspec import structs
from tests.support import timed_evidence

from tollgauge.core.base.units import DAY_MS, HOUR_MS, MINUTE_MS, WINDOW_MS
from tollgauge.core.endpoint.terms import Quote
from tollgauge.core.probe.outcome import Outcome
from tollgauge.core.probe.probe import Spans
from tollgauge.core.probe.rollup import Rollup, encode_histogram
from tollgauge.core.score.evidence import (
    Anchor,
    ChainEvidence,
    DemandEvidence,
    Evidence,
    LastProbe,
    LatestState,
    TermChange,
)
from tollgauge.core.score.prices import USD, Price

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
INSTANTS = st.integers(0, 2**53 - 1)
AMOUNTS = st.integers(0, 10**77)


@st.composite
def rollups(draw: st.DrawFn) -> Rollup:
    latency = draw(st.dictionaries(st.integers(0, 600), st.integers(1, 9), max_size=4))
    up = sum(latency.values())
    excluded = draw(st.dictionaries(TEXTS, st.integers(1, 9), max_size=3))
    return Rollup(
        day=draw(st.integers(20_000, 20_030)),
        probes=up + sum(excluded.values()),
        scored=up,
        up=up,
        compliance=draw(st.integers(0, 100 * up)),
        slots=draw(st.integers(0, (1 << min(up, 48)) - 1)),
        latency_sum=draw(INSTANTS),
        latency=encode_histogram(latency.items()),
        excluded=tuple(sorted(excluded.items())),
    )


PROBES = st.builds(
    LastProbe,
    at=INSTANTS,
    outcome=TEXTS,
    up=st.booleans(),
    payable=st.booleans(),
    accepts=st.none() | st.integers(0, 9),
    tls_not_after=st.none() | INSTANTS,
    rules=st.lists(st.tuples(TEXTS, st.sampled_from(["error", "warn", "info"]), TEXTS)).map(tuple),
)
OWNERS = ("a.example", "b.example", "c.example")
DEMANDS = st.builds(
    DemandEvidence,
    transfers=INSTANTS,
    payers=INSTANTS,
    volume=AMOUNTS,
    own=AMOUNTS,
    returned=AMOUNTS,
    proven_payers=INSTANTS,
    proven_volume=AMOUNTS,
    weights=st.just(())
    | st.lists(INSTANTS, min_size=3, max_size=3).map(
        lambda sums: tuple(zip(OWNERS, sums, strict=True))
    ),
)
ANCHORS = st.sampled_from(
    [
        tuple(Anchor(owner=owner, since=0, addresses=("0x2", "0x1")) for owner in OWNERS[:count])
        for count in range(4)
    ]
)
CHAINS = st.builds(
    ChainEvidence,
    network=TEXTS,
    pay_to=TEXTS,
    indexed_ms=INSTANTS,
    indexed_to_block=st.none() | INSTANTS,
    indexed_to=st.none() | INSTANTS,
    shared_hosts=st.integers(1, 99),
    owner=st.none() | TEXTS,
    shares=st.integers(1, 9),
    demand=st.none() | DEMANDS,
)
PRICE_TEXTS = st.builds(
    "{}{}".format, st.integers(0, 10**78 - 1), st.just("") | TEXTS.map(" {}".format)
)
PRICES = st.builds(
    Price,
    unit=st.sampled_from(["USD", "eip155:8453 0x9"]),
    before=st.none() | AMOUNTS,
    after=AMOUNTS,
    usual=AMOUNTS,
    upper=AMOUNTS,
) | st.builds(Price, unit=TEXTS, before=st.none(), after=AMOUNTS, usual=st.none(), upper=st.none())
CHANGES = st.builds(
    TermChange,
    at=INSTANTS,
    kind=st.sampled_from(["payto-changed", "network-changed"]),
    source=TEXTS,
    before=TEXTS,
    after=TEXTS,
) | st.builds(
    TermChange,
    at=INSTANTS,
    kind=st.just("price-changed"),
    source=TEXTS,
    before=PRICE_TEXTS,
    after=PRICE_TEXTS,
    price=PRICES,
)
SPANS = st.builds(
    lambda up, payable, worth, failures: Spans(
        up=up,
        payable=min(up, payable),
        down=DAY_MS - up,
        compliance=up * worth,
        failures=failures,
        repairs=failures,
    ),
    up=st.integers(0, DAY_MS),
    payable=st.integers(0, DAY_MS),
    worth=st.integers(0, 100),
    failures=st.integers(0, 99),
)
EVIDENCE = st.builds(
    Evidence,
    resource=TEXTS,
    as_of=INSTANTS,
    first_seen=INSTANTS,
    listed=st.booleans(),
    templated=st.booleans(),
    wildcard=st.booleans(),
    injection=st.booleans(),
    quote=st.none() | st.builds(Quote, network=TEXTS, asset=TEXTS, amount=AMOUNTS, pay_to=TEXTS),
    days=st.lists(st.builds(structs.replace, rollups(), spans=SPANS), max_size=3).map(tuple),
    last=st.none() | PROBES,
    envelope=st.none() | PROBES,
    changes=st.lists(CHANGES, max_size=3).map(tuple),
    chain=st.none() | CHAINS,
    state=st.none()
    | st.builds(
        LatestState,
        at=INSTANTS,
        outcome=TEXTS,
        up=st.booleans(),
        payable=st.booleans(),
        unconfirmed=st.booleans(),
        since=st.none() | INSTANTS,
        payable_since=st.none() | INSTANTS,
    ),
    anchors=ANCHORS,
    interval=INSTANTS,
    site_median_tenths=st.none() | st.integers(0, 1_000),
    paid_not_delivered=st.booleans(),
)


AS_OF = 20_600 * DAY_MS + 12 * HOUR_MS
USDC = "0x833589fcd6edb6e08f4c7c32d4f71b54bda02913"
SELLER = "0x" + "5" * 40
QUOTE = Quote(network="eip155:8453", asset=USDC, amount=5_000, pay_to=SELLER)
_TIMES = range(AS_OF - 30 * DAY_MS - 12 * HOUR_MS, AS_OF, 30 * MINUTE_MS)


def payable(**more: Any) -> Evidence:
    """Return evidence of an endpoint that is 60 days old and always payable, without
    settlements.
    """
    return replace(_make_probe(0, Outcome.SERVER_ERROR), **more)


def price_changed(
    ago_ms: int, before: int, after: int, *, usual: int | None = None, source: str = "probe"
) -> TermChange:
    """A change of the price in atomic USDC; by default the price before was usual."""
    usual = before if usual is None else usual
    scaled = [amount * 10**12 for amount in (before, after, usual)]
    return TermChange(
        at=AS_OF - ago_ms,
        kind="price-changed",
        source=source,
        before=str(before),
        after=str(after),
        price=Price(unit=USD, before=scaled[0], after=scaled[1], usual=scaled[2], upper=scaled[2]),
    )


def dead(*, hours: int = 10, outcome: Outcome = Outcome.SERVER_ERROR) -> Evidence:
    """The same, but not payable for the last hours."""
    return _make_probe(hours, outcome)


@cache
def _make_probe(dead_hours: int, outcome: Outcome) -> Evidence:
    died = AS_OF - dead_hours * HOUR_MS
    probes = [
        timed_evidence.payable(at, ms=150)
        if at < died
        else timed_evidence.unpaid_probe(at, outcome)
        for at in _TIMES
    ]
    base = Evidence(
        resource="https://api.seller.dev/v1/quote",
        as_of=AS_OF,
        first_seen=AS_OF - 60 * DAY_MS,
        quote=QUOTE,
        chain=ChainEvidence(network=QUOTE.network, pay_to=SELLER, indexed_ms=WINDOW_MS),
    )
    return timed_evidence.observe(probes, base)
