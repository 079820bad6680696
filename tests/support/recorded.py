"""Inputs recorded from real services, in a folder outside the repository.

The environment variable TOLLGAUGE_TEST_DATA names the folder. Tests that need a file of it are
skipped if the variable is not set.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import pytest

VARIABLE: Final = "TOLLGAUGE_TEST_DATA"
FOLDER: Final = Path(os.environ.get(VARIABLE, "") or os.devnull)
needs_recorded_inputs: Final = pytest.mark.skipif(
    not FOLDER.is_dir(), reason=f"set {VARIABLE} to a folder with recorded inputs"
)
