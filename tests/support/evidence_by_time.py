"""Evidence of an endpoint that is watched by time (format 2), from its history in plain words."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tollgauge.core.evidence import ChainEvidence, Evidence, LastProbe, LatestState
from tollgauge.core.latency import bucket_of
from tollgauge.core.rollup import Rollup
from tollgauge.core.spans import Spans
from tollgauge.core.terms import Quote
from tollgauge.core.units import DAY_MS, HOUR_MS, MINUTE_MS, WINDOW_MS

AS_OF = 20_600 * DAY_MS + 12 * HOUR_MS
USDC = "0x833589fcd6edb6e08f4c7c32d4f71b54bda02913"
SELLER = "0x" + "5" * 40
QUOTE = Quote(network="eip155:8453", asset=USDC, amount=5_000, pay_to=SELLER)


def good_day(number: int) -> Rollup:
    """A day of 48 probes, all payable; today's is half over."""
    length = min(DAY_MS, AS_OF - number * DAY_MS)
    count = 48 * length // DAY_MS
    return Rollup(
        day=number,
        probes=count,
        scored=count,
        up=count,
        compliant=count,
        payable=count,
        compliance=100 * count,
        slots=2**count - 1,
        latency_sum=150 * count,
        latency=((bucket_of(150), count),),
        spans=Spans(up=length, payable=length, compliance=100 * length),
    )


def payable(**more: Any) -> Evidence:
    """Observed for 60 days and always payable, without settlements."""
    at, today = AS_OF - MINUTE_MS, AS_OF // DAY_MS
    base = Evidence(
        resource="https://api.seller.dev/v1/quote",
        as_of=AS_OF,
        first_seen=AS_OF - 60 * DAY_MS,
        quote=QUOTE,
        days=tuple(good_day(today - back) for back in range(31)),
        recent=(6, 6),
        last=LastProbe(
            at=at,
            outcome="payment-required",
            up=True,
            payable=True,
            accepts=1,
            tls_not_after=AS_OF + 90 * DAY_MS,
        ),
        state=LatestState(at=at, outcome="payment-required", up=True, payable=True),
        chain=ChainEvidence(network=QUOTE.network, pay_to=SELLER, indexed_ms=WINDOW_MS),
    )
    return replace(base, **more)


def dead(*, hours: int = 10, outcome: str = "server-error") -> Evidence:
    """The same, but not payable for the last hours of today (at most 12)."""
    good = payable()
    lost, (today, *before) = hours * HOUR_MS, good.days
    spans = Spans(
        up=today.spans.up - lost,
        payable=today.spans.up - lost,
        down=lost,
        compliance=100 * (today.spans.up - lost),
        failures=1,
    )
    assert good.last is not None
    assert good.state is not None
    return replace(
        good,
        days=(replace(today, spans=spans), *before),
        last=replace(good.last, outcome=outcome, up=False, payable=False, accepts=None),
        state=replace(good.state, outcome=outcome, up=False, payable=False),
    )
