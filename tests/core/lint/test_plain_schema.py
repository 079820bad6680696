"""The plain keywords, with the library as the oracle."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from tollgauge.core.lint.plain_schema import fits

NAMES = st.sampled_from(["a", "b", "type"])
TYPES = st.sampled_from(["object", "array", "string", "boolean", "null", "number", "integer"])
SCALARS = st.none() | st.booleans() | st.sampled_from(["a", "b", 0, 1, 1.0, 1.5])
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)


def _deeper(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries(
        {},
        optional={
            "type": TYPES,
            "const": NAMES,
            "enum": st.lists(NAMES, min_size=1, max_size=2),
            "required": st.lists(NAMES, max_size=2, unique=True),
            "properties": st.dictionaries(NAMES, inner, max_size=3),
            "additionalProperties": st.booleans() | inner,
            "items": inner,
            "description": NAMES,
        },
    )


SCHEMAS: st.SearchStrategy[Any] = st.recursive(st.just({}), _deeper, max_leaves=6)


@settings(max_examples=300)
@given(value=VALUES, schema=SCHEMAS)
def test_a_plain_schema_is_judged_as_the_library_judges_it(value: object, schema: Any) -> None:
    assert fits(value, schema, steps_max=5_000) is Draft202012Validator(schema).is_valid(value)


@pytest.mark.parametrize(
    "schema",
    [
        {"anyOf": [{"type": "string"}]},
        {"$ref": "#/$defs/a"},
        {"$id": "https://example.com/schema"},
        {"$schema": 5},
        {"type": ["string", "null"]},
        {"type": "text"},
        {"const": 1},
        {"enum": [1]},
        {"required": "a"},
        {"properties": []},
        {"properties": {"a": True}},
        {"items": [{"type": "string"}]},
        {"patternProperties": {}},
    ],
)
def test_any_other_schema_is_left_to_the_library(schema: dict[str, Any]) -> None:
    assert fits({"a": ["x"]}, schema, steps_max=5_000) is None


def test_a_schema_that_takes_too_many_steps_is_left_to_the_library() -> None:
    schema = {"items": {"type": "string", "enum": ["x"]}}
    assert fits(["x"] * 10, schema, steps_max=100) is True
    assert fits(["x"] * 100, schema, steps_max=100) is None
