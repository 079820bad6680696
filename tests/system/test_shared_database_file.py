"""Several processes on one SQLite file lose no sale, whatever they do concurrently.

`serve` and `work` run as separate processes. Between the sales, `/readyz` is requested, a command
runs, and `work` is restarted. Then the service is killed, and everything that it sold must be in
the file.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import shutil
import sqlite3
import subprocess
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import httpx
import pytest
from tests.support import paid_service, prices
from tests.support.command_server import command
from tests.support.http_service import PAY_TO, WEATHER
from tests.support.processes import free_port
from typer.core import TyperGroup
from typer.main import get_command

from tollgauge import app, cli
from tollgauge.clients.peer import public_authorities
from tollgauge.core.base.units import parse_dollars

USES_DATABASE: Final[dict[str, tuple[str, ...]]] = {
    "status": (),
    "payments": ("--books",),
    "backup": ("copy.sqlite", "--force"),
    "restore": ("copy.sqlite",),
    "migrate": (),
    "discover": ("directory.json",),
    "doctor": (),
    "anchors suggest": (),
    "config check": (),
    "work": ("--only", "score,prune"),
    "serve": (),
    "run": (),
}
"""The commands that open the database, with arguments for a run."""
OTHER: Final = (
    *("bench", "buy", "demo", "init", "keys", "lint", "mcp", "probe", "score"),
    *("trace", "verify", "watch"),
)
"""The commands, or groups of commands, that never open the service's database."""
DIRECTORY: Final = '{"items": [{"resource": "https://other.example/v1/paid", "accepts": []}]}'

CONFIGURATION: Final = """
[egress.mapped]
"weather.example" = ["127.0.0.1", 9]
"""


def test_every_command_is_classified_by_database_use() -> None:
    typer = get_command(cli.app)
    assert isinstance(typer, TyperGroup)
    assert {name.split()[0] for name in (*USES_DATABASE, *OTHER)} == set(typer.commands)


@dataclass
class Service:
    """`tollgauge serve` and `work` on one file, and the sales so far: payment header and
    response.
    """

    folder: Path
    environment: dict[str, str]
    url: str
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    sold: dict[str, bytes] = field(default_factory=dict)
    nonces: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        with (self.folder / "log").open("ab") as log:
            started = subprocess.Popen(
                command("tollgauge", *words),
                cwd=self.folder,
                env=self.environment,
                stdout=log,
                stderr=log,
            )
        self.processes.append(started)
        return started

    def work(self) -> subprocess.Popen[bytes]:
        return self.start("work", *USES_DATABASE["work"])

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        process.kill()
        process.wait(30)
        self.processes.remove(process)

    async def run(self, name: str) -> int:
        """Run a command; return its exit code. Commands that serve find the port in use."""
        done = await asyncio.to_thread(
            subprocess.run,
            command("tollgauge", *name.split(), *USES_DATABASE[name]),
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=60,
            check=False,
        )
        return done.returncode

    async def serve(self) -> subprocess.Popen[bytes]:
        async with client() as http:
            # A kill ends the launcher immediately, and the service that it started slightly later.
            with contextlib.suppress(httpx.TransportError):
                for _ in range(300):
                    await http.get(f"{self.url}/healthz")
                    await asyncio.sleep(0.01)
            started = self.start("serve")
            for _ in range(300):
                with contextlib.suppress(httpx.TransportError):
                    if (await http.get(f"{self.url}/healthz")).status_code == 200:
                        return started
                assert started.poll() is None, (self.folder / "log").read_text()[-1000:]
                await asyncio.sleep(0.1)
        raise AssertionError("the service did not start")

    async def send(self, header: str) -> httpx.Response:
        async with client() as http:
            return await http.post(
                f"{self.url}/v1/x402-history",
                json={"resource": WEATHER},
                headers={"PAYMENT-SIGNATURE": header},
            )

    async def sell(self) -> None:
        document = paid_service.payment(
            next(self.nonces),
            value=parse_dollars(prices.PRICES["/v1/x402-history"]),
            now=app.now_ms(),
        )
        header = paid_service.header(document)
        answer = await self.send(header)
        assert answer.status_code == 200, answer.text
        self.sold[header] = answer.content

    async def check_ready(self) -> None:
        async with client() as http:
            ready = await http.get(f"{self.url}/readyz")
        assert (ready.status_code, ready.json()["status"]) == (200, "ready")


def client() -> httpx.AsyncClient:
    return httpx.AsyncClient(timeout=30, trust_env=False, verify=public_authorities())


def deleted_files(folder: Path) -> list[str]:
    """Return deleted files of a folder that a process still has open."""
    links = []
    for descriptor in Path("/proc").glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):  # the process has ended in the meantime
            links.append(str(descriptor.readlink()))
    return [link for link in links if link.startswith(str(folder)) and link.endswith(" (deleted)")]


@pytest.fixture
async def service(tmp_path: Path, market_database: Callable[[Path], str]) -> AsyncIterator[Service]:
    url = market_database(tmp_path / "tollgauge.sqlite")
    (tmp_path / "directory.json").write_text(DIRECTORY)
    (tmp_path / "tollgauge.toml").write_text(CONFIGURATION)
    shutil.copy(tmp_path / "tollgauge.sqlite", tmp_path / "copy.sqlite")
    port = free_port()
    async with paid_service.facilitator(Counter()) as facilitator:
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(tmp_path),
            "DATABASE_URL": url,
            "TOLLGAUGE_SERVER_PORT": str(port),
            "TOLLGAUGE_SERVER_ADMIN_PORT": "0",
            "TOLLGAUGE_SALE_PAY_TO": PAY_TO,
            "TOLLGAUGE_FACILITATOR_URL": facilitator.url,
        }
        running = Service(tmp_path, environment, f"http://127.0.0.1:{port}")
        try:
            yield running
        finally:
            for process in list(running.processes):
                running.kill(process)


async def check_nothing_is_lost(service: Service) -> None:
    """After a kill, the file contains every sale, and a new service returns the same responses."""
    with closing(sqlite3.connect(service.folder / "tollgauge.sqlite")) as file:
        assert file.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        settled = "SELECT count(*) FROM payment WHERE state = 'settled'"
        assert file.execute(settled).fetchone() == (len(service.sold),)
    await service.serve()
    for header, body in service.sold.items():
        again = await service.send(header)
        assert (again.status_code, again.content) == (200, body)


async def test_no_sale_is_lost_while_any_command_runs(service: Service) -> None:
    await service.serve()
    working = service.work()
    for name in USES_DATABASE:
        await service.sell()
        await service.check_ready()
        if name == "work":  # runs until it is killed
            service.kill(working)
            working = service.work()
            await asyncio.sleep(0.5)
        else:
            refused = name in ("restore", "run", "serve")  # the file exists, or the port is in use
            assert (await service.run(name) == 2) is refused, name
        await service.sell()
        assert deleted_files(service.folder) == [], name
    for process in service.processes.copy():
        assert process.poll() is None
        service.kill(process)
    await check_nothing_is_lost(service)


async def test_backup_after_a_readiness_check_is_complete(
    service: Service,
) -> None:
    serving = await service.serve()
    for _ in range(5):
        await service.sell()
    await service.check_ready()
    assert await service.run("status") in (0, 1)  # 1: with advice
    for _ in range(5):
        await service.sell()
    assert await service.run("backup") == 0
    with closing(sqlite3.connect(service.folder / "copy.sqlite")) as copy:
        counted = copy.execute("SELECT count(*) FROM payment WHERE state = 'settled'")
        assert counted.fetchone() == (10,)
    service.kill(serving)
    await check_nothing_is_lost(service)
