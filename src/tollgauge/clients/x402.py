"""The requests of a probe: an endpoint's price, in the way that its listing declares, and the keys
with which its host signs offers.

Requests are made in this order (x402 specification, HTTP transport and bazaar extension): what
worked before, the declared method and body, GET, POST `{}`. A probe makes at most three requests,
one after the other, and never sends a payment header. clients/mcp calls MCP tools.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field, replace
from typing import Final
from urllib.parse import urlsplit

from tollgauge.clients import mcp
from tollgauge.clients.egress.client import Egress
from tollgauge.clients.egress.request import Request
from tollgauge.core.base import strictjson
from tollgauge.core.base.units import HOUR_MS
from tollgauge.core.directory.declared import METHODS
from tollgauge.core.directory.lookalike import describe_offer, lookalike_paths
from tollgauge.core.endpoint.identity import (
    Endpoint,
    ResourceError,
    Transport,
    tool_name,
    tool_url,
    transport_of,
)
from tollgauge.core.lint.signed_offer import HostKeys, read_host_keys
from tollgauge.core.probe.exchange import BODY_METHODS, Answer, Exchange, Fault, FaultKind

REQUESTS_MAX: Final = 3
PAYMENT_REQUIRED: Final = 402
KEYS_KEPT_MS: Final = HOUR_MS
KEYS_MAX: Final = 1_000  # hosts whose keys are cached

_ACCEPT: Final = ("Accept", "application/json")
_JSON: Final = ("Content-Type", "application/json")
_EMPTY: Final = b"{}"
_BARE: Final = "POST {}"
_WRONG_WAY: Final = frozenset({400, 404, 405, 415, 422})
_ACCEPT_KEYS: Final = (("Accept", "application/did+json, application/json"),)
_KEY_PATHS: Final = ("/.well-known/did.json", "/.well-known/jwks.json")
_ABSENT: Final = frozenset({404, 410})
_UNLISTED: Final = Endpoint(id="", resource="", host="", first_seen=0, last_seen=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """A method and the body that goes with it."""

    method: str
    body: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """The result of a probe. `exchange` is the one with a 402, otherwise the first one.

    `learned` is the new value of `Endpoint.learned`: the method that received the 402 (`POST {}`
    if an empty object received it although the listing declares another body). It is unchanged
    without a 402.
    """

    exchange: Exchange
    learned: str | None


async def exchange(egress: Egress, endpoint: Endpoint, *, now: int) -> Probe:
    """Probe an endpoint. `now` is the start in milliseconds UTC."""
    if transport_of(endpoint.resource) is not Transport.HTTP:
        called = await _ask_endpoint(egress, endpoint, at=now)
        sold = _status(called) == PAYMENT_REQUIRED
        return Probe(exchange=called, learned="POST" if sold else endpoint.learned)
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
    """Whether every unlisted path that resembles the resource's also returns 402, which means that
    the host charges for any path. None if there was no HTTP response.
    """
    answered = False
    async for status in _probe_unlisted(egress, resource, method=method, now=now):
        if status not in (None, PAYMENT_REQUIRED):
            return False
        answered |= status is not None
    return True if answered else None


async def siblings_sell(egress: Egress, resource: str, *, method: str, now: int) -> bool:
    """Whether any unlisted path that resembles the resource's also returns 402: then the 402 of the
    resource proves nothing.
    """
    async for status in _probe_unlisted(egress, resource, method=method, now=now):
        if status == PAYMENT_REQUIRED:
            return True
    return False


async def sell_the_same(egress: Egress, endpoints: Iterable[Endpoint], *, now: int) -> bool:
    """Whether all endpoints of a host return 402 and describe the same product
    (core/directory/lookalike). They are requested one after the other.
    """
    first: str | None = None
    for endpoint in endpoints:
        sold = describe_offer(await _ask_endpoint(egress, endpoint, at=now))
        if sold is None or first not in (None, sold):
            return False
        first = sold
    return first is not None


async def _probe_unlisted(
    egress: Egress, resource: str, *, method: str, now: int
) -> AsyncIterator[int | None]:
    """Yield the statuses of unlisted paths similar to the resource's, one after the other."""
    if tool := tool_name(resource):
        for path in lookalike_paths(f"/{tool}", secrets.randbelow):
            other = replace(_UNLISTED, resource=tool_url(resource, path[1:]))
            yield _status(await _ask_endpoint(egress, other, at=now))
        return
    parts = urlsplit(resource)
    way = _bare(method) if method == "POST" else Way(method="GET")
    for path in lookalike_paths(parts.path, secrets.randbelow):
        yield _status(await _ask(egress, f"https://{parts.netloc}{path}", way, at=now))


