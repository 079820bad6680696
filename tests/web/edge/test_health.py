"""`/readyz` with databases that really fail: the response and the log contain the cause."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import resource
import shutil
import signal
import sqlite3
import subprocess
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from tests.support import paid_service, prices
from tests.support.command_server import command as prepared_command
from tests.support.http_service import (
    WEATHER,
    WEATHER_ID,
    Running,
    configuration,
    open_service,
    ready,
)
from tests.support.paid_service import PaidService
from tests.support.postgres import Server, server
from tests.support.statements import fetch, open_transaction

from tollgauge.core.endpoint.identity import parse_resource
from tollgauge.db import meta
from tollgauge.monitor.discovery import new_endpoint
from tollgauge.store.endpoints import endpoints
from tollgauge.store.ledger.attempts import payment_answer
from tollgauge.store.ledger.payments import payment
from tollgauge.store.schedule import claims
from tollgauge.web.edge.health import EVERY_MS, TRY_SECONDS


@pytest.fixture
async def running(database: str) -> AsyncIterator[Running]:
    """A service on each of the databases."""
    async with open_service(configuration(store_url=database)) as service:
        yield service


@pytest.fixture
async def on_file(
    tmp_path: Path, market_database: Callable[[Path], str]
) -> AsyncIterator[tuple[Running, Path]]:
    """A service with content on SQLite, and its file."""
    path = tmp_path / "service.db"
    async with open_service(configuration(store_url=market_database(path))) as service:
        yield service, path


def overwrite(path: Path, size: int) -> None:
    """Damage the beginning of a file in another process: this one has a connection to it."""
    with tempfile.NamedTemporaryFile() as garbage:
        garbage.write(b"\xa5" * size)
        garbage.flush()
        source, target = f"if={garbage.name}", f"of={path}"
        subprocess.run(["dd", source, target, "conv=notrunc", "status=none"], check=True)


async def counts(running: Running) -> list[int]:
    """Count the rows of the tables that a sale writes."""
    numbers = [
        await fetch(running.service.store, sa.select(sa.func.count()).select_from(table))
        for table in (payment, payment_answer)
    ]
    return [number.scalar_one() for number in numbers]


async def test_readiness_check_rolls_back_its_writes(
    running: Running,
) -> None:
    for _ in range(3):
        assert await ready(running) == "ready"
    assert await counts(running) == [0, 0]


async def test_concurrent_requests_share_one_readiness_check(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = 0
    store = running.service.store
    whole = type(store).try_write

    async def count_call(*args: object, **more: object) -> None:
        nonlocal tried
        tried += 1
        await whole(*args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(type(store), "try_write", count_call)
    answers = await asyncio.gather(*(running.get("/readyz") for _ in range(20)))
    assert {answer.status_code for answer in answers} == {200}
    running.clock.now += EVERY_MS - 1
    await running.get("/readyz")
    assert tried == 1
    running.clock.now += 1
    await running.get("/readyz")
    assert tried == 2


async def test_late_probes_are_reported_and_do_not_prevent_sales(running: Running) -> None:
    running.clock.now += 2 * EVERY_MS
    assert (await running.get("/readyz")).json() == {"status": "ready"}
    late = new_endpoint(
        parse_resource("https://late.dev/a"), now=running.clock.now - 600_000, spread_ms=0
    )
    await running.service.store.writing(endpoints.insert, late)
    running.clock.now += EVERY_MS
    answer = await running.get("/readyz")
    assert answer.status_code == 200
    assert answer.json() == {
        "status": "ready",
        "probesLateSeconds": {"all": 605, "watched": 0},
    }


@pytest.mark.parametrize(
    "database", [pytest.param("postgres", marks=pytest.mark.postgres)], indirect=True
)
async def test_readiness_does_not_wait_for_a_database_that_hangs_after_the_check(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would come half a minute later, when the server ends the statement, as a failure."""

    def hang(tx: sa.Connection, *, now: int) -> dict[str, int]:
        tx.exec_driver_sql("SELECT pg_sleep(60)")
        return {"all": now}

    monkeypatch.setattr(claims, "overdue_ms", hang)
    assert await ready(running) == "ready"
    assert await ready(running) == "ready"


