"""Compressed columns: long JSON texts, as Zstandard frames.

A text that an older version stored as it was is still read: no JSON begins like a frame.
"""

from __future__ import annotations

import threading
from typing import Final

import zstandard

_MAGIC: Final = b"\x28\xb5\x2f\xfd"
_LEVEL: Final = 1
_MAX_BYTES: Final = 64 * 1024 * 1024


class _Contexts(threading.local):
    """A compressor and a decompressor of each thread: to make one takes longer than to use it, and
    no two threads may use one at once.
    """

    def __init__(self) -> None:
        self.compressor = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=False)
        self.decompressor = zstandard.ZstdDecompressor()


_CONTEXTS: Final = _Contexts()


def compress(text: bytes) -> bytes:
    """The bytes to store of a text."""
    return _CONTEXTS.compressor.compress(text)


def decompress(stored: bytes) -> bytes:
    """The inverse of `compress`."""
    if not stored.startswith(_MAGIC):
        return stored
    return _CONTEXTS.decompressor.decompress(stored, max_output_size=_MAX_BYTES)
