"""The SQL that creates the tables, generated from their declarations for both databases."""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.schema import CreateIndex, CreateTable

from tollgauge.store.tables import TABLES

_DIALECTS: Final[dict[str, sa.Dialect]] = {
    "sqlite": sqlite.dialect(),
    # SQLAlchemy does not annotate this constructor.
    "postgresql": postgresql.dialect(),  # type: ignore[no-untyped-call]
}
_POSTGRESQL_SETTINGS: Final = """\
-- 1% of these rows is deleted every day: vacuum after two days instead of twenty.
ALTER TABLE probe SET (autovacuum_vacuum_scale_factor = 0.02);
ALTER TABLE probe_day SET (autovacuum_vacuum_scale_factor = 0.02);
"""


def tables_sql() -> dict[str, str]:
    """Return the SQL files by name."""
    return {f"tables.{name}.sql": _script(name) for name in _DIALECTS}


def _script(name: str) -> str:
    dialect = _DIALECTS[name]
    statements = []
    for table in TABLES:
        statements.append(str(CreateTable(table).compile(dialect=dialect)))
        indexes = sorted(table.indexes, key=lambda index: str(index.name))
        statements += [str(CreateIndex(index).compile(dialect=dialect)) for index in indexes]
    text = "".join(f"{statement.strip()};\n" for statement in statements)
    text = text.replace(" \n", "\n").replace("\t", "  ")
    return text + (_POSTGRESQL_SETTINGS if name == "postgresql" else "")