async def test_damaged_file_is_corrupt(
    on_file: tuple[Running, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    running, path = on_file
    assert await ready(running) == "ready"
    overwrite(path, 65_536)
    assert await ready(running) == "corrupt"
    assert await ready(running) == "corrupt"
    logged = "".join(capsys.readouterr())
    assert logged.count("store.unready") == 1, "a line a change"
    assert "corrupt" in logged
    assert path.name not in logged


async def test_service_with_a_damaged_database_sells_nothing(
    tmp_path: Path, market_database: Callable[[Path], str]
) -> None:
    path = tmp_path / "service.db"
    async with paid_service.open_paid_service(market_database(path), PaidService) as service:
        order = {"resource": WEATHER}
        assert (await service.post("/v1/x402-history", order)).status_code == 200
        overwrite(path, 65_536)
        assert await ready(service.running) == "corrupt"
        for _ in range(3):
            answer = await service.post("/v1/x402-history", order)
            assert (answer.status_code, answer.json()["code"]) == (503, "store-unavailable")
        assert service.asked == {"/verify": 1, "/settle": 1}


async def test_damage_found_by_a_read_marks_the_file_corrupt(
    tmp_path: Path, market_database: Callable[[Path], str]
) -> None:
    """Damage deep inside, where a try does not come by."""
    path = tmp_path / "service.db"
    url = market_database(path)
    with contextlib.closing(sqlite3.connect(path)) as direct:
        names = "SELECT pageno FROM dbstat WHERE name = 'probe_day' AND pagetype = 'leaf'"
        try:
            pages = [number for (number,) in direct.execute(names)]
        except sqlite3.OperationalError:
            pytest.skip("this SQLite is built without dbstat")
    with path.open("r+b") as file:
        for number in pages[1:]:
            file.seek((number - 1) * 8_192)
            file.write(b"\xa5" * 8_192)
    async with open_service(configuration(store_url=url)) as running:
        assert await ready(running) == "ready"
        snapshot = await running.get(f"/trust/snapshot/{WEATHER_ID}")
        assert snapshot.status_code in (200, 503)
        read = "SELECT sum(length(packed)) FROM probe_day"
        with pytest.raises(Exception, match="not available"):
            await running.service.store.reading(lambda c: c.exec_driver_sql(read).scalar())
        assert await ready(running) == "corrupt"


async def test_file_with_another_writer_is_locked(
    on_file: tuple[Running, Path],
) -> None:
    running, path = on_file
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert await ready(running) == "locked"
        other.execute("ROLLBACK")
    assert await ready(running) == "ready"


@contextlib.contextmanager
def files_no_larger_than(size: int) -> Iterator[None]:
    """The limit that `ulimit -f` sets, for this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def test_file_size_limit_counts_as_full_disk(
    on_file: tuple[Running, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    running, path = on_file
    await running.service.store.writing(meta.put, "a", "1")
    log = path.with_name(path.name + "-wal")
    with files_no_larger_than(log.stat().st_size + 8_192):
        assert await ready(running) == "full"
        assert (await running.get("/trust/stats")).status_code == 200, "reads go on"
    assert "cause=full" in "".join(capsys.readouterr())
    assert await ready(running) == "ready"


FULL_DISK = """
import asyncio, ctypes, json, subprocess, sys
from pathlib import Path
from tests.support.http_service import configuration, open_service
from tests.support.http_service import ready

CLONE_NEWNS = 0x20000

async def main(folder: Path) -> list[str]:
    assert ctypes.CDLL(None).unshare(CLONE_NEWNS) == 0
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(folder)], check=True)
    async with open_service(configuration(store_url=f"sqlite:///{folder / 'a.db'}")) as running:
        seen = [await ready(running)]
        rest = folder / "rest"
        with rest.open("wb", buffering=0) as file:
            try:
                while file.write(bytes(4_096)):
                    pass
            except OSError:
                pass
        seen.append(await ready(running))
        rest.unlink()
        seen.append(await ready(running))
    return seen

