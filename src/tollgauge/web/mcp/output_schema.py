"""Output schemas of the tools.

A schema accepts everything that a tool returns as `structuredContent`: answers, payment terms and
problems, because clients validate all of them. Schemas are two levels deep and have no
descriptions, because clients load all of them in one list; /openapi.json has the full description.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, Final

from tollgauge.web.paid.product import Brief
from tollgauge.web.wire.openapi import PAYMENT_REQUIRED_SCHEMA, PROBLEM_SCHEMA
from tollgauge.web.wire.response_model import ResponseModel

Schema = dict[str, Any]

_DEPTH: Final = 2
_KEPT: Final = ("type", "enum", "const", "anyOf", "items", "required", "additionalProperties")


def output_schema(answers: Iterable[Mapping[str, Any]], *, paid: bool) -> Schema:
    """Combine the schemas of a tool's results; a paid tool also returns payment terms."""
    terms = _prune(PAYMENT_REQUIRED_SCHEMA, {}, 1)
    problem = _prune(PROBLEM_SCHEMA, {}, 1)
    problem["properties"]["retryAfter"] = {"type": "integer", "description": "Seconds"}
    terms["description"] = "x402 v2 PaymentRequired, with isError"
    problem["description"] = "RFC 9457 problem, with isError"
    others = [terms, problem] if paid else [problem]
    return {"type": "object", "anyOf": [*answers, *others]}


@cache  # pydantic takes 1 to 4 ms for a model
def of_model(model: type[ResponseModel], *fields: str) -> Schema:
    """Return the schema of an answer, or of the named fields of it."""
    whole = model.model_json_schema(mode="serialization")
    schema: Schema = _prune(whole, whole.get("$defs", {}), _DEPTH)
    if fields:
        schema["properties"] = {name: schema["properties"][name] for name in fields}
        schema["required"] = [name for name in schema["required"] if name in fields]
        schema.pop("additionalProperties", None)
    return schema


def of_pages(brief: Brief, model: type[ResponseModel]) -> Iterable[Schema]:
    """Yield the schemas of the pages of a long answer: its table, and each of its lists."""
    frame: Schema = {
        "total": {"type": "integer"},
        "offset": {"type": "integer"},
        "nextOffset": {"type": "integer"},
        "answerId": {"type": "string"},
        "more": {"type": "string"},
    }
    required = ["total", "offset", "answerId", "more"]
    table = {
        "columns": {"const": list(brief.columns)},
        "rows": {"type": "array", "items": {"type": "array"}},
    }
    yield {
        "type": "object",
        "required": [*table, *required],
        "properties": table | frame,
    }
    lists = of_model(model)["properties"]
    for name in brief.lists:
        yield {
            "type": "object",
            "required": [name, *required],
            "properties": {name: lists[name]} | frame,
            "additionalProperties": False,
        }


def _prune(schema: Any, definitions: Mapping[str, Any], depth: int) -> Any:
    """Inline references, drop texts, and allow any fields in objects below `depth`."""
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        schema = definitions[schema["$ref"].rpartition("/")[2]]
    if "properties" in schema and depth == 0:
        return {"type": "object"}
    pruned = {name: schema[name] for name in _KEPT if name in schema}
    for name in ("items", "additionalProperties"):
        if name in pruned:
            pruned[name] = _prune(pruned[name], definitions, depth)
    if "anyOf" in pruned:
        pruned["anyOf"] = [_prune(part, definitions, depth) for part in pruned["anyOf"]]
    if "properties" in schema:
        fields = schema["properties"].items()
        pruned["properties"] = {
            name: _prune(field, definitions, depth - 1) for name, field in fields
        }
    return pruned
