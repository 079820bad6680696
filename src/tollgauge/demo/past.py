"""The simulated history: the results of probes that a prober would have made in the demo market.

All functions are pure and pseudorandom: the same arguments give the same history, and overlapping
spans agree. Responses come from the sellers' behaviours. This module adds latency, outages and
invalid certificates, which a live request encounters by itself. No requests are made. Callers that
store the results mark them as simulated.
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
from tollgauge.demo.pseudorandom import chance, draw_log_normal, roll
from tollgauge.demo.seller import PROBER, DemoRequest, Seller, Wire, is_listed, latency_at
from tollgauge.web.settings import LOOPBACK

BODY_CAP: Final = 256 * 1024
"""Bytes of a body that a prober keeps."""

DEADLINE_MS: Final = 10_000
"""Timeout of a prober."""

Outage = tuple[int, int, Answer | Fault]
"""Start and end (ms UTC, half open), and the result of requests between them."""

_OUTAGE_DAYS: Final = 2
"""Maximum length of an outage."""

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
    """Yield the exchanges of a prober every `step_ms` from `start` to `end` (ms UTC, exclusive).

    Requests use the seller's method and, if its listing declares one, the example input.
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
    """Return the time when a crawl since `start` would first have found the seller.

    This is `start` unless the seller is younger or was missing from the directory at that time.
    Resolution is one day.
    """
    if is_listed(seller, start, present=present):
        return start
    days = range((start // DAY_MS + 1) * DAY_MS, present, DAY_MS)
    return next((day for day in days if is_listed(seller, day, present=present)), present)


def _result(
    seller: Seller, request: DemoRequest, *, at: int, seed: int, outages: tuple[Outage, ...]
) -> tuple[Answer | Fault, int]:
    """Return the response at `at`, and its latency in milliseconds."""
    result = _BROKEN.get(seller.wire) or _replacement(seller, at, seed=seed, outages=outages)
    if isinstance(result, Fault):
        return result, DEADLINE_MS if result is _TIMED_OUT else draw_log_normal(
            30, seed, seller.host, at
        )
    usual = latency_at(seller, at, seed=seed)
    if result is not None:
        return result, usual
    reply = play(seller, request, at)
    return _cap(reply.answer), usual + reply.delay_ms


def _replacement(
    seller: Seller, at: int, *, seed: int, outages: tuple[Outage, ...]
) -> Answer | Fault | None:
    """Return the result of an outage or a timeout at `at`, or None if the seller was up."""
    for began, ended, result in outages:
        if began <= at < ended:
            return result
    hiccup = roll("hiccup", seed, seller.host, at) % 10_000 < seller.trouble
    return _TIMED_OUT if hiccup else None


def _outages(seller: Seller, *, start: int, end: int, seed: int) -> Iterator[Outage]:
    """Yield the seller's outages that can overlap a span: at most one begins per day."""
    for day in range(start // DAY_MS - _OUTAGE_DAYS, end // DAY_MS + 1):
        if chance(seller.trouble, "outage", seed, seller.host, day):
            began = day * DAY_MS + roll("began", seed, seller.host, day) % DAY_MS
            lasted = draw_log_normal(110, "lasted", seed, seller.host, day, sigma=0.8) * MINUTE_MS
            kind = _KINDS[roll("kind", seed, seller.host, day) % len(_KINDS)]
            yield began, began + min(lasted, _OUTAGE_DAYS * DAY_MS), kind


def _timings(total: int, at: int) -> Timings:
    """Split `total` milliseconds into the phases of a request. Their sum is at most `total`."""
    dns, connect, tls = total * (2 + at % 5) // 100, total * 9 // 100, total * 16 // 100
    return Timings(
        dns=dns, connect=connect, tls=tls, ttfb=total * 97 // 100 - dns - connect - tls, total=total
    )


@lru_cache(maxsize=64)
def _cap(answer: Answer) -> Answer:
    """Return the part of a response that a prober keeps: the same object if that is all of it."""
    if len(answer.body) <= BODY_CAP:
        return answer
    return replace(answer, body=answer.body[:BODY_CAP], truncated=True)


def _certificate_end(at: int) -> int:
    # Certificates are renewed 30 days before they expire.
    turn = _CERTIFICATE_DAYS * DAY_MS
    return (at // turn + 1) * turn + 30 * DAY_MS


def _request(seller: Seller) -> tuple[DemoRequest, str]:
    """Return the prober's request and its canonical URL."""
    query = urlencode(seller.query) if seller.declares else ""
    url = f"{seller.url}?{query}" if query else seller.url
    resource = parse_resource(url, Perimeter(mapped=frozenset({seller.host})))
    body = b"" if seller.method == "GET" else seller.body or b"{}"
    request = DemoRequest(
        method=seller.method, path=seller.path, query=query, body=body, agent=PROBER
    )
    return request, resource.probe_url
