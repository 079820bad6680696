"""The versions of the schema, applied in order by Alembic inside one transaction.

Each version is a script under versions/ with its own frozen copy of what it creates, so that an
old database gets the same tables as a new one. They run from here, without alembic.ini.
"""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection


def configuration(connection: Connection) -> Config:
    """Alembic's configuration for a connection that is already in a transaction."""
    config = _scripts()
    config.attributes["connection"] = connection
    return config


def _scripts() -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config


def upgrade(connection: Connection, *, to: str = "head") -> None:
    """Apply every version that the database lacks, up to one or to the newest."""
    command.upgrade(configuration(connection), to)


def versions() -> tuple[str, ...]:
    """The names of every version, the oldest first."""
    newest_first = ScriptDirectory.from_config(_scripts()).walk_revisions()
    return tuple(reversed([script.revision for script in newest_first]))
