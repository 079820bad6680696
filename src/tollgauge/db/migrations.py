"""Create the tables of a new database and check their version.

The SQL files next to this module create the tables; `make docs` generates them from the
declarations in db/schema and store. The version is a digest of that SQL, so a database with other
tables is rejected. Upgrades begin with the first release.
"""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.resources import files
from typing import Final

import sqlalchemy as sa
from sqlalchemy import Connection

from tollgauge.core.base.errors import TollgaugeError

VERSION_TABLE: Final = "schema_version"


class UnknownVersionError(TollgaugeError):
    """The database's tables are of an unsupported version."""


def upgrade(connection: Connection) -> None:
    """Create the tables of an empty database.

    Raises:
        UnknownVersionError: The database was created by another build; it is not changed.
    """
    current = version(connection)
    if current == newest_version():
        return
    if current is not None:
        raise UnknownVersionError(
            f"The database has schema version {current}, which this program does not support.",
            hint="It was created by an unreleased version. Export your data with that version, or "
            "start with an empty database.",
        )
    for statement in _read_sql(connection.dialect.name).split(";\n"):
        if statement.strip():
            connection.exec_driver_sql(statement)
    connection.exec_driver_sql(f"CREATE TABLE {VERSION_TABLE} (version TEXT NOT NULL)")
    connection.execute(
        sa.text(f"INSERT INTO {VERSION_TABLE} VALUES (:version)"),  # noqa: S608 - a constant
        {"version": newest_version()},
    )


@cache
def newest_version() -> str:
    """Return the version of the tables that this program creates."""
    return hashlib.sha256(_read_sql("sqlite").encode()).hexdigest()[:12]


def version(connection: Connection) -> str | None:
    """Return the version of a database's tables, or None if it is empty."""
    inspector = sa.inspect(connection)
    for table, column in ((VERSION_TABLE, "version"), ("alembic_version", "version_num")):
        # Earlier builds kept their version in Alembic's table.
        if inspector.has_table(table):
            query = sa.text(f"SELECT {column} FROM {table}")  # noqa: S608 - constants
            return str(connection.execute(query).scalar())
    return None


def _read_sql(dialect: str) -> str:
    return files("tollgauge.db").joinpath(f"tables.{dialect}.sql").read_text(encoding="utf-8")
