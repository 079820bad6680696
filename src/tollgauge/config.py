"""Configuration: one TOML file and the environment, read once into frozen sections.

Rules: sections are dataclasses that live beside their consumers; an unknown key is an error; every
problem is reported at once; secrets come from the environment alone. A value's environment name
is `TOLLGAUGE_<SECTION>_<KEY>`; `DATABASE_URL` is understood for the store.
"""

from __future__ import annotations

import dataclasses
import tomllib
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from tollgauge.clients.egress import EgressSettings
from tollgauge.clients.evm import RpcSettings
from tollgauge.clients.facilitator import FacilitatorSettings
from tollgauge.clients.transactions import NetworkSettings
from tollgauge.core.errors import TollgaugeError
from tollgauge.core.units import known_asset
from tollgauge.jobs.discover import Source
from tollgauge.jobs.probe import ProbeSettings
from tollgauge.jobs.score import ScoreSettings
from tollgauge.web.app import ServerSettings
from tollgauge.web.paid import SaleSettings

SECRETS: Final = frozenset(
    {("facilitator", "headers"), ("rpc", "url")}
    | {("networks", field.name) for field in dataclasses.fields(NetworkSettings)}
)
"""Values that are refused in the file, because files end up in repositories."""


class ConfigError(TollgaugeError):
    """The configuration cannot be used; `problems` lists everything that is wrong with it."""

    def __init__(self, problems: tuple[str, ...]) -> None:
        super().__init__("The configuration has problems:\n- " + "\n- ".join(problems))
        self.problems = problems


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSettings:
    """Which database: `sqlite:///file` or `postgresql://user@host/name`."""

    url: str = "sqlite:///tollgauge.sqlite"


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Everything that can be configured, one frozen section a consumer."""

    server: ServerSettings = field(default_factory=ServerSettings)
    store: StoreSettings = field(default_factory=StoreSettings)
    sale: SaleSettings = field(default_factory=SaleSettings)
    facilitator: FacilitatorSettings = field(default_factory=FacilitatorSettings)
    rpc: RpcSettings = field(default_factory=RpcSettings)
    networks: NetworkSettings = field(default_factory=NetworkSettings)
    egress: EgressSettings = field(default_factory=EgressSettings)
    probe: ProbeSettings = field(default_factory=ProbeSettings)
    score: ScoreSettings = field(default_factory=ScoreSettings)
    sources: tuple[Source, ...] = ()


def load(path: Path | None, environment: Mapping[str, str]) -> Config:
    """The configuration of a file (None: defaults) under an environment.

    Raises ConfigError with every problem at once.
    """
    problems: list[str] = []
    document = _document(path, problems)
    sections: dict[str, Any] = {}
    hints = typing.get_type_hints(Config)
    problems.extend(f"[{name}] is not a section" for name in document.keys() - hints.keys())
    for name, kind in hints.items():
        raw = document.get(name, [] if name == "sources" else {})
        if name == "sources":
            sections[name] = _sources(raw, problems)
        else:
            sections[name] = _section(name, kind, raw, environment, problems)
    if problems:
        raise ConfigError(tuple(problems))
    config = Config(**sections)
    problems = check(config)
    if problems:
        raise ConfigError(tuple(problems))
    return config


def check(config: Config) -> list[str]:
    """What is wrong with a configuration whose every value has the right type."""
    problems = []
    host = urlsplit(config.server.base_url).hostname or ""
    local = host in ("localhost", "::1") or host.startswith("127.")
    if config.egress.mapped and not local:
        problems.append("egress.mapped is for a world on one machine: base_url must be loopback")
    if config.sale.pay_to and not config.facilitator.url:
        problems.append("sale.pay_to is set but facilitator.url is not: nothing could settle")
    if config.sale.pay_to and known_asset(config.sale.network, config.sale.asset) is None:
        problems.append("sale.asset is not native USDC of sale.network")
    return problems


def _document(path: Path | None, problems: list[str]) -> dict[str, Any]:
    if path is None:
        return {}
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError:
        problems.append(f"{path.name} cannot be read")
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        problems.append(f"{path.name} is not TOML: {error}")
    return {}


def _section(
    name: str, kind: Any, raw: Any, environment: Mapping[str, str], problems: list[str]
) -> Any:
    if not isinstance(raw, dict):
        problems.append(f"[{name}] must be a table")
        return kind()
    hints = typing.get_type_hints(kind)
    values: dict[str, Any] = {}
    for key, value in raw.items():
        if key not in hints:
            problems.append(f"{name}.{key} is not a setting")
        elif (name, key) in SECRETS:
            problems.append(
                f"{name}.{key} is a secret: set TOLLGAUGE_{name.upper()}_{key.upper()} instead"
            )
        else:
            values[key] = _value(f"{name}.{key}", hints[key], value, problems)
    for key, hint in hints.items():
        text = environment.get(f"TOLLGAUGE_{name.upper()}_{key.upper()}")
        if text is None and (name, key) == ("store", "url"):
            text = environment.get("DATABASE_URL")
        if text is not None:
            values[key] = _text_value(f"{name}.{key}", hint, text, problems)
    try:
        return kind(**values)
    except (TypeError, ValueError) as error:
        problems.append(f"[{name}]: {error}")
        return kind()


def _value(where: str, hint: Any, value: Any, problems: list[str]) -> Any:
    """A TOML value as its field's type: lists become tuples, tables of pairs stay mappings."""
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        inner = [arg for arg in typing.get_args(hint) if arg is not type(None)]
        return _value(where, inner[0], value, problems)
    if origin is tuple and isinstance(value, list):
        item = typing.get_args(hint)[0]
        return tuple(_value(f"{where}[{i}]", item, each, problems) for i, each in enumerate(value))
    if isinstance(value, dict) and (isinstance(origin, type) and issubclass(origin, Mapping)):
        item = typing.get_args(hint)[1]
        return {key: _value(f"{where}.{key}", item, each, problems) for key, each in value.items()}
    expected = hint if isinstance(hint, type) else origin
    if expected is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(expected, type) or type(value) is not expected:
        problems.append(f"{where} must be {getattr(expected, '__name__', hint)}")
    return value


