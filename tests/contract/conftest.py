"""Shared fixtures of the HTTP tests: a service whose database has content."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from tests.contract import watch_shop
from tests.contract.http_service import configuration, fill, opened
from tests.contract.watch_shop import WatchService


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
