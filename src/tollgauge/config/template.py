"""The TOML that tollgauge writes: the commented template of `tollgauge init`, and a configuration.

In the template every value is commented out, so that a file contains only what its operator
changed and newer defaults apply. A section without a description is left out.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any, Final

from pydantic import TypeAdapter

from tollgauge.config import Config
from tollgauge.config.read import FILE
from tollgauge.config.settings import PREFIX, Section, list_sections

_WIDTH: Final = 98
_COMMENT_COLUMN: Final = 36
_HEAD: Final = f"""\
# Settings of tollgauge, as `tollgauge init` writes them: all settings with their defaults.
# To change a value, remove the # before its name.
#
# Environment variables take precedence: {PREFIX}<SECTION>_<KEY>, such as
# {PREFIX}SERVER_PORT or {PREFIX}PROBE_CADENCE_EVERY_MS. Separate list items by commas.
# Secrets are read only from the environment, or from the file that <NAME>{FILE} names.
# `tollgauge config check` reports all errors together.
"""


def template() -> str:
    """Return the file that `tollgauge init` writes."""
    lines = [_HEAD]
    for section in list_sections(Config):
        if section.description:
            lines += _describe_section(section)
    return "\n".join(lines).rstrip() + "\n"


def toml_text(config: Config) -> str:
    """Return a file from which `load` reads the same configuration.

    It contains only what differs from the defaults. Secrets are included: the caller decides
    whether the file may contain them (`tollgauge demo` has none).
    """
    return "".join(_write_tables(TypeAdapter(Config).dump_python(config, exclude_defaults=True)))


def toml_value(value: Any) -> str:
    """Format a value as TOML (toml.io/en/v1.0.0)."""
    if type(value) is int and value >= 10_000:
        return f"{value:_}"
    return json.dumps(value, ensure_ascii=False, default=sorted)  # a frozenset becomes a list


def _describe_section(section: Section) -> Iterator[str]:
    yield from _comment(section.description)
    yield f"#[[{section.path}]]" if section.is_array else f"[{section.path}]"
    tables: list[str] = []
    for setting in section.settings:
        if isinstance(setting.default, Mapping):
            tables += [*_comment(setting.description), f"[{setting.path}]"]
            tables += [f"#{toml_value(k)} = {toml_value(v)}" for k, v in setting.example.items()]
            tables.append("")
        elif setting.secret:
            yield from (*_comment(f"{setting.variable} (a secret): {setting.description}"), "")
        else:
            line = f"#{setting.name} = {toml_value(setting.example)}"
            inline = f"{line:{_COMMENT_COLUMN}}# {setting.description}"
            if len(line) < _COMMENT_COLUMN and len(inline) <= _WIDTH:
                yield inline
            else:
                yield from (*_comment(setting.description), line)
    yield ""
    yield from tables


def _comment(text: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent="# ", subsequent_indent="# ")


def _write_tables(values: Mapping[str, Any], header: str = "", path: str = "") -> Iterator[str]:
    """Yield the values of a table, then its nested tables."""
    tables: list[tuple[str, str, Mapping[str, Any]]] = []
    lines = []
    for key, value in values.items():
        inner = f"{path}.{key}".lstrip(".")
        if isinstance(value, Mapping):
            tables.append((f"[{inner}]\n", inner, value))
        elif isinstance(value, tuple) and value and isinstance(value[0], Mapping):
            tables += [(f"[[{inner}]]\n", inner, table) for table in value]
        else:
            lines.append(
                f"{key if key.isidentifier() else toml_value(key)} = {toml_value(value)}\n"
            )
    if lines:
        yield "".join((header, *lines, "\n"))
    for inner_header, inner, table in tables:
        yield from _write_tables(table, inner_header, inner)