sys.stdout.write("\\n" + json.dumps(asyncio.run(main(Path(sys.argv[1])))))
"""


def own_mounts() -> bool:
    """Return whether this process may mount a file system."""
    tried = ["unshare", "-m", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    return subprocess.run(tried, capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(not own_mounts(), reason="needs unshare -m and mount: a small disk of its own")
def test_full_disk_recovers_after_space_is_freed(tmp_path: Path) -> None:
    ran = subprocess.run(
        prepared_command("-c", FULL_DISK, str(tmp_path)),
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout.splitlines()[-1]) == ["ready", "full", "ready"]


async def test_tables_of_another_version_are_reported(
    on_file: tuple[Running, Path],
) -> None:
    running, path = on_file
    with contextlib.closing(sqlite3.connect(path)) as direct:
        direct.execute("DROP TABLE payment_answer")
        direct.commit()
    assert await ready(running) == "wrong-tables"


@pytest.mark.parametrize("what", ["tables", "file", "another file"])
async def test_missing_tables_or_file_prevent_service(
    tmp_path: Path, empty_sqlite: Path, what: str
) -> None:
    """An unlinked file would take every sale: they would be gone with the process."""
    path = Path(shutil.copy(empty_sqlite, tmp_path / "a.db"))
    async with paid_service.open_paid_service(f"sqlite:///{path}", PaidService) as service:
        route, body = prices.BULK[10], {"resources": ["https://api.example.com/weather"]}
        assert (await service.post(route, body)).status_code == 200
        if what == "tables":
            with contextlib.closing(sqlite3.connect(path)) as direct:
                for (table,) in direct.execute(
                    "SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE 'pay%'"
                ).fetchall():
                    direct.execute(f"DROP TABLE {table}")
        else:
            os.unlink(path)  # noqa: PTH108 - blocking is fine in this test
        if what == "another file":
            shutil.copy(empty_sqlite, path)
        refused = await service.post(route, body)
        assert (refused.status_code, refused.json()["code"]) == (503, "store-unavailable")
        assert int(refused.headers["Retry-After"]) >= 1
        assert await ready(service.running) == (
            "wrong-tables" if what == "tables" else "unreachable"
        )
        assert service.asked == {"/verify": 1, "/settle": 1}


@pytest.fixture
def own_server(postgres_data: Path) -> Iterator[Server]:
    """A PostgreSQL server that a test may stop."""
    with server(postgres_data) as started:
        yield started


@pytest.mark.postgres
async def test_stopped_postgresql_is_unreachable(
    own_server: Server,
) -> None:
    postgres, process = own_server.postgres, own_server.process
    async with open_service(configuration(store_url=postgres.url(postgres.template))) as running:
        assert await ready(running) == "ready"
        process.send_signal(signal.SIGINT)
        process.wait(30)
        assert await ready(running) == "unreachable"
        assert (await running.get("/healthz")).status_code == 200


@pytest.mark.postgres
async def test_read_only_postgresql_is_reported(
    own_server: Server,
) -> None:
    postgres = own_server.postgres
    async with open_service(configuration(store_url=postgres.url(postgres.template))) as running:
        postgres.sql("ALTER SYSTEM SET default_transaction_read_only = on")
        postgres.sql("SELECT pg_reload_conf()")
        for _ in range(300):  # its processes read their settings when they like
            if await ready(running) != "ready":
                break
            await asyncio.sleep(0.1)
        assert await ready(running) == "read-only"


@pytest.mark.postgres
async def test_readiness_check_of_a_locked_table_times_out(
    own_server: Server,
) -> None:
    postgres = own_server.postgres
    assert TRY_SECONDS < 5
    async with open_service(configuration(store_url=postgres.url(postgres.template))) as running:
        holder = running.service.store
        other = type(holder).open(postgres.url(postgres.template))
        async with open_transaction(other, writing=True) as run:
            await run(lambda tx: tx.exec_driver_sql("LOCK TABLE payment").close())
            assert await ready(running) in ("locked", "unreachable")
        await other.close()
        assert await ready(running) == "ready"
