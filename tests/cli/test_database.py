"""`migrate`, `backup` and `restore`, and unusable databases."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.command_line import Command
from tests.support.postgres import Postgres

from tollgauge.db.engine import newest_version


def test_migrate_creates_the_database(tollgauge: Command, tmp_path: Path) -> None:
    for _ in range(2):
        done = tollgauge("migrate", DATABASE_URL=f"sqlite:///{tmp_path}/a/b.db")
        assert done.code == 0
        assert "up to date" in done.out
    assert tollgauge("migrate", "--json", DATABASE_URL=f"sqlite:///{tmp_path}/a/b.db").json[
        "version"
    ]
    assert (tmp_path / "a" / "b.db").exists()


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("nonsense", "The database URL cannot be read"),
        ("mysql://host/db", "The database 'mysql' is not supported"),
        ("postgresql://u@127.0.0.1:port/db", "The database URL cannot be read"),
        ("postgresql://u@127.0.0.1:1/db", "no connection"),
        ("postgresql://u@127.0.0.1:1/db?sslmode=require", "no connection"),
        ("postgresql://u@127.0.0.1:1/db?junk=1", "unsupported parameters: junk"),
        ("sqlite:////proc/no/such/place.db", "cannot be created"),
        ("sqlite:///file.txt/x.db", "cannot be created"),
        ("sqlite:///file.txt", "SQLITE_NOTADB"),
        ("sqlite:///folder", "SQLITE_CANTOPEN"),
    ],
)
def test_unusable_database_is_named(
    tollgauge: Command, tmp_path: Path, url: str, message: str
) -> None:
    (tmp_path / "file.txt").write_text("this is no database " * 100)
    (tmp_path / "folder").mkdir()
    done = tollgauge("migrate", DATABASE_URL=url)
    assert (done.code, done.out) == (2, "")
    assert message in done.err
    assert len(done.err.strip().splitlines()) == 2, "one line for the problem, one for the remedy"


@pytest.mark.postgres
def test_sqlite_copy_is_restored_into_empty_postgresql_database(
    tollgauge: Command, tmp_path: Path, postgres: Postgres
) -> None:
    before = f"sqlite:///{tmp_path}/t.sqlite"
    tollgauge("migrate", DATABASE_URL=before)
    tollgauge("backup", "move.sqlite", DATABASE_URL=before)
    postgres.sql("CREATE DATABASE from_sqlite")
    after = postgres.url("from_sqlite")
    moved = tollgauge("restore", "move.sqlite", "--json", DATABASE_URL=after)
    assert (moved.code, moved.json["version"]) == (0, newest_version()), moved.err
    again = tollgauge("restore", "move.sqlite", DATABASE_URL=after)
    assert (again.code, again.out) == (2, "")
    assert "only into an empty database" in again.err


def test_database_is_backed_up_and_restored(tollgauge: Command, tmp_path: Path) -> None:
    database = f"sqlite:///{tmp_path}/t.sqlite"
    tollgauge("migrate", DATABASE_URL=database)
    done = tollgauge("backup", "copy.sqlite", "--json", DATABASE_URL=database)
    assert done.code == 0, done.err
    assert done.json["version"] == newest_version()
    assert done.json["rows"]["payment"] == 0
    assert done.json["bytes"] == (tmp_path / "copy.sqlite").stat().st_size
    again = tollgauge("backup", "copy.sqlite", DATABASE_URL=database)
    assert (again.code, again.out) == (2, "")
    assert "add --force" in again.err
    put = tollgauge("restore", "copy.sqlite", "--json", DATABASE_URL=database)
    assert put.code == 0, put.err
    assert Path(put.json["replaced"]).is_file()
    (tmp_path / "letter").write_text("this is no database " * 100)
    bad = tollgauge("restore", "letter", DATABASE_URL=database)
    assert (bad.code, bad.out) == (1, "")
    assert "not a complete SQLite database" in bad.err
    for url in ("sqlite://", "sqlite:///gone.sqlite"):
        gone = tollgauge("backup", "x.sqlite", DATABASE_URL=url)
        assert (gone.code, gone.out) == (2, "")
        assert not (tmp_path / "x.sqlite").exists()
