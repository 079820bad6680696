"""Shared fixtures: real databases, and the order of the tests.

`store` is an open Store with tables, once on SQLite and once on PostgreSQL. `database` is the URL
of such a database, for tests that open it more than once. Each test process starts a PostgreSQL
server from Debian's binaries, on a Unix socket in a temporary directory.
"""

from __future__ import annotations

import asyncio
import fcntl
import gc
import importlib
import itertools
import logging
import os
import shutil
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Final

import pytest
import structlog
from hypothesis import HealthCheck, settings
from tests.support import command_server, open_files, programs, quick_start
from tests.support.databases import DATABASES, is_for_its_database
from tests.support.examples import THOROUGH, examples
from tests.support.http_service import configuration, fill, open_service
from tests.support.postgres import SETTINGS, Databases, Postgres, Server, migrate_database, server
from tests.support.watch_service import WatchService, open_watch_service

from tollgauge.clients.peer import public_authorities
from tollgauge.core.endpoint.identity import site
from tollgauge.core.probe.schedule import DRAW_RANGE, Draws
from tollgauge.db.engine import Store
from tollgauge.demo.anvil import ChainError, find_anvil
from tollgauge.monitor import recording
from tollgauge.web.pages import render

QUICK = tuple(f"tests/{name}/" for name in ("clients", "config", "core", "golden", "store"))
"""Folders with short files."""

DAY_S: Final = 86_400
LONGEST_S: Final = 60
"""Upper limit for the duration of a test that uses `one_day`, on a busy machine."""

