"""The folder of a demo: its database and its configuration.

Only one demo uses a folder at a time. Each demo creates a new database, because the chain with the
payments of an earlier demo no longer exists. The key that signs reports is kept.
"""

from __future__ import annotations

import contextlib
import fcntl
import tempfile
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import TypeAdapter

from tollgauge.config import Config
from tollgauge.config.settings import toml_value
from tollgauge.core.base.errors import TollgaugeError
from tollgauge.web.signing import new_key

CONFIG_FILE: Final = "tollgauge.toml"
_DATABASE: Final = "demo.sqlite"
_LOCK: Final = "demo.lock"
_HEAD_BEGINS: Final = "# The configuration of the demo"
_HEAD: Final = f"""\
{_HEAD_BEGINS} that runs here: its chain, its sellers, its keys. These keys are
# public, except the key that signs reports, and have no value on other chains.

"""


class DemoFolderError(TollgaugeError):
    """The demo cannot use a folder."""


@dataclass(frozen=True, slots=True)
class DemoFolder:
    """The folder at `path`, which only this demo uses.

    `starts_over` is true if it contained the database of an earlier demo.
    """

    path: Path
    starts_over: bool = False

    @property
    def store_url(self) -> str:
        """The database's URL."""
        return f"sqlite:///{self.path / _DATABASE}"

    def signing_key(self) -> str:
        """Return the key that signs reports: the folder's existing key, or a new one.

        With the existing key, the reports of earlier demos can still be verified.
        """
        file = self.path / CONFIG_FILE
        if not file.is_file():
            return new_key()
        earlier = tomllib.loads(file.read_text(encoding="utf-8"))
        return str(earlier.get("signing", {}).get("key", "")) or new_key()

    def write(self, config: Config) -> None:
        """Write the configuration for other commands. Only its owner can read it."""
        (self.path / CONFIG_FILE).touch(mode=0o600)
        (self.path / CONFIG_FILE).write_text(_HEAD + toml_text(config), encoding="utf-8")


@contextlib.contextmanager
def named_folder(path: Path) -> Iterator[DemoFolder]:
    """Open a permanent folder.

    Raises:
        DemoFolderError: the folder cannot be created, another demo uses it, or it contains the
            configuration of a service, which the demo's would replace.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        _check_configuration(path / CONFIG_FILE)
        lock = (path / _LOCK).open("w")
    except OSError as error:
        raise DemoFolderError(
            f"{path} cannot be used: {error.strerror}.",
            hint="Choose a folder with write permission: --folder.",
        ) from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise DemoFolderError(
                f"A demo already runs in {path}.",
                hint="Stop it, or choose another folder: --folder.",
            ) from error
        earlier = list(path.glob(f"{_DATABASE}*"))
        for file in earlier:
            file.unlink()
        yield DemoFolder(path.resolve(), starts_over=bool(earlier))


def _check_configuration(file: Path) -> None:
    """Raise DemoFolderError for a file that a demo did not write."""
    if file.exists() and not file.read_bytes().startswith(_HEAD_BEGINS.encode()):
        raise DemoFolderError(
            f"A demo did not write {file} and would overwrite it.",
            hint="Choose another folder: --folder.",
        )


@contextlib.contextmanager
def temporary_folder() -> Iterator[DemoFolder]:
    """Create a folder that is deleted at the end of the `with` block."""
    with tempfile.TemporaryDirectory(prefix="tollgauge-demo-") as path:
        yield DemoFolder(Path(path))


def toml_text(config: Config) -> str:
    """Return a file from which `load` reads the same configuration.

    It contains only what differs from the defaults, with the keys of the demo.
    """
    return "".join(_write_tables(TypeAdapter(Config).dump_python(config, exclude_defaults=True)))


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
