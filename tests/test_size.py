"""Limits for the size of the service."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "scripts" / "count-lines.py"

# Output of scripts/count-lines.py. A change that raises a number states the reason in its commit.
CODE_LINES_MAX = 44_773
MODULES_MAX = 350


def test_source_does_not_exceed_recorded_size() -> None:
    lines, modules = runpy.run_path(str(SCRIPT))["count_folders"]()
    assert lines.total() <= CODE_LINES_MAX
    assert modules.total() <= MODULES_MAX


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('"""Module."""\n\nX = 1\n"""Text under it."""\n', 1),
        ("# comment\n\nX = (\n    1,  # one\n\n)\n", 3),
        ('def f():\n    """Text\n    of two lines."""\n    return "a"\n', 2),
    ],
)
def test_comments_and_docstrings_are_not_counted(text: str, expected: int) -> None:
    assert runpy.run_path(str(SCRIPT))["count_code_lines"](text) == expected
