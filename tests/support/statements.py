"""Statements that tests run on a database, their plans, and transactions that stay open."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection, Executable
from sqlalchemy.util import await_only

from tollgauge.db.engine import Store

Parameters = Mapping[str, Any] | Sequence[Mapping[str, Any]]


async def execute(store: Store, statement: Executable, parameters: Parameters | None = None) -> Any:
    """Run a statement that may write; return all its rows."""
    return await store.writing(_run, statement, parameters)


async def fetch(store: Store, statement: Executable, parameters: Parameters | None = None) -> Any:
    """Run a statement that reads; return all its rows."""
    return await store.reading(_run, statement, parameters)


def _run(connection: Connection, statement: Executable, parameters: Parameters | None) -> Any:
    result = connection.execute(statement, parameters)
    return result.freeze()() if result.returns_rows else result


def query_plans(tx: Connection, read: Callable[..., Any], *args: Any, **values: Any) -> str:
    """Return the plans of every statement of a function of a connection, one line per step."""
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


Run = Callable[..., Awaitable[Any]]
"""Run a function of the store in the transaction."""
_Job = tuple[Callable[[Connection], Any], "asyncio.Future[Any]"]


@asynccontextmanager
async def open_transaction(store: Store, *, writing: bool) -> AsyncIterator[Run]:
    """A transaction for several steps. It commits at the end of the block, or rolls back on any
    exception.
    """
    loop = asyncio.get_running_loop()
    jobs: asyncio.Queue[_Job | None] = asyncio.Queue()

    def next_job() -> _Job | None:
        if store.dialect == "postgresql":
            return await_only(jobs.get())
        return asyncio.run_coroutine_threadsafe(jobs.get(), loop).result()

    def serve(connection: Connection) -> None:
        while (job := next_job()) is not None:
            work, future = job
            loop.call_soon_threadsafe(future.set_result, work(connection))

    transaction = asyncio.create_task(store.writing(serve) if writing else store.reading(serve))

    async def run(work: Any, *args: Any, **kwargs: Any) -> Any:
        future = loop.create_future()
        jobs.put_nowait((lambda connection: work(connection, *args, **kwargs), future))
        await asyncio.wait({future, transaction}, return_when=asyncio.FIRST_COMPLETED)
        if transaction.done():
            await transaction  # a step failed: re-raise it as the store translates it
        return await future

    try:
        await run(lambda _: None)  # the transaction has begun
        yield run
    except BaseException:
        jobs.put_nowait((_leave, loop.create_future()))
        await asyncio.wait({transaction})
        transaction.cancelled() or transaction.exception()  # the result is known
        raise
    jobs.put_nowait(None)
    await transaction


class _Left(Exception):  # noqa: N818 - it rolls a transaction back
    """The block ended with an exception."""


def _leave(_: Connection) -> None:
    raise _Left
