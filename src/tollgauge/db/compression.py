"""Compressed columns: long JSON texts, as Zstandard frames.

A text that an older version stored as it was is still read: no JSON begins like a frame.
"""

from __future__ import annotations

from typing import Final

import zstandard

_MAGIC: Final = b"\x28\xb5\x2f\xfd"
_LEVEL: Final = 1
_MAX_BYTES: Final = 64 * 1024 * 1024


def compress(text: bytes) -> bytes:
    """The bytes to store of a text."""
    return zstandard.ZstdCompressor(level=_LEVEL, write_checksum=False).compress(text)


def decompress(stored: bytes) -> bytes:
    """The inverse of `compress`."""
    if not stored.startswith(_MAGIC):
        return stored
    return zstandard.ZstdDecompressor().decompress(stored, max_output_size=_MAX_BYTES)
