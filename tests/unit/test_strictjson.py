"""Strict JSON: one meaning a text."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tollgauge.core.strictjson import DEPTH_MAX, StrictJsonError, depth, loads

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(VALUES)
def test_what_json_writes_is_read_back(value: object) -> None:
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


def test_a_deep_text_is_refused_before_the_parser_sees_it() -> None:
    with pytest.raises(StrictJsonError, match="nested deeper"):
        loads(b"[" * 90_000)


def test_brackets_inside_texts_do_not_count_as_depth() -> None:
    assert depth(b'{"a": "[[[[\\"[[["}') == 1
    assert loads(b'["' + b"[" * 100 + b'"]') == ["[" * 100]