def _text_value(where: str, hint: Any, text: str, problems: list[str]) -> Any:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        hint = next(arg for arg in typing.get_args(hint) if arg is not type(None))
    if hint is str:
        return text
    if hint in (int, float):
        try:
            return hint(text)
        except ValueError:
            problems.append(f"{where} must be a number")
            return hint()
    if hint is bool and text.lower() in ("true", "false", "1", "0"):
        return text.lower() in ("true", "1")
    if where == "facilitator.headers":
        return _headers(where, text, problems)
    problems.append(f"{where} cannot be set from the environment")
    return None


def _headers(where: str, text: str, problems: list[str]) -> tuple[tuple[str, str], ...]:
    """`Name: value` pairs, one a line or separated by `;`."""
    found = []
    for line in text.replace(";", "\n").splitlines():
        name, colon, value = line.partition(":")
        if not colon or not name.strip():
            problems.append(f"{where} must hold lines of the form `Name: value`")
            continue
        found.append((name.strip(), value.strip()))
    return tuple(found)


def _sources(raw: Any, problems: list[str]) -> tuple[Source, ...]:
    if not isinstance(raw, list):
        problems.append("sources must be tables: [[sources]]")
        return ()
    names = [field.name for field in dataclasses.fields(Source)]
    found = []
    for index, item in enumerate(raw):
        if not isinstance(item, dict) or set(item) - set(names):
            problems.append(f"sources[{index}] takes {', '.join(names)}")
            continue
        try:
            found.append(Source(**item))
        except (TypeError, TollgaugeError) as error:
            problems.append(f"sources[{index}]: {error}")
    return tuple(found)
