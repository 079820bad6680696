"""A worker that is stopped during a probe attributes the failure to itself."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.command_server import command as prepared_command
from tests.support.hostile_server import World, hostile_world

ROOT = Path(__file__).resolve().parents[2]
HOST = "good.sellers.example"


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with hostile_world(tmp_path) as world:
        yield world


@pytest.mark.parametrize(
    ("deadline_ms", "stopped_s"),
    [pytest.param(1_500, 3.0, id="past the deadline"), pytest.param(3_000, 1.0, id="before it")],
)
async def test_timeout_while_the_worker_was_stopped_is_local(
    world: World, deadline_ms: int, stopped_s: float
) -> None:
    """The seller never answers, which looks the same as a worker that does not read."""
    port = str(world.mapped[HOST][1])
    worker = await asyncio.create_subprocess_exec(
        *prepared_command("-m", "tests.support.worker_process"),
        *(f"https://{HOST}/hold", port, world.ca_file, str(deadline_ms)),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(60):
            assert worker.stdout is not None
            pid = int(await worker.stdout.readline())
            await world.wait_for_requests(1)
            os.kill(pid, signal.SIGSTOP)
            await asyncio.sleep(stopped_s)
            os.kill(pid, signal.SIGCONT)
            out, _ = await worker.communicate()
    finally:
        if worker.returncode is None:
            worker.kill()
            await worker.wait()
    document = json.loads(out)
    assert document["total"] >= deadline_ms
    assert (document["outcome"], document["attribution"]) == ("timeout", "ours")
    assert document["reason"] == "late-here"