async def _ask_endpoint(egress: Egress, endpoint: Endpoint, *, at: int) -> Exchange:
    """Send the best request to an endpoint. No request is sent to an A2A agent."""
    transport = transport_of(endpoint.resource)
    if transport is Transport.MCP:
        return await mcp.call_tool(egress, endpoint, now=at)
    if transport is Transport.A2A:
        fault = Fault(kind=FaultKind.LOCAL, detail="A2A agents are not evaluated")
        return Exchange(url=endpoint.resource, method="POST", at=at, result=fault)
    return await _ask(egress, endpoint.probe_url, ways(endpoint)[0], at=at)


async def _ask(egress: Egress, url: str, way: Way, *, at: int) -> Exchange:
    """Send one request. A URL that egress refuses (stored under other rules, or too long with the
    declared query) is a local fault: an exception would stop the probes of other endpoints.
    """
    headers = (_ACCEPT,) if way.body is None else (_ACCEPT, _JSON)
    request = Request(url=url, method=way.method, headers=headers, body=way.body)
    try:
        return await egress.fetch(request, at=at)
    except ResourceError as error:
        fault = Fault(kind=FaultKind.LOCAL, detail=str(error))
        return Exchange(url=url, method=way.method, at=at, result=fault)


def ways(endpoint: Endpoint) -> tuple[Way, ...]:
    """Return at most three different ways to request an endpoint, best first."""
    candidates = (_learned_way(endpoint), _declared_way(endpoint), _bare("GET"), _bare("POST"))
    return tuple(dict.fromkeys(way for way in candidates if way))[:REQUESTS_MAX]


def _learned_way(endpoint: Endpoint) -> Way | None:
    if endpoint.learned == _BARE:
        return _bare("POST")
    declared = _declared_way(endpoint)
    if declared and declared.method == endpoint.learned:
        return declared
    return _bare(endpoint.learned) if endpoint.learned in METHODS else None


def _declared_way(endpoint: Endpoint) -> Way | None:
    method = (endpoint.method or "").upper()
    if method not in METHODS:
        return None
    if endpoint.body is None or method in ("GET", "HEAD"):
        return _bare(method)
    return Way(method=method, body=endpoint.body)


def _bare(method: str) -> Way:
    return Way(method=method, body=_EMPTY if method in BODY_METHODS else None)


def _label(endpoint: Endpoint, way: Way) -> str:
    declared = _declared_way(endpoint)
    other_body = declared is not None and declared.method == "POST" and declared != way
    return _BARE if way == _bare("POST") and other_body else way.method


def _status(exchange: Exchange) -> int | None:
    return exchange.result.status if isinstance(exchange.result, Answer) else None


def _wrong_way(exchange: Exchange) -> bool:
    status = _status(exchange)
    return status is not None and (200 <= status < 300 or status in _WRONG_WAY)


@dataclass(frozen=True, slots=True)
class OfferKeys:
    """A cache of the keys with which hosts sign offers: `/.well-known/did.json` (did:web),
    `/.well-known/jwks.json` and the TXT records of `_controllers.HOST`. core/lint/signed_offer
    verifies the signatures.
    """

    _cached: dict[str, tuple[int, HostKeys]] = field(default_factory=dict)

    async def load(self, egress: Egress, exchange: Exchange) -> HostKeys:
        """Return the keys of an exchange's host, fetched at most once per hour if complete."""
        host = urlsplit(exchange.url).netloc.lower()
        at, keys = self._cached.get(host, (0, None))
        if keys is None or exchange.at >= at + KEYS_KEPT_MS:
            keys = await _fetch_keys(egress, host, at=exchange.at)
            if len(self._cached) >= KEYS_MAX:
                self._cached.clear()
            if keys.complete:
                self._cached[host] = exchange.at, keys
        return keys


async def _fetch_keys(egress: Egress, host: str, *, at: int) -> HostKeys:
    documents: list[object] = []
    complete = True
    for path in _KEY_PATHS:
        document, known = await _fetch_document(egress, f"https://{host}{path}", at=at)
        documents.append(document)
        complete &= known
    did_document, jwks = documents
    did = "did:web:" + host.replace(":", "%3A")
    texts = await egress.read_texts("_controllers", host.partition(":")[0])
    if isinstance(texts, Fault):
        texts, complete = (), False
    return read_host_keys(did, did_document, jwks, controllers=texts, complete=complete)


async def _fetch_document(egress: Egress, url: str, *, at: int) -> tuple[object, bool]:
    """Return a URL's JSON document, or None, and whether the result is certain."""
    try:
        result = (await egress.fetch(Request(url=url, headers=_ACCEPT_KEYS), at=at)).result
    except ResourceError:
        return None, False
    if not isinstance(result, Answer) or result.truncated:
        return None, False
    if result.status != 200:
        return None, result.status in _ABSENT
    try:
        return strictjson.loads(result.body), True
    except strictjson.StrictJsonError:
        return None, False
