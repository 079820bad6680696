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


def test_dictionary_still_decodes_stored_texts() -> None:
    stored = bytes.fromhex("28b52ffd204d9d0000203939397d04100b62036027f1fcf9c27e3520")
    text = b'{"name":"uptime","weight":35,"tenths":999},{"code":"dead","limit_tenths":349}'
    assert decompress(stored) == text
