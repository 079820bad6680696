"""A PostgreSQL server for the tests, on a Unix socket in its own folder."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import itertools
import os
import pwd
import random
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import psycopg
from psycopg.rows import TupleRow
from tests.support.processes import end_with_parent
from tests.support.programs import report_missing

from tollgauge.db.engine import Store

SETTINGS = {
    "listen_addresses": "",
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "max_connections": "60",
    "shared_buffers": "32MB",
    "autovacuum": "off",
    "jit": "off",
    "wal_level": "minimal",
    "max_wal_senders": "0",
}


SCHEMAS: Final = itertools.count(1)
WRITES_MAX: Final = 20_000
"""Row writes after which a database is not used again: its dead rows are not vacuumed."""
OTHERS: Final = """
    SELECT (SELECT count(*) FROM pg_stat_activity
            WHERE datname = current_database() AND pid <> pg_backend_pid()),
           EXISTS (SELECT FROM pg_db_role_setting JOIN pg_database ON pg_database.oid = setdatabase
                   WHERE datname = current_database())
"""
"""Number of other connections, and whether a test changed a setting of the database."""
WRITTEN: Final = """
    SELECT oid::regclass::text AS name, relnamespace::regnamespace::text AS schemaname,
           pg_stat_get_tuples_inserted(oid) + pg_stat_get_tuples_updated(oid)
           + pg_stat_get_tuples_deleted(oid) AS rows
    FROM pg_class WHERE relkind = 'r' AND NOT relisshared AND
          pg_stat_get_tuples_inserted(oid) + pg_stat_get_tuples_updated(oid)
          + pg_stat_get_tuples_deleted(oid) > 0
"""
"""Tables with writes, including those of the catalogue: a change of the schema writes to the
catalogue.
"""
RESTART_SEQUENCES: Final = """
    SELECT setval(format('%I.%I', schemaname, sequencename)::regclass, start_value, false)
    FROM pg_sequences WHERE last_value IS NOT NULL
