"""External programs: the table from which set-up installs lists all of them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.support.programs import (
    PACKAGES,
    ROOT,
    TABLE,
    TARGETS,
    UnknownProgramError,
    require,
    rows,
)

SETUP = ROOT / "scripts/setup.sh"


def test_each_row_has_a_package_targets_and_at_most_one_service() -> None:
    for _, package, targets, *service in rows():
        assert re.fullmatch(r"[a-z0-9.+-]+", package)
        assert set(targets.split(",")) <= TARGETS
        assert len(service) <= 1
        assert all(name.endswith(".service") for name in service)
    assert len(PACKAGES) == len(rows())


def test_program_outside_of_the_table_is_not_started() -> None:
    with pytest.raises(UnknownProgramError, match="factor is not in"):
        subprocess.run(["factor", "6"], check=False)
    with pytest.raises(UnknownProgramError):
        os.posix_spawn("/usr/bin/factor", ["factor", "6"], {})
    with pytest.raises(KeyError):
        require("factor")


@pytest.mark.parametrize("folder", ["src", "bench", "docs", "guard/python/src", "tests"])
def test_every_program_that_the_code_looks_up_is_in_the_table(folder: str) -> None:
    """Programs without which the service works too are listed here."""
    optional = {"anvil", "tollgauge"}
    for file in (ROOT / folder).rglob("*.py"):
        for name in re.findall(r'which\("([^"]+)"\)', file.read_text(encoding="utf-8")):
            assert name in PACKAGES or name in optional, f"{file}: {name}"


def test_missing_program_fails_after_set_up_and_is_skipped_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv("TOLLGAUGE_TEST_PROGRAMS", "required")
    with pytest.raises(pytest.fail.Exception, match="apt-get install chromium"):
        require("chromium")
    monkeypatch.delenv("TOLLGAUGE_TEST_PROGRAMS")
    with pytest.raises(pytest.skip.Exception, match="apt-get install chromium"):
        require("chromium")


def run_set_up(folder: Path, path: list[str], target: str) -> subprocess.CompletedProcess[str]:
    """Run set-up in a copy of the checkout that has no virtual environment and few programs."""
    (folder / "scripts").mkdir()
    shutil.copy(SETUP, folder / "scripts")
    shutil.copy(TABLE, folder / "scripts")
    programs = folder / "bin"
    programs.mkdir()
    for name in path:
        (programs / name).symlink_to(shutil.which(name) or "")
    return subprocess.run(
        [require("bash"), str(folder / "scripts/setup.sh"), target],
        env={"PATH": str(programs)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_set_up_lists_everything_missing_in_one_message(tmp_path: Path) -> None:
    """Without apt-get, nothing can be installed."""
    done = run_set_up(tmp_path, ["dirname", "grep", "paste", "python3", "sort"], "test")
    assert done.returncode == 2
    (message,) = done.stderr.splitlines()
    elsewhere = {"initdb", "pg_isready", "postgres", "libatomic.so.1"}  # found without PATH
    for program, package, targets, *_ in rows():
        name = program.rpartition("/")[2]
        if "test" in targets.split(",") and name not in elsewhere:
            assert re.search(rf"missing: .*\b{re.escape(name)}\b.*\. Install", message)
            assert package in message
    assert "wrk" not in message, "only benchmarks need it"


def test_demo_set_up_reports_first_that_there_is_no_chain_without_npm(tmp_path: Path) -> None:
    """Set-up continues, and fails here only because the copy has no lock files."""
    done = run_set_up(tmp_path, ["bash", "cat", "cut", "dirname", "python3", "sha256sum"], "demo")
    first, *rest = done.stderr.splitlines()
    assert first.startswith("setup: npm is missing: the demo runs without a chain")
    assert not any("npm" in line for line in rest)