COMMAND_SERVER = pytest.StashKey[int]()
settings.register_profile(
    "tests",
    max_examples=examples(100),
    deadline=None,
    # Use the same examples in each run, so that a commit that passed passes again. `make test-all`
    # tries new ones.
    derandomize=not THOROUGH,
    suppress_health_check=[HealthCheck.too_slow],  # too short on a busy machine
)
settings.load_profile("tests")
open_files.install()  # before the workers and the command server are forked
programs.install()
# Python uses this handler if there is no other. With it, MCPServer does not add one that renders
# every record of httpx, in all later tests of the process, as a table.
assert logging.lastResort is not None
logging.getLogger().addHandler(logging.lastResort)
# as the command does: with Python's default of 700, imports take twice as long
gc.set_threshold(10_000)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Remove tests that are not for their database. Run long files first, so that no worker waits
    for one of them at the end.
    """
    items[:] = filter(is_for_its_database, items)
    items.sort(key=lambda item: item.nodeid.startswith(QUICK))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Import and freeze everything before the workers are forked.

    The garbage collector does not scan frozen objects. Scanning them took a sixth of the tests'
    time.
    """
    quick_start.install(pytest.MonkeyPatch())
    asyncio.run(first_use(concurrent=getattr(session.config.option, "processes", 1) > 1))
    gc.freeze()
    session.stash[COMMAND_SERVER] = command_server.start()
    # Commands draw random times, tests do not: gaps of one interval, confirmations after 1 and 5
    # minutes. tests/core/probe/test_schedule.py tests the whole ranges.
    draws = Draws(gap=DRAW_RANGE // 2, confirm=DRAW_RANGE // 2)
    pytest.MonkeyPatch().setattr(recording, "draw_times", lambda: draws)


async def first_use(*, concurrent: bool) -> None:
    """Start one service, so that forked processes inherit lazily imported modules. If several
    processes run the tests, they also inherit what most of them use once.
    """
    public_authorities()
    site("example.com")
    async with open_service(configuration()) as running:
        await running.get("/healthz")
        if concurrent:
            await running.get("/openapi.json")
            importlib.import_module("tollgauge.db.postgres")
            for name in render.ENGINE.list_templates():
                render.ENGINE.get_template(name)


def pytest_sessionfinish(session: pytest.Session) -> None:
    if (process := session.stash.get(COMMAND_SERVER, None)) is not None:
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    """Reset the logs after each test: a command in this process may have configured them.

    A hook, because an automatic fixture would take a tenth of the time of a short test.
    """
    structlog.reset_defaults()


class _Records(logging.Handler):
    """Collects log records."""

    def __init__(self) -> None:
        super().__init__()
        self.collected: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.collected.append(record)


@pytest.fixture
def log_records() -> Iterator[list[logging.LogRecord]]:
    """The records of Python's loggers, of every level.

    It replaces `caplog`, whose plugin searches all loggers six times per test.
    """
    root, handler = logging.getLogger(), _Records()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    yield handler.collected
    root.setLevel(level)
    root.removeHandler(handler)


@pytest.fixture
def one_day() -> None:
    """Make the test begin and end on the same UTC day: shortly before midnight, wait for the next.

    For tests that read daily sums by the clock of this machine.
    """
    left = DAY_S - time.time() % DAY_S
    if left < LONGEST_S:
        time.sleep(left)


@pytest.fixture(scope="session")
def anvil() -> Path:
    """The program of the local chain."""
    try:
        return find_anvil()
    except ChainError as error:
        programs.report_missing(f"{error} {error.hint}")


@pytest.fixture(scope="session")
def postgres_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data directory that every PostgreSQL server copies."""
    return tmp_path_factory.getbasetemp() / "postgres-data"


@pytest.fixture(scope="session")
def postgres(postgres_data: Path) -> Iterator[Postgres]:
    """The PostgreSQL server of this test process."""
    with server(postgres_data) as running:
        yield running.postgres


@pytest.fixture(scope="module")
def killable_postgres(postgres_data: Path, postgres: Postgres) -> Iterator[Server]:
    """A server that tests may kill. It keeps committed data."""
    assert postgres.template  # the data directory exists
    with server(postgres_data, {**SETTINGS, "synchronous_commit": "on"}) as running:
        yield running


@pytest.fixture(scope="session")
def postgres_databases(postgres: Postgres) -> Iterator[Databases]:
    databases = Databases(postgres)
    yield databases
    databases.close()


@pytest.fixture(scope="session")
def empty_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An SQLite file with tables, to copy."""
    path = tmp_path_factory.mktemp("sqlite") / "template.db"
    asyncio.run(migrate_database(f"sqlite:///{path}"))
    return path


@pytest.fixture(scope="session")
def database_numbers() -> Iterator[int]:
    return itertools.count(1)


@pytest.fixture(params=DATABASES)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of a database with tables and without rows."""
    if request.param == "sqlite":
        path = tmp_path / "tollgauge.db"
        shutil.copy(request.getfixturevalue("empty_sqlite"), path)
        yield f"sqlite:///{path}"
        return
    running: Postgres = request.getfixturevalue("postgres")
    databases: Databases = request.getfixturevalue("postgres_databases")
    name = databases.take()
    yield running.url(name)
    databases.give_back(name)


@pytest.fixture
async def store(database: str) -> AsyncIterator[Store]:
    """An open store on a fresh database."""
    store = Store.open(database)
    yield store
    await store.close()


@pytest.fixture
async def open_store(database: str) -> AsyncIterator[Callable[[], Store]]:
    """Open further stores on the same database, as other processes would; close them."""
    stores: list[Store] = []

    def another() -> Store:
        stores.append(Store.open(database))
        return stores[-1]

    yield another
    for store in stores:
        await store.close()


@pytest.fixture(scope="session")
def market_database(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], str]:
    """Copy a database with three days of the demo market to a path; return the copy's URL.

    One worker builds the original for all.
    """
    folder = tmp_path_factory.getbasetemp()
    template = folder / "market.db"

    async def build() -> None:
        async with open_service(configuration(store_url=f"sqlite:///{template}")) as running:
            await fill(running)

    with (folder / "market.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not template.exists():
            asyncio.run(build())

    def copy(path: Path) -> str:
        shutil.copy(template, path)
        return f"sqlite:///{path}"

    return copy


@pytest.fixture
async def watch_service(tmp_path: Path, empty_sqlite: Path) -> AsyncIterator[WatchService]:
    database = shutil.copy(empty_sqlite, tmp_path / "watch_service.db")
    async with open_watch_service(f"sqlite:///{database}", tmp_path) as watch_service:
        yield watch_service


@pytest.fixture
async def watch_service_on_each_database(
    database: str, tmp_path: Path
) -> AsyncIterator[WatchService]:
    async with open_watch_service(database, tmp_path) as watch_service:
        yield watch_service
