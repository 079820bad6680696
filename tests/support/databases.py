"""Which database a test runs on.

Each statement runs on both. A test takes twice the CPU on PostgreSQL, so a test whose statements
others run there, and which depends on no lock, order or type of the database, is marked
`on_sqlite`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

on_sqlite = pytest.mark.databases("sqlite")
on_both = pytest.mark.databases("sqlite", "postgres")
POSTGRES = pytest.param("postgres", marks=pytest.mark.postgres)
DATABASES = ("sqlite", POSTGRES)


def on_each(values: Iterable[Any], *, postgres: Iterable[Any]) -> pytest.MarkDecorator:
    """Run a test with each `value` on SQLite, and with those of `postgres` on PostgreSQL."""
    marks = (pytest.mark.postgres, on_both)
    cases = [
        *(("sqlite", value) for value in values),
        *(pytest.param("postgres", value, marks=marks) for value in postgres),
    ]
    return pytest.mark.parametrize(("database", "value"), cases, indirect=["database"])


def is_for_its_database(item: pytest.Item) -> bool:
    """Return whether the nearest mark of a test, if any, names the database that it runs on."""
    mark = item.get_closest_marker("databases")
    return mark is None or "postgres" in mark.args or not item.get_closest_marker("postgres")
