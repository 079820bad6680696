"""Settings: frozen dataclasses from the tables of a file and the texts of an environment.

Rules: a dataclass's fields are its settings, nested ones are tables; a field that holds a function
is none; an unknown key is a problem; every problem is collected, and what has one keeps its
default. A setting's environment name is its path in capitals, joined by `_` behind a prefix.
What the settings are, and where file and environment come from, is config's concern.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tollgauge.core.errors import TollgaugeError

_WORDS: Final[Mapping[Any, str]] = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
}
_BOOLEANS: Final = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
_UNSET: Final = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One setting: its path such as `probe.cadence.every_ms`, its type and its default."""

    path: str
    hint: Any
    default: Any


def settings_of(kind: Any, path: str = "") -> Iterator[Setting]:
    """Every setting of a dataclass, nested ones included, in order."""
    for name, hint, default in _fields(kind):
        where = f"{path}.{name}" if path else name
        if dataclasses.is_dataclass(hint):
            yield from settings_of(hint, where)
        else:
            yield Setting(path=where, hint=hint, default=default)


@dataclass(slots=True, kw_only=True)
class Reader:
    """Reads dataclasses and collects `problems`.

    `secrets` are paths that a file must not hold, and `prefix` begins every environment name;
    `aliases` are further names that a setting goes by in the environment. `given` are the paths
    of the settings that the file or the environment named.
    """

    environment: Mapping[str, str]
    prefix: str
    secrets: frozenset[str] = frozenset()
    aliases: Mapping[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    given: set[str] = field(default_factory=set)
    _known: set[str] = field(default_factory=set)

    def read(self, kind: Any, table: object, path: str = "") -> Any:
        """The dataclass of a table; the defaults where it has problems, None where it has no
        defaults either.
        """
        if not isinstance(table, dict):
            self.problems.append(f"{path} must be a table")
            table = {}
        wanted = {name: hint for name, hint, _ in _fields(kind)}
        for key in table:
            if key not in wanted:
                what = "a setting" if path else "a section"
                self.problems.append(f"{_join(path, key)} is not {what}")
        values = {name: self._field(hint, table, path, name) for name, hint in wanted.items()}
        return self._built(kind, {k: v for k, v in values.items() if v is not _UNSET}, table, path)

    def read_all(self, kind: Any, table: object) -> Any:
        """The whole configuration; also names of the environment that look like settings of a
        section and are none are problems.
        """
        config = self.read(kind, table)
        sections = tuple(f"{self.prefix}{name.upper()}_" for name, _, _ in _fields(kind))
        self.problems.extend(
            f"{name} (environment) is not a setting"
            for name in sorted(self.environment)
            if name.startswith(sections) and name not in self._known
        )
        return config

    def _built(self, kind: Any, values: dict[str, Any], table: Mapping[str, Any], path: str) -> Any:
        needed = [item.name for item in dataclasses.fields(kind) if _required(item)]
        missing = [name for name in needed if name not in values]
        self.problems.extend(
            f"{_join(path, name)} is missing" for name in missing if name not in table
        )
        try:
            return None if missing else kind(**values)
        except TollgaugeError as error:
            self.problems.append(" ".join(filter(None, (f"{path}: {error}", error.hint))))
        except ValueError as error:
            self.problems.append(f"{path}: {error}")
        return None if needed else kind()

    def _field(self, hint: Any, table: Mapping[str, Any], path: str, name: str) -> Any:
        where = _join(path, name)
        if dataclasses.is_dataclass(hint):
            return self.read(hint, table.get(name, {}), where)
        value = self._from_environment(where, hint)
        if name in table or value is not _UNSET:
            self.given.add(where)
        if name not in table:
            return value
        if where in self.secrets:
            self.problems.append(f"{where} is a secret: set {self._name(where)} instead")
            return value
        from_file = self._value(where, hint, table[name])
        return from_file if value is _UNSET else value

    def _from_environment(self, where: str, hint: Any) -> Any:
        names = [self._name(where), *filter(None, [self.aliases.get(where)])]
        self._known.update(names)
        text = next((self.environment[name] for name in names if name in self.environment), None)
        return _UNSET if text is None else self._text(where, hint, text)

    def _name(self, where: str) -> str:
        return self.prefix + where.upper().replace(".", "_")

    def _value(self, where: str, hint: Any, value: Any) -> Any:
        """A TOML value as its field's type: lists become tuples or sets, tables mappings."""
        origin, args = typing.get_origin(hint), typing.get_args(hint)
        if origin in (typing.Union, types.UnionType):
            return self._value(where, _without_none(args), value)
        if dataclasses.is_dataclass(hint):
            return self.read(hint, value, where)
        if origin in (tuple, frozenset):
            return self._items(where, origin, args, value)
        if isinstance(origin, type) and issubclass(origin, Mapping):
            return self._pairs(where, args[1], value)
        if hint is float and type(value) is int:
            return float(value)
        return value if type(value) is hint else self._wrong(where, _WORDS.get(hint, "another"))

    def _items(self, where: str, origin: Any, args: tuple[Any, ...], value: Any) -> Any:
        if not isinstance(value, list):
            return self._wrong(where, "a list")
        fixed = origin is tuple and args[-1] is not Ellipsis
        if fixed and len(value) != len(args):
            return self._wrong(where, f"a list of {len(args)}")
        hints = args if fixed else [args[0]] * len(value)
        read = [
            self._value(f"{where}[{index}]", hint, item)
            for index, (hint, item) in enumerate(zip(hints, value, strict=True))
        ]
        whole = all(item is not _UNSET and item is not None for item in read)
        return origin(read) if whole else _UNSET

    def _pairs(self, where: str, hint: Any, value: Any) -> Any:
        if not isinstance(value, dict):
            return self._wrong(where, "a table")
        read = {key: self._value(f"{where}.{key}", hint, item) for key, item in value.items()}
        return _UNSET if _UNSET in read.values() else read

    def _text(self, where: str, hint: Any, text: str) -> Any:
        """A text of the environment as its field's type."""
        origin, args = typing.get_origin(hint), typing.get_args(hint)
        if origin in (typing.Union, types.UnionType):
            return self._text(where, _without_none(args), text)
        if hint is str:
            return text
        if hint is bool:
            word = text.lower()
            return _BOOLEANS[word] if word in _BOOLEANS else self._wrong(where, _WORDS[bool])
        if hint in (int, float):
            return self._number(where, hint, text)
        if hint == tuple[tuple[str, str], ...]:
            return self._headers(where, text)
        if origin in (tuple, frozenset) and args[0] in (str, int):
            items = [item.strip() for item in text.split(",") if item.strip()]
            read = [self._text(where, args[0], item) for item in items]
            return _UNSET if _UNSET in read else origin(read)
        self.problems.append(f"{where} cannot be set from the environment")
        return _UNSET

    def _number(self, where: str, kind: Callable[[str], Any], text: str) -> Any:
        try:
            return kind(text)
        except ValueError:
            return self._wrong(where, _WORDS[kind])

    def _headers(self, where: str, text: str) -> Any:
        """`Name: value` pairs, one a line or separated by `;`."""
        pairs = [line.partition(":") for line in text.replace(";", "\n").splitlines()]
        if not all(colon and name.strip() for name, colon, _ in pairs):
            return self._wrong(where, "lines of the form `Name: value`")
        return tuple((name.strip(), value.strip()) for name, _, value in pairs)

    def _wrong(self, where: str, wanted: str) -> Any:
        self.problems.append(f"{where} must be {wanted}")
        return _UNSET


def _fields(kind: Any) -> Iterator[tuple[str, Any, Any]]:
    """(name, type, default) of each field that is a setting."""
    hints = typing.get_type_hints(kind)
    for item in dataclasses.fields(kind):
        hint = hints[item.name]
        if typing.get_origin(hint) is Callable or hint is Callable:
            continue
        factory = item.default_factory
        default = item.default if factory is dataclasses.MISSING else factory()
        yield item.name, hint, default


def _required(item: dataclasses.Field[Any]) -> bool:
    return item.default is dataclasses.MISSING and item.default_factory is dataclasses.MISSING


def _without_none(args: tuple[Any, ...]) -> Any:
    return next(arg for arg in args if arg is not type(None))


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
