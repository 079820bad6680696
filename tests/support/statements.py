"""Single statements on a store, each in a transaction of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Executable

from tollgauge.db.engine import Store

Parameters = Mapping[str, Any] | Sequence[Mapping[str, Any]]


async def execute(store: Store, statement: Executable, parameters: Parameters | None = None) -> Any:
    """The result of a statement that may write, with all its rows."""
    return await store.writing(_run, statement, parameters)


async def fetch(store: Store, statement: Executable, parameters: Parameters | None = None) -> Any:
    """The result of a statement that reads, with all its rows."""
    return await store.reading(_run, statement, parameters)


def _run(connection: Connection, statement: Executable, parameters: Parameters | None) -> Any:
    result = connection.execute(statement, parameters)
    return result.freeze()() if result.returns_rows else result
