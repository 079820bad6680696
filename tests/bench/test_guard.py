"""The measurement of the payment guards, with small sizes."""

from __future__ import annotations

import sys
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
from tests.support.command_server import command

from bench import guard
from bench.child import Child, start_child


def test_both_languages_report_calls_commits_and_decisions(monkeypatch: pytest.MonkeyPatch) -> None:
    def fork_python(words: list[str], log: Path) -> AbstractAsyncContextManager[Child]:
        """Start Python as a fork, which saves the second of its imports."""
        return start_child(command(*words[1:]) if words[0] == sys.executable else words, log)

    monkeypatch.setattr(guard, "start_child", fork_python)
    report = guard.run(records=300, calls=5, payments=40)
    names = [measurement.name for measurement in report.measurements]
    for language in ("python", "typescript"):
        assert f"{language}, decision, p50" in names
        assert f"{language}, decision and reservation, p99" in names
    peers = [measurement for measurement in report.measurements if measurement.peer is not None]
    assert [measurement.peer for measurement in peers] == 4 * ["4 commits of SQLite"]
    assert all(measurement.peer_figure for measurement in peers)
