"""Which database a test runs on.

Each statement runs on both. A test on PostgreSQL takes two to three times the CPU, so a test whose
statements others run there, and which depends on no lock, order or type of the database, runs on
SQLite only.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

DATABASES = ("sqlite", pytest.param("postgres", marks=pytest.mark.postgres))
on_sqlite = pytest.mark.parametrize("database", ["sqlite"], indirect=True)


def on_each(values: Iterable[Any], *, postgres: Iterable[Any]) -> pytest.MarkDecorator:
    """Run a test with each `value` on SQLite, and with those of `postgres` on PostgreSQL."""
    cases = [
        *(("sqlite", value) for value in values),
        *(pytest.param("postgres", value, marks=pytest.mark.postgres) for value in postgres),
    ]
    return pytest.mark.parametrize(("database", "value"), cases, indirect=["database"])
