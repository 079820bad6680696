"""Concurrent test files: each test runs once and is reported, even if its process dies."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SUITE = {
    "test_good.py": """
        import os, pathlib, pytest
        @pytest.fixture(scope="module", autouse=True)
        def part(tmp_path_factory):
            yield
            pathlib.Path("ended").write_text(str(os.getpid()))
        @pytest.mark.parametrize("number", range(5))
        def test_good(number):
            print("only shown where it fails")
    """,
    "test_bad.py": """
        def test_bad():
            print("what it printed")
            assert "one" == "other"
        def test_after_it():
            assert True
    """,
    "test_dying.py": """
        import os
        def test_dying():
            os._exit(0)
        def test_never_run():
            assert True
    """,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("suite")


@pytest.fixture(scope="module")
def outcome(folder: Path) -> str:
    """The output of a run of the files in two processes."""
    for name, text in SUITE.items():
        (folder / name).write_text(re.sub("^ {8}", "", text, flags=re.MULTILINE))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.parallel", "--processes", "2"]
    more = ["-p", "no:cacheprovider", "-c", "/dev/null", "--rootdir", str(folder), *SUITE]
    # Importing the installed plugins takes longer than these tests.
    environment = {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(
        [*command, *more], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    return done.stdout


def test_every_test_is_reported_and_a_failure_fails_the_run(folder: Path, outcome: str) -> None:
    assert "2 failed, 6 passed" in outcome
    assert "FAILED test_bad.py::test_bad" in outcome
    assert "what it printed" in outcome
    assert "only shown where it fails" not in outcome
    assert (folder / "ended").exists()


def test_process_that_dies_fails_its_current_test(outcome: str) -> None:
    assert "FAILED test_dying.py::test_dying - The process died in this test" in outcome
