"""Reading: the tables of a file and the texts of an environment become frozen dataclasses.

Rules: pydantic validates, strictly, because TOML has types; a text of the environment is first
turned into what TOML would hold. A setting that is left out of `repr` is a secret, and refused in
the file; a field that holds a function is no setting. What the settings are is config's concern.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

T = TypeVar("T")

PREFIX: Final = "TOLLGAUGE_"
ALIASES: Final = {"store.url": "DATABASE_URL"}
FILE: Final = "_FILE"
"""Ends the name of a variable that holds the path of a file with a secret, as orchestrators and
systemd hand secrets over.
"""
_BOOLEANS: Final = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
_WORDS: Final[Mapping[str, str]] = {
    "bool_type": "must be true or false",
    "callable_type": "is not a setting",
    "dataclass_type": "must be a table",
    "dict_type": "must be a table in the file",
    "float_type": "must be a number",
    "frozen_set_type": "must be a list",
    "greater_than": "must be above {gt:.15g}",
    "greater_than_equal": "must be at least {ge:.15g}",
    "int_type": "must be a whole number",
    "less_than_equal": "must be at most {le:.15g}",
    "missing": "is missing",
    "string_type": "must be a text",
    "too_long": "must be a list of {max_length}",
    "tuple_type": "must be a list",
}
"""What is said of each of pydantic's errors (docs.pydantic.dev, "Validation Errors")."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One setting: its path such as `probe.cadence.every_ms`, and its type."""

    path: str
    hint: Any
    secret: bool

    @property
    def variable(self) -> str:
        """Its name in the environment."""
        return PREFIX + self.path.upper().replace(".", "_")


def settings_of(section: Any, path: str = "") -> Iterator[Setting]:
    """Every setting of a dataclass, those of nested ones included, in order."""
    hints = typing.get_type_hints(section)
    for field in dataclasses.fields(section):
        hint, where = hints[field.name], f"{path}.{field.name}".lstrip(".")
        if dataclasses.is_dataclass(hint):
            yield from settings_of(hint, where)
        elif typing.get_origin(hint) is not Callable:
            yield Setting(path=where, hint=hint, secret=not field.repr)


def secret_files(settings: Iterable[Setting]) -> dict[str, str]:
    """The variables that may name a file, each with the variable that the file stands for."""
    secrets = [setting.variable for setting in settings if setting.secret]
    return {name + FILE: name for name in (*secrets, *ALIASES.values())}


def read_secret_files(
    environment: Mapping[str, str], settings: Iterable[Setting]
) -> tuple[dict[str, str], list[str]]:
    """An environment with the contents of the files that it names for secrets, without the white
    space at their ends, and a sentence for each that cannot be used. An empty file sets nothing.
    """
    result, problems = dict(environment), []
    for variable, name in secret_files(settings).items():
        if not (path := result.pop(variable, "")):
            continue
        if name in result:
            problems.append(f"{name} and {variable} are both set: keep one")
            continue
        try:
            if text := Path(path).read_text(encoding="utf-8").strip():
                result[name] = text
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or "it is not UTF-8 text"
            problems.append(f"{variable}: {path} cannot be read: {why}")
    return result, problems


def merge(
    document: dict[str, Any],
    environment: Mapping[str, str],
    settings: Iterable[Setting],
    *,
    secrets: bool = False,
) -> list[str]:
    """Put the values of an environment into a document, in place of its own; returns a sentence
    for each that cannot be put there, and for each secret that the document holds unless it may
    hold `secrets`.
    """
    problems = []
    for setting in settings:
        table, key = _table_of(document, setting.path)
        if not isinstance(table, dict):
            continue  # the validation says so
        if setting.secret and not secrets and table.pop(key, None) is not None:
            problems.append(f"{setting.path} is a secret: set {setting.variable} instead")
        names = (setting.variable, ALIASES.get(setting.path, ""))
        text = next((environment[name] for name in names if name in environment), None)
        if text is not None:
            table[key] = _from_text(text, setting.hint)
    return problems


def validate(kind: type[T], document: Mapping[str, Any]) -> tuple[T, list[str], frozenset[str]]:
    """The dataclass of a document, a sentence for each thing that is wrong, and the sections that
    hold their defaults because something in them is wrong.
    """
    read = partial(TypeAdapter(kind).validate_json, strict=True, extra="forbid")
    try:
        return read(_json(document)), [], frozenset()
    except ValidationError as error:
        details = error.errors(include_url=False, include_input=False)
    broken = frozenset(str(detail["loc"][0]) for detail in details)
    whole = {name: section for name, section in document.items() if name not in broken}
    return read(_json(whole)), [_sentence(kind, detail) for detail in details], broken


def _table_of(document: dict[str, Any], path: str) -> tuple[Any, str]:
    """The table that a setting is in, made where there is none, and the setting's key in it."""
    *sections, key = path.split(".")
    table: Any = document
    for section in sections:
        table = table.setdefault(section, {}) if isinstance(table, dict) else table
    return table, key


def _from_text(text: str, hint: Any) -> Any:
    """A text as the value that TOML would hold; a text still where it is of another type."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (tuple, frozenset) and args[0] in (str, int):
        return [_from_text(item.strip(), args[0]) for item in text.split(",") if item.strip()]
    if hint is bool:
        return _BOOLEANS.get(text.lower(), text)
    if hint in (int, float):
        with suppress(ValueError):
            return hint(text)
    return text


def _json(document: Mapping[str, Any]) -> str:
    """JSON, of which pydantic takes lists for tuples and sets. A date becomes a text, and a byte
    of the environment that is not UTF-8 becomes U+FFFD.
    """
    text = json.dumps(document, default=str, ensure_ascii=False)
    return text.encode(errors="surrogateescape").decode(errors="replace")


def _sentence(kind: type, detail: ErrorDetails) -> str:
    """Path and fault; never the value, which may be a secret, unless our own error names it."""
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in detail["loc"])
    path, context = "".join(parts).lstrip("."), detail.get("ctx", {})
    if cause := context.get("error"):
        return f"{path}: {cause} {getattr(cause, 'hint', '')}".rstrip()
    if detail["type"] == "unexpected_keyword_argument":
        what = "section" if len(detail["loc"]) == 1 else "setting"
        return f"{path} is not a {what}{_meant(kind, detail['loc'])}"
    words = _WORDS.get(detail["type"])
    return f"{path} {words.format(**context) if words else detail['msg']}"


def _meant(kind: Any, location: tuple[int | str, ...]) -> str:
    """The question whether a setting of nearly the same name was meant; empty without one."""
    *sections, name = location
    for part in sections:
        kind = typing.get_args(kind)[0] if isinstance(part, int) else _hints(kind).get(part)
    near = difflib.get_close_matches(str(name), _hints(kind), n=1, cutoff=0.7)
    return f"; did you mean {near[0]}?" if near else ""


def _hints(kind: Any) -> dict[str, Any]:
    """The types of a dataclass's settings, by their names."""
    if not dataclasses.is_dataclass(kind):
        return {}
    hints = typing.get_type_hints(kind)
    return {name: hint for name, hint in hints.items() if typing.get_origin(hint) is not Callable}
