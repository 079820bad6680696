"""A PostgreSQL server for the tests, on a Unix socket in a folder of its own."""

from __future__ import annotations

import ctypes
import os
import pwd
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

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

    def copy_template(self, name: str) -> None:
        """A new database. Its files are copied, which is half the work of writing each of their
        pages to the log.
        """
        self.sql(f"CREATE DATABASE {name} TEMPLATE {self.template} STRATEGY FILE_COPY")

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


async def migrated(url: str) -> None:
    store = Store.open(url)
    try:
        await store.migrate()
    finally:
        await store.close()
