"""Evaluation of an example (`info`) against the JSON Schema that came with it.

The schema comes from the server that is judged, so the `jsonschema` library runs with limits:

- Nothing is fetched: the registry is empty, and `has_external_reference` finds references to other
  documents.
- No regular expression is run (`pattern`, `patternProperties`, `format`): one can take exponential
  time, and Python cannot interrupt it. `uniqueItems` is quadratic, and the `unevaluated*` keywords
  follow references outside these limits. A keyword that is not evaluated counts as fulfilled.
- Each keyword costs a step plus one per part of its value, and a visit per part of the instance; a
  `$ref` to an anchor costs a visit per part of the schema, which the library searches each time.
  References nest at most MAX_REFERENCE_DEPTH deep. A schema that needs more is `TOO_COMPLEX`.
- `$schema` is removed: in a subschema it would select a validator without limits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from jsonschema import Draft202012Validator, validators
from jsonschema.exceptions import UnknownType, ValidationError
from referencing import Registry
from referencing.exceptions import Unresolvable

MAX_STEPS: Final = 5_000
MAX_VISITS: Final = 100_000
MAX_REFERENCE_DEPTH: Final = 8
_REFERENCES: Final = frozenset({"$ref", "$dynamicRef", "$recursiveRef", "$id", "id"})
_UNSAFE: Final = frozenset(
    {"pattern", "patternProperties", "format", "uniqueItems", "$dynamicRef"}
    | {"unevaluatedItems", "unevaluatedProperties"}
)
_NON_MONOTONIC: Final = frozenset({"not", "oneOf", "if", "maxContains"})
_BROKEN_SCHEMA: Final = (
    TypeError,
    ValueError,
    AttributeError,
    LookupError,
    ArithmeticError,
    UnknownType,
    Unresolvable,
)

Keyword = Callable[[Any, Any, Any, Any], Iterator[ValidationError]]


class SchemaVerdict(StrEnum):
    """The outcome of an evaluation."""

    FITS = "fits"
    MISMATCH = "mismatch"
    BROKEN = "broken"
    TOO_COMPLEX = "too-complex"


class _ExhaustedError(Exception):
    """The evaluation took more than its budget."""


@dataclass(slots=True)
class _Budget:
    """Remaining steps and visits of an evaluation, its depth in references, and the number of parts
    of its schema.
    """

    parts: int
    steps: int = MAX_STEPS
    visits: int = MAX_VISITS
    depth: int = 0


_BUDGET: Final[ContextVar[_Budget]] = ContextVar("budget of an evaluation")


def _limit_cost(name: str, keyword: Keyword) -> Keyword:
    """Return a keyword's function that first takes its costs from the budget."""

    def check_capped(
        validator: Any, value: Any, instance: Any, schema: Any
    ) -> Iterator[ValidationError]:
        budget = _BUDGET.get()
        budget.steps -= 1 + (len(value) if isinstance(value, (list, dict, str)) else 0)
        budget.visits -= _count_parts(instance)
        if name == "$ref" and isinstance(value, str) and not value.startswith("#/"):
            budget.visits -= budget.parts
        if budget.steps < 0 or budget.visits < 0:
            raise _ExhaustedError
        if name == "additionalProperties" and "patternProperties" in schema:
            return
        budget.depth += name == "$ref"
        if budget.depth > MAX_REFERENCE_DEPTH:
            raise _ExhaustedError
        try:
            yield from keyword(validator, value, instance, schema) or ()
        finally:
            budget.depth -= name == "$ref"

    return check_capped


# Created once: creating the class takes longer than most evaluations.
_LimitedValidator: Final[Any] = validators.create(
    meta_schema=Draft202012Validator.META_SCHEMA,
    validators={
        name: _limit_cost(name, keyword)
        for name, keyword in Draft202012Validator.VALIDATORS.items()
        if name not in _UNSAFE
    },
    type_checker=Draft202012Validator.TYPE_CHECKER,
)
_EMPTY_REGISTRY: Final[Registry[Any]] = Registry()


def evaluate(info: object, schema: object) -> SchemaVerdict:
    """Return whether `info` fits `schema`, within the limits above. Never raises."""
    if isinstance(schema, bool):
        return SchemaVerdict.FITS if schema else SchemaVerdict.MISMATCH
    if not isinstance(schema, dict):
        return SchemaVerdict.BROKEN
    before = _BUDGET.set(_Budget(parts=_count_parts(schema)))
    try:
        fits = _LimitedValidator(_remove_dialect(schema), registry=_EMPTY_REGISTRY).is_valid(info)
    except (_ExhaustedError, RecursionError):
        return SchemaVerdict.TOO_COMPLEX
    except _BROKEN_SCHEMA:
        return SchemaVerdict.BROKEN
    finally:
        _BUDGET.reset(before)
    return SchemaVerdict.FITS if fits or _is_doubtful(schema) else SchemaVerdict.MISMATCH


def has_external_reference(value: object) -> bool:
    """Return whether a schema refers to another document.

    A `$ref` must start with `#`, and a `$id` too (bazaar extension, *Schema Validation*): a
    facilitator that follows another one can be sent anywhere.
    """
    return any(
        isinstance(target := level[key], str)
        and not target.startswith("#")
        # `id` is an identifier of older drafts, and more often the name of a property
        and (key != "id" or "://" in target)
        for level in _list_objects(value)
        for key in _REFERENCES & level.keys()
    )


def _is_doubtful(schema: dict[str, object]) -> bool:
    """Return whether a keyword that was not evaluated may have turned a fit into a mismatch.

    Below `not` it can. `format` cannot: draft 2020-12 does not assert it.
    """
    names = {name for level in _list_objects(schema) for name in level}
    return bool(names & _NON_MONOTONIC and names & (_UNSAFE - {"format"}))


def _list_objects(value: object) -> Iterator[dict[str, object]]:
    """Return every object in a JSON value, at any depth."""
    return (inner for inner in _list_values(value) if isinstance(inner, dict))


def _count_parts(value: object) -> int:
    """Return the number of values in a JSON value, at any depth."""
    return len(_list_values(value)) if isinstance(value, (dict, list)) else 1


def _list_values(value: object) -> list[object]:
    """Return a JSON value and every value inside it."""
    values = [value]
    for inner in values:  # the list grows in the loop
        if isinstance(inner, dict):
            values += inner.values()
        elif isinstance(inner, list):
            values += inner
    return values


def _remove_dialect(value: Any) -> Any:
    """Return a copy of a schema without `$schema`, at any depth."""
    if isinstance(value, list):
        return [_remove_dialect(item) for item in value]
    if isinstance(value, dict):
        return {
            key: _remove_dialect(inner)
            for key, inner in value.items()
            if key != "$schema" or not isinstance(inner, str)
        }
    return value
