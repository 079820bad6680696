"""Size: what a database takes on its disk, and how much room is left there."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy import Connection


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """Bytes of a database. `log` is SQLite's write-ahead log; `free` and `total` are of the disk,
    None where that is another machine's.
    """

    database: int
    log: int = 0
    free: int | None = None
    total: int | None = None

    @property
    def full_percent(self) -> int | None:
        """How full the disk is for those who are not root, in percent, rounded up."""
        if self.free is None or not self.total:
            return None
        return 100 - self.free * 100 // self.total


def measure(tx: Connection) -> Size:
    """The size of the database that a transaction is of."""
    if tx.dialect.name != "sqlite":
        return Size(
            database=tx.execute(sa.text("SELECT pg_database_size(current_database())")).scalar_one()
        )
    file = Path(tx.execute(sa.text("SELECT file FROM pragma_database_list")).scalar_one())
    disk = shutil.disk_usage(file.parent)
    log = file.with_name(file.name + "-wal")
    return Size(
        database=file.stat().st_size,
        log=log.stat().st_size if log.exists() else 0,
        free=disk.free,
        total=disk.total,
    )


def clock_ms(tx: Connection) -> int | None:
    """The clock of the database's machine, in ms UTC; None where it is this machine."""
    if tx.dialect.name == "sqlite":
        return None
    query = sa.text("SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint)")
    at: int = tx.execute(query).scalar_one()
    return at
