"""The backups of systemd and of compose.yaml create a valid copy."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from tests.support.command_server import program
from tests.support.packaging import ROOT

from tollgauge.db.backup import examine

COPY_NAME = re.compile(r"\d{4}-\d\d-\d\dT\d{6}\.copy")


def of_systemd(folder: Path) -> list[str]:
    """Return the command of the unit as systemd parses it."""
    text = (ROOT / "deploy/systemd/tollgauge-backup.service").read_text(encoding="utf-8")
    (line,) = re.findall(r"^ExecStart=(.*)$", text, re.MULTILINE)
    line = (
        line.replace("$$", "$")
        .replace("%%", "%")
        .replace("/var/lib/tollgauge-backups", str(folder))
    )
    return shlex.split(line.replace("/opt/tollgauge/bin/tollgauge", "tollgauge"))


def of_compose(folder: Path) -> list[str]:
    """Return the command of the service as compose parses it."""
    service = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))["services"][
        "backup"
    ]
    (script,) = service["command"]
    script = script.replace("$$", "$").replace("/var/backups/tollgauge", str(folder))
    return [*service["entrypoint"], script]


@pytest.mark.parametrize("words_of", [of_systemd, of_compose], ids=["systemd", "compose"])
def test_backup_creates_a_valid_copy(
    words_of: Callable[[Path], list[str]], tmp_path: Path, empty_sqlite: Path
) -> None:
    tollgauge = program(tmp_path / "bin")
    database = shutil.copy(empty_sqlite, tmp_path / "tollgauge.db")  # the backup is recorded in it
    folder = tmp_path / "copies"
    folder.mkdir()
    old = folder / "2020-01-01T000000.copy"
    old.touch()
    os.utime(old, (0, 0))
    environment = {
        "PATH": f"{tollgauge.parent}:/usr/bin:/bin",
        "DATABASE_URL": f"sqlite:///{database}",
    }
    process = subprocess.Popen(
        words_of(folder),
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    try:
        first = process.stdout.readline()  # more output follows, so the pipe must stay open
        assert first.startswith(f"wrote {folder}/")
        (copy,) = (path for path in folder.iterdir() if path != old)
        assert COPY_NAME.fullmatch(copy.name)
        assert examine(copy).bytes
        # the loop continues: it deletes the old copy, then sleeps for a day
        if words_of is of_compose:
            deadline = time.monotonic() + 60
            while old.exists():
                assert time.monotonic() < deadline
                time.sleep(0.05)
            assert process.poll() is None
    finally:
        with contextlib.suppress(ProcessLookupError):  # the process has ended
            os.killpg(process.pid, signal.SIGTERM)  # include the `sleep` of the shell
        process.wait(60)
        process.stdout.close()
