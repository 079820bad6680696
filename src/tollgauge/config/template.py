"""The configuration file that `tollgauge init` writes: every setting, what it means, its default.

Every value is commented out, so that a file says only what its operator changed and newer defaults
reach it. The words are those that stand under a setting where it is declared; where it has no
default, or none that shows its form, its example stands there instead. A section without words is
not for operators, and left out.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import textwrap
import typing
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any, Final

from tollgauge.config import Config
from tollgauge.config.read import FILE, PREFIX
from tollgauge.config.write import toml_value

_WIDTH: Final = 98
_COLUMN: Final = 36
"""Where short words begin, beside the value."""
_HEAD: Final = f"""\
# The settings of tollgauge, as `tollgauge init` writes them: every one with its default.
# Remove the # before a name to change its value.
#
# Each value can be set in the environment too, where it wins: {PREFIX}<SECTION>_<KEY>, such as
# {PREFIX}SERVER_PORT or {PREFIX}PROBE_CADENCE_EVERY_MS; lists of texts are separated by commas.
# Secrets are read there alone, or from the file that <NAME>{FILE} names.
# `tollgauge config check` says everything that is wrong at once.
"""


def template() -> str:
    """The text of the file."""
    lines = [_HEAD]
    for name, hint, words in _fields(Config):
        if name == "sources":
            (source, _) = typing.get_args(typing.get_args(hint)[0])
            lines += [*_comment(words), *_array_table(name, source)]
        else:
            lines += _table(name, hint, words)
    return "\n".join(lines).rstrip() + "\n"


def meanings(section: type) -> dict[str, str]:
    """The texts under the fields of a dataclass and of those that it extends, by field."""
    words = {}
    for owner in section.__mro__[:-1]:
        source = ast.parse(textwrap.dedent(inspect.getsource(owner)))
        (body,) = (node.body for node in source.body if isinstance(node, ast.ClassDef))
        for pair in pairwise(body):
            match pair:
                case (
                    ast.AnnAssign(target=ast.Name(id=name)),
                    ast.Expr(value=ast.Constant(value=str() as text)),
                ):
                    words[name] = " ".join(text.split())
    return words


def _fields(section: type) -> Iterator[tuple[str, Any, str]]:
    """The name, the type and the meaning of every setting of a section."""
    hints = typing.get_type_hints(section, include_extras=True)
    words = meanings(section)
    for field in dataclasses.fields(section):
        if field.name in words:
            yield field.name, hints[field.name], words[field.name]


def _table(path: str, section: Any, words: str) -> Iterator[str]:
    """A section with its values, and after them the tables in it."""
    yield from _comment(words)
    yield f"[{path}]"
    tables: list[str] = []
    defaults = section()
    secrets = {field.name for field in dataclasses.fields(section) if not field.repr}
    for name, hint, text in _fields(section):
        default = getattr(defaults, name)
        if dataclasses.is_dataclass(hint):
            tables += _table(f"{path}.{name}", hint, text)
        elif isinstance(default, Mapping):
            tables += [*_comment(text), f"[{path}.{name}]"]
            tables += [
                f"#{toml_value(key)} = {toml_value(value)}" for key, value in _example(hint).items()
            ]
            tables.append("")
        elif name in secrets:
            variable = f"{PREFIX}{path}_{name}".upper().replace(".", "_")
            yield from (*_comment(f"{variable} (a secret): {text}"), "")
        else:
            yield from _setting(name, _example(hint) if default is None else default, text)
    yield ""
    yield from tables


def _array_table(path: str, section: Any) -> Iterator[str]:
    """One example of a section that may come several times."""
    defaults = {field.name: field.default for field in dataclasses.fields(section)}
    yield f"#[[{path}]]"
    for name, hint, text in _fields(section):
        default = defaults[name]
        yield from _setting(
            name, _example(hint) if default is dataclasses.MISSING else default, text
        )


def _setting(name: str, value: Any, words: str) -> Iterator[str]:
    """A value with its meaning: beside it where both are short, else above it."""
    line = f"#{name} = {toml_value(value)}"
    beside = f"{line:{_COLUMN}}# {words}"
    if len(line) < _COLUMN and len(beside) <= _WIDTH:
        yield beside
    else:
        yield from _comment(words)
        yield line


def _comment(words: str) -> list[str]:
    return textwrap.wrap(words, _WIDTH, initial_indent="# ", subsequent_indent="# ")


def _example(hint: Any) -> Any:
    """The example that a setting declares."""
    (examples,) = (info.examples for info in hint.__metadata__ if getattr(info, "examples", None))
    return examples[0]
