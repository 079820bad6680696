"""DeclaredInput: method, query and JSON body that a listing declares for a request.

Rules (x402 specification, the bazaar extension):
- x402 v2 declares example values (`extensions.bazaar.info.input`); v1 declares field descriptions
  (`accepts[].outputSchema.input`), in which plain text describes a field and is not its value;
- nothing is invented: a field without an example, default or enumeration is omitted;
- only simple values go into a query, only JSON objects into a body; both are limited in size.

Nothing here raises, whatever a listing contains.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, urlencode

from tollgauge.core.base.text import clean_text
from tollgauge.core.endpoint.identity import Transport
from tollgauge.core.lint.parsing import members
from tollgauge.core.probe.exchange import BODY_METHODS

BODY_MAX: Final = 8_192  # bytes
QUERY_MAX: Final = 1_024  # characters
METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"})
FIELDS_MAX: Final = 64  # fields of an input that are read
_ONE_EXAMPLE: Final = ("example", "default", "const")
_EXAMPLES: Final = ("examples", "enum")
SCHEMA_KEYS: Final = ("type", *_ONE_EXAMPLE, *_EXAMPLES)
"""The members of a field's schema that are read."""
_VALUE_MAX: Final = 256
_QUERY_KEYS: Final = ("queryParams", "query_params", "query")
_BODY_KEYS: Final = ("body", "bodyFields", "body_fields", "bodyParams")
_JSON_BODY: Final = frozenset({"json", "application/json", ""})
_SCHEMA_TYPES: Final = frozenset(
    {"string", "number", "integer", "boolean", "object", "array", "null"}
)
_STREAMABLE: Final = "streamable-http"
_MISSING: Final = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredInput:
    """The input that a listing declares.

    Attributes:
        query: Without a question mark.
        body: A JSON object of at most BODY_MAX bytes; the arguments of an MCP tool.
        tool: The name of an MCP tool that is called over streamable HTTP; otherwise empty.
    """

    transport: Transport = Transport.HTTP
    tool: str = ""
    method: str | None = None
    query: str = ""
    body: bytes | None = None


def declared_input(item: Mapping[str, object]) -> DeclaredInput:
    """Return the declared input of a directory's entry.

    It is that of the first source that states a method, otherwise of the first source, otherwise
    only a top-level `method`.
    """
    source, plain, method = _find_source(item)
    kinds = (source.get("type"), item.get("type"))
    if "a2a" in kinds:
        return DeclaredInput(transport=Transport.A2A)
    if "mcp" in kinds:
        name = source.get("toolName", source.get("tool"))
        reachable = source.get("transport", _STREAMABLE) == _STREAMABLE
        return DeclaredInput(
            transport=Transport.MCP,
            tool=name if isinstance(name, str) and reachable else "",
            body=_read_arguments(source),
        )
    method = method or read_method(item.get("method"))
    return DeclaredInput(
        method=method,
        query=_read_query(source, plain=plain),
        body=None if method and method not in BODY_METHODS else _read_body(source, plain=plain),
    )


def read_method(value: object) -> str | None:
    """Return a supported HTTP method in upper case, or None."""
    name = value.strip().upper() if isinstance(value, str) and len(value) < 16 else ""
    return name if name in METHODS else None


def _find_source(item: Mapping[str, object]) -> tuple[Mapping[str, object], bool, str | None]:
    """Return the source of the input, whether its values are examples, and its method."""
    first: tuple[Mapping[str, object], bool, str | None] | None = None
    for source, plain in _list_sources(item):
        if not source:
            continue
        method = read_method(source.get("method"))
        if method is not None:
            return source, plain, method
        first = first or (source, plain, None)
    return first or ({}, False, None)


def _list_sources(item: Mapping[str, object]) -> Iterator[tuple[Mapping[str, object], bool]]:
    """Yield every object that declares an input, and whether its values are examples (v2)."""
    for holder in (item, members(item.get("metadata"))):
        bazaar = members(members(holder.get("extensions")).get("bazaar"))
        yield members(members(bazaar.get("info")).get("input")), True
    accepts = item.get("accepts")
    for entry in accepts[:FIELDS_MAX] if isinstance(accepts, list) else ():
        yield members(members(members(entry).get("outputSchema")).get("input")), False
    for holder in (item, members(item.get("metadata"))):
        yield members(members(holder.get("outputSchema")).get("input")), False
        yield members(holder.get("input")), False


def _read_query(source: Mapping[str, object], *, plain: bool) -> str:
    """Return the query of the example values, without the last ones if it exceeds QUERY_MAX."""
    pairs: list[tuple[str, str]] = []
    for key in _QUERY_KEYS:
        for name, value in _read_examples(source.get(key), plain=plain).items():
            text = _format_simple(value)
            if text is not None:
                pairs.append((clean_text(name, _VALUE_MAX), text))
    query = urlencode(pairs, quote_via=quote)
    while len(query) > QUERY_MAX:
        pairs.pop()
        query = urlencode(pairs, quote_via=quote)
    return query


def _format_simple(value: object) -> str | None:
    """Return the text of a value that fits into a query; None for any other value."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value) if abs(value) < 2**64 else None
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else None
    if isinstance(value, str) and len(value) <= _VALUE_MAX:
        return clean_text(value, _VALUE_MAX)
    return None


def _read_body(source: Mapping[str, object], *, plain: bool) -> bytes | None:
    kind = source.get("bodyType", source.get("body_type"))
    if isinstance(kind, str) and kind.strip().lower() not in _JSON_BODY:
        return None
    fields: dict[str, object] = {}
    for key in _BODY_KEYS:
        fields |= _read_examples(source.get(key), plain=plain)
    return _dump(fields) if fields else None


def _read_arguments(source: Mapping[str, object]) -> bytes | None:
    """Return the example arguments of an MCP tool: the listing's, otherwise those of the schema."""
    example = source.get("example")
    return _dump(
        example
        if isinstance(example, dict)
        else _read_examples(source.get("inputSchema"), plain=False)
    )


def _dump(fields: Mapping[str, object]) -> bytes | None:
    """Return fields as JSON; None if they are too large or not JSON."""
    try:
        body = json.dumps(fields, separators=(",", ":"), allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError):
        return None
    return body if len(body) <= BODY_MAX else None


def _read_examples(fields: object, *, plain: bool) -> dict[str, object]:
    """Return the example value of each field that has one.

    `plain`: values are examples, not descriptions of fields. In a JSON Schema of an object, the
    properties are the fields.
    """
    if not isinstance(fields, dict):
        return {}
    if _is_schema(fields):
        whole = _read_example(fields, plain=False)
        if isinstance(whole, dict):
            return dict(list(whole.items())[:FIELDS_MAX])
        return _read_examples(fields.get("properties"), plain=False)
    examples = {
        str(name): _read_example(value, plain=plain)
        for name, value in list(fields.items())[:FIELDS_MAX]
    }
    return {name: value for name, value in examples.items() if value is not _MISSING}


def _read_example(value: object, *, plain: bool) -> object:
    """Return the example in a field's value or description; _MISSING without one."""
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
    """Return whether an object describes a value instead of being one."""
    kind = value.get("type")
    return isinstance(kind, str) and kind in _SCHEMA_TYPES
