"""JSON that is read a value at a time, from a file that gives a few bytes at a time."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tollgauge.clients.directories.document import DEPTH_MAX
from tollgauge.clients.directories.json_reader import JsonReader, NotJsonError

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


class Slow(io.BytesIO):
    """A file that gives at most `most` bytes at once."""

    def __init__(self, data: bytes, most: int) -> None:
        super().__init__(data)
        self.most = most

    def read(self, size: int | None = -1, /) -> bytes:
        del size
        return super().read(self.most)


def reader(text: str, most: int = 3) -> JsonReader:
    return JsonReader(Slow(text.encode("utf-8", "surrogatepass"), most))


def read_list(text: str, most: int = 3) -> list[object]:
    whole = reader(text, most)
    values = list(whole.array())
    whole.end()
    return values


def read_object(text: str, most: int = 3) -> dict[str, object]:
    whole = reader(text, most)
    members = {name: whole.value() for name in whole.members()}
    whole.end()
    return members


@given(
    values=st.lists(VALUES, max_size=5),
    most=st.integers(1, 40),
    indent=st.none() | st.integers(0, 2),
    ascii_only=st.booleans(),
)
def test_a_list_is_read_as_the_whole_text_would_be(
    values: list[Any], most: int, indent: int | None, ascii_only: bool
) -> None:
    text = json.dumps(values, indent=indent, ensure_ascii=ascii_only)
    seen = text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
    assert read_list(text, most) == json.loads(seen)


@given(members=st.dictionaries(st.text(), VALUES, max_size=5), most=st.integers(1, 40))
def test_an_object_is_read_member_by_member(members: dict[str, Any], most: int) -> None:
    assert read_object(json.dumps(members), most) == members


@pytest.mark.parametrize(
    "text", ["[1,]", "[1 2]", "[", "[1", '["a', "[1}", "[tru]", "[1] 2", "[,1]", "", "{"]
)
def test_a_broken_list_is_no_json(text: str) -> None:
    with pytest.raises(NotJsonError):
        read_list(text)


@pytest.mark.parametrize("text", ['{"a"}', '{"a":1,}', "{1:2}", '{"a":1 "b":2}', '{"a":1'])
def test_a_broken_object_is_no_json(text: str) -> None:
    with pytest.raises(NotJsonError):
        read_object(text)


@pytest.mark.parametrize("most", [7, 100_000])
def test_the_depth_of_a_value_counts_the_list_around_it(most: int) -> None:
    def nested(levels: int) -> str:
        return '[1, "[[[", ' + "[" * (levels - 1) + "]" * levels

    assert len(list(reader(nested(DEPTH_MAX), most).array())) == 3
    with pytest.raises(NotJsonError, match="nested"):
        list(reader(nested(DEPTH_MAX + 1), most).array())
    with pytest.raises(NotJsonError, match="nested"):
        list(reader("[" * 100_000, most).array())
