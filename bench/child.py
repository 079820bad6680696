"""A process of a measurement that is given orders as lines on its standard input."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson

from bench import CHECKOUT


class Child:
    """A process that answers each line with a line."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def line(self) -> bytes:
        """The next line of its output. Raises RuntimeError if the process ended."""
        assert self._process.stdout is not None  # noqa: S101 - a pipe was asked for
        line = await self._process.stdout.readline()
        if not line:
            raise RuntimeError("a process of the measurement ended: see its messages above")
        return line

    async def obey(self, order: str) -> bytes:
        """Send an order and return the line that the process answers."""
        assert self._process.stdin is not None  # noqa: S101 - a pipe was asked for
        self._process.stdin.write(f"{order}\n".encode())
        return await self.line()

    async def document(self) -> dict[str, Any]:
        """The JSON object that the process prints next."""
        document: dict[str, Any] = orjson.loads(await self.line())
        return document

    async def order(self, **command: object) -> dict[str, Any]:
        """Send a JSON object and return the one that the process answers."""
        answer: dict[str, Any] = orjson.loads(await self.obey(orjson.dumps(command).decode()))
        return answer


@contextlib.asynccontextmanager
async def started(command: list[str], log: Path) -> AsyncIterator[Child]:
    """Run a process whose standard error goes to `log`; killed if it does not end by itself."""
    with log.open("wb") as messages:
        process = await asyncio.create_subprocess_exec(
            *command,
            cwd=CHECKOUT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=messages,
        )
        try:
            yield Child(process)
        except RuntimeError:
            sys.stderr.write((await asyncio.to_thread(log.read_text))[-4_000:])
            raise
        finally:
            if process.stdin is not None:
                process.stdin.close()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), 10)
            if process.returncode is None:
                process.kill()
                await process.wait()


def print_json(document: object) -> None:
    """Write a line of JSON for the process that waits for it."""
    sys.stdout.write(orjson.dumps(document).decode() + "\n")
    sys.stdout.flush()
