"""Writing: a configuration as the TOML file that `load` reads the same from.

Only what differs from the defaults is written. Secrets are written too: whoever writes a file
decides whether it may hold them (`tollgauge demo` has none).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any, Final

import orjson

from tollgauge.config import Config
from tollgauge.config.read import settings_of

_BARE: Final = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)
"""A key that TOML takes without quotes."""


def toml_text(config: Config) -> str:
    """The file of a configuration."""
    tables = [(f"[{section}]", rows) for section, rows in _sections(config).items()]
    tables += [("[[sources]]", asdict(source)) for source in config.sources]
    return "\n".join("\n".join(_lines(head, rows)) for head, rows in tables)


def _sections(config: Config) -> dict[str, dict[str, Any]]:
    """The tables of a file but `[[sources]]`, each whole, because TOML has a table once."""
    sections: dict[str, dict[str, Any]] = defaultdict(dict)
    default = Config()
    for setting in settings_of(Config):
        value = _value(config, setting.path)
        section, _, key = setting.path.rpartition(".")
        if value == _value(default, setting.path) or not section:
            continue
        if isinstance(value, Mapping):
            sections[setting.path].update(value)
        else:
            sections[section][key] = value
    return sections


def _lines(head: str, rows: Mapping[str, Any]) -> Iterator[str]:
    yield head
    for name, value in rows.items():
        key = name if _BARE.fullmatch(name) else toml_value(name)
        yield f"{key} = {toml_value(value)}"
    yield ""


def _value(config: Config, path: str) -> Any:
    value: Any = config
    for name in path.split("."):
        value = getattr(value, name)
    return value


def toml_value(value: Any) -> str:
    """A value as TOML writes it (toml.io/en/v1.0.0)."""
    match value:
        case bool():
            return str(value).lower()
        case int() if value >= 10_000:
            return f"{value:_}"
        case frozenset():
            return toml_value(sorted(value))
        case list() | tuple():
            return f"[{', '.join(map(toml_value, value))}]"
        case str():
            return orjson.dumps(value).decode()
        case _:
            return str(value)
