"""How SQLite runs the statements of a function, which it says of small tables too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection


def query_plans(tx: Connection, read: Callable[..., Any], *args: Any, **values: Any) -> str:
    """The plans of every statement that a function of a connection runs, a line for each step."""
    statements: list[tuple[str, Any]] = []

    def note(_connection: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        statements.append((statement, parameters))

    sa.event.listen(tx, "before_cursor_execute", note)
    read(tx, *args, **values)
    sa.event.remove(tx, "before_cursor_execute", note)
    steps = [
        row[3]
        for statement, parameters in statements
        for row in tx.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters)
    ]
    return "\n".join(steps)
