"""Invented endpoints and their probes, with which bench/filled fills a store.

Data are the same in each run: random values depend only on an endpoint's number.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from tollgauge.core.base.units import BASE, DAY_MS, MINUTE_MS, day_of
from tollgauge.core.endpoint.identity import Endpoint, endpoint_id
from tollgauge.core.endpoint.terms import Quote
from tollgauge.core.probe.exchange import Finding, Severity, Timings
from tollgauge.core.probe.outcome import Attribution, Outcome
from tollgauge.core.probe.probe import ProbeResult

STEP_MS: Final = 30 * MINUTE_MS
"""Time between two probes of an endpoint."""
USDC: Final = "0x833589fcd6edb6e08f4c7c32d4f71b54bda02913"

KINDS: Final = 20
"""Number of kinds: endpoint n is of kind n modulo KINDS."""


@dataclass(frozen=True, slots=True)
class Place:
    """An endpoint's resource and payTo."""

    resource: str
    host: str
    pay_to: str

    @property
    def id(self) -> str:
        """The endpoint's ID."""
        return endpoint_id(self.resource)


def places(count: int, *, skewed: bool = False) -> Iterator[Place]:
    """Yield `count` endpoints on count/20 hosts, three endpoints per payTo.

    The n-th host has a share proportional to 1/n. If `skewed`, two hosts have 40 % each, and each
    of them has one payTo.
    """
    hosts = max(count // 20, 3)
    if skewed:
        large = count * 2 // 5
        sizes = [large, large, *_shares(count - 2 * large, hosts - 2)]
    else:
        sizes = _shares(count, hosts)
    number = 0
    for host, size in enumerate(sizes):
        for _ in range(size):
            wallet = host if skewed and host < 2 else 2 + number // 3
            name = f"seller{host}.example"
            yield Place(f"https://{name}/v1/item/{number}", name, f"0x{0xA0 << 152 | wallet:040x}")
            number += 1


@dataclass(frozen=True, slots=True)
class Life:
    """An endpoint and all its probes, oldest first."""

    endpoint: Endpoint
    results: list[ProbeResult]


def _shares(count: int, parts: int) -> list[int]:
    """Split a count into parts of at least 1, the n-th proportional to 1/n."""
    whole = sum(1 / (part + 1) for part in range(parts))
    left = count - parts
    sizes = [1 + int(left / whole / (part + 1)) for part in range(parts)]
    sizes[0] += count - sum(sizes)
    return sizes


def spread_ms(endpoint_id: str, period: int) -> int:
    """Return a time within a period, spread evenly over all IDs."""
    return int(endpoint_id, 16) * period >> 64


def life(number: int, place: Place, *, days: int, now: int) -> Life:
    """Return the template with this number.

    Of twenty templates, twelve are good, two fail from time to time, two are dead, two never return
    an envelope, one is not payable, and one is slow and changes its price. One in fifty is three
    days old.
    """
    rng = random.Random(number)  # noqa: S311 - the same data every time
    start = (day_of(now) - (3 if number % 50 == 7 else days)) * DAY_MS + spread_ms(
        place.id, STEP_MS
    )
    quote = Quote(
        network=BASE, asset=USDC, amount=rng.choice((1_000, 5_000, 10_000)), pay_to=place.pay_to
    )
    endpoint = Endpoint(
        id=place.id,
        resource=place.resource,
        host=place.host,
        first_seen=start,
        last_seen=now,
        next_due=now + STEP_MS,
        service_name=f"Service {number}",
        description=f"Answers questions of kind {number} for agents, paid by the call.",
        sources=("bench",),
        quote=quote,
        quote_at=start,
    )
    kind, tls_not_after = number % KINDS, now + 50 * DAY_MS
    results, failing = [], 0
    for at in range(start, now, STEP_MS):
        if kind in (12, 13) and not failing and rng.random() < 0.01:
            failing = rng.randrange(1, 12)
        if kind == 19 and rng.random() < 0.002:
            quote = replace(quote, amount=rng.choice((5_000, 10_000, 20_000)))
        seen_at = at + rng.randrange(STEP_MS // 20)
        result = answer(number, quote, at=seen_at, tls_not_after=tls_not_after, rng=rng)
        results.append(_failure(seen_at, rng, refused=True) if failing else result)
        failing = max(failing - 1, 0)
    return Life(endpoint, [result for result in results if result.at <= now])


def answer(
    number: int, quote: Quote | None, *, at: int, tls_not_after: int, rng: random.Random
) -> ProbeResult:
    """Return the result of a probe: the endpoint's usual result, or a failure in one of 500
    probes.
    """
    kind = number % KINDS
    if kind in (14, 15):
        return _failure(at, rng, refused=kind == 15)
    if rng.random() < 0.002:
        return _failure(at, rng, refused=rng.random() < 0.5)
    usual = _usual(number, quote, tls_not_after=tls_not_after)
    return replace(usual, at=at, timings=_times(kind, rng))


def _failure(at: int, rng: random.Random, *, refused: bool) -> ProbeResult:
    """Return a probe that got a 502 or no response."""
    return ProbeResult(
        at=at,
        outcome=Outcome.SERVER_ERROR if refused else Outcome.TIMEOUT,
        attribution=Attribution.TARGET,
        up=False,
        timings=_times(0, rng) if refused else Timings(total=10_000),
        status=502 if refused else None,
        reason="" if refused else "no answer within 10 s",
    )


def _usual(number: int, quote: Quote | None, *, tls_not_after: int) -> ProbeResult:
    """Return the usual result of an endpoint that is not dead."""
    warnings = tuple(
        Finding(
            rule=rule,
            severity=Severity.WARN,
            message=f"The entry has no {rule}; clients show an empty line.",
            where="accepts[0]",
        )
        for rule in ("no-description", "no-mime-type", "long-timeout")[: number % 4]
    )
    good = ProbeResult(
        at=0,
        outcome=Outcome.PAYMENT_REQUIRED,
        attribution=Attribution.TARGET,
        up=True,
        timings=Timings(total=0),
        status=402,
        compliance=100 - 4 * len(warnings),
        compliant=True,
        payable=True,
        version=2,
        quote=quote,
        accepts=1,
        findings=warnings,
        tls_not_after=tls_not_after,
    )
    bare = replace(
        good, payable=False, compliant=False, compliance=0, quote=None, accepts=None, findings=()
    )
    kind = number % KINDS
    if kind == 16:
        return replace(bare, outcome=Outcome.NOT_FOUND, up=False, status=404)
    if kind == 17:
        return replace(bare, outcome=Outcome.OPEN, status=200)
    if kind == 18:
        error = Finding(
            rule="pay-to-missing",
            severity=Severity.ERROR,
            message="The entry has no payTo, so it cannot be paid.",
            where="accepts[0]",
        )
        return replace(good, payable=False, compliant=False, compliance=0, findings=(error,))
    return good


def _times(kind: int, rng: random.Random) -> Timings:
    phases = [int(rng.lognormvariate(mu, 0.25)) for mu in (1.5, 3.2, 3.4, 6.5 if kind == 19 else 5)]
    dns, connect, tls, ttfb = phases
    return Timings(dns=dns, connect=connect, tls=tls, ttfb=ttfb, total=sum(phases) + 1)
