"""JSON Schema, evaluated on hostile schemas: does `info` fit the schema that came with it?

The schema comes from the server that is judged, so its evaluation is limited:
- nothing is fetched: a schema with a reference out of its document is not evaluated
  (`has_external_reference`), and the registry is empty;
- `pattern`, `patternProperties` and `format` are not evaluated: one regular expression can take
  exponential time, and Python's cannot be interrupted;
- `uniqueItems` and the `unevaluated*` keywords are not evaluated either: the first is quadratic,
  the others follow references on their own, past these limits;
- each keyword costs a step, and for every part of the value that it judges a look, because the
  library goes through a list even for an empty schema, and writes out what does not fit. A
  reference to an `$anchor` costs a look for every part of the schema, which the library searches
  each time. References may nest only a few levels. A schema that needs more is `TOO_COMPLEX`, not
  wrong;
- `$schema` is dropped: it would let a subschema choose a validator without limits.
A keyword that is not evaluated is taken as fulfilled. That only hides mismatches, except below
`not`, `oneOf` and the like, where it can make some: such a schema gets the benefit of the doubt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import orjson
from jsonschema import Draft202012Validator, validators
from jsonschema.exceptions import UnknownType, ValidationError
from referencing import Registry
from referencing.exceptions import Unresolvable

from tollgauge.core.lint import plain_schema

STEPS_MAX: Final = 5_000
LOOKS_MAX: Final = 20_000
REFERENCE_DEPTH_MAX: Final = 8
_REFERENCES: Final = frozenset({"$ref", "$dynamicRef", "$recursiveRef", "$id", "id"})
_REFERENCE_WORDS: Final = tuple(f'"{name}":'.encode() for name in _REFERENCES)
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


class Verdict(StrEnum):
    """The outcome of an evaluation."""

    FITS = "fits"
    MISMATCH = "mismatch"
    BROKEN = "broken"
    TOO_COMPLEX = "too-complex"


class _ExhaustedError(Exception):
    """The evaluation took more than its budget."""


@dataclass(slots=True)
class _Budget:
    """How many steps and looks an evaluation may still take, how deep in references it is, and how
    many parts its schema has.
    """

    parts: int
    steps: int = STEPS_MAX
    looks: int = LOOKS_MAX
    depth: int = 0


_BUDGET: Final[ContextVar[_Budget]] = ContextVar("budget of an evaluation")


def _limited(name: str, keyword: Keyword) -> Keyword:
    """The function of a keyword that first takes its steps from the budget."""

    def capped(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
        budget = _BUDGET.get()
        budget.steps -= 1 + (len(value) if isinstance(value, (list, dict, str)) else 0)
        budget.looks -= _parts(instance)
        if name == "$ref" and isinstance(value, str) and not value.startswith("#/"):
            budget.looks -= budget.parts
        if budget.steps < 0 or budget.looks < 0:
            raise _ExhaustedError
        if name == "additionalProperties" and "patternProperties" in schema:
            return
        budget.depth += name == "$ref"
        if budget.depth > REFERENCE_DEPTH_MAX:
            raise _ExhaustedError
        try:
            yield from keyword(validator, value, instance, schema) or ()
        finally:
            budget.depth -= name == "$ref"

    return capped


_LimitedValidator: Final[Any] = validators.create(  # once: it takes longer than most evaluations
    meta_schema=Draft202012Validator.META_SCHEMA,
    validators={
        name: _limited(name, keyword)
        for name, keyword in Draft202012Validator.VALIDATORS.items()
        if name not in _UNSAFE
    },
    type_checker=Draft202012Validator.TYPE_CHECKER,
)
_EMPTY_REGISTRY: Final[Registry[Any]] = Registry()


def evaluate(info: object, schema: object) -> Verdict:
    """Whether `info` fits `schema`, as far as these limits let us know. Never raises."""
    if isinstance(schema, bool):
        return Verdict.FITS if schema else Verdict.MISMATCH
    if not isinstance(schema, dict):
        return Verdict.BROKEN
    plain = plain_schema.fits(info, schema, steps_max=STEPS_MAX)
    if plain is not None:
        return Verdict.FITS if plain else Verdict.MISMATCH
    before = _BUDGET.set(_Budget(parts=_parts(schema)))
    try:
        fits = _LimitedValidator(_without_dialect(schema), registry=_EMPTY_REGISTRY).is_valid(info)
    except (_ExhaustedError, RecursionError):
        return Verdict.TOO_COMPLEX
    except _BROKEN_SCHEMA:
        return Verdict.BROKEN
    finally:
        _BUDGET.reset(before)
    return Verdict.FITS if fits or _doubtful(schema) else Verdict.MISMATCH


def has_external_reference(value: object) -> bool:
    """Whether a schema refers to anything outside its own document.

    A `$ref` must start with `#`, and a `$id` too (bazaar extension, *Schema Validation*): a
    facilitator that follows another one can be sent anywhere.
    """
    if not _may_refer(value):
        return False
    return any(
        isinstance(target := level[key], str)
        and not target.startswith("#")
        # `id` is an identifier of older drafts, and more often the name of a property
        and (key != "id" or "://" in target)
        for level in _objects(value)
        for key in _REFERENCES & level.keys()
    )


def _may_refer(value: object) -> bool:
    """Whether a JSON value has any member that may refer. Nearly none has, and its text says so
    sooner than a look at every object.
    """
    try:
        text = orjson.dumps(value)
    except orjson.JSONEncodeError:  # no text says it, such as one nested too deeply
        return True
    return any(word in text for word in _REFERENCE_WORDS)


def _doubtful(schema: dict[str, object]) -> bool:
    """Whether a keyword that was left out may have turned a fit into a mismatch. `format` does
    not count: draft 2020-12 does not assert it.
    """
    names = {name for level in _objects(schema) for name in level}
    return bool(names & _NON_MONOTONIC and names & (_UNSAFE - {"format"}))


def _objects(value: object) -> Iterator[dict[str, object]]:
    """Every object in a JSON value, at any depth."""
    return (inner for inner in _values(value) if isinstance(inner, dict))


def _parts(value: object) -> int:
    """How many values a JSON value consists of, at any depth."""
    return len(_values(value)) if isinstance(value, (dict, list)) else 1


def _values(value: object) -> list[object]:
    """A JSON value and every one inside it."""
    values = [value]
    for inner in values:  # which grows meanwhile
        if isinstance(inner, dict):
            values += inner.values()
        elif isinstance(inner, list):
            values += inner
    return values


def _without_dialect(value: Any) -> Any:
    """A schema without `$schema`, at any depth."""
    if isinstance(value, list):
        return [_without_dialect(item) for item in value]
    if isinstance(value, dict):
        return {
            key: _without_dialect(inner)
            for key, inner in value.items()
            if key != "$schema" or not isinstance(inner, str)
        }
    return value
