"""Lists the settings: path, type, default and description of each, read from the sections.

A description is the string under a setting's declaration. A setting with `repr=False` is a secret;
a field with a callable type is not a setting. Also formats the file that `tollgauge init` writes.
"""

from __future__ import annotations

import ast
import inspect
import json
import textwrap
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, is_dataclass, replace
from functools import cache
from itertools import pairwise
from typing import Any, Final

PREFIX: Final = "TOLLGAUGE_"
FILE: Final = "_FILE"  # suffix of a variable with the path of a secret's file (systemd, Docker)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One setting. `example` replaces an empty default in examples."""

    path: str
    hint: Any
    description: str
    default: Any
    example: Any
    secret: bool

    @property
    def name(self) -> str:
        """The key in its table."""
        return self.path.rpartition(".")[2]

    @property
    def variable(self) -> str:
        """The environment variable."""
        return PREFIX + self.path.upper().replace(".", "_")


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One table of the file, or one table of an array (`[[sources]]`)."""

    path: str
    description: str
    settings: tuple[Setting, ...]
    is_array: bool = False


def list_sections(
    owner: Any, *, path: str = "", description: str = "", describe: bool = True
) -> Iterator[Section]:
    """Yield the tables of a settings class, each before its nested tables.

    `describe=False` leaves the descriptions empty. Reading them takes 50 ms, because the source of
    all sections is parsed.
    """
    settings: list[Setting] = []
    nested: list[Section] = []
    descriptions = _read_descriptions(owner) if describe else {}
    for name, info in owner.__pydantic_fields__.items():
        inner = f"{path}.{name}".lstrip(".")
        hint, text = info.annotation, descriptions.get(name, "")
        item = next(iter(typing.get_args(hint)), None)
        if is_dataclass(hint):
            nested += list_sections(hint, path=inner, description=text, describe=describe)
        elif not path and is_dataclass(item):
            (entry,) = list_sections(item, path=inner, description=text, describe=describe)
            of_entry = tuple(
                replace(one, path=f"{inner}.ID.{one.name}") if one.secret else one
                for one in entry.settings
            )
            nested.append(Section(path=inner, description=text, settings=of_entry, is_array=True))
        elif typing.get_origin(hint) is not Callable:
            default = None if info.is_required() else info.get_default(call_default_factory=True)
            settings.append(
                Setting(
                    path=inner,
                    hint=hint,
                    description=text,
                    default=default,
                    example=info.examples[0] if info.examples and not default else default,
                    secret=not info.repr,
                )
            )
    if settings:
        yield Section(path=path, description=description, settings=tuple(settings))
    yield from nested


@cache
def list_settings(owner: Any, *, describe: bool = True) -> tuple[Setting, ...]:
    """Return all settings except those of arrays such as `[[sources]]`."""
    sections = list_sections(owner, describe=describe)
    return tuple(one for section in sections if not section.is_array for one in section.settings)


def _read_descriptions(owner: type) -> dict[str, str]:
    """Return the strings under the fields of a dataclass and of its bases."""
    texts = {}
    for base in owner.__mro__[:-1]:
        module = ast.parse(textwrap.dedent(inspect.getsource(base)))
        (body,) = (node.body for node in module.body if isinstance(node, ast.ClassDef))
        for pair in pairwise(body):
            match pair:
                case (
                    ast.AnnAssign(target=ast.Name(id=name)),
                    ast.Expr(value=ast.Constant(value=str() as text)),
                ):
                    texts[name] = " ".join(text.split())
    return texts


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


def template(owner: type) -> str:
    """Return the configuration file that `tollgauge init` writes, with all sections of `owner` that
    have a description.

    Every value is commented out, so that a file contains only what its operator changed and newer
    defaults apply.
    """
    lines = [_HEAD]
    for section in list_sections(owner):
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
