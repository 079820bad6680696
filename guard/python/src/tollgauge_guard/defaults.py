"""Default paths of the guard's files (XDG Base Directory)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

_NAME: Final = "tollgauge-guard"


def journal_file() -> Path:
    """Return the journal of this user."""
    return _folder("XDG_STATE_HOME", ".local/state") / "journal.sqlite"


def cache_folder() -> Path:
    """Return the folder of downloaded bundles."""
    return _folder("XDG_CACHE_HOME", ".cache")


def _folder(variable: str, usual: str) -> Path:
    base = os.environ.get(variable, "")
    return (Path(base) if base.startswith("/") else Path.home() / usual) / _NAME
