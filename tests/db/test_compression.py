"""Compression of stored texts."""

from __future__ import annotations

import pytest

from tollgauge.db.codec import compress, decompress


@pytest.mark.parametrize("text", [b"", b"{}", b"[" + b"1," * 9_000 + b"1]"])
def test_decompress_returns_the_compressed_text(text: bytes) -> None:
    assert decompress(compress(text)) == text


def test_long_text_is_stored_compressed() -> None:
    text = b'{"day": 1}' * 900
    assert len(compress(text)) < len(text) / 10
