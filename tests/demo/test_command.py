"""Stopping `tollgauge demo`."""

from __future__ import annotations

import asyncio

import pytest

from tollgauge.demo.command import until_one_ends

pytestmark = pytest.mark.asyncio


async def test_loading_of_history_is_cancelled_on_stop() -> None:
    stop, ended = asyncio.Event(), asyncio.Event()

    async def load() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async def serve() -> None:
        stop.set()  # Ctrl-C
        await ended.wait()  # without this, the loader would only be abandoned, not cancelled

    serving, loading = asyncio.create_task(serve()), asyncio.create_task(load())
    await until_one_ends(serving, loading, stop, is_loading=lambda: True)
    assert (serving.cancelled(), loading.cancelled()) == (False, True)


async def test_work_in_progress_finishes_on_stop() -> None:
    stop, finished = asyncio.Event(), asyncio.Event()

    async def live() -> None:
        await stop.wait()
        await asyncio.sleep(0)
        finished.set()

    async def serve() -> None:
        stop.set()
        await stop.wait()

    serving, living = asyncio.create_task(serve()), asyncio.create_task(live())
    await until_one_ends(serving, living, stop, is_loading=lambda: False)
    assert finished.is_set()
    assert not living.cancelled()


async def test_failure_stops_the_server_and_is_raised() -> None:
    stop = asyncio.Event()

    async def fail() -> None:
        raise OSError("the disk is full")

    living, serving = asyncio.create_task(fail()), asyncio.create_task(asyncio.Event().wait())
    with pytest.raises(OSError, match="the disk is full"):
        await until_one_ends(serving, living, stop, is_loading=lambda: False)  # type: ignore[arg-type]
    assert stop.is_set()
    assert serving.cancelled()
