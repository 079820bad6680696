"""How SQLite runs the statements of a function, which it says of small tables too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlalchemy import Connection

from tollgauge.db.driver import sqlite_connection


def query_plans(tx: Connection, read: Callable[..., Any], *args: Any, **values: Any) -> str:
    """The plans of every statement that a function of a connection runs, a line for each step."""
    statements: list[str] = []
    connection = sqlite_connection(tx)
    connection.set_trace_callback(statements.append)  # prepared ones too
    read(tx, *args, **values)
    connection.set_trace_callback(None)
    steps = [
        row[3]
        for statement in statements
        for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}")
    ]
    return "\n".join(steps)
