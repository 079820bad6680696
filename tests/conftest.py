"""Shared fixtures: real databases.

`store` is an open, migrated Store, once on SQLite and once on PostgreSQL; `database` is the URL
of such a database, for tests that open it more than once. PostgreSQL is a server of our own from
Debian's binaries, one a test process, on a Unix socket in a directory that goes with it.
"""

from __future__ import annotations

import asyncio
import ctypes
import itertools
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.support import watch_shop
from tests.support.http_service import configuration, fill, opened
from tests.support.watch_shop import WatchService

from tollgauge.db.engine import Store

PR_SET_PDEATHSIG = 1  # prctl(2)
SETTINGS = {
    "listen_addresses": "",
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "max_connections": "60",
    "shared_buffers": "32MB",
    "autovacuum": "off",
}
DATABASES = ("sqlite", pytest.param("postgres", marks=pytest.mark.postgres))


@dataclass(frozen=True)
class Postgres:
    """A running server of ours; `template` is a migrated database to copy."""

    folder: Path
    binaries: Path
    user: str | None  # PostgreSQL refuses to run as root
    template: str = "template_tollgauge"

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
        self.run("psql", "-h", str(self.folder), "-U", "tollgauge", "-qc", statement, "postgres")

    @property
    def group(self) -> int | None:
        return None if self.user is None else pwd.getpwnam(self.user).pw_gid


def binaries() -> Path | None:
    """The newest PostgreSQL of the machine that has a server."""
    found = sorted(
        Path("/usr/lib/postgresql").glob("*/bin/initdb"),
        key=lambda path: int(path.parent.parent.name),
    )
    on_path = shutil.which("initdb")
    if found:
        return found[-1].parent
    return Path(on_path).resolve().parent if on_path else None


def unprivileged_user() -> str | None:
    """Whom the server runs as when we are root: `postgres`, else `nobody`."""
    if os.geteuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"


def end_with_parent() -> None:
    """In the child: be asked to shut down when the test process is gone, however it went."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGINT)


def started(server: Postgres) -> subprocess.Popen[bytes]:
    options = [text for key, value in SETTINGS.items() for text in ("-c", f"{key}={value}")]
    command = [str(server.binaries / "postgres"), "-D", str(server.folder / "data")]
    with (server.folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "-k", str(server.folder), *options],
            cwd=server.folder,
            stdout=log,
            stderr=log,
            user=server.user,
            group=server.group,
            preexec_fn=end_with_parent if sys.platform == "linux" else None,
        )
    deadline = time.monotonic() + 30
    ready = [str(server.binaries / "pg_isready"), "-q", "-h", str(server.folder)]
    while subprocess.run(ready, check=False).returncode != 0:
        assert process.poll() is None, (server.folder / "log").read_text()
        assert time.monotonic() < deadline, "PostgreSQL did not start within 30 s"
        time.sleep(0.05)
    return process


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A PostgreSQL server of this test process alone."""
    where = binaries()
    if where is None:
        pytest.skip("PostgreSQL is missing: apt-get install postgresql (`make test` does it)")
    folder = Path(tempfile.mkdtemp(prefix="tollgauge-pg-", dir="/tmp"))
    server = Postgres(folder=folder, binaries=where, user=unprivileged_user())
    if server.user is not None:
        shutil.chown(folder, server.user)
    options = ("--auth=trust", "--username=tollgauge", "--no-sync", "--encoding=UTF8")
    process = None
    try:
        server.run("initdb", "-D", str(folder / "data"), "--locale=C", *options)
        process = started(server)
        server.sql(f"CREATE DATABASE {server.template}")
        asyncio.run(migrated(server.url(server.template)))
        yield server
    finally:
        if process is not None:
            process.send_signal(signal.SIGINT)  # fast shutdown
            process.wait(30)
        shutil.rmtree(folder)


@pytest.fixture(scope="session")
def empty_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated SQLite file to copy."""
    path = tmp_path_factory.mktemp("sqlite") / "template.db"
    asyncio.run(migrated(f"sqlite:///{path}"))
    return path


async def migrated(url: str) -> None:
    store = Store.open(url)
    try:
        await store.migrate()
    finally:
        await store.close()


@pytest.fixture(scope="session")
def database_numbers() -> Iterator[int]:
    return itertools.count(1)


@pytest.fixture(params=DATABASES)
def database(
    request: pytest.FixtureRequest, tmp_path: Path, database_numbers: Iterator[int]
) -> str:
    """The URL of a fresh, migrated database."""
    if request.param == "sqlite":
        path = tmp_path / "tollgauge.db"
        shutil.copy(request.getfixturevalue("empty_sqlite"), path)
        return f"sqlite:///{path}"
    server: Postgres = request.getfixturevalue("postgres")
    name = f"test_{next(database_numbers)}"
    server.sql(f"CREATE DATABASE {name} TEMPLATE {server.template}")
    return server.url(name)


@pytest.fixture
async def store(database: str) -> AsyncIterator[Store]:
    """An open store on a fresh database."""
    store = Store.open(database)
    yield store
    await store.close()


@pytest.fixture
async def open_store(database: str) -> AsyncIterator[Callable[[], Store]]:
    """Opens further stores on the same database, as other processes would; closes them."""
    stores: list[Store] = []

    def another() -> Store:
        stores.append(Store.open(database))
        return stores[-1]

    yield another
    for store in stores:
        await store.close()


@pytest.fixture(scope="session")
def market_database(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], str]:
    """Copies a database that holds some days of the market; the URL of the copy."""
    template = tmp_path_factory.mktemp("market") / "template.db"

    async def build() -> None:
        async with opened(configuration(store_url=f"sqlite:///{template}")) as running:
            await fill(running)

    asyncio.run(build())

    def copy(path: Path) -> str:
        shutil.copy(template, path)
        return f"sqlite:///{path}"

    return copy


@pytest.fixture
async def till(tmp_path: Path, empty_sqlite: Path) -> AsyncIterator[WatchService]:
    database = shutil.copy(empty_sqlite, tmp_path / "till.db")
    async with watch_shop.opened(f"sqlite:///{database}", tmp_path) as found:
        yield found


@pytest.fixture
async def everywhere(database: str, tmp_path: Path) -> AsyncIterator[WatchService]:
    async with watch_shop.opened(database, tmp_path) as found:
        yield found
