"""How `tollgauge demo` ends."""

from __future__ import annotations

import asyncio

import pytest

from tollgauge.demo.command import until_one_ends

pytestmark = pytest.mark.asyncio


async def test_a_past_that_is_being_loaded_ends_at_once_when_it_is_time_to_stop() -> None:
    stop, ended = asyncio.Event(), asyncio.Event()

    async def load() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async def serve() -> None:
        stop.set()  # Ctrl-C
        await ended.wait()  # else it would be given up

    serving, loading = asyncio.create_task(serve()), asyncio.create_task(load())
    await until_one_ends(serving, loading, stop, is_loading=lambda: True)
    assert (serving.cancelled(), loading.cancelled()) == (False, True)


async def test_what_is_under_way_is_finished_when_it_is_time_to_stop() -> None:
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


async def test_what_does_not_end_is_ended_and_what_broke_is_raised() -> None:
    stop = asyncio.Event()

    async def fail() -> None:
        raise OSError("the disk is full")

    living, serving = asyncio.create_task(fail()), asyncio.create_task(asyncio.Event().wait())
    with pytest.raises(OSError, match="the disk is full"):
        await until_one_ends(serving, living, stop, is_loading=lambda: False)  # type: ignore[arg-type]
    assert stop.is_set()
    assert serving.cancelled()
