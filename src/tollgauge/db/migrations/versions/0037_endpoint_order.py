"""SQLite keeps the rows of endpoints in the order of their ids, in which they are probed."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0037"
down_revision = "0036"
branch_labels = None
depends_on = None

_SQL = "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL AND type = :type AND tbl_name = :name"


def upgrade() -> None:
    tx = op.get_bind()
    if tx.dialect.name != "sqlite":
        return
    table, *_ = tx.execute(sa.text(_SQL), {"type": "table", "name": "endpoint"}).scalars().all()
    indexes = tx.execute(sa.text(_SQL), {"type": "index", "name": "endpoint"}).scalars().all()
    # Rows of other tables name endpoints, which are gone for a moment.
    tx.exec_driver_sql("PRAGMA defer_foreign_keys = ON")
    tx.exec_driver_sql("CREATE TEMPORARY TABLE endpoint_before AS SELECT * FROM endpoint")
    tx.exec_driver_sql("DROP TABLE endpoint")
    tx.exec_driver_sql(f"{table} WITHOUT ROWID")
    tx.exec_driver_sql("INSERT INTO endpoint SELECT * FROM endpoint_before ORDER BY id")
    tx.exec_driver_sql("DROP TABLE endpoint_before")
    for index in indexes:
        tx.exec_driver_sql(index)
