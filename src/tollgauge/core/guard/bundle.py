"""Bundle: the trust records of all listed endpoints as one file, for clients that decide offline
whether to pay.

Format 2 (docs/bundle.md): one Zstandard frame (RFC 8878) of JSON texts, one per line. The first is
the header, followed by one array per endpoint, host and payTo in the order of their keys. A key is
a hash: the file contains no URLs, but a client that knows a URL finds its record.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final
from urllib.parse import urlsplit

import orjson
import zstandard

from tollgauge.core.base.units import DAY_MS, SECOND_MS
from tollgauge.core.endpoint.buyers_reports import BuyersReports
from tollgauge.core.endpoint.terms import KnownOffer
from tollgauge.core.sale.signature import base64url
from tollgauge.core.score.advice import AVOIDED
from tollgauge.core.score.score import ShownDemand

FORMAT: Final = 2
LISTED_MS: Final = 90 * DAY_MS
"""Period for which an endpoint stays in the bundle after a directory last listed it."""
CONDUCT_FLAGS: Final = frozenset(
    {"paid-not-delivered", "payto-changed-recently", "signed-offer-mismatch"}
)
"""Flags of sellers that took money without delivery, or that impersonate another seller. With one
of them, an endpoint to avoid is abusive; an outage is not abuse.
"""
MAX_PATTERNS: Final = 32  # path templates in the line of a host
_KEY_PREFIX: Final = "tollgauge:v2:"
_KEY_BYTES: Final = 16
_KEY_AT: Final = len('["')
_COMPRESSION: Final = zstandard.ZstdCompressionParameters.from_level(
    9, window_log=24, enable_ldm=True
)
"""Records repeat far apart: a window of 16 MB finds them, and every decoder supports it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustRecord:
    """The stored trust data of an endpoint.

    Attributes:
        grade, score_tenths: None before the first score.
        offers: The offers of the last 30 days, the latest first; the price that a directory states
            until a probe sees one.
        flags: The codes of its score's flags.
        demand: The seller's payers; None if settlements are not known.
        reports: Buyers' reports; None without any.
        is_down: Whether an outage is confirmed.
        is_templated: Whether its path contains a placeholder.
        as_of: When the score was computed (ms UTC); without a score, when the record was read.
    """

    resource: str
    recommendation: str
    grade: str | None
    score_tenths: int | None
    offers: tuple[KnownOffer, ...]
    flags: tuple[str, ...]
    as_of: int
    demand: ShownDemand | None = None
    reports: BuyersReports | None = None
    is_down: bool = False
    is_templated: bool = False

    @property
    def pay_to(self) -> tuple[str, ...]:
        """The distinct payTo addresses, the latest first."""
        return tuple(dict.fromkeys(offer.pay_to for offer in self.offers))

    @property
    def networks(self) -> tuple[str, ...]:
        """The distinct networks, those of the latest envelope first."""
        return tuple(dict.fromkeys(offer.network for offer in self.offers))

    @property
    def network(self) -> str | None:
        """The network of the first offer; None without one."""
        return next(iter(self.networks), None)

    @property
    def amount(self) -> int | None:
        """The usual price on that network."""
        return self.usual_price(self.network)

    def usual_price(self, network: str | None) -> int | None:
        """Return the highest known price on a network, in micro-dollars."""
        prices = [offer.amount for offer in self.offers if offer.network == network]
        return max((price for price in prices if price is not None), default=None)

    @property
    def is_abusive(self) -> bool:
        """Whether it must be avoided because of the seller's conduct."""
        return self.recommendation in AVOIDED and not CONDUCT_FLAGS.isdisjoint(self.flags)

    @property
    def is_unavailable(self) -> bool:
        """Whether it is down, or cannot be paid."""
        return self.is_down or self.recommendation == "not-payable"


class Variant(StrEnum):
    """The endpoints of a bundle: all, or only those that must not be paid."""

    ALL = "all"
    AVOID = "avoid"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """A built bundle.

    Attributes:
        as_of: When building began (ms UTC); a record may be some seconds newer.
        records: Number of endpoints.
        scored: Number of endpoints with a score.
        body: The compressed file.
    """

    variant: Variant
    policy_version: int
    as_of: int
    records: int
    scored: int
    body: bytes

    @property
    def digest(self) -> str:
        """The SHA-256 of the bytes, in hex."""
        return hashlib.sha256(self.body).hexdigest()


def key_of(name: str) -> str:
    """Return the key of a canonical resource (core/endpoint/identity), `host:…` or `payto:…`."""
    digest = hashlib.sha256(f"{_KEY_PREFIX}{name}".encode()).digest()
    return base64url(digest[:_KEY_BYTES])


