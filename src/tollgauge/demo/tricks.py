"""Behaviours of sellers that try to get a better score than they deserve (docs/gaming.md).

Like behaviours.py, they are pure functions of seller, request and time.
"""

from __future__ import annotations

import re
from typing import Final

from tollgauge.core.base.units import HOUR_MS
from tollgauge.demo.behaviours import perfect_v2, problem
from tollgauge.demo.seller import PROBER, DemoRequest, Reply, Seller

_RANDOM: Final = re.compile(r"[0-9a-f]{8,}")
"""Pattern of a generated path."""


def up_a_quarter(now: int) -> bool:
    """Return whether `now` is in the first six hours of a UTC day."""
    return now // HOUR_MS % 24 < 6


def up_a_half(now: int) -> bool:
    """Return whether `now` is in the first or third quarter of a UTC day."""
    return now // HOUR_MS % 12 < 6


def dead(_seller: Seller, _request: DemoRequest, _now: int) -> Reply:
    """Permanently down."""
    return problem(503, "Service Unavailable")


def fail_openly(seller: Seller, request: DemoRequest, now: int) -> Reply:
    """Down for most of the day with status 503."""
    return perfect_v2(seller, request, now) if up_a_quarter(now) else dead(seller, request, now)


def cloak(seller: Seller, request: DemoRequest, now: int) -> Reply:
    """Sells only to probers."""
    shown = request.agent.startswith(PROBER)
    return perfect_v2(seller, request, now) if shown else dead(seller, request, now)


def hide_catch_all(seller: Seller, request: DemoRequest, now: int) -> Reply:
    """Returns a 402 for every path, except for random paths, with which probers detect this."""
    if _RANDOM.search(request.path):
        return problem(404, "No such route")
    return perfect_v2(seller, request, now)


def throttle_when_down(seller: Seller, request: DemoRequest, now: int) -> Reply:
    """Down for most of the day with status 429."""
    if up_a_quarter(now):
        return perfect_v2(seller, request, now)
    return problem(429, "Too many requests")


def ask_for_silence(seller: Seller, request: DemoRequest, now: int) -> Reply:
    """Down for half of the day, with a Retry-After that asks probers to wait until it is up."""
    if up_a_half(now):
        return perfect_v2(seller, request, now)
    return problem(503, "Back soon", ("retry-after", str(6 * 3_600)))
