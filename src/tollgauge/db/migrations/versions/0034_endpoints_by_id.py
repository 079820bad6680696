"""SQLite keeps endpoints in the order of their ids, in which they are probed (core/schedule), and
no longer in that in which they were discovered. PostgreSQL has no such order.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0034"
down_revision = "0033"
branch_labels = None
depends_on = None

_MADE_BY = """
SELECT sql FROM sqlite_master WHERE tbl_name = 'endpoint' AND type = '{}' AND sql IS NOT NULL
"""


def upgrade() -> None:
    connection = op.get_bind()
    if connection.dialect.name != "sqlite":
        return
    (table,) = connection.execute(sa.text(_MADE_BY.format("table"))).scalars().all()
    indexes = connection.execute(sa.text(_MADE_BY.format("index"))).scalars().all()
    # Other tables refer to endpoints, which are gone for as long as the table is made anew.
    connection.exec_driver_sql("PRAGMA defer_foreign_keys = ON")
    connection.exec_driver_sql("CREATE TABLE endpoint_before AS SELECT * FROM endpoint")
    connection.exec_driver_sql("DROP TABLE endpoint")
    connection.exec_driver_sql(f"{table} WITHOUT ROWID")
    connection.exec_driver_sql("INSERT INTO endpoint SELECT * FROM endpoint_before ORDER BY id")
    connection.exec_driver_sql("DROP TABLE endpoint_before")
    for index in indexes:
        connection.exec_driver_sql(index)
