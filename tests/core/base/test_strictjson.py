"""Strict JSON: one meaning a text."""

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tollgauge.core.base.strictjson import DEPTH_MAX, StrictJsonError, depth, loads

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(VALUES)
def test_json_round_trip(value: object) -> None:
    assert loads(json.dumps(value).encode()) == value


@given(st.binary())
def test_no_bytes_raise_anything_but_the_one_error(data: bytes) -> None:
    try:
        loads(data)
    except StrictJsonError as error:
        assert str(error)  # noqa: PT017 - the point is that nothing else comes out


@pytest.mark.parametrize(
    "text",
    [
        b'{"a": 1, "a": 2}',
        b'{"a": {"b": 1, "b": 1}}',
        b"[NaN]",
        b"[-Infinity]",
        b"[1e999]",
        b"\xef\xbb\xbf{}",
        "{}".encode("utf-16"),
        b"\xff",
        b"",
        b"{",
        b"[" * (DEPTH_MAX + 1) + b"]" * (DEPTH_MAX + 1),
        b"9" * 5_000,
    ],
)
def test_ambiguous_or_broken_texts_are_refused(text: bytes) -> None:
    with pytest.raises(StrictJsonError):
        loads(text)


def test_deep_text_is_refused_before_the_parser_sees_it() -> None:
    with pytest.raises(StrictJsonError, match="nested deeper"):
        loads(b"[" * 90_000)


def test_brackets_inside_texts_do_not_count_as_depth() -> None:
    assert depth(b'{"a": "[[[[\\"[[["}') == 1
    assert loads(b'["' + b"[" * 100 + b'"]') == ["[" * 100]


def count_values(data: bytes) -> int:
    """The depth of a text, byte by byte."""
    level = deepest = 0
    inside = escaped = False
    for char in data:
        if inside:
            inside = escaped or char != ord('"')
            escaped = not escaped and char == ord("\\")
        elif char == ord('"'):
            inside = True
        else:
            level += (char in b"[{") - (char in b"]}")
            deepest = max(deepest, level)
    return deepest


@given(st.lists(st.sampled_from([b'"', b"\\", b"[", b"]", b"{", b"}", b"a", b"\n"])).map(b"".join))
@example(b'"\\"[[')
def test_depth_is_that_of_the_brackets_outside_strings(data: bytes) -> None:
    assert depth(data) == count_values(data)


def test_string_of_quotes_that_does_not_end_is_read_once() -> None:
    with pytest.raises(StrictJsonError):  # once from each of its quotes would take minutes
        loads(b'"' + b'\\"' * 100_000 + b"[")