class BundleDraft:
    """Collects the records of both variants; 100,000 records take a few seconds."""

    def __init__(self, *, policy_version: int, as_of: int) -> None:
        self._policy_version = policy_version
        self._as_of = as_of
        self._lines: dict[Variant, list[bytes]] = {variant: [] for variant in Variant}
        self._scored: Counter[Variant] = Counter()
        self._addresses: dict[str, int] = {}
        # Endpoints by host and payTo. With an object for each name, building the bundle of 100,000
        # endpoints took 12 MB more.
        self._endpoints: Counter[str] = Counter()
        self._abusive: Counter[str] = Counter()
        self._unavailable: Counter[str] = Counter()
        self._patterns: dict[str, list[str]] = {}

    def add(self, record: TrustRecord) -> None:
        """Add the record of an endpoint."""
        line = self._record_line(record)
        for variant in variants_of(record):
            self._lines[variant].append(line)
            self._scored[variant] += record.score_tenths is not None
        url = urlsplit(record.resource)
        host = f"host:{url.hostname}"
        if record.is_templated:
            pattern = f"{url.scheme}://{url.netloc}{url.path}"
            self._patterns.setdefault(host, []).append(pattern)
        # Ended offers do not count: a seller does not answer for an address that it left.
        current = {offer.pay_to for offer in record.offers if offer.until is None}
        for name in (host, *(f"payto:{pay_to}" for pay_to in current)):
            self._endpoints[name] += 1
            self._abusive[name] += record.is_abusive
            self._unavailable[name] += record.is_unavailable

    def build(self, variant: Variant) -> Bundle:
        """Build the bundle of a variant. `avoid` omits hosts and addresses without abuse."""
        records = self._lines[variant]
        conduct = [
            self._conduct_line(name)
            for name in self._endpoints
            if variant is Variant.ALL or self._abusive[name]
        ]
        lines = [*records, *conduct]
        header = _encode_line(
            {
                "format": FORMAT,
                "policyVersion": self._policy_version,
                "asOf": self._as_of // SECOND_MS,
                "count": len(lines),
                "variant": variant,
                "payTo": list(self._addresses),
            }
        )
        size = len(header) + sum(map(len, lines))
        frame = zstandard.ZstdCompressor(compression_params=_COMPRESSION).compressobj(size=size)
        pieces = [frame.compress(header), *map(frame.compress, _sort_lines(lines)), frame.flush()]
        return Bundle(
            variant=variant,
            policy_version=self._policy_version,
            as_of=self._as_of,
            records=len(records),
            scored=self._scored[variant],
            body=b"".join(pieces),
        )

    def _conduct_line(self, name: str) -> bytes:
        counts = (self._endpoints[name], self._abusive[name], self._unavailable[name])
        patterns = sorted(self._patterns.get(name, ()))[:MAX_PATTERNS]
        return _encode_line([key_of(name), *counts, *([patterns] if patterns else ())])

    def _record_line(self, record: TrustRecord) -> bytes:
        demand, reports = record.demand, record.reports
        return _encode_line(
            [
                key_of(record.resource),
                record.recommendation,
                record.grade,
                None if record.score_tenths is None else record.score_tenths / 10,
                self._offers(record.offers),
                record.flags,
                demand
                and [demand.payers, demand.volume, demand.proven_payers, demand.proven_volume],
                reports and [reports.payers, reports.delivered, reports.not_delivered],
                record.as_of // SECOND_MS,
            ]
        )

    def _offers(self, offers: Iterable[KnownOffer]) -> list[list[object]]:
        distinct: dict[tuple[str, str, int, int | None], None] = {}
        for offer in offers:
            index = self._addresses.setdefault(offer.pay_to, len(self._addresses))
            distinct[offer.network, offer.scheme, index, offer.amount] = None
        return [
            [network, scheme, index, None if amount is None else str(amount)]
            for network, scheme, index, amount in distinct
        ]


def variants_of(record: TrustRecord) -> tuple[Variant, ...]:
    """Return the bundles that contain a record."""
    avoided = record.recommendation in AVOIDED
    return (Variant.ALL, Variant.AVOID) if avoided else (Variant.ALL,)


def _sort_lines(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the lines in the order of their keys, in parts.

    One sort of 100,000 lines would block every other thread. Lines start with their key, and all
    keys have the same length.
    """
    parts: dict[int, list[bytes]] = {}
    for line in lines:
        parts.setdefault(line[_KEY_AT], []).append(line)
    for first in sorted(parts):
        yield b"".join(sorted(parts[first]))


def _encode_line(value: object) -> bytes:
    # Copy, because orjson's result keeps its buffer alive: 400 MB for 100,000 lines.
    return orjson.dumps(value) + b"\n"
