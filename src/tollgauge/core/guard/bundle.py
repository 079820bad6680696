"""Bundle: the trust records of all listed endpoints as one file, for clients that decide offline
whether to pay.

Form 1 (docs/bundle.md): one Zstandard frame (RFC 8878) of JSON texts, a line each. The first is the
header; then comes one array for each endpoint, in the order of their keys. A key is a salted hash,
so that the file lists no URL, and finds one for whoever knows it.
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
from tollgauge.core.guard.trust_record import TrustRecord
from tollgauge.core.sale.answer_signature import base64url
from tollgauge.core.score.advice import AVOIDED

FORMAT: Final = 1
LISTED_MS: Final = 90 * DAY_MS
"""How long an endpoint stays in the bundle after a directory last listed it."""
SALT_BYTES: Final = 16
_KEY_BYTES: Final = 16
_KEY_AT: Final = len('["')
_COMPRESSION: Final = zstandard.ZstdCompressionParameters.from_level(
    9, window_log=24, enable_ldm=True
)
"""Addresses repeat far apart: a window of 16 MB finds them again, and any decoder has that much."""


class Variant(StrEnum):
    """Which endpoints a bundle has: all of them, or those alone that must not be paid."""

    ALL = "all"
    AVOID = "avoid"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """A built bundle: its bytes, their SHA-256, and how many records they have, how many of those
    with a score. `as_of` is when its building began (ms UTC); a record may be some seconds newer.
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
    """The key of a canonical resource (core/endpoint/identity)."""
    return base64url(hashlib.sha256(salt + resource.encode()).digest()[:_KEY_BYTES])


def line_of(record: TrustRecord, salt: bytes) -> bytes:
    """The line of a record."""
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
    """The bundles that a record is in."""
    avoided = record.recommendation in AVOIDED
    return (Variant.ALL, Variant.AVOID) if avoided else (Variant.ALL,)


def bundle_of(
    lines: Sequence[bytes],
    *,
    variant: Variant,
    salt: bytes,
    policy_version: int,
    as_of: int,
    scored: int,
) -> Bundle:
    """The bundle of some records' lines, in any order. 100,000 lines take a second."""
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
    """The text of some lines, by their keys, in parts: one sort of 100,000 lines would keep every
    other thread waiting. A line begins with its key, and all keys have one length.
    """
    parts: dict[int, list[bytes]] = {}
    for line in lines:
        parts.setdefault(line[_KEY_AT], []).append(line)
    for first in sorted(parts):
        yield b"".join(sorted(parts[first]))


def _line(value: object) -> bytes:
    # A copy: what orjson returns keeps the kilobytes of its buffer, for 100,000 lines 400 MB.
    return orjson.dumps(value) + b"\n"
