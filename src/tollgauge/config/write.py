"""Writing: a configuration as the TOML file that `load` reads the same from.

Only what differs from the defaults is written. Secrets are written too: whoever writes a file
decides whether it may hold them (`tollgauge demo` has none).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

from tollgauge.config import Config
from tollgauge.config.read import settings_of


def toml_text(config: Config) -> str:
    """The file of a configuration."""
    return "\n".join(_lines(config)).lstrip("\n") + "\n"


def _lines(config: Config) -> Iterator[str]:
    default, here = Config(), ""
    for setting in settings_of(Config):
        value = _value(config, setting.path)
        section, _, key = setting.path.rpartition(".")
        if value == _value(default, setting.path) or not section:
            continue
        if isinstance(value, Mapping):
            yield from _table(f"[{setting.path}]", value)
            here = setting.path
            continue
        if section != here:
            yield f"\n[{section}]"
            here = section
        yield f"{key} = {_toml(value)}"
    for source in config.sources:
        shown = {field.name: getattr(source, field.name) for field in fields(source)}
        yield from _table("[[sources]]", shown)


def _table(head: str, rows: Mapping[str, Any]) -> Iterator[str]:
    yield f"\n{head}"
    yield from (f"{_toml(name)} = {_toml(value)}" for name, value in rows.items())


def _value(config: Config, path: str) -> Any:
    value: Any = config
    for name in path.split("."):
        value = getattr(value, name)
    return value


def _toml(value: Any) -> str:
    """A value in TOML, of whose texts, numbers, booleans and lists JSON is a part."""
    listed = sorted(value) if isinstance(value, frozenset) else value
    return json.dumps(listed, ensure_ascii=False)
