"""The database of a measurement: an SQLite file in a folder that ends with it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from tollgauge.db.engine import Store


@contextlib.asynccontextmanager
async def open_store(folder: Path) -> AsyncIterator[Store]:
    """Open a new SQLite file in the folder."""
    store = Store.open(f"sqlite:///{folder / 'bench.db'}")
    try:
        await store.migrate()
        yield store
    finally:
        await store.close()