"""


@dataclass(frozen=True)
class Postgres:
    """A running server; `template` is a migrated database to copy."""

    folder: Path
    binaries: Path
    user: str | None  # PostgreSQL refuses to run as root
    template: str = "template_tollgauge"

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def url(self, name: str) -> str:
        return f"postgresql+asyncpg://tollgauge@/{name}?host={self.folder}"

    def run(self, program: str, *arguments: str) -> None:
        command = [str(self.binaries / program), *arguments]
        done = subprocess.run(
            command,
            cwd=self.folder,
            capture_output=True,
            check=False,
            text=True,
            user=self.user,
            group=self.group,
        )
        assert done.returncode == 0, done.stderr

    def sql(self, statement: str) -> None:
        # In this process: forking a test process for psql takes longer than most statements.
        address = f"host={self.folder} user=tollgauge dbname=postgres"
        with psycopg.connect(address, autocommit=True) as connection:
            connection.execute(statement.encode())

    def new_schema(self) -> str:
        """Create a schema, and return a libpq URL whose search path is this schema only."""
        name = f"schema_{next(SCHEMAS)}"
        self.sql(f"CREATE SCHEMA {name}")
        return f"postgresql://tollgauge@/postgres?host={self.folder}&options=-csearch_path%3D{name}"

    def copy_template(self, name: str) -> None:
        """Create a database. Its files are copied, which is half the work of writing each of their
        pages to the log.
        """
        self.sql(f"CREATE DATABASE {name} TEMPLATE {self.template} STRATEGY FILE_COPY")

    @property
    def group(self) -> int | None:
        return None if self.user is None else pwd.getpwnam(self.user).pw_gid


class Databases:
    """A pool of databases with tables and without rows.

    Creating one takes longer than most tests. A database is therefore reused, unless a test left
    more changes than rows.
    """

    def __init__(self, server: Postgres) -> None:
        self._server = server
        self._free: list[str] = []
        self._numbers = itertools.count(1)
        self._connections: dict[str, psycopg.Connection[TupleRow]] = {}
        """One per database, because a new one costs as much CPU as a short test."""

    def take(self) -> str:
        """Return the name of a database that no other test uses."""
        if self._free:
            return self._free.pop()
        name = f"test_{next(self._numbers)}"
        self._server.copy_template(name)
        return name

    def give_back(self, name: str) -> None:
        """Take a database back from a test that has ended."""
        for _ in range(2):  # the test may have ended the connection of an earlier test
            try:
                is_empty = _empty(self._connect(name))
                break
            except psycopg.Error:
                self._disconnect(name)
        else:
            is_empty = False
        if is_empty:
            self._free.append(name)
        else:
            self._disconnect(name)

    def close(self) -> None:
        """Close all connections."""
        for name in [*self._connections]:
            self._disconnect(name)

    def _connect(self, name: str) -> psycopg.Connection[TupleRow]:
        if name not in self._connections:
            # A test may have set a timeout for the database, which would end this connection too.
            options = "-c idle_session_timeout=0 -c statement_timeout=0"
            # A replica checks no foreign keys, so the tables can be emptied in any order.
            options += " -c session_replication_role=replica"
            self._connections[name] = psycopg.connect(
                f"host={self._server.folder} user=tollgauge dbname={name}",
                options=options,
                autocommit=True,
            )
        return self._connections[name]

    def _disconnect(self, name: str) -> None:
        if (connection := self._connections.pop(name, None)) is not None:
            connection.close()


def _empty(connection: psycopg.Connection[TupleRow]) -> bool:
    """Empty a database, unless a test changed its schema or a connection is still open."""
    deadline = time.monotonic() + 0.2
    while _fetch(connection, OTHERS) != [(0, False)]:  # a closed connection ends slightly later
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    written = _fetch(connection, WRITTEN)
    ours = [name for name, schema, _ in written if schema == "public"]
    if (
        len(ours) < len(written)
        or "schema_version" in ours
        or sum(rows for _, _, rows in written) > WRITES_MAX
    ):
        return False
    connection.execute(
        ";".join([*(f"DELETE FROM {name}" for name in ours), RESTART_SEQUENCES]).encode()
    )
    return True


def _fetch(connection: psycopg.Connection[TupleRow], query: str) -> list[TupleRow]:
    return connection.execute(query.encode()).fetchall()


def binaries() -> Path | None:
    """Return the newest PostgreSQL of the machine that has a server."""
    programs = sorted(
        Path("/usr/lib/postgresql").glob("*/bin/initdb"),
        key=lambda path: int(path.parent.parent.name),
    )
    on_path = shutil.which("initdb")
    if programs:
        return programs[-1].parent
    return Path(on_path).resolve().parent if on_path else None


def unprivileged_user() -> str | None:
    """Return the user of the server when the tests run as root: `postgres` or `nobody`."""
    if os.geteuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"


@dataclass
class Server:
    """A running server and its process; a test may kill either."""

    postgres: Postgres
    process: subprocess.Popen[bytes]
    settings: dict[str, str]

    def kill(self) -> None:
        """End it immediately, as a crash does: open transactions are lost, committed ones are
        not.
        """
        self.process.send_signal(signal.SIGCONT)  # a test may have stopped it
        self.process.send_signal(signal.SIGQUIT)
        self.process.wait(30)

    def start_again(self) -> None:
        """Start it again after its end; it recovers all committed transactions."""
        self.process = start_server(self.postgres, self.settings)

    def kill_one(self, dice: random.Random) -> None:
        """Kill the process of one connection. The server then ends all others and recovers."""
        folder = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        names = {pid: Path(f"/proc/{pid}/cmdline") for pid in folder.read_text().split()}
        serving = [pid for pid, name in names.items() if b"[local]" in _bytes(name)]
        if serving:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(dice.choice(serving)), signal.SIGKILL)


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # the process has ended in the meantime
        return b""


@contextlib.contextmanager
def server(kept: Path, settings: dict[str, str] = SETTINGS) -> Iterator[Server]:
    """A server in a temporary folder.

    It begins with a copy of the data directory `kept`, which the first server of the session
    creates. Creating it takes ten times as long as copying it.
    """
    installed = binaries()
    if installed is None:
        report_missing("PostgreSQL is missing: apt-get install postgresql")
    # Pytest's folders are private and their paths too long for a Unix socket.
    parent = Path(tempfile.gettempdir())
    is_public = parent.stat().st_mode & 0o001
    folder = Path(tempfile.mkdtemp(prefix="tollgauge-pg-", dir=parent if is_public else "/tmp"))
    postgres = Postgres(folder=folder, binaries=installed, user=unprivileged_user())
    if postgres.user is not None:
        shutil.chown(folder, postgres.user)
    try:
        with kept.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not kept.exists():
                make_data(postgres)
                copy_files(postgres.data, kept)
        if not postgres.data.exists():
            copy_files(kept, postgres.data)
        running = Server(postgres, start_server(postgres, settings), settings)
        try:
            yield running
        finally:
            running.kill()
    finally:
        shutil.rmtree(folder)


def make_data(server: Postgres) -> None:
    """Create a data directory with the template."""
    options = ("--auth=trust", "--username=tollgauge", "--no-sync", "--encoding=UTF8")
    server.run("initdb", "-D", str(server.data), "--locale=C", *options)
    process = start_server(server)
    try:
        server.sql(f"CREATE DATABASE {server.template}")
        asyncio.run(migrate_database(server.url(server.template)))
    finally:
        process.send_signal(signal.SIGINT)  # fast shutdown, which writes a checkpoint
        process.wait(30)


def copy_files(source: Path, target: Path) -> None:
    """Copy a data directory with its owner and modes."""
    subprocess.run(["cp", "-a", source, target], check=True)


def start_server(server: Postgres, settings: dict[str, str] = SETTINGS) -> subprocess.Popen[bytes]:
    options = [text for key, value in settings.items() for text in ("-c", f"{key}={value}")]
    command = [str(server.binaries / "postgres"), "-D", str(server.data)]
    with (server.folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "-k", str(server.folder), *options],
            cwd=server.folder,
            stdout=log,
            stderr=log,
            user=server.user,
            group=server.group,
            preexec_fn=partial(end_with_parent, signal.SIGINT),  # a fast shutdown
        )
    deadline = time.monotonic() + 30
    ready = [str(server.binaries / "pg_isready"), "-q", "-h", str(server.folder)]
    while subprocess.run(ready, check=False).returncode != 0:
        assert process.poll() is None, (server.folder / "log").read_text()
        assert time.monotonic() < deadline, "PostgreSQL did not start within 30 s"
        time.sleep(0.05)
    return process


async def migrate_database(url: str) -> None:
    store = Store.open(url)
    try:
        await store.migrate()
    finally:
        await store.close()
