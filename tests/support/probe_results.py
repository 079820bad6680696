"""Results of the checks of one endpoint, one every five minutes."""

from __future__ import annotations

from dataclasses import replace

from tollgauge.core.base.units import MINUTE_MS
from tollgauge.core.endpoint.finding import Finding, Severity
from tollgauge.core.endpoint.terms import Quote
from tollgauge.core.probe.exchange import Timings
from tollgauge.core.probe.outcome import Attribution, Outcome
from tollgauge.core.probe.probe import ProbeResult

BASE = "eip155:8453"
USDC = "0x833589fcd6edb6e08f4c7c32d4f71b54bda02913"
QUOTE = Quote(network=BASE, asset=USDC, amount=10_000, pay_to="0x" + "aa" * 20)
STEP = 5 * MINUTE_MS
START = 1_795_000_000_000


def probe(number: int, *, up: bool = True, ms: int = 100, **more: object) -> ProbeResult:
    """The check of a number: every five minutes, `broken` names the error rules that fired."""
    rules = more.pop("broken", ())
    findings = tuple(
        Finding(rule=rule, severity=Severity.ERROR, message="Mend it.")
        for rule in rules  # type: ignore[attr-defined]
    )
    result = ProbeResult(
        at=START + number * STEP,
        outcome=Outcome.PAYMENT_REQUIRED if up else Outcome.SERVER_ERROR,
        attribution=Attribution.TARGET,
        up=up,
        status=402 if up else 502,
        timings=Timings(total=ms),
        payable=up,
        quote=QUOTE if up else None,
        findings=findings,
    )
    return replace(result, **more)  # type: ignore[arg-type]
