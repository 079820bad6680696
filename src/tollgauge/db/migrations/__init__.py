"""The versions of the schema, applied in order by Alembic inside one transaction.

Each version is a script under versions/ with its own frozen copy of what it creates, so that an
old database gets the same tables as a new one; the script's file name begins with the version. They
run from here, without alembic.ini.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import sqlalchemy as sa
from sqlalchemy import Connection

if TYPE_CHECKING:
    from alembic.config import Config

_FOLDER: Final = Path(__file__).parent


def configuration(connection: Connection) -> Config:
    """Alembic's configuration for a connection that is already in a transaction."""
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(_FOLDER).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    return config


def upgrade(connection: Connection, *, to: str = "") -> None:
    """Apply every version that the database lacks, up to one or to the newest. A database that has
    them does not need Alembic, which takes a fifth of a second to load.
    """
    to = to or versions()[-1]
    if version(connection) == to:
        return
    from alembic import command

    command.upgrade(configuration(connection), to)


def versions() -> tuple[str, ...]:
    """The names of every version, the oldest first."""
    return tuple(sorted(path.name[:4] for path in _FOLDER.glob("versions/[0-9]*.py")))


def version(connection: Connection) -> str | None:
    """The version of the tables that a database has, None where Alembic never wrote any."""
    if not sa.inspect(connection).has_table("alembic_version"):
        return None
    return connection.execute(sa.text("SELECT version_num FROM alembic_version")).scalar()
