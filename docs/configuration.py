"""docs/reference/configuration.md: every setting, generated from the settings' declarations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import reduce
from typing import Any, Final

import orjson
from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue, JsonSchemaWarningKind

from docs.markdown import add_title, table
from tollgauge.clients.chain.nodes import ChainSettings
from tollgauge.config import Config
from tollgauge.config.settings import Section, Setting, list_sections
from tollgauge.jobs.loop_settings import Source

_INTRODUCTION: Final = """\
Settings come from one TOML file (`tollgauge.toml` in the current folder, `--config`, or
`TOLLGAUGE_CONFIG`) and from the environment, which takes precedence. `probe.cadence.every_ms` is
the key `every_ms` of the table `[probe.cadence]`; its environment variable is
`TOLLGAUGE_PROBE_CADENCE_EVERY_MS`. In variables, list items are separated by commas.
`DATABASE_URL` also sets `store.url`. A *secret* is read only from the environment and rejected in
the file. An unknown key is an error. `tollgauge config check` reports all errors together.
[Run the service](../how-to/run.md) lists the settings to begin with."""
_UNITS: Final = {
    "_ms": "ms",
    "_s": "s",
    "_seconds": "s",
    "_cap": "bytes",
    "_per_minute": "a minute",
    "_per_hour": "an hour",
}
_TYPES: Final = {
    "integer": "whole number",
    "number": "number",
    "string": "text",
    "boolean": "true or false",
    "array": "list",
    "object": "table",
}


class _Schema(GenerateJsonSchema):
    """Omits fields that hold a function: they are not settings and have no schema."""

    def callable_schema(self, _schema: Any) -> JsonSchemaValue:
        return {}

    def emit_warning(self, _kind: JsonSchemaWarningKind, _detail: str) -> None:
        return


def configuration() -> str:
    """Return the page as Markdown."""
    schema = _schema(Config)
    parts = [
        _describe_array(section) if section.is_array else _describe_table(section, schema)
        for section in list_sections(Config)
    ]
    return add_title(
        "Configuration",
        "the settings and tollgauge.example.toml",
        "\n\n".join((_INTRODUCTION, *parts)) + "\n",
    )


def _describe_table(section: Section, schema: dict[str, Any]) -> str:
    head = ("setting", "type", "default", "range", "unit", "description")
    rows = [_row(setting, _at(schema, setting.path)) for setting in section.settings]
    return f"## {section.path}\n\n{table(head, rows)}"


def _schema(kind: type[Any]) -> dict[str, Any]:
    return TypeAdapter(kind).json_schema(schema_generator=_Schema)


def _at(schema: dict[str, Any], path: str) -> Mapping[str, Any]:
    """The schema of the value at a path."""

    def into(here: Mapping[str, Any], name: str) -> Mapping[str, Any]:
        if "$ref" in here:
            here = schema["$defs"][here["$ref"].rpartition("/")[2]]
        value: Mapping[str, Any] = here["properties"][name]
        return value

    return reduce(into, path.split("."), schema)


def _row(setting: Setting, schema: Mapping[str, Any]) -> tuple[object, ...]:
    description = setting.description
    return (
        f"`{setting.name}`",
        "secret" if setting.secret else _type(schema),
        "" if setting.secret else _value(setting.default),
        ", ".join(_range(schema)),
        next((unit for end, unit in _UNITS.items() if setting.name.endswith(end)), ""),
        f"`{setting.variable}`: {description}" if setting.secret else description,
    )


def _type(schema: Mapping[str, Any]) -> str:
    kinds = [part for part in schema.get("anyOf", (schema,)) if part.get("type") != "null"]
    return _TYPES.get(str(kinds[0].get("type")), "text")


def _value(value: Any) -> str:
    """Format a default as TOML; empty if there is none."""
    if value is None:
        return ""
    if isinstance(value, frozenset):
        value = sorted(value)
    return f"`{orjson.dumps(value, default=list).decode()}`" if value != {} else ""


def _range(schema: Mapping[str, Any]) -> Iterator[str]:
    for key, words in (("exclusiveMinimum", "above"), ("minimum", "from"), ("maximum", "to")):
        if key in schema:
            yield f"{words} {schema[key]:,}"
    if "pattern" in schema:
        yield f"`{schema['pattern']}`"


def _describe_array(section: Section) -> str:
    """Describe an array of tables, such as `[[sources]]`."""
    kind, introduction = _ARRAYS[section.path]
    properties = _schema(kind)["properties"]
    rows = [
        (
            f"`{setting.name}`",
            "secret" if setting.secret else _type(properties[setting.name]),
            "" if setting.secret else _value(setting.default) or "must be set",
            "ms" if setting.name.endswith("_ms") else "",
            f"`{setting.variable}`: {setting.description}"
            if setting.secret
            else setting.description,
        )
        for setting in section.settings
    ]
    head = ("setting", "type", "default", "unit", "description")
    return f"## {section.path}\n\n{introduction}\n\n{table(head, rows)}"


_ARRAYS: Final[dict[str, tuple[type, str]]] = {
    "chains": (
        ChainSettings,
        (
            "The chains whose settlements are read and whose transactions are traced, one "
            "`[[chains]]` table each ([how](../how-to/add-a-chain.md))."
        ),
    ),
    "sources": (
        Source,
        (
            "The directories to crawl, one `[[sources]]` table each "
            "([how](../how-to/add-a-directory.md))."
        ),
    ),
}
