"""Folder: the files of a demo, its database and its configuration.

One demo has a folder at a time. Each starts over with a new database, because its chain is new: the
payments of an earlier one are on a chain that ended with it. The key that signs reports stays.
"""

from __future__ import annotations

import contextlib
import fcntl
import tempfile
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tollgauge.config.template import toml_text
from tollgauge.core.base.errors import TollgaugeError
from tollgauge.web.signing import new_key

if TYPE_CHECKING:
    from tollgauge.config import Config

CONFIG_FILE: Final = "tollgauge.toml"
_DATABASE: Final = "demo.sqlite"
_LOCK: Final = "demo.lock"
_HEAD_BEGINS: Final = "# The configuration of the demo"
_HEAD: Final = f"""\
{_HEAD_BEGINS} that runs here: its chain, its sellers, its keys. Everyone knows
# these keys but the one that signs reports, and they are worth nothing on any other chain.

"""


class DemoFolderError(TollgaugeError):
    """A folder that a demo cannot use."""


@dataclass(frozen=True, slots=True)
class DemoFolder:
    """The folder at `path`, which is this demo's alone. `starts_over`: it held the database of an
    earlier one.
    """

    path: Path
    starts_over: bool = False

    @property
    def store_url(self) -> str:
        """The database's URL."""
        return f"sqlite:///{self.path / _DATABASE}"

    def signing_key(self) -> str:
        """The key that signs reports: that of an earlier demo in the same folder, so that its
        reports can still be verified, else a new one.
        """
        file = self.path / CONFIG_FILE
        if not file.is_file():
            return new_key()
        earlier = tomllib.loads(file.read_text(encoding="utf-8"))
        return str(earlier.get("signing", {}).get("key", "")) or new_key()

    def write(self, config: Config) -> None:
        """Write the configuration, which other commands read, for its owner alone."""
        (self.path / CONFIG_FILE).touch(mode=0o600)
        (self.path / CONFIG_FILE).write_text(_HEAD + toml_text(config), encoding="utf-8")


@contextlib.contextmanager
def named_folder(path: Path) -> Iterator[DemoFolder]:
    """A folder that stays. Raises DemoFolderError where it cannot be made, another demo runs in it,
    or it has the configuration of a service, which the demo's would replace.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        _check_configuration(path / CONFIG_FILE)
        lock = (path / _LOCK).open("w")
    except OSError as error:
        raise DemoFolderError(
            f"{path} cannot be used: {error.strerror}.",
            hint="Name a folder where you may write: --folder.",
        ) from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise DemoFolderError(
                f"A demo runs in {path} already.", hint="End it, or name another folder: --folder."
            ) from error
        earlier = list(path.glob(f"{_DATABASE}*"))
        for file in earlier:
            file.unlink()
        yield DemoFolder(path.resolve(), starts_over=bool(earlier))


def _check_configuration(file: Path) -> None:
    """Raises DemoFolderError for a file that no demo wrote."""
    if file.exists() and not file.read_bytes().startswith(_HEAD_BEGINS.encode()):
        raise DemoFolderError(
            f"{file} is not a demo's, and a demo would write over it.",
            hint="Name another folder: --folder.",
        )


@contextlib.contextmanager
def temporary_folder() -> Iterator[DemoFolder]:
    """A folder that ends with the block."""
    with tempfile.TemporaryDirectory(prefix="tollgauge-demo-") as path:
        yield DemoFolder(Path(path))
