"""Bundle: the trust records of all listed endpoints as one file, for clients that decide offline
whether to pay.

Format 1 (docs/bundle.md): one Zstandard frame (RFC 8878) of JSON texts, one per line. The first is
the header, followed by one array per endpoint in the order of their keys. A key is a salted hash:
the file contains no URLs, but a client that knows a URL finds its record.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import orjson
import zstandard

from tollgauge.core.base.units import DAY_MS, SECOND_MS
from tollgauge.core.sale.answer_signature import base64url
from tollgauge.core.score.advice import AVOIDED
from tollgauge.core.score.evidence import TermChange

ADDRESSES_MS: Final = 30 * DAY_MS
"""Period for which an address stays known after it was last advertised."""
DECIMALS: Final = 6
"""Decimals of the dollar tokens whose amounts a record contains: clients compare them with amounts
of USDC.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PaidAddress:
    """A payTo of an endpoint, hex in lower case.

    `since` (ms UTC) is the time of the change to it, or when the endpoint was first seen.
    """

    pay_to: str
    since: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustRecord:
    """The stored trust data of an endpoint.

    Attributes:
        grade, score_tenths: None before the first score.
        addresses: The payTo addresses of the last ADDRESSES_MS, newest first.
        network: CAIP-2; None without a price.
        amount: The price in atomic units of a dollar token with DECIMALS; None in any other token.
        flags: The codes of its score's flags.
        as_of: When the score was computed (ms UTC); without a score, when the record was read.
    """

    resource: str
    recommendation: str
    grade: str | None
    score_tenths: int | None
    addresses: tuple[PaidAddress, ...]
    network: str | None
    amount: int | None
    flags: tuple[str, ...]
    as_of: int

    @property
    def pay_to(self) -> tuple[str, ...]:
        """The addresses without their times."""
        return tuple(address.pay_to for address in self.addresses)


def list_addresses(
    pay_to: str, changes: Sequence[TermChange], *, first_seen: int, now: int
) -> tuple[PaidAddress, ...]:
    """Return every address that was advertised after `now - ADDRESSES_MS`, newest first.

    Each appears once, with the latest change to it. `pay_to` is advertised now; `changes` are those
    of payTo, oldest first.
    """
    first = changes[0].before if changes else pay_to
    periods = [(first, first_seen), *((change.after, change.at) for change in changes)]
    if periods[-1][0] != pay_to:  # the change to it was not observed, or was deleted
        periods.append((pay_to, periods[-1][1]))
    ends = [since for _, since in periods[1:]] + [now]
    since_by_address: dict[str, int] = {}
    for (address, since), end in reversed(list(zip(periods, ends, strict=True))):
        if end > now - ADDRESSES_MS:
            since_by_address.setdefault(address, since)
    return tuple(
        PaidAddress(pay_to=address, since=since) for address, since in since_by_address.items()
    )


FORMAT: Final = 1
LISTED_MS: Final = 90 * DAY_MS
"""Period for which an endpoint stays in the bundle after a directory last listed it."""
SALT_BYTES: Final = 16
_KEY_BYTES: Final = 16
_KEY_AT: Final = len('["')
_COMPRESSION: Final = zstandard.ZstdCompressionParameters.from_level(
    9, window_log=24, enable_ldm=True
)
"""Addresses repeat far apart: a window of 16 MB finds them, and every decoder supports it."""


class Variant(StrEnum):
    """The endpoints of a bundle: all, or only those that must not be paid."""

    ALL = "all"
    AVOID = "avoid"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """A built bundle.

    Attributes:
        as_of: When building began (ms UTC); a record may be some seconds newer.
        records: Number of records.
        scored: Number of records with a score.
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


def key_of(resource: str, salt: bytes) -> str:
    """Return the key of a canonical resource (core/endpoint/identity)."""
    return base64url(hashlib.sha256(salt + resource.encode()).digest()[:_KEY_BYTES])


def line_of(record: TrustRecord, salt: bytes) -> bytes:
    """Return the line of a record."""
    return _line(
        [
            key_of(record.resource, salt),
            record.recommendation,
            record.grade,
            None if record.score_tenths is None else record.score_tenths / 10,
            [[address.pay_to, address.since // SECOND_MS] for address in record.addresses],
            record.network,
            None if record.amount is None else str(record.amount),
            record.flags,
            record.as_of // SECOND_MS,
        ]
    )


def variants_of(record: TrustRecord) -> tuple[Variant, ...]:
    """Return the bundles that contain a record."""
    avoided = record.recommendation in AVOIDED
    return (Variant.ALL, Variant.AVOID) if avoided else (Variant.ALL,)


def build_bundle(
    lines: Sequence[bytes],
    *,
    variant: Variant,
    salt: bytes,
    policy_version: int,
    as_of: int,
    scored: int,
) -> Bundle:
    """Build the bundle of some records' lines, in any order. 100,000 lines take a second."""
    header = _line(
        {
            "format": FORMAT,
            "policyVersion": policy_version,
            "asOf": as_of // SECOND_MS,
            "count": len(lines),
            "salt": base64url(salt),
            "variant": variant,
        }
    )
    size = len(header) + sum(map(len, lines))
    frame = zstandard.ZstdCompressor(compression_params=_COMPRESSION).compressobj(size=size)
    pieces = [frame.compress(header), *map(frame.compress, _ordered(lines)), frame.flush()]
    return Bundle(
        variant=variant,
        policy_version=policy_version,
        as_of=as_of,
        records=len(lines),
        scored=scored,
        body=b"".join(pieces),
    )


def _ordered(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the lines in the order of their keys, in parts.

    One sort of 100,000 lines would block every other thread. Lines start with their key, and all
    keys have the same length.
    """
    parts: dict[int, list[bytes]] = {}
    for line in lines:
        parts.setdefault(line[_KEY_AT], []).append(line)
    for first in sorted(parts):
        yield b"".join(sorted(parts[first]))


def _line(value: object) -> bytes:
    # Copy, because orjson's result keeps its buffer alive: 400 MB for 100,000 lines.
    return orjson.dumps(value) + b"\n"
