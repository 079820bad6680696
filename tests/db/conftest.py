"""Here every database gets its tables from the versions, step by step."""

from __future__ import annotations

import pytest

from tollgauge.db import engine, migrations


@pytest.fixture(autouse=True)
def _every_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "upgrade", migrations.upgrade)
