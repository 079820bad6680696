"""The configuration file that `tollgauge init` writes.

Every value is commented out, so that a file contains only what its operator changed and newer
defaults apply. A section without a description is left out.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any, Final

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
