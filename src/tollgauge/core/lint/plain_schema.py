"""JSON Schema: the few keywords that nearly every Bazaar schema has, without the library.

The library takes ten times as long, most of it to follow references that such schemas do not have.
`fits` says what the library would say, and counts the same steps; it is None for a schema with any
other keyword, which core/lint/schema then gives to the library.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

_TYPES: Final[dict[object, frozenset[type]]] = {
    "object": frozenset({dict}),
    "array": frozenset({list}),
    "string": frozenset({str}),
    "boolean": frozenset({bool}),
    "null": frozenset({type(None)}),
    "number": frozenset({int, float}),
    "integer": frozenset({int}),
}
"""The types of JSON, as its parser makes them."""
_TEXT: Final = frozenset({str})
_DESCRIBING: Final = frozenset({"description", "title", "default", "example", "examples", "format"})
"""Keywords that demand nothing of a value, here or in the library as core/lint/schema uses it."""


class _OtherSchemaError(Exception):
    """The schema has more than the plain keywords."""


def fits(value: object, schema: dict[str, Any], *, steps_max: int) -> bool | None:
    """Whether a value fits a schema; None unless the schema has plain keywords only, and takes at
    most `steps_max` steps: one for each keyword that is evaluated and for each of its parts.
    """
    try:
        return _Evaluation(steps_max).fits(value, schema)
    except (_OtherSchemaError, RecursionError):
        return None


class _Evaluation:
    """One evaluation, with a budget of steps. Its methods are the keywords, by their names."""

    def __init__(self, steps: int) -> None:
        self._steps = steps

    def fits(self, value: object, schema: object) -> bool:
        """Whether a value fits a schema, keyword by keyword in their order."""
        if not isinstance(schema, dict):
            raise _OtherSchemaError
        for name, asked in schema.items():
            keyword = _KEYWORDS.get(name)
            if keyword is None:
                if name not in _DESCRIBING and not (name == "$schema" and isinstance(asked, str)):
                    raise _OtherSchemaError
                continue
            self._steps -= 1 + (len(asked) if isinstance(asked, (list, dict, str)) else 0)
            if self._steps < 0:
                raise _OtherSchemaError
            if not keyword(self, asked, value, schema):
                return False
        return True

    def type(self, asked: object, value: object, _: dict[str, Any]) -> bool:
        """`type`, of one name."""
        types = _TYPES.get(asked) if isinstance(asked, str) else None
        if types is None:
            raise _OtherSchemaError
        # 1.0 is an integer (draft 2020-12, validation, section 6.1.1).
        return type(value) in types or (
            asked == "integer" and isinstance(value, float) and value.is_integer()
        )

    def const(self, asked: object, value: object, _: dict[str, Any]) -> bool:
        """`const`, of a text."""
        if not isinstance(asked, str):
            raise _OtherSchemaError
        return value == asked

    def enum(self, asked: object, value: object, _: dict[str, Any]) -> bool:
        """`enum`, of texts."""
        return value in _texts(asked)

    def required(self, asked: object, value: object, _: dict[str, Any]) -> bool:
        """`required`."""
        names = _texts(asked)
        return not isinstance(value, dict) or value.keys() >= set(names)

    def properties(self, asked: object, value: object, _: dict[str, Any]) -> bool:
        """`properties`."""
        if not isinstance(asked, dict):
            raise _OtherSchemaError
        if not isinstance(value, dict):
            return True
        # A loop, because a generator takes longer than most of what it would make.
        for name, schema in asked.items():
            if name in value and not self.fits(value[name], schema):
                return False
        return True

    def additional_properties(self, asked: object, value: object, schema: dict[str, Any]) -> bool:
        """`additionalProperties`."""
        named = schema.get("properties", {})
        if not isinstance(asked, (bool, dict)) or not isinstance(named, dict):
            raise _OtherSchemaError
        if not isinstance(value, dict) or asked is True:
            return True
        others = [name for name in value if name not in named]
        if asked is False:
            return not others
        return all(self.fits(value[name], asked) for name in others)

    def items(self, asked: object, value: object, _: dict[str, Any]) -> bool:
        """`items`."""
        if not isinstance(asked, dict):
            raise _OtherSchemaError
        return not isinstance(value, list) or all(self.fits(item, asked) for item in value)


_KEYWORDS: Final[dict[str, Callable[[_Evaluation, object, object, dict[str, Any]], bool]]] = {
    "type": _Evaluation.type,
    "const": _Evaluation.const,
    "enum": _Evaluation.enum,
    "required": _Evaluation.required,
    "properties": _Evaluation.properties,
    "additionalProperties": _Evaluation.additional_properties,
    "items": _Evaluation.items,
}


def _texts(asked: object) -> list[str]:
    """A list of texts."""
    if not isinstance(asked, list) or not _TEXT.issuperset(map(type, asked)):
        raise _OtherSchemaError
    return asked
