"""A PostgreSQL server for one measurement: Debian's package and settings, on a Unix socket in a
temporary folder.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Final

from tollgauge.db.engine import Store, StoreUnavailable

USER: Final = "tollgauge"
_PATIENCE_S: Final = 20


@contextlib.contextmanager
def run_postgres() -> Iterator[str]:
    """Yield the URL of a new database. Raises RuntimeError if PostgreSQL is not installed."""
    versions = Path("/usr/lib/postgresql").glob("*/bin/initdb")
    initdb = max(versions, key=lambda path: int(path.parent.parent.name), default=None)
    if initdb is None:
        raise RuntimeError("PostgreSQL is not installed.")
    owner = "postgres" if os.geteuid() == 0 else None  # it refuses to run as root
    folder = tempfile.mkdtemp(prefix="tollgauge-bench-")
    try:
        if owner is not None:
            shutil.chown(folder, owner)
        data = f"{folder}/data"
        create = [str(initdb), "-D", data, "-U", USER, "-A", "trust", "-E", "UTF8"]
        subprocess.run(create, check=True, capture_output=True, user=owner, cwd=folder)  # noqa: S603 - our arguments
        settings = ("-c", "listen_addresses=", "-c", "log_min_messages=panic")
        serve = [str(initdb.with_name("postgres")), "-D", data, "-k", folder, *settings]
        with subprocess.Popen(serve, user=owner, cwd=folder) as server:  # noqa: S603 - our arguments
            try:
                yield f"postgresql://{USER}@/postgres?host={folder}"
            finally:
                server.terminate()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.asynccontextmanager
async def run_migrated() -> AsyncIterator[str]:
    """Yield the URL of a new database with tables, on a new server."""
    with run_postgres() as url:
        store = Store.open(url)
        try:
            await _migrate(store)
        finally:
            await store.close()
        yield url


@contextlib.asynccontextmanager
async def open_store() -> AsyncIterator[Store]:
    """Open a store on a new server."""
    async with run_migrated() as url:
        store = Store.open(url)
        try:
            yield store
        finally:
            await store.close()


async def _migrate(store: Store) -> None:
    """Create the tables as soon as the server accepts connections."""
    async with asyncio.timeout(_PATIENCE_S):
        while True:
            try:
                await store.migrate()
            except StoreUnavailable:
                await asyncio.sleep(0.1)
            else:
                return
