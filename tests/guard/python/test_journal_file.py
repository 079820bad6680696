"""The journal's file: opened by many, damaged, removed."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest
from tests.support.guard_payments import pay

from tollgauge_guard.journal import Journal
from tollgauge_guard.journal_file import JournalError
from tollgauge_guard.payment import Payment
from tollgauge_guard.policy import Policy

NOW = 1_767_225_600 + 3_600
POLICY = Policy()


def test_journal_that_cannot_be_opened_has_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(JournalError, match="Name a file that can be written"):
        Journal(tmp_path / "file" / "journal.sqlite")


def test_new_journal_is_opened_concurrently(tmp_path: Path) -> None:
    for number in range(20):
        path, start = tmp_path / f"{number}.sqlite", Barrier(8)

        def open_journal(path: Path = path, start: Barrier = start) -> int:
            start.wait()
            journal = Journal(path)
            count = len(journal.payments())
            journal.close()
            return count

        with ThreadPoolExecutor(8) as pool:
            assert [call.result() for call in [pool.submit(open_journal) for _ in range(8)]] == [
                0
            ] * 8


def test_removed_or_replaced_file_stops_payments(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    for replace in (False, True):
        journal = Journal(path)
        assert isinstance(pay(journal, 1, POLICY, NOW), Payment)
        path.unlink()
        if replace:
            Journal(path).close()
        with pytest.raises(JournalError, match="was removed or replaced"):
            pay(journal, 2, POLICY, NOW)
        path.unlink(missing_ok=True)


def test_error_of_damaged_file_states_its_path(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    journal = Journal(path)
    pay(journal, 1, POLICY, NOW)
    journal.close()
    content = path.read_bytes()
    path.write_bytes(content[:4096] + b"x" * 4096 + content[8192:])
    with pytest.raises(JournalError, match=r"journal\.sqlite cannot be read or written"):
        Journal(path).payments()
