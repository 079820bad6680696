"""The simulated past: what a prober would have seen of the demo market and its directory.

Every function is pure: times are arguments and chance is a roll of them, so the same arguments
give the same past and overlapping spans agree. Answers come from the sellers' own behaviours;
this module adds what a live request meets by itself: latency, outages, bad certificates.

No request is made: callers that store the results mark them as simulated.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Final
from urllib.parse import urlencode

from tollgauge.core.base.units import DAY_MS, MINUTE_MS
from tollgauge.core.endpoint.identity import Perimeter, parse_resource
from tollgauge.core.probe.exchange import Answer, Defect, Exchange, Fault, FaultKind, Timings
from tollgauge.demo.behaviours import play, problem
from tollgauge.demo.pseudorandom import chance, roll, skewed
from tollgauge.demo.seller import PROBER, DemoRequest, Seller, Wire, latency_at, listed
from tollgauge.web.settings import LOOPBACK

BODY_CAP: Final = 256 * 1024
"""Bytes of a body that a prober keeps."""

DEADLINE_MS: Final = 10_000
"""When a prober gives up."""

Outage = tuple[int, int, Answer | Fault]
"""From, until (ms UTC, half open), and what a request met meanwhile."""

_OUTAGE_DAYS: Final = 2
"""No outage lasts longer."""

_CERTIFICATE_DAYS: Final = 60
_BROKEN: Final = {
    Wire.CLOSED: Fault(kind=FaultKind.CONNECT, detail="connection refused"),
    Wire.EXPIRED: Fault(
        kind=FaultKind.TLS_INVALID,
        detail="certificate has expired",
        defect=Defect.CERTIFICATE_EXPIRED,
    ),
    Wire.WRONG_NAME: Fault(
        kind=FaultKind.TLS_INVALID,
        detail="certificate is for another name",
        defect=Defect.CERTIFICATE_WRONG_NAME,
    ),
}
_TIMED_OUT: Final = Fault(kind=FaultKind.TIMEOUT, detail="no answer within 10 s")
_REFUSED: Final = Fault(kind=FaultKind.CONNECT, detail="connection refused")
_KINDS: Final[tuple[Answer | Fault, ...]] = (
    problem(502, "Bad Gateway").answer,
    problem(503, "Service Unavailable").answer,
    _TIMED_OUT,
    _REFUSED,
)


def exchanges(
    seller: Seller, *, start: int, end: int, step_ms: int, seed: int = 0
) -> Iterator[Exchange]:
    """The exchanges of a prober that asked every `step_ms` from `start` up to, not including,
    `end` (ms UTC), oldest first.

    Requests are those that elicit the seller's 402: its method and the example input where its
    listing declares one.
    """
    request, url = _request(seller)
    outages = tuple(_outages(seller, start=start, end=end, seed=seed))
    for at in range(start, end, step_ms):
        result, total = _result(seller, request, at=at, seed=seed, outages=outages)
        answered = isinstance(result, Answer)
        yield Exchange(
            url=url,
            method=request.method,
            at=at,
            result=result,
            timings=_timings(total, at) if answered else Timings(total=total),
            address=LOOPBACK if answered else None,
            tls_not_after=_certificate_end(at) if answered else None,
        )


def first_listed(seller: Seller, *, start: int, present: int) -> int:
    """When a crawl from `start` on would first have met the seller: `start`, or later for the
    young and for those the directory had forgotten just then. Looks at day boundaries.
    """
    if listed(seller, start, present=present):
        return start
    days = range((start // DAY_MS + 1) * DAY_MS, present, DAY_MS)
    return next((day for day in days if listed(seller, day, present=present)), present)


def _result(
    seller: Seller, request: DemoRequest, *, at: int, seed: int, outages: tuple[Outage, ...]
) -> tuple[Answer | Fault, int]:
    """Return the response at `at`, and its latency in milliseconds."""
    result = _BROKEN.get(seller.wire) or _replacement(seller, at, seed=seed, outages=outages)
    if isinstance(result, Fault):
        return result, DEADLINE_MS if result is _TIMED_OUT else skewed(30, seed, seller.host, at)
    usual = latency_at(seller, at, seed=seed)
    if result is not None:
        return result, usual
    reply = play(seller, request, at)
    return _capped(reply.answer), usual + reply.delay_ms


def _replacement(
    seller: Seller, at: int, *, seed: int, outages: tuple[Outage, ...]
) -> Answer | Fault | None:
    """What was answered instead of the seller at `at` because of an outage or a single time-out,
    None while it was up.
    """
    for began, ended, result in outages:
        if began <= at < ended:
            return result
    hiccup = roll("hiccup", seed, seller.host, at) % 10_000 < seller.trouble
    return _TIMED_OUT if hiccup else None


def _outages(seller: Seller, *, start: int, end: int, seed: int) -> Iterator[Outage]:
    """The seller's outages that may touch a span: one a day at most, begun on that day."""
    for day in range(start // DAY_MS - _OUTAGE_DAYS, end // DAY_MS + 1):
        if chance(seller.trouble, "outage", seed, seller.host, day):
            began = day * DAY_MS + roll("began", seed, seller.host, day) % DAY_MS
            lasted = skewed(110, "lasted", seed, seller.host, day, sigma=0.8) * MINUTE_MS
            kind = _KINDS[roll("kind", seed, seller.host, day) % len(_KINDS)]
            yield began, began + min(lasted, _OUTAGE_DAYS * DAY_MS), kind


def _timings(total: int, at: int) -> Timings:
    """Phases of an answered request of `total` milliseconds; they add up to no more than that."""
    dns, connect, tls = total * (2 + at % 5) // 100, total * 9 // 100, total * 16 // 100
    return Timings(
        dns=dns, connect=connect, tls=tls, ttfb=total * 97 // 100 - dns - connect - tls, total=total
    )


@lru_cache(maxsize=64)
def _capped(answer: Answer) -> Answer:
    """The part of an answer that a prober keeps; the same object when that is all of it."""
    if len(answer.body) <= BODY_CAP:
        return answer
    return replace(answer, body=answer.body[:BODY_CAP], truncated=True)


def _certificate_end(at: int) -> int:
    """Certificates are renewed with 30 days to go."""
    turn = _CERTIFICATE_DAYS * DAY_MS
    return (at // turn + 1) * turn + 30 * DAY_MS


def _request(seller: Seller) -> tuple[DemoRequest, str]:
    """The prober's request and its URL, canonical as endpoints are."""
    query = urlencode(seller.query) if seller.declares else ""
    url = f"{seller.url}?{query}" if query else seller.url
    resource = parse_resource(url, Perimeter(mapped=frozenset({seller.host})))
    body = b"" if seller.method == "GET" else seller.body or b"{}"
    request = DemoRequest(
        method=seller.method, path=seller.path, query=query, body=body, agent=PROBER
    )
    return request, resource.probe_url
