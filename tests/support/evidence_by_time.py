"""Evidence of an endpoint that was watched for 31 days: always payable, or dead of late."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

from tests.support import timed_evidence

from tollgauge.core.base.units import DAY_MS, HOUR_MS, MINUTE_MS, WINDOW_MS
from tollgauge.core.endpoint.terms import Quote
from tollgauge.core.probe.outcome import Outcome
from tollgauge.core.score.evidence import ChainEvidence, Evidence

AS_OF = 20_600 * DAY_MS + 12 * HOUR_MS
USDC = "0x833589fcd6edb6e08f4c7c32d4f71b54bda02913"
SELLER = "0x" + "5" * 40
QUOTE = Quote(network="eip155:8453", asset=USDC, amount=5_000, pay_to=SELLER)
_TIMES = range(AS_OF - 30 * DAY_MS - 12 * HOUR_MS, AS_OF, 30 * MINUTE_MS)


def payable(**more: Any) -> Evidence:
    """Known for 60 days and always payable, without settlements."""
    return replace(_observed(0, Outcome.SERVER_ERROR), **more)


def dead(*, hours: int = 10, outcome: Outcome = Outcome.SERVER_ERROR) -> Evidence:
    """The same, but not payable for the last hours."""
    return _observed(hours, outcome)


@cache
def _observed(dead_hours: int, outcome: Outcome) -> Evidence:
    died = AS_OF - dead_hours * HOUR_MS
    probes = [
        timed_evidence.payable(at, ms=150) if at < died else timed_evidence.unpaid(at, outcome)
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
