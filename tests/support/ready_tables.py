"""The tables of a new SQLite database, without the work of every version.

All versions take 0.2 s of a core, which tests of the whole service would spend a thousand times.
`keep` runs them once and keeps what they made, for this process and those that it forks: a database
without tables gets that; any other gets the versions. The tests of the versions themselves
(tests/db) run with the versions alone, as PostgreSQL and the installed program do everywhere.
"""

from __future__ import annotations

import functools

import pytest
import sqlalchemy as sa
from sqlalchemy.pool import StaticPool

from tollgauge.db import engine, migrations


def keep(patch: pytest.MonkeyPatch) -> None:
    """From now on, new databases get the tables from here."""
    patch.setattr(engine, "upgrade", functools.partial(upgrade, statements=statements()))


def statements() -> tuple[str, ...]:
    """What makes the tables of the newest version, and the rows that the versions wrote."""
    database = sa.create_engine("sqlite://", poolclass=StaticPool)
    with database.begin() as connection:
        migrations.upgrade(connection)
    dump = tuple(database.raw_connection().iterdump())
    database.dispose()
    return dump[1:-1]  # the transaction is the store's


def upgrade(connection: sa.Connection, *, statements: tuple[str, ...]) -> None:
    if connection.dialect.name != "sqlite" or sa.inspect(connection).get_table_names():
        migrations.upgrade(connection)
        return
    cursor = connection.connection.cursor()
    for statement in statements:
        cursor.execute(statement)
    cursor.close()
