"""DeclaredInput: method, query and JSON body that a listing declares for a request.

Rules (x402 specification, the bazaar extension):
- x402 v2 declares example values (`extensions.bazaar.info.input`); v1 declares field descriptions
  (`accepts[].outputSchema.input`), where a plain text describes a field and is never its value;
- nothing is invented: a field without an example, default or enumeration is left out;
- only simple values go into a query, only JSON objects into a body; both are capped.

Nothing here raises, whatever a listing holds.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, urlencode

from tollgauge.core.base.text import clean_text
from tollgauge.core.probe.exchange import BODY_METHODS

BODY_MAX: Final = 8_192
"""Longest body in bytes."""
QUERY_MAX: Final = 1_024
"""Longest query in characters."""
METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"})
FIELDS_MAX: Final = 64
"""How many fields of an input are read; further ones are left out."""
_ONE_EXAMPLE: Final = ("example", "default", "const")
_EXAMPLES: Final = ("examples", "enum")
SCHEMA_KEYS: Final = ("type", *_ONE_EXAMPLE, *_EXAMPLES)
"""What is read of the schema of a field."""
_VALUE_MAX: Final = 256
_QUERY_KEYS: Final = ("queryParams", "query_params", "query")
_BODY_KEYS: Final = ("body", "bodyFields", "body_fields", "bodyParams")
_JSON_BODY: Final = frozenset({"json", "application/json", ""})
_SCHEMA_TYPES: Final = frozenset(
    {"string", "number", "integer", "boolean", "object", "array", "null"}
)
_MISSING: Final = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredInput:
    """What a listing says to send. `kind` is its transport (`http`, `mcp`), `query` a query
    without its question mark, `body` a JSON object of at most BODY_MAX bytes.
    """

    kind: str = "http"
    method: str | None = None
    query: str = ""
    body: bytes | None = None


def declared_input(item: Mapping[str, object]) -> DeclaredInput:
    """The declared input of a directory's entry: that of its first source that names a method, else
    of its first source, else a top-level `method` alone.
    """
    source, plain, method = _source(item)
    method = method or read_method(item.get("method"))
    return DeclaredInput(
        kind="mcp" if "mcp" in (source.get("type"), item.get("type")) else "http",
        method=method,
        query=_query(source, plain=plain),
        body=None if method and method not in BODY_METHODS else _body(source, plain=plain),
    )


def read_method(value: object) -> str | None:
    """An HTTP method that a listing may name, in upper case, or None."""
    name = value.strip().upper() if isinstance(value, str) and len(value) < 16 else ""
    return name if name in METHODS else None


def _source(item: Mapping[str, object]) -> tuple[Mapping[str, object], bool, str | None]:
    """The source of the input, whether its values are examples, and the method that it names."""
    first: tuple[Mapping[str, object], bool, str | None] | None = None
    for source, plain in _sources(item):
        if not source:
            continue
        method = read_method(source.get("method"))
        if method is not None:
            return source, plain, method
        first = first or (source, plain, None)
    return first or ({}, False, None)


def _sources(item: Mapping[str, object]) -> Iterator[tuple[Mapping[str, object], bool]]:
    """Every place that declares an input, with whether its values are examples (v2)."""
    for holder in (item, as_mapping(item.get("metadata"))):
        bazaar = as_mapping(as_mapping(holder.get("extensions")).get("bazaar"))
        yield as_mapping(as_mapping(bazaar.get("info")).get("input")), True
    accepts = item.get("accepts")
    for entry in accepts[:FIELDS_MAX] if isinstance(accepts, list) else ():
        yield as_mapping(as_mapping(as_mapping(entry).get("outputSchema")).get("input")), False
    for holder in (item, as_mapping(item.get("metadata"))):
        yield as_mapping(as_mapping(holder.get("outputSchema")).get("input")), False
        yield as_mapping(holder.get("input")), False


def _query(source: Mapping[str, object], *, plain: bool) -> str:
    """The query of the example values, the last ones left out where it is longer than QUERY_MAX."""
    pairs: list[tuple[str, str]] = []
    for key in _QUERY_KEYS:
        for name, value in _examples(source.get(key), plain=plain).items():
            text = _simple(value)
            if text is not None:
                pairs.append((clean_text(name, _VALUE_MAX), text))
    query = urlencode(pairs, quote_via=quote)
    while len(query) > QUERY_MAX:
        pairs.pop()
        query = urlencode(pairs, quote_via=quote)
    return query


def _simple(value: object) -> str | None:
    """The text of a value that a query can carry, None for any other."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value) if abs(value) < 2**64 else None
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else None
    if isinstance(value, str) and len(value) <= _VALUE_MAX:
        return clean_text(value, _VALUE_MAX)
    return None


def _body(source: Mapping[str, object], *, plain: bool) -> bytes | None:
    kind = source.get("bodyType", source.get("body_type"))
    if isinstance(kind, str) and kind.strip().lower() not in _JSON_BODY:
        return None
    fields: dict[str, object] = {}
    for key in _BODY_KEYS:
        fields |= _examples(source.get(key), plain=plain)
    if not fields:
        return None
    try:
        body = json.dumps(fields, separators=(",", ":"), allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError):
        return None
    return body if len(body) <= BODY_MAX else None


def _examples(fields: object, *, plain: bool) -> dict[str, object]:
    """The example value of each field that has one; `plain` says that values are examples and no
    descriptions of fields. Of the JSON Schema of an object, its properties are the fields.
    """
    if not isinstance(fields, dict):
        return {}
    if _is_schema(fields):
        whole = _example(fields, plain=False)
        if isinstance(whole, dict):
            return dict(list(whole.items())[:FIELDS_MAX])
        return _examples(fields.get("properties"), plain=False)
    examples = {
        str(name): _example(value, plain=plain) for name, value in list(fields.items())[:FIELDS_MAX]
    }
    return {name: value for name, value in examples.items() if value is not _MISSING}


def _example(value: object, *, plain: bool) -> object:
    """The example in a field's value or description, _MISSING without one."""
    if not isinstance(value, dict):
        return value if plain or isinstance(value, int | float) else _MISSING
    for key in _ONE_EXAMPLE:
        if value.get(key) is not None:
            return value[key]
    for key in _EXAMPLES:
        options = value.get(key)
        if isinstance(options, list) and options:
            return options[0]
    return value if plain and not _is_schema(value) else _MISSING


def _is_schema(value: Mapping[str, object]) -> bool:
    """Whether an object describes a value rather than being one."""
    kind = value.get("type")
    return isinstance(kind, str) and kind in _SCHEMA_TYPES


def as_mapping(value: object) -> Mapping[str, object]:
    """The value if it is a JSON object, else an empty one."""
    return value if isinstance(value, dict) else {}
