"""Run commands in this process."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest
from tests.support.command_line import Command, Done

from tollgauge import cli


@pytest.fixture
def tollgauge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Command:
    """Return a function that runs commands in this process, in the test's folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DATABASE_URL", raising=False)

    def run(*words: str, stdin: bytes = b"", **environment: str) -> Done:
        with monkeypatch.context() as patched:
            patched.setattr(sys, "argv", ["tollgauge", *words])
            patched.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
            for name, value in environment.items():
                patched.setenv(name, value)
            capsys.readouterr()  # discard output of the test itself
            with pytest.raises(SystemExit) as ended:
                cli.main()
        output = capsys.readouterr()
        assert "Traceback" not in output.err
        return Done(int(str(ended.value.code or 0)), output.out, output.err)

    return run
