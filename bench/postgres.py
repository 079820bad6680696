"""A PostgreSQL server of a measurement's own, as Debian packages it and with its own settings, on a
Unix socket in a folder that ends with it.
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
def running() -> Iterator[str]:
    """The URL of a new database. Raises RuntimeError where PostgreSQL is missing."""
    versions = Path("/usr/lib/postgresql").glob("*/bin/initdb")
    initdb = max(versions, key=lambda path: int(path.parent.parent.name), default=None)
    if initdb is None:
        raise RuntimeError("PostgreSQL is not installed")
    owner = "postgres" if os.geteuid() == 0 else None  # it refuses to run as root
    folder = tempfile.mkdtemp(prefix="tollgauge-bench-")
    try:
        if owner is not None:
            shutil.chown(folder, owner)
        data = f"{folder}/data"
        create = [str(initdb), "-D", data, "-U", USER, "-A", "trust", "-E", "UTF8"]
        subprocess.run(create, check=True, capture_output=True, user=owner, cwd=folder)  # noqa: S603 - our own words
        settings = ("-c", "listen_addresses=", "-c", "log_min_messages=panic")
        serve = [str(initdb.with_name("postgres")), "-D", data, "-k", folder, *settings]
        with subprocess.Popen(serve, user=owner, cwd=folder) as server:  # noqa: S603 - our own words
            try:
                yield f"postgresql://{USER}@/postgres?host={folder}"
            finally:
                server.terminate()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.asynccontextmanager
async def migrated() -> AsyncIterator[str]:
    """The URL of a new database of a server of its own, with its tables."""
    with running() as url:
        store = Store.open(url)
        try:
            await _migrate(store)
        finally:
            await store.close()
        yield url


@contextlib.asynccontextmanager
async def opened() -> AsyncIterator[Store]:
    """A store on a new database of a server of its own."""
    async with migrated() as url:
        store = Store.open(url)
        try:
            yield store
        finally:
            await store.close()


async def _migrate(store: Store) -> None:
    """Make the tables as soon as the server listens."""
    async with asyncio.timeout(_PATIENCE_S):
        while True:
            try:
                await store.migrate()
            except StoreUnavailable:
                await asyncio.sleep(0.1)
            else:
                return
