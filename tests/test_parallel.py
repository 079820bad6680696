"""Concurrent test files: each test runs once and is reported, even if its process dies."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

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


def run(folder: Path, *names: str) -> tuple[int, str]:
    """Run test files in two processes; return the exit code and the output."""
    for name in names:
        (folder / name).write_text(re.sub("^ {8}", "", SUITE[name], flags=re.MULTILINE))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.parallel", "--processes", "2"]
    more = ["-p", "no:cacheprovider", "-c", "/dev/null", "--rootdir", str(folder), *names]
    # Importing the installed plugins takes longer than these tests.
    environment = {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(
        [*command, *more], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout


def test_every_test_is_reported_and_a_failure_fails_the_run(tmp_path: Path) -> None:
    code, outcome = run(tmp_path, "test_good.py", "test_bad.py")
    assert code == 1
    assert "1 failed, 6 passed" in outcome
    assert "FAILED test_bad.py::test_bad" in outcome
    assert "what it printed" in outcome
    assert "only shown where it fails" not in outcome
    assert (tmp_path / "ended").exists()
    assert run(tmp_path, "test_good.py")[0] == 0


def test_process_that_dies_fails_its_current_test(tmp_path: Path) -> None:
    code, outcome = run(tmp_path, "test_dying.py", "test_good.py")
    assert code == 1
    assert "1 failed, 5 passed" in outcome
    assert "FAILED test_dying.py::test_dying - The process died in this test" in outcome
