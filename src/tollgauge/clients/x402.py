"""The probe exchange: asking an endpoint for its price the way its listing says to ask.

Rules (x402 specification, HTTP transport and the bazaar extension):
- the order is: what worked before, the method and body that the listing declares, GET, POST `{}`;
- the first 402 ends the probe; an answer that hints at a wrong method or input (2xx, 400, 404,
  405, 415, 422) moves on to the next way; anything else ends it, and so does any fault;
- a probe makes at most three requests, one after the other, on one host;
- no payment header is ever sent.
Whether the answer is any good, core/lint and core/probe/probe decide; how often to ask, jobs
decide.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Final
from urllib.parse import urlsplit

from tollgauge.clients.egress.client import Egress, Request
from tollgauge.core.directory.declared import METHODS
from tollgauge.core.directory.lookalike import lookalike_paths, what_is_sold
from tollgauge.core.endpoint.identity import Endpoint, ResourceError
from tollgauge.core.probe.exchange import BODY_METHODS, Answer, Exchange, Fault, FaultKind

REQUESTS_MAX: Final = 3
PAYMENT_REQUIRED: Final = 402

_ACCEPT: Final = ("Accept", "application/json")
_JSON: Final = ("Content-Type", "application/json")
_EMPTY: Final = b"{}"
_BARE: Final = "POST {}"
_WRONG_WAY: Final = frozenset({400, 404, 405, 415, 422})


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One way to ask: a method and the body that goes with it."""

    method: str
    body: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """The result of a probe. `exchange` is the one that answered 402, else the first one.

    `learned` is what `Endpoint.learned` should be from now on: the method that got the 402
    (`POST {}` when an empty object got it although the listing declares another body); without a
    402 it stays as it was.
    """

    exchange: Exchange
    learned: str | None


async def exchange(egress: Egress, endpoint: Endpoint, *, now: int) -> Probe:
    """Probe an endpoint. `now` is the start in milliseconds UTC."""
    way, *others = ways(endpoint)
    first = latest = await _ask(egress, endpoint.probe_url, way, at=now)
    at = now
    while others and _wrong_way(latest):
        at += latest.timings.total
        way = others.pop(0)
        latest = await _ask(egress, endpoint.probe_url, way, at=at)
    if _status(latest) == PAYMENT_REQUIRED:
        return Probe(exchange=latest, learned=_label(endpoint, way))
    return Probe(exchange=first, learned=endpoint.learned)


async def wildcard(egress: Egress, resource: str, *, method: str, now: int) -> bool | None:
    """Whether every unlisted path that resembles a resource's own answers 402 too: then the host
    asks for a payment on every path. None when no HTTP answer came.
    """
    answered = False
    async for status in _unlisted(egress, resource, method=method, now=now):
        if status not in (None, PAYMENT_REQUIRED):
            return False
        answered |= status is not None
    return True if answered else None


async def siblings_sell(egress: Egress, resource: str, *, method: str, now: int) -> bool:
    """Whether any unlisted path that resembles a resource's own answers 402 too: then a 402 of the
    resource says nothing.
    """
    async for status in _unlisted(egress, resource, method=method, now=now):
        if status == PAYMENT_REQUIRED:
            return True
    return False


async def sell_the_same(egress: Egress, endpoints: Iterable[Endpoint], *, now: int) -> bool:
    """Whether endpoints of a host, asked one after the other, all answer 402 and say that they sell
    the same (core/directory/lookalike).
    """
    first: str | None = None
    for endpoint in endpoints:
        sold = what_is_sold(await _ask(egress, endpoint.probe_url, ways(endpoint)[0], at=now))
        if sold is None or first not in (None, sold):
            return False
        first = sold
    return first is not None


async def _unlisted(
    egress: Egress, resource: str, *, method: str, now: int
) -> AsyncIterator[int | None]:
    """The statuses of paths beside a resource (core/directory/lookalike), one after the other."""
    parts = urlsplit(resource)
    way = _bare(method) if method == "POST" else Way(method="GET")
    for path in lookalike_paths(parts.path, secrets.randbelow):
        yield _status(await _ask(egress, f"https://{parts.netloc}{path}", way, at=now))


async def _ask(egress: Egress, url: str, way: Way, *, at: int) -> Exchange:
    """One request. A URL that egress refuses (it was stored under other rules, or the declared
    query made it too long) is a local fault and must not stop the probes of others.
    """
    headers = (_ACCEPT,) if way.body is None else (_ACCEPT, _JSON)
    request = Request(url=url, method=way.method, headers=headers, body=way.body)
    try:
        return await egress.fetch(request, at=at)
    except ResourceError as error:
        fault = Fault(kind=FaultKind.LOCAL, detail=str(error))
        return Exchange(url=url, method=way.method, at=at, result=fault)


def ways(endpoint: Endpoint) -> tuple[Way, ...]:
    """The ways to ask an endpoint, best first, each once, at most three."""
    candidates = (_learned(endpoint), _declared(endpoint), _bare("GET"), _bare("POST"))
    return tuple(dict.fromkeys(way for way in candidates if way))[:REQUESTS_MAX]


def _learned(endpoint: Endpoint) -> Way | None:
    if endpoint.learned == _BARE:
        return _bare("POST")
    declared = _declared(endpoint)
    if declared and declared.method == endpoint.learned:
        return declared
    return _bare(endpoint.learned) if endpoint.learned in METHODS else None


def _declared(endpoint: Endpoint) -> Way | None:
    method = (endpoint.method or "").upper()
    if method not in METHODS:
        return None
    if endpoint.body is None or method in ("GET", "HEAD"):
        return _bare(method)
    return Way(method=method, body=endpoint.body)


@cache  # of a few methods
def _bare(method: str) -> Way:
    return Way(method=method, body=_EMPTY if method in BODY_METHODS else None)


def _label(endpoint: Endpoint, way: Way) -> str:
    declared = _declared(endpoint)
    other_body = declared is not None and declared.method == "POST" and declared != way
    return _BARE if way == _bare("POST") and other_body else way.method


def _status(exchange: Exchange) -> int | None:
    return exchange.result.status if isinstance(exchange.result, Answer) else None


def _wrong_way(exchange: Exchange) -> bool:
    status = _status(exchange)
    return status is not None and (200 <= status < 300 or status in _WRONG_WAY)
