"""Finds anvil, the program of the local chain, or installs it with npm.

A checkout has it in `node_modules`. An installed package uses the one on the PATH, or lets npm
install the version that the checkout locks into the user's cache.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tollgauge.core.base.errors import TollgaugeError

VERSION: Final = "1.7.1"
_PACKAGES: Final = "node_modules/@foundry-rs/anvil-*/bin/anvil"
_SYSTEMS: Final = {"linux": "linux", "darwin": "darwin"}
_MACHINES: Final = {"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64"}
_DOWNLOAD_SECONDS: Final = 180


class ChainError(TollgaugeError):
    """The local chain could not be started, or refused a call."""


class AnvilMissingError(ChainError):
    """Anvil is not installed, and npm is not available to install it."""


def find_anvil() -> Path:
    """Return the anvil binary.

    Searched in this order: `TOLLGAUGE_ANVIL`, the nearest `node_modules` above this package or the
    working directory, the one that `fetch_anvil` downloaded, and the PATH.

    Raises:
        AnvilMissingError: There is no binary.
        ChainError: TOLLGAUGE_ANVIL does not name a file.
    """
    named = os.environ.get("TOLLGAUGE_ANVIL")
    if named:
        return _check_exists(Path(named))
    starts = (Path(__file__).resolve(), Path.cwd() / "_", _folder() / "_")
    for folder in (folder for start in starts for folder in start.parents):
        for binary in sorted(folder.glob(_PACKAGES)):
            return binary
    if on_path := shutil.which("anvil"):
        return Path(on_path)
    raise AnvilMissingError(
        "The local chain's program (anvil) is not installed.",
        hint="Install Node.js with npm, which provides it, or set TOLLGAUGE_ANVIL to the binary.",
    )


def find_or_fetch_anvil(say: Callable[[str], None]) -> Path:
    """Return the anvil binary; a missing one is downloaded from npm, after a message to `say`.

    Raises the errors of `find_anvil`.
    """
    try:
        return find_anvil()
    except AnvilMissingError:
        npm, package = shutil.which("npm"), _package()
        if npm is None or package is None:
            raise
    say(f"anvil is not installed: npm installs {package} {VERSION} in {_folder()}.")
    _folder().mkdir(parents=True, exist_ok=True)
    quiet = ["--ignore-scripts", "--no-audit", "--no-fund", "--no-save", "--loglevel=error"]
    command = [npm, "install", *quiet, f"--prefix={_folder()}", f"{package}@{VERSION}"]
    try:
        subprocess.run(  # noqa: S603 (npm of this machine, our arguments)
            command, check=True, capture_output=True, timeout=_DOWNLOAD_SECONDS
        )
    except (OSError, subprocess.SubprocessError) as error:
        output = (getattr(error, "stderr", None) or b"").decode(errors="replace").strip()
        why = output.splitlines()[0] if output else type(error).__name__
        raise AnvilMissingError(
            f"npm could not install {package} {VERSION}: {why}",
            hint="Install anvil manually (getfoundry.sh), or set TOLLGAUGE_ANVIL to the binary.",
        ) from error
    return find_anvil()


def _folder() -> Path:
    """Return this user's folder for npm (specifications.freedesktop.org, basedir)."""
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache).expanduser() / "tollgauge"


def _package() -> str | None:
    """Return the npm package for this machine, or None if it is not supported."""
    system, machine = _SYSTEMS.get(sys.platform), _MACHINES.get(platform.machine().lower())
    return f"@foundry-rs/anvil-{system}-{machine}" if system and machine else None


def _check_exists(path: Path) -> Path:
    if not path.is_file():
        raise ChainError(
            f"TOLLGAUGE_ANVIL is {path}, which is not a file.",
            hint="Set it to the path of the anvil binary, or unset it and run `make setup`.",
        )
    return path
