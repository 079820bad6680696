"""Fetch and cache the keys with which hosts sign offers.

They are needed only for offers that the payTo did not sign: `/.well-known/did.json` (did:web) and
`/.well-known/jwks.json` are then fetched, at most once per hour and host. core/lint/signed_offer
verifies the signatures.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from tollgauge.clients.egress.client import Egress, Request
from tollgauge.core.base import strictjson
from tollgauge.core.base.units import HOUR_MS
from tollgauge.core.endpoint.identity import ResourceError
from tollgauge.core.lint.extensions import UNCHECKED_OFFER
from tollgauge.core.lint.judge import lint
from tollgauge.core.lint.signed_offer import HostKeys, read_host_keys
from tollgauge.core.probe.exchange import Answer, Exchange, Lint

KEPT_MS: Final = HOUR_MS
HOSTS_MAX: Final = 1_000
_ACCEPT: Final = (("Accept", "application/did+json, application/json"),)
_PATHS: Final = ("/.well-known/did.json", "/.well-known/jwks.json")
_ABSENT: Final = frozenset({404, 410})


@dataclass(frozen=True, slots=True)
class OfferKeys:
    """Keys by host authority, as last fetched."""

    _kept: dict[str, tuple[int, HostKeys]] = field(default_factory=dict)

    async def check(self, egress: Egress, exchange: Exchange, verdict: Lint) -> Lint:
        """Lint an exchange again with its host's keys if a signature could not be checked without
        them.
        """
        if all(finding.rule != UNCHECKED_OFFER for finding in verdict.findings):
            return verdict
        host = urlsplit(exchange.url).netloc.lower()
        at, keys = self._kept.get(host, (0, None))
        if keys is None or exchange.at >= at + KEPT_MS:
            keys = await _fetch(egress, host, at=exchange.at)
            if len(self._kept) >= HOSTS_MAX:
                self._kept.clear()
            if keys.complete:
                self._kept[host] = exchange.at, keys
        return lint(exchange, keys)


async def _fetch(egress: Egress, host: str, *, at: int) -> HostKeys:
    documents: list[object] = []
    complete = True
    for path in _PATHS:
        document, known = await _document(egress, f"https://{host}{path}", at=at)
        documents.append(document)
        complete &= known
    did_document, jwks = documents
    did = "did:web:" + host.replace(":", "%3A")
    return read_host_keys(did, did_document, jwks, complete=complete)


async def _document(egress: Egress, url: str, *, at: int) -> tuple[object, bool]:
    """Return a URL's JSON document, or None, and whether the result is certain."""
    try:
        result = (await egress.fetch(Request(url=url, headers=_ACCEPT), at=at)).result
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
