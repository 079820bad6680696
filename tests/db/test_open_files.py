"""The suite's own guard: a database must not be opened next to a connection to it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from tests.support.open_files import OpenedBesideSqliteError


@pytest.mark.parametrize("suffix", ["", "-wal", "-shm"])
def test_opening_a_database_next_to_a_connection_fails_the_test(
    tmp_path: Path, suffix: str
) -> None:
    path = tmp_path / "a.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE a (b)")
        with pytest.raises(OpenedBesideSqliteError):
            path.with_name(path.name + suffix).open("rb").close()
    assert path.read_bytes()
