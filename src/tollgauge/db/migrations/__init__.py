"""The versions of the schema, applied in order by Alembic inside one transaction.

Each version is a script under versions/, whose file name begins with the version. They run from
here, without alembic.ini.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import sqlalchemy as sa
from sqlalchemy import Connection

from tollgauge.core.base.errors import TollgaugeError

if TYPE_CHECKING:
    from alembic.config import Config

_FOLDER: Final = Path(__file__).parent


class UnknownVersionError(TollgaugeError):
    """The tables of a database are of a version that this program does not know."""


def configuration(connection: Connection) -> Config:
    """Alembic's configuration for a connection that is already in a transaction."""
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(_FOLDER).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    return config


def upgrade(connection: Connection) -> None:
    """Apply every version that the database lacks. A database that has them does not need Alembic,
    which takes a fifth of a second to load. Raises UnknownVersionError, and changes nothing then.
    """
    current = version(connection)
    if current == versions()[-1]:
        return
    if current is not None and current not in versions():
        raise UnknownVersionError(
            f"The database has tables of version {current}, which this program does not know.",
            hint="It was made by an unreleased version; export what you need with that version or "
            "start with an empty file.",
        )
    from alembic import command

    command.upgrade(configuration(connection), versions()[-1])


def versions() -> tuple[str, ...]:
    """The names of every version, the oldest first."""
    return tuple(sorted(path.stem.partition("_")[0] for path in _FOLDER.glob("versions/[0-9]*.py")))


def version(connection: Connection) -> str | None:
    """The version of the tables that a database has, None where Alembic never wrote any."""
    if not sa.inspect(connection).has_table("alembic_version"):
        return None
    return connection.execute(sa.text("SELECT version_num FROM alembic_version")).scalar()
