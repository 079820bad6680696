"""A transaction that a test keeps open between its steps."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from sqlalchemy import Connection
from sqlalchemy.util import await_only

from tollgauge.db.engine import Store

Run = Callable[..., Awaitable[Any]]
"""Runs a function of the store in the transaction."""
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
            await transaction  # a step failed: what the store makes of it
        return await future

    try:
        await run(lambda _: None)  # it has begun now
        yield run
    except BaseException:
        jobs.put_nowait((_leave, loop.create_future()))
        await asyncio.wait({transaction})
        transaction.cancelled() or transaction.exception()  # it is known
        raise
    jobs.put_nowait(None)
    await transaction


class _Left(Exception):  # noqa: N818 - it rolls a transaction back
    """The block was left with an exception."""


def _leave(_: Connection) -> None:
    raise _Left
