"""Settings that the composition root passes on."""

from __future__ import annotations

import pytest
import sqlalchemy as sa
from tests.support.statements import fetch

from tollgauge.app import open_resources
from tollgauge.config import Config
from tollgauge.db.engine import StoreSettings


@pytest.mark.postgres
@pytest.mark.parametrize("database", ["postgres"], indirect=True)
async def test_database_is_opened_with_the_configured_limits(database: str) -> None:
    settings = StoreSettings(url=database, connections=3, statement_ms=4_321)
    async with open_resources(Config(store=settings)) as resources:
        shown = await fetch(resources.store, sa.text("SHOW statement_timeout"))
        assert shown.scalar_one() == "4321ms"
