"""Streaming JSON documents of any size: outline, list items, and the cost of hostile input."""

from __future__ import annotations

import io
import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tollgauge.clients.directories import document
from tollgauge.clients.directories.document import (
    DEPTH_MAX,
    DirectoryError,
    NotJsonError,
    read_items,
    read_outline,
)
from tollgauge.core.directory.page import LISTS

NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)


class Slow(io.BytesIO):
    """A file that returns at most `most` bytes per read."""

    def __init__(self, data: bytes, most: int) -> None:
        super().__init__(data)
        self.most = most

    def read(self, size: int | None = -1, /) -> bytes:
        del size
        return super().read(self.most)


@given(
    values=st.lists(VALUES, max_size=5),
    most=st.integers(1, 40),
    indent=st.none() | st.integers(0, 2),
    ascii_only=st.booleans(),
)
def test_items_of_a_list_equal_those_of_the_whole_document(
    values: list[Any], most: int, indent: int | None, ascii_only: bool
) -> None:
    text = json.dumps(values, indent=indent, ensure_ascii=ascii_only).encode()
    outline = read_outline(Slow(text, most))
    assert outline.document == values[:1]
    assert outline.counts.get("", 0) == len(values)
    assert list(read_items(Slow(text, most), "")) == values


@given(members=st.dictionaries(TEXTS, VALUES, max_size=5), most=st.integers(1, 40))
def test_outline_has_every_member_and_the_first_item_of_each_list(
    members: dict[str, Any], most: int
) -> None:
    document = members | {"resources": [{"url": "https://a.dev/"}, 2, 3], "meta": {"items": [1, 2]}}
    outline = read_outline(Slow(json.dumps(document).encode(), most))
    lists = {
        name: value[:1]
        for name, value in document.items()
        if name in LISTS and isinstance(value, list)
    }
    assert outline.document == document | lists
    assert outline.counts["resources"] == 3
    assert outline.ends_at is None


@pytest.mark.parametrize(
    "text",
    ["[1,]", "[1 2]", "[1}", "[tru]", "[1] 2", "[,1]", '{"a"}', '{"a":1,}', "{1:2}", "[NaN]"],
)
def test_broken_text_is_not_json(text: str) -> None:
    with pytest.raises(NotJsonError):
        read_outline(io.BytesIO(text.encode()))


@pytest.mark.parametrize("text", ["[", "[1", '["a', "[tru", '["\\u00', '{"a":1', '{"a', "[1,\n"])
def test_truncated_text_is_read_to_its_end(text: str) -> None:
    assert read_outline(io.BytesIO(text.encode())).ends_at == 1


def test_incomplete_item_of_a_list_is_not_in_the_outline() -> None:
    text = b'{"items":[{"url":"https://a.dev/","tags":["x'
    assert read_outline(io.BytesIO(text)).document == {"items": []}


def test_numbers_of_any_size_are_read() -> None:
    text = b'[%d, 0.01, 1e999, "\xff"]' % (1 << 256)
    assert list(read_items(io.BytesIO(text), "")) == [1 << 256, 0.01, math.inf, "\ufffd"]


@pytest.mark.parametrize("most", [7, 100_000])
def test_depth_is_limited(most: int) -> None:
    def nest(levels: int) -> bytes:
        return b'[1, "[[[", ' + b"[" * (levels - 1) + b"]" * levels

    assert read_outline(Slow(nest(DEPTH_MAX), most)).counts[""] == 3
    for text in (nest(DEPTH_MAX + 1), b"[" * 100_000, b'{"a":' * 100_000):
        with pytest.raises(NotJsonError, match="nested"):
            read_outline(Slow(text, most))


@pytest.mark.parametrize(
    "text", ['{"a":"%s"}', '["%s"]', '{"items":[1,{"a":"%s"}]}', '{"items":[1,["%s"', '{"%s":1}']
)
def test_size_of_a_value_is_limited(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document, "VALUE_MAX", 200_000)
    with pytest.raises(DirectoryError, match="more than 200000 bytes"):
        read_outline(io.BytesIO((text % ("x" * 400_000)).encode()))


def test_list_longer_than_the_limit_of_a_value_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document, "VALUE_MAX", 200_000)
    text = json.dumps({"items": ["https://a.dev/" + "x" * 1_000] * 1_000, "total": 1_000}).encode()
    outline = read_outline(io.BytesIO(text))
    assert (outline.counts["items"], outline.document["total"]) == (1_000, 1_000)
    assert sum(1 for _ in read_items(io.BytesIO(text), "items")) == 1_000
